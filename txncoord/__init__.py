"""Transactions: what their coordinator decides, and the records that make it last."""
