"""Ray actors: the only layer that uses actor handles."""
