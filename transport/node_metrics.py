"""The metrics of every node: its requests by phase, its connections, and what waits in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from raylog.core.metrics import STEP, Kind, Metric, Read, Sample, exposition, gauge, quantiles
from raylog.transport.connection_counts import ConnectionCounts
from raylog.transport.node import Node
from raylog.transport.request_times import Seen, names_of

_PHASES: Final[dict[str, tuple[str, Callable[[Seen], int]]]] = {
    "totaltimems": ("from the arrival of the request to its response", lambda seen: seen.total),
    "requestqueuetimems": ("until the request had the turn of its connection", lambda seen: seen.queue),
    "localtimems": ("in the handler", lambda seen: seen.local),
    "remotetimems": ("waiting for commits, data or other nodes", lambda seen: seen.remote),
    "throttletimems": ("for which the client was muted because of a quota", lambda seen: seen.throttle),
}


def scrape(node: Node) -> Iterator[str]:
    """The metrics of any node in Prometheus' text format, in short pieces. Other events may come in between."""
    node.times.begin_window(node.now_ms)
    yield from exposition(NODE_METRICS, node)


def _phase(name: str, doc: str, of: Callable[[Seen], int]) -> list[Metric[Node]]:
    def times(node: Node) -> Iterator[Sample | None]:
        for api, counts in node.times.durations_ms(of):
            yield STEP
            for quantile, value in quantiles(counts):
                yield Sample((api, repr(quantile)), value)

    full = f"kafka_network_requestmetrics_{name}"
    shown = f"Milliseconds {doc}, of the requests of the last one to two minutes."
    return [
        Metric(full, Kind.GAUGE, ("request", "quantile"), shown, times),
        Metric(f"{full}_count", Kind.COUNTER, ("request",), f"Requests in `{full}`, of all time.", _by_api),
    ]


def _by_api(node: Node) -> Iterator[Sample]:
    found: Counter[str] = Counter()
    for (api, _), count in node.times.requests().items():
        for name in names_of(api):
            found[name] += count
    for name, total in found.items():
        yield Sample((name,), total)


def _by_version(node: Node) -> Iterator[Sample]:
    for (name, version), count in node.times.requests().items():
        yield Sample((name, str(version)), count)


def _waiting(node: Node) -> Iterator[Sample]:
    yield Sample(("Produce",), len(node.commits))
    yield Sample(("Fetch",), len(node.delayed))


def _of_connections(value: Callable[[ConnectionCounts], int]) -> Read[Node]:
    def read(node: Node) -> Iterator[Sample]:
        for of, counts in list(node.connection_counts.items()):
            yield Sample(of, value(counts))

    return read


def _connections(name: str, kind: Kind, doc: str, value: Callable[[ConnectionCounts], int]) -> Metric[Node]:
    full = f"kafka_server_socket_server_metrics_{name}"
    return Metric(full, kind, ("listener", "door"), doc, _of_connections(value))


NODE_METRICS: Final[tuple[Metric[Node], ...]] = (
    Metric(
        "raylog_node_info",
        Kind.GAUGE,
        ("cluster_id", "node_id"),
        "Always 1; names the node and its cluster.",
        lambda node: (Sample((node.identity.cluster_id, str(node.identity.node_id)), 1),),
    ),
    *(metric for name, (doc, of) in _PHASES.items() for metric in _phase(name, doc, of)),
    Metric(
        "kafka_network_requestmetrics_requests_total",
        Kind.COUNTER,
        ("request", "version"),
        "Requests that were answered. A Fetch is one of FetchConsumer and FetchFollower.",
        _by_version,
    ),
    Metric(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        Kind.GAUGE,
        ("delayedOperation",),
        "Requests that wait: Produce for commits, as any other request that depends on one; Fetch for data or time.",
        _waiting,
    ),
    _connections("connection_count", Kind.GAUGE, "Open connections.", lambda counts: counts.opened - counts.closed),
    _connections(
        "connection_creation_total", Kind.COUNTER, "Connections that were opened.", lambda counts: counts.opened
    ),
    _connections("connection_close_total", Kind.COUNTER, "Connections that were closed.", lambda counts: counts.closed),
    Metric(
        "raylog_connections_refused_total",
        Kind.COUNTER,
        ("listener", "door"),
        "Connections that were not opened because of max.connections, max.connections.per.ip or a quota.",
        _of_connections(lambda counts: counts.refused),
    ),
    _connections(
        "successful_authentication_total",
        Kind.COUNTER,
        "Successful authentications, repeated ones of a connection included.",
        lambda counts: counts.authenticated,
    ),
    _connections(
        "failed_authentication_total",
        Kind.COUNTER,
        "Failed authentications.",
        lambda counts: counts.unauthenticated,
    ),
    _connections("incoming_byte_total", Kind.COUNTER, "Bytes received.", lambda counts: counts.bytes_in),
    _connections("outgoing_byte_total", Kind.COUNTER, "Bytes of responses.", lambda counts: counts.bytes_out),
    gauge(
        "raylog_unsent_bytes",
        "Bytes of responses that were handed to sockets and that peers have not read.",
        lambda node: node.unsent_bytes,
    ),
)
