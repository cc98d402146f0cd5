"""A server.properties of Apache Kafka as configuration of a raylog broker.

Keys that steer parts of Kafka which raylog does not have are accepted and ignored, each with a reason. All others must
be keys that raylog supports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from raylog.config.network import INTER_BROKER_LISTENER_NAME
from raylog.core.errors import ConfigError

PROCESS_ROLES: Final = "process.roles"

_ONE_LOOP = "a broker has one event loop; more brokers use more cores"
_NO_QUEUE = "requests wait in their connections, not in a queue"
_NO_PURGATORY = "waiting requests are removed at once, without a purge"
_OWN_QUORUM = "raylog starts its controllers itself, as many as --controllers says"
_OWN_METADATA_LOG = "the metadata log lies in the data directory and is bounded by snapshots"
_INTERNAL_LISTENER = "nodes use a listener of their own, on which they authenticate with the cluster's secret"
_NO_REPORTERS = "raylog has no metrics reporters of Java"
_NO_ZOOKEEPER = "raylog has no ZooKeeper"
_ONE_FORMAT = "raylog has message format 2 only"

IGNORED: Final[Mapping[str, str]] = {
    "num.network.threads": _ONE_LOOP,
    "num.io.threads": _ONE_LOOP,
    "num.replica.fetchers": _ONE_LOOP,
    "num.replica.alter.log.dirs.threads": _ONE_LOOP,
    "background.threads": _ONE_LOOP,
    "group.coordinator.threads": _ONE_LOOP,
    "queued.max.requests": _NO_QUEUE,
    "queued.max.request.bytes": _NO_QUEUE,
    "fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "producer.purgatory.purge.interval.requests": _NO_PURGATORY,
    "delete.records.purgatory.purge.interval.requests": _NO_PURGATORY,
    PROCESS_ROLES: _OWN_QUORUM,
    "controller.quorum.voters": _OWN_QUORUM,
    "controller.quorum.bootstrap.servers": _OWN_QUORUM,
    "controller.quorum.auto.join.enable": _OWN_QUORUM,
    "controller.quorum.append.linger.ms": "records of a round are synced together, without a delay",
    "controller.quorum.request.timeout.ms": "controllers use controller.quorum.fetch.timeout.ms",
    "controller.quorum.retry.backoff.ms": "controllers use controller.quorum.election.backoff.max.ms",
    "metadata.log.dir": _OWN_METADATA_LOG,
    "metadata.log.segment.bytes": _OWN_METADATA_LOG,
    "metadata.log.segment.ms": _OWN_METADATA_LOG,
    "metadata.log.max.snapshot.interval.ms": _OWN_METADATA_LOG,
    "metadata.max.retention.bytes": _OWN_METADATA_LOG,
    "metadata.max.retention.ms": _OWN_METADATA_LOG,
    "metadata.max.idle.interval.ms": _OWN_METADATA_LOG,
    "initial.broker.registration.timeout.ms": "a start waits until the controllers are there",
    "server.max.startup.time.ms": "a start waits until the logs are recovered",
    INTER_BROKER_LISTENER_NAME.name: _INTERNAL_LISTENER,
    "security.inter.broker.protocol": _INTERNAL_LISTENER,
    "sasl.mechanism.inter.broker.protocol": _INTERNAL_LISTENER,
    "sasl.mechanism.controller.protocol": _INTERNAL_LISTENER,
    "controller.socket.timeout.ms": "a lost connection between nodes is noticed at once",
    "replica.socket.timeout.ms": "a lost connection between nodes is noticed at once",
    "replica.socket.receive.buffer.bytes": "connections between nodes use the system's buffer sizes",
    "replica.fetch.min.bytes": "a follower is answered as soon as there are records",
    "replica.fetch.backoff.ms": "a follower fetches again when the leader is known",
    "offsets.load.buffer.size": "coordinators load in steps of a fixed size",
    "transaction.state.log.load.buffer.size": "coordinators load in steps of a fixed size",
    "group.coordinator.append.linger.ms": "coordinators append at once",
    "controlled.shutdown.max.retries": "a shutdown hands over what can be handed over",
    "controlled.shutdown.retry.backoff.ms": "a shutdown hands over what can be handed over",
    "metric.reporters": _NO_REPORTERS,
    "metrics.num.samples": _NO_REPORTERS,
    "metrics.sample.window.ms": _NO_REPORTERS,
    "metrics.recording.level": _NO_REPORTERS,
    "auto.include.jmx.reporter": _NO_REPORTERS,
    "kafka.metrics.reporters": _NO_REPORTERS,
    "kafka.metrics.polling.interval.secs": _NO_REPORTERS,
    "zookeeper.connect": _NO_ZOOKEEPER,
    "zookeeper.connection.timeout.ms": _NO_ZOOKEEPER,
    "zookeeper.session.timeout.ms": _NO_ZOOKEEPER,
    "zookeeper.max.in.flight.requests": _NO_ZOOKEEPER,
    "zookeeper.set.acl": _NO_ZOOKEEPER,
    "inter.broker.protocol.version": "versions are negotiated; `raylog features` raises the level of the metadata",
    "log.message.format.version": _ONE_FORMAT,
    "log.message.downconversion.enable": _ONE_FORMAT,
}
"""Keys of Apache Kafka that have no meaning here, and why. The last ones are of versions before 4.0."""


@dataclass(frozen=True, slots=True)
class ServerProperties:
    """What a file sets for raylog, and one line about each key that it ignores. A line never has the value."""

    config: Mapping[str, str]
    notes: tuple[str, ...]


def of_kafka(entries: Mapping[str, str]) -> ServerProperties:
    """The configuration that a broker of raylog takes from a file of Kafka's.

    Keys that neither Kafka has nor raylog remain, for the check of the whole configuration. Raises ConfigError for the
    file of a controller that is no broker.
    """
    if _names(entries.get(PROCESS_ROLES, "")) == ["CONTROLLER"]:
        message = f"{PROCESS_ROLES}=controller: is no broker; use the file of a broker, and --controllers"
        raise ConfigError(message)
    config: dict[str, str] = {}
    notes: list[str] = []
    for name, value in entries.items():
        if name == INTER_BROKER_LISTENER_NAME.name and value.strip().upper() == INTER_BROKER_LISTENER_NAME.default:
            config[name] = value
        elif name in IGNORED:
            notes.append(f"{name} is ignored: {IGNORED[name]}")
        else:
            config[name] = value
    return ServerProperties(config, tuple(notes))


def _names(text: str) -> list[str]:
    return [each.strip().upper() for each in text.split(",") if each.strip()]
