"""Serves the wire protocol: the handler table, and the object that connects logs, metadata and connections."""
