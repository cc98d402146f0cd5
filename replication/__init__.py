"""What one partition is on this broker: leadership, high watermark, delayed operations, fetch sessions."""
