"""Committed offsets as an event-sourced machine over __consumer_offsets."""
