"""The metrics of a controller, beside those of every node: topics, partitions, brokers, and the metadata log.

As in Kafka every controller shows the metadata that it has; `activecontrollercount` is 1 on the active one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from raylog.controller.controller import Controller
from raylog.core.ids import NO_BROKER_ID
from raylog.core.metrics import PIECE_STEPS, Kind, Metric, Sample, counter, exposition, gauge
from raylog.metadata.image import BrokerImage
from raylog.metadata.node_roles import is_coordinator


@dataclass(slots=True)
class Snapshot:
    """What one scrape shows of a controller."""

    controller: Controller
    offline: int = 0
    not_preferred: int = 0
    reassigning: int = 0

    def read(self) -> Iterator[None]:
        """Look at all partitions, in steps."""
        for topic in list(self.controller.image.topics.values()):
            for shown in list(topic.partitions):
                self.offline += shown.leader == NO_BROKER_ID
                self.not_preferred += shown.leader != shown.replicas[0]
                self.reassigning += shown.is_reassigning
                yield


def scrape(controller: Controller) -> Iterator[str]:
    """Its metrics in Prometheus' text format, in short pieces. Other events may come in between."""
    snapshot = Snapshot(controller)
    for step, _ in enumerate(snapshot.read()):
        if step % PIECE_STEPS == 0:
            yield ""
    yield from exposition(CONTROLLER_METRICS, snapshot)


def _is_active(broker: BrokerImage) -> bool:
    return not broker.fenced and not is_coordinator(broker.registration.broker_id)


def _quorum_state(snapshot: Snapshot) -> Iterator[Sample]:
    yield Sample(("leader" if snapshot.controller.is_active else "follower",), 1)


CONTROLLER_METRICS: Final[tuple[Metric[Snapshot], ...]] = (
    gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 on the active controller, 0 on the others: the sum over the cluster must be 1.",
        lambda snapshot: int(snapshot.controller.is_active),
    ),
    gauge(
        "kafka_controller_kafkacontroller_activebrokercount",
        "Registered brokers that are not fenced, without coordinator nodes.",
        lambda snapshot: sum(map(_is_active, snapshot.controller.image.brokers.values())),
    ),
    gauge(
        "kafka_controller_kafkacontroller_fencedbrokercount",
        "Registered brokers and coordinator nodes that are fenced: not running, or without the controller.",
        lambda snapshot: sum(broker.fenced for broker in snapshot.controller.image.brokers.values()),
    ),
    gauge(
        "kafka_controller_kafkacontroller_globaltopiccount",
        "Topics in the cluster.",
        lambda snapshot: len(snapshot.controller.image.topics),
    ),
    gauge(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "Partitions in the cluster.",
        lambda snapshot: snapshot.controller.image.partition_count,
    ),
    gauge(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "Partitions without a leader.",
        lambda snapshot: snapshot.offline,
    ),
    gauge(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "Partitions whose leader is not the first of their replicas.",
        lambda snapshot: snapshot.not_preferred,
    ),
    gauge(
        "raylog_controller_reassigning_partitions",
        "Partitions that are being reassigned.",
        lambda snapshot: snapshot.reassigning,
    ),
    counter(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "Unclean leader elections, in which acknowledged records may be lost, that this controller has decided.",
        lambda snapshot: snapshot.controller.unclean_elections,
    ),
    gauge(
        "kafka_controller_kafkacontroller_lastappliedrecordoffset",
        "The offset of the last metadata record in the image of this controller.",
        lambda snapshot: snapshot.controller.metadata_log.next_offset - 1,
    ),
    gauge(
        "kafka_controller_kafkacontroller_lastcommittedrecordoffset",
        "The offset of the last metadata record that is committed.",
        lambda snapshot: snapshot.controller.high_watermark - 1,
    ),
    Metric(
        "kafka_server_raft_metrics_current_state_info",
        Kind.GAUGE,
        ("state",),
        "Always 1; names the state of this voter: leader or follower.",
        _quorum_state,
    ),
    gauge(
        "kafka_server_raft_metrics_current_leader",
        "The node id of the leader of the metadata quorum; -1 if it is not known.",
        lambda snapshot: snapshot.controller.quorum.leader_id,
    ),
    gauge(
        "kafka_server_raft_metrics_current_epoch",
        "The epoch of the metadata quorum.",
        lambda snapshot: snapshot.controller.leader_epoch,
    ),
    gauge(
        "kafka_server_raft_metrics_high_watermark",
        "The high watermark of the metadata log.",
        lambda snapshot: snapshot.controller.high_watermark,
    ),
    gauge(
        "kafka_server_raft_metrics_log_end_offset",
        "The end of the metadata log of this voter.",
        lambda snapshot: snapshot.controller.metadata_log.end_offset,
    ),
)
