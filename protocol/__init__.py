"""Bytes to messages and back: framing, headers, versions, record batches. Knows nothing of logs."""
