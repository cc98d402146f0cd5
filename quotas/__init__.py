"""Limits on what clients may use, and how much of them is used: rates over time, without clock or connection."""
