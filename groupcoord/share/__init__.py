"""Groups whose members share the records of partitions (KIP-932)."""
