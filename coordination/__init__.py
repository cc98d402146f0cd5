"""Code shared by the group and transaction coordinators: shards over the partitions of an internal topic."""
