"""The raylog command."""
