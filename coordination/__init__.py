"""What coordinators of groups and of transactions share: shards over the partitions of an internal topic."""
