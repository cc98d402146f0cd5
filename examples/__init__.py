"""Short programs that run as they stand."""
