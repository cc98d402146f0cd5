"""Rows as records of topics: what the sinks of Spark and of Ray Data have in common."""
