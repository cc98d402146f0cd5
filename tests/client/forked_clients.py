"""Uses clients in a child made by fork, and prints what each call does: `python forked_clients.py SERVERS TOPIC`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import raylog

LINGER_MS = 2_000
"""Long enough for records to be unsent at the fork."""


def tell(name: str, call: Callable[[], Any]) -> None:
    try:
        call()
        answer = "acknowledged"
    except raylog.KafkaError as error:
        answer = str(error)
    sys.stdout.write(f"{name}: {answer}\n")
    sys.stdout.flush()


def main(servers: str, topic: str) -> None:
    producer = raylog.Producer(bootstrap_servers=servers, linger_ms=LINGER_MS, acks=1)
    consumer = raylog.Consumer(bootstrap_servers=servers)
    consumer.assign([(topic, 0)])
    admin = raylog.AdminClient(bootstrap_servers=servers)
    sent = producer.send(topic, b"sent")
    producer.flush()
    unsent = producer.send(topic, b"unsent")
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        tell("parent", unsent.result)
        for client in (producer, consumer, admin):
            client.close()
        sys.exit(os.waitstatus_to_exitcode(status))
    tell("acknowledged before", sent.result)
    tell("result", unsent.result)
    tell("exception", unsent.exception)
    tell("a table", lambda: producer.send_arrow(topic, pa.table({"value": [b"row"]})))
    tell("send", lambda: [producer.send(topic, bytes(10_000)) for _ in range(10)])
    tell("flush", producer.flush)
    tell("close", producer.close)
    tell("poll", lambda: consumer.poll(1))
    tell("admin", lambda: admin.describe_topics(topic))
    with raylog.Producer(bootstrap_servers=servers, acks=1) as own:
        tell("a producer of its own", lambda: own.send(topic, b"child").result())
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
