"""Copies from topic to topic, each batch in a transaction with the offsets of the group; prints how many it committed.

    python -m tests.ray.transaction_copier CLIENT BOOTSTRAP_SERVERS ORIGINALS COPIES GROUP TRANSACTIONAL_ID

CLIENT is `stock` for confluent-kafka, whose transactions are of version 1, or `own` for raylog's clients, which use
version 2 where the cluster has it. After an error it starts again with its transactional id, which aborts the open
transaction.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Producer

import raylog

BATCH_MAX = 100
ANSWER_SECONDS = 30.0
CLIENT = {"log_level": 0, "reconnect.backoff.max.ms": 1000}


def copy(servers: str, originals: str, copies: str, group: str, transactional_id: str) -> None:
    """Goes on for ever. Raises KafkaException."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, **CLIENT})
    producer.init_transactions(ANSWER_SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            **CLIENT,
        }
    )
    try:
        consumer.subscribe([originals])
        while True:
            messages = [each for each in consumer.consume(BATCH_MAX, 0.2) if each.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                partition = message.partition()
                assert partition is not None
                producer.produce(copies, message.value(), partition=partition)
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), ANSWER_SECONDS)
            producer.commit_transaction(ANSWER_SECONDS)
            sys.stdout.write(f"{len(messages)}\n")
            sys.stdout.flush()
    finally:
        consumer.close()


def copy_with_raylog(servers: str, originals: str, copies: str, group: str, transactional_id: str) -> None:
    """Goes on for ever. Raises KafkaError."""
    settings = {
        "group.id": group,
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "partition.assignment.strategy": "range",
        "max.poll.records": str(BATCH_MAX),
    }
    with (
        raylog.Producer({"bootstrap.servers": servers, "transactional.id": transactional_id}) as producer,
        raylog.Consumer({"bootstrap.servers": servers, **settings}) as consumer,
    ):
        producer.init_transactions(ANSWER_SECONDS)
        consumer.subscribe([originals])
        while True:
            records = consumer.poll(0.2)
            if not records:
                continue
            producer.begin_transaction()
            for record in records:
                producer.send(copies, value=record.value, partition=record.partition)
            producer.send_offsets_to_transaction(
                consumer.offsets_to_commit(), consumer.group_metadata(), ANSWER_SECONDS
            )
            producer.commit_transaction(ANSWER_SECONDS)
            sys.stdout.write(f"{len(records)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    client, *arguments = sys.argv[1:]
    while True:
        try:
            (copy if client == "stock" else copy_with_raylog)(*arguments)
        except (KafkaException, raylog.KafkaError) as error:
            sys.stderr.write(f"{error}\n")
