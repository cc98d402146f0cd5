"""The wire protocol: framing, headers, versioned messages, record batches. Independent of logs."""
