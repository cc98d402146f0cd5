"""One partition replica on this broker: leadership, high watermark, ISR, fetch sessions, replication throttle."""
