"""The metadata of the cluster: records, the image they build, and its snapshots. Shared by controllers and brokers."""
