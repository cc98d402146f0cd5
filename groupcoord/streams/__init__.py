"""Groups of Kafka Streams applications, whose coordinator assigns tasks (KIP-1071)."""
