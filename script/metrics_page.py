"""The text of docs/metrics.md, from the tables of metrics in the code: used by generate_docs.py."""

from __future__ import annotations

from raylog.broker.metrics import BROKER_METRICS
from raylog.controller.metrics import CONTROLLER_METRICS
from raylog.core.metrics import AnyMetrics
from raylog.mirror.metrics import MIRROR_METRICS
from raylog.transport.cluster_metrics import CLUSTER_METRICS
from raylog.transport.node_metrics import NODE_METRICS
from raylog.transport.server_metrics import SERVER_METRICS

PAGE = """# Metrics

Every broker and controller shows its metrics to Prometheus. They are off by default, as Kafka's JMX port is:

```
raylog start --brokers 3 --config raylog.metrics.address=127.0.0.1:9404-9419
raylog status
curl http://127.0.0.1:9404/metrics
```

Each node of a host takes a port of its own from the range; `raylog status` shows which. With port 0 it takes any free
port. Give every node the range of at least as many ports as a host has nodes, and let Prometheus scrape all of them.
`/healthz` is answered with 200 once clients can connect, and with 503 before. There are no other paths, and neither
authentication nor TLS: a client can read the names of topics and groups, and nothing else. Choose an
address that only Prometheus reaches.

The names that begin with `kafka_` are those that jmx_exporter gives to Kafka's own metrics with its example rules,
[kafka-2_0_0.yml and kafka-kraft-3_0_0.yml](https://github.com/prometheus/jmx_exporter/tree/main/examples), so that
dashboards and alerts for Kafka work. The metrics of connections are named as Strimzi's rules name them; they have a
label `door` (`tcp`, `unix` for the Unix socket, `handle` for the actor's handle) and none for a network thread, which
raylog does not have.
Quantiles of request times are of all requests of the last one to two minutes, not of a sample.

Metrics of Kafka's that are missing belong to parts that raylog does not have: thread pools, queues between threads, the
response queue and the time until a response is sent, which is passed to the socket by the event that makes it.

The actors of a [mirror](mirror.md) show theirs at `--metrics` of `raylog mirror start`, or `metrics_address` of
`raylog.mirror`; `raylog mirror status` says where. They are those of MirrorMaker 2, and some of raylog's own. Batches
are not opened, so each counts with its newest record.

`raylog metrics --serve 127.0.0.1:9400` [shows those of all nodes](monitoring.md#one-endpoint-for-a-cluster), with a
label `node` such as `broker-0`, and whether each has answered.

What local readers read from files is counted by these readers only: `bytesout` has what was sent to consumers.

{tables}
This page is generated from the declarations in the code by `script/generate_docs.py`.
"""


def metrics_page() -> str:
    tables = {
        "Every node": NODE_METRICS,
        "Brokers and coordinators": BROKER_METRICS,
        "Controllers": CONTROLLER_METRICS,
        "The process of a node": SERVER_METRICS,
        "MirrorMaker actors": MIRROR_METRICS,
        "The endpoint of a cluster": CLUSTER_METRICS,
    }
    return PAGE.format(tables="\n".join(f"## {title}\n\n{_table(metrics)}" for title, metrics in tables.items()))


def _table(metrics: AnyMetrics) -> str:
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.doc} |")
    return "\n".join(rows) + "\n"
