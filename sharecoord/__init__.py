"""The share coordinator: the state of share-partitions in __share_group_state, and those that read and write it."""
