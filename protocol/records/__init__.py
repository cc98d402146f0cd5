"""Record batches of format v2: header, checksum, reader, builder, compression. The one place that opens a batch."""
