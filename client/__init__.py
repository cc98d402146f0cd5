"""The other end of the wire: metadata, fetch, produce and administration for our own tools."""
