"""The producer: records are collected in batches, and sent to the leaders of their partitions."""
