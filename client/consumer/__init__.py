"""The consumer: partitions are assigned by hand or shared in a group, and their records fetched from leaders."""
