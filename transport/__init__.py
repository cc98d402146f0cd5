"""Both ends of a connection: sans-IO cores, and the thin shells that move their bytes."""
