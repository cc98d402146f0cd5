"""The requests that brokers and controllers answer from their image of the metadata, one file each."""
