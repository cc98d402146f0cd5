"""Short programs that run without preparation."""
