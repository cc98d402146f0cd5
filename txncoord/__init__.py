"""Transactions: the decisions of their coordinator, and the records that make them durable."""
