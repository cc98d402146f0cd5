"""A typed program of a user: it starts a cluster, writes and reads. Run where raylog was installed as a package."""

from __future__ import annotations

import raylog

COUNT = 100


def main() -> None:
    with raylog.start("packaged") as cluster:
        with raylog.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            sent = [producer.send("greetings", f"hello {number}") for number in range(COUNT)]
            producer.flush()
            offsets: list[int] = [each.result().offset for each in sent]
        with raylog.Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([raylog.TopicPartition("greetings", 0)])
            values: list[object] = []
            while len(values) < COUNT:
                values += [record.value for record in consumer.poll(timeout=1.0)]
    assert offsets == list(range(COUNT))
    assert values == [b"hello %d" % number for number in range(COUNT)]


if __name__ == "__main__":
    main()
