"""Groups whose coordinator assigns the partitions: ConsumerGroupHeartbeat (KIP-848)."""
