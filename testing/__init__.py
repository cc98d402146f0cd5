"""Clusters for tests of programs that use Kafka: the same brokers as in Ray, in processes of their own."""
