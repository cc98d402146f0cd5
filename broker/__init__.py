"""Serves the wire protocol: the visible handler table, and the object that wires logs, metadata and connections."""
