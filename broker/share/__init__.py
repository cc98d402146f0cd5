"""Share-partitions at the leader of the partition: who has acquired which record, and the sessions of the members."""
