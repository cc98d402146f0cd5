"""Record batches of format v2: header, checksum, reader, builder, compression. Only this package decodes batches."""
