"""Kafka's own log files: append, index, read, recover. Decides nothing about leadership."""
