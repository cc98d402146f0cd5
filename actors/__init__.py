"""Ray: the only layer that knows actor handles."""
