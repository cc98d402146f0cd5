"""The client side of the protocol for raylog's own tools: metadata, fetch, produce and administration."""
