"""Keys and values of records as columns of other types: JSON, msgpack, Avro and Protobuf, in both directions."""
