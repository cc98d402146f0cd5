"""The metrics of a broker, beside those of every node: traffic, partitions, replication, coordinators, cleaner.

Partitions are read in short steps before anything is written, because many metrics show them in different ways.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from raylog.broker.broker import Broker
from raylog.broker.consumer_lag import SERIES_MAX, Lag
from raylog.broker.lifecycle import LifecycleState
from raylog.broker.traffic import Traffic
from raylog.config.groups import CONSUMER, STREAMS
from raylog.core.ids import TopicPartition
from raylog.core.metrics import PIECE_STEPS, STEP, Kind, Metric, Read, Sample, counter, exposition, gauge
from raylog.groupcoord.classic.group import GroupState
from raylog.replication.partition import Partition
from raylog.txncoord.records import TransactionState

STARTING, RECOVERING, RUNNING, CONTROLLED_SHUTDOWN, SHUTTING_DOWN = 1, 2, 3, 6, 7
"""States of a broker, with Kafka's numbers."""


class ReplicaSize(NamedTuple):
    """One replica of this broker, as it was when it was read."""

    tp: TopicPartition
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    segments: int


@dataclass(slots=True)
class Snapshot:
    """What one scrape shows of a broker."""

    broker: Broker
    replicas: list[ReplicaSize] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Of partitions that this broker leads, by what is the case with them."""
    traffic: Traffic = field(init=False)
    groups: Counter[str] = field(default_factory=Counter)
    """Classic groups by state, consumer and streams groups with the prefix of their kind, and `offsets`."""
    members: list[tuple[str, int]] = field(default_factory=list)
    """(group, number of members)"""
    lags: list[Lag] = field(default_factory=list)
    transactions: Counter[TransactionState] = field(default_factory=Counter)

    def read(self) -> Iterator[None]:
        """Read everything that is many, in steps."""
        self.traffic = self.broker.traffic.total()
        for tp, partition in list(self.broker.partitions.items()):
            self._read_partition(tp, partition)
            yield
        for shard in self.broker.groups.coordinated():
            for group_id in list(shard.classic.groups):
                group = shard.classic.groups.get(group_id)
                if group is not None:
                    self.groups[group.state.value] += 1
                    self._add_members(group_id, len(group.members))
                yield
            for kind, groups in ((CONSUMER, shard.consumer.groups), (STREAMS, shard.streams.groups)):
                for group_id in list(groups):
                    managed = groups.get(group_id)
                    if managed is not None:
                        self.groups[f"{kind} {managed.state}"] += 1
                        self._add_members(group_id, len(managed.members))
                    yield
            for group_id in shard.offsets.groups():
                self.groups["offsets"] += len(shard.offsets.committed(group_id))
                yield
        for lag in self.broker.consumer_lag.lags(self.broker.now):
            self.lags.append(lag)
            yield
        for transactions in self.broker.transactions.coordinated():
            for recorded in list(transactions.transactions.by_id.values()):
                self.transactions[recorded.state] += 1
                yield

    def _add_members(self, group_id: str, count: int) -> None:
        if len(self.members) < SERIES_MAX:
            self.members.append((group_id, count))

    def _read_partition(self, tp: TopicPartition, partition: Partition) -> None:
        log, counts = partition.log, self.counts
        if log.offline_reason is not None:
            counts["offline"] += 1
        else:
            sizes = ReplicaSize(tp, log.size_bytes, log.log_start_offset, log.log_end_offset, log.segment_count)
            self.replicas.append(sizes)
            counts["producers"] += len(log.producers)
        replicas = partition.replicas
        shown = self.broker.image.partition(tp)
        if replicas is None or shown is None:
            return
        counts["leader"] += 1
        counts["reassigning"] += shown.is_reassigning
        wanted = [each for each in shown.replicas if each not in shown.adding]
        counts["under replicated"] += any(each not in replicas.isr for each in wanted)
        least = min(partition.min_insync_replicas, len(partition.assigned))
        counts["under min isr"] += len(replicas.isr) < least
        counts["at min isr"] += len(replicas.isr) == least


def scrape(broker: Broker) -> Iterator[str]:
    """Its metrics in Prometheus' text format, in short pieces. Other events may come in between."""
    snapshot = Snapshot(broker)
    for step, _ in enumerate(snapshot.read()):
        if step % PIECE_STEPS == 0:
            yield ""
    yield from exposition(BROKER_METRICS, snapshot)
    yield from _of_clients(broker)


def _of_clients(broker: Broker) -> Iterator[str]:
    """What clients have pushed. A metric has the labels of all its series; those that one does not have are empty."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    labels: dict[str, set[str]] = {}
    kinds: dict[str, Kind] = {}
    for of_client, series in broker.telemetry.shown(broker.now_ms):
        for each in series:
            kinds[each.name] = each.kind
            own = dict(each.labels) | dict(of_client)
            labels.setdefault(each.name, set()).update(own)
            found.setdefault(each.name, []).append((own, each.value))
        yield ""
    for name, values in found.items():
        names = tuple(sorted(labels[name]))
        samples = (Sample(tuple(own.get(label, "") for label in names), value) for own, value in values)
        metric = Metric(name, kinds[name], names, "A metric that clients push.", lambda given: given)
        yield from exposition([metric], samples)


def _traffic(name: str, doc: str, value: Callable[[Traffic], int]) -> Metric[Snapshot]:
    """A counter of each topic, and one of all topics.

    In Kafka both have one name, with and without the label `topic`, and a sum over them counts everything twice. So
    does jmx_exporter. The text format permits it; the label is empty for all topics, which is the same to Prometheus.
    """
    full = f"kafka_server_brokertopicmetrics_{name}_total"

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        yield Sample(("",), value(snapshot.traffic))
        for topic, traffic in list(snapshot.broker.traffic.topics.items()):
            yield Sample((topic,), value(traffic))

    return Metric(full, Kind.COUNTER, ("topic",), f"{doc} The series without a topic is for all topics.", read)


def _state(broker: Broker) -> int:
    state = broker.lifecycle.state
    if state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN:
        return CONTROLLED_SHUTDOWN
    if state is LifecycleState.SHUTTING_DOWN:
        return SHUTTING_DOWN
    if state is not LifecycleState.CAUGHT_UP:
        return STARTING
    return RUNNING if broker.accepting else RECOVERING


def _count(of: str) -> Callable[[Snapshot], float]:
    return lambda snapshot: snapshot.counts[of]


def _log(name: str, doc: str, value: Callable[[ReplicaSize], int]) -> Metric[Snapshot]:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for replica in snapshot.replicas:
            yield Sample((replica.tp.topic, str(replica.tp.partition)), value(replica))

    return Metric(f"kafka_log_log_{name}", Kind.GAUGE, ("topic", "partition"), doc, read)


def _groups(name: str, doc: str, of: str | None = None) -> Metric[Snapshot]:
    def value(snapshot: Snapshot) -> float:
        if of is not None:
            return snapshot.groups[of]
        return sum(count for state, count in snapshot.groups.items() if state != "offsets")

    return gauge(f"kafka_coordinator_group_groupmetadatamanager_{name}", doc, value)


def _lag(name: str, doc: str, value: Callable[[Lag], float | None]) -> Metric[Snapshot]:
    def read(snapshot: Snapshot) -> Iterator[Sample | None]:
        for lag in snapshot.lags:
            found = value(lag)
            if found is None:
                yield STEP
            else:
                yield Sample((lag.group, lag.tp.topic, str(lag.tp.partition)), found)

    return Metric(f"kafka_consumergroup_{name}", Kind.GAUGE, ("consumergroup", "topic", "partition"), doc, read)


def _members(snapshot: Snapshot) -> Iterator[Sample]:
    for group_id, count in snapshot.members:
        yield Sample((group_id,), count)


def _consumer_groups(snapshot: Snapshot) -> Iterator[Sample]:
    for state in ("Empty", "Assigning", "Reconciling", "Stable"):
        yield Sample((state.lower(),), snapshot.groups[f"{CONSUMER} {state}"])


def _streams_groups(snapshot: Snapshot) -> Iterator[Sample]:
    for state in ("Empty", "NotReady", "Assigning", "Reconciling", "Stable"):
        yield Sample((state.lower(),), snapshot.groups[f"{STREAMS} {state}"])


def _transactions(snapshot: Snapshot) -> Iterator[Sample]:
    for state in TransactionState:
        yield Sample((state.shown,), snapshot.transactions[state])


def _log_directories(snapshot: Snapshot) -> Iterator[Sample]:
    failed = snapshot.broker.table.log_dirs.failed
    for path in sorted({*failed, *(each.path for each in snapshot.broker.table.log_dirs.dirs)}):
        yield Sample((path,), int(path in failed))


def _disk(of: str) -> Read[Snapshot]:
    def read(snapshot: Snapshot) -> Iterator[Sample | None]:
        for log_dir in snapshot.broker.table.log_dirs.online:
            try:
                usage = snapshot.broker.table.disk_usage(log_dir)
            except OSError:  # the check of the directory finds it
                continue
            yield STEP
            yield Sample((log_dir.path,), usage.total_bytes if of == "total" else usage.usable_bytes)

    return read


def _uncleanable(snapshot: Snapshot) -> Iterator[Sample]:
    found = Counter({each.path: 0 for each in snapshot.broker.table.log_dirs.dirs})
    for tp in snapshot.broker.log_cleaner.uncleanable():
        partition = snapshot.broker.partitions.get(tp)
        if partition is not None:
            found[os.path.dirname(partition.log.path)] += 1
    for path, count in found.items():
        yield Sample((path,), count)


def _throttled(*, times: bool) -> Read[Snapshot]:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for each in snapshot.broker.throttled():
            labels = (each.key, each.identity.user or "", each.identity.client_id or "")
            yield Sample(labels, each.times if times else each.total_ms / 1000)

    return read


BROKER_METRICS: Final[tuple[Metric[Snapshot], ...]] = (
    gauge(
        "kafka_server_kafkaserver_brokerstate",
        "The state of the broker: 1 starting, 2 recovering, 3 running, 6 pending controlled shutdown, 7 shutting down.",
        lambda snapshot: _state(snapshot.broker),
    ),
    _traffic("messagesin", "Records that clients produced.", lambda traffic: traffic.messages_in),
    _traffic("bytesin", "Bytes of batches that clients produced, compressed.", lambda traffic: traffic.bytes_in),
    _traffic(
        "bytesout",
        "Bytes of batches in responses to consumers. What local readers map is not among them.",
        lambda traffic: traffic.bytes_out,
    ),
    _traffic(
        "bytesrejected", "Bytes of batches larger than max.message.bytes.", lambda traffic: traffic.bytes_rejected
    ),
    _traffic(
        "totalproducerequests", "Produce requests, once for each partition in them.", lambda traffic: traffic.produces
    ),
    _traffic(
        "totalfetchrequests",
        "Fetch requests of consumers, once for each partition that is read for them.",
        lambda traffic: traffic.fetches,
    ),
    _traffic(
        "failedproducerequests",
        "Produce requests that were refused, without those that Kafka does not count, such as for a moved leader.",
        lambda traffic: traffic.failed_produces,
    ),
    _traffic(
        "failedfetchrequests",
        "Fetch requests of consumers that failed, counted in the same way.",
        lambda traffic: traffic.failed_fetches,
    ),
    counter(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        "Bytes that this broker copied from leaders.",
        lambda snapshot: snapshot.broker.traffic.replication_bytes_in,
    ),
    counter(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        "Bytes that followers fetched from this broker.",
        lambda snapshot: snapshot.broker.traffic.replication_bytes_out,
    ),
    gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.", _count("leader")),
    gauge(
        "kafka_server_replicamanager_partitioncount",
        "Replicas on this broker.",
        lambda snapshot: len(snapshot.broker.partitions),
    ),
    gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here with a replica that is not in sync, without those that a reassignment adds.",
        _count("under replicated"),
    ),
    gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
        _count("under min isr"),
    ),
    gauge(
        "kafka_server_replicamanager_atminisrpartitioncount",
        "Partitions led here with exactly min.insync.replicas in sync.",
        _count("at min isr"),
    ),
    gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas on this broker whose log is offline.",
        _count("offline"),
    ),
    gauge(
        "kafka_server_replicamanager_reassigningpartitions",
        "Partitions led here that are being reassigned.",
        _count("reassigning"),
    ),
    gauge(
        "kafka_server_replicamanager_produceridcount",
        "Producer ids that the logs of this broker remember.",
        _count("producers"),
    ),
    counter(
        "kafka_server_replicamanager_isrshrinks_total",
        "Removals of replicas from the ISR that this broker proposed as leader.",
        lambda snapshot: snapshot.broker.isr_changes.shrinks,
    ),
    counter(
        "kafka_server_replicamanager_isrexpands_total",
        "Additions of replicas to the ISR that this broker proposed as leader.",
        lambda snapshot: snapshot.broker.isr_changes.expands,
    ),
    gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        "The offset of the last metadata record that this broker has applied.",
        lambda snapshot: snapshot.broker.follower.next_offset - 1,
    ),
    _log("size", "Bytes of the segments of a replica.", lambda replica: replica.size_bytes),
    _log("logstartoffset", "The log start offset of a replica.", lambda replica: replica.log_start_offset),
    _log("logendoffset", "The log end offset of a replica.", lambda replica: replica.log_end_offset),
    _log("numlogsegments", "The segments of a replica.", lambda replica: replica.segments),
    Metric(
        "kafka_log_logmanager_logdirectoryoffline",
        Kind.GAUGE,
        ("logDirectory",),
        "1 for a log directory that has failed, 0 for one that works.",
        _log_directories,
    ),
    gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that have failed.",
        lambda snapshot: len(snapshot.broker.table.log_dirs.failed),
    ),
    Metric(
        "raylog_log_directory_total_bytes",
        Kind.GAUGE,
        ("logDirectory",),
        "Size of the file system of a log directory.",
        _disk("total"),
    ),
    Metric(
        "raylog_log_directory_usable_bytes",
        Kind.GAUGE,
        ("logDirectory",),
        "Space in the file system of a log directory that the broker can use.",
        _disk("usable"),
    ),
    Metric(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        Kind.GAUGE,
        ("logDirectory",),
        "Partitions that cannot be compacted, with the reason in `raylog status`.",
        _uncleanable,
    ),
    gauge("raylog_cleaner_running", "Logs being compacted.", lambda snapshot: snapshot.broker.log_cleaner.running),
    counter(
        "raylog_cleaner_cleaned_logs_total",
        "Logs that were compacted.",
        lambda snapshot: snapshot.broker.log_cleaner.cleaned_logs,
    ),
    counter(
        "raylog_cleaner_read_bytes_total",
        "Bytes that compaction has read.",
        lambda snapshot: snapshot.broker.log_cleaner.read_bytes,
    ),
    counter(
        "raylog_cleaner_written_bytes_total",
        "Bytes that compaction has written.",
        lambda snapshot: snapshot.broker.log_cleaner.written_bytes,
    ),
    _groups("numgroups", "Groups that this node coordinates, without those that only have committed offsets."),
    _groups("numoffsets", "Committed offsets of groups that this node coordinates.", "offsets"),
    _groups(
        "numgroupspreparingrebalance",
        "Classic groups whose members are joining.",
        GroupState.PREPARING_REBALANCE.value,
    ),
    _groups(
        "numgroupscompletingrebalance",
        "Classic groups that wait for the assignment of their leader.",
        GroupState.COMPLETING_REBALANCE.value,
    ),
    _groups("numgroupsstable", "Classic groups with an assignment.", GroupState.STABLE.value),
    _groups("numgroupsempty", "Classic groups without members.", GroupState.EMPTY.value),
    Metric(
        "kafka_server_group_coordinator_metrics_consumer_group_count",
        Kind.GAUGE,
        ("state",),
        "Groups of the consumer protocol that this node coordinates.",
        _consumer_groups,
    ),
    Metric(
        "kafka_server_group_coordinator_metrics_streams_group_count",
        Kind.GAUGE,
        ("state",),
        "Streams groups that this node coordinates.",
        _streams_groups,
    ),
    Metric(
        "kafka_consumergroup_members",
        Kind.GAUGE,
        ("consumergroup",),
        "Members of a group that this node coordinates.",
        _members,
    ),
    _lag("current_offset", "The committed offset of a group.", lambda lag: lag.committed_offset),
    _lag(
        "lag", "Records that a group has not processed: from its committed offset to the end.", lambda lag: lag.records
    ),
    _lag(
        "lag_seconds",
        "For how long the record at the committed offset has been there, by the end offsets of earlier scrapes; at"
        " least, if it was there at the first one.",
        lambda lag: None if lag.age_ms is None else lag.age_ms / 1000,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_group_completed_rebalance_count",
        "Generations of classic groups that have begun.",
        lambda snapshot: snapshot.broker.groups.counts.classic_rebalances,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_consumer_group_rebalance_count",
        "Target assignments of groups of the consumer protocol that were computed.",
        lambda snapshot: snapshot.broker.groups.counts.consumer_rebalances,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_streams_group_rebalance_count",
        "Target assignments of streams groups that were computed.",
        lambda snapshot: snapshot.broker.groups.counts.streams_rebalances,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_offset_commit_count",
        "Offsets that were committed, one for each partition.",
        lambda snapshot: snapshot.broker.groups.counts.offset_commits,
    ),
    counter(
        "kafka_server_group_coordinator_metrics_offset_expiration_count",
        "Committed offsets that have expired.",
        lambda snapshot: snapshot.broker.groups.counts.offset_expirations,
    ),
    Metric(
        "raylog_transactional_ids",
        Kind.GAUGE,
        ("state",),
        "Transactional ids that this node coordinates, by the state of their newest transaction.",
        _transactions,
    ),
    Metric(
        "raylog_throttled_total",
        Kind.COUNTER,
        ("quota", "user", "client_id"),
        "Requests and connections that were throttled. For connections the user is an address.",
        _throttled(times=True),
    ),
    Metric(
        "raylog_throttled_seconds_total",
        Kind.COUNTER,
        ("quota", "user", "client_id"),
        "For how long clients were throttled.",
        _throttled(times=False),
    ),
    gauge(
        "raylog_local_readers",
        "Processes of this machine that read partitions from their files.",
        lambda snapshot: snapshot.broker.local_readers.reader_count,
    ),
    gauge(
        "raylog_local_partitions",
        "Partitions that such processes have opened.",
        lambda snapshot: snapshot.broker.local_readers.partition_count,
    ),
    gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Incremental fetch sessions.",
        lambda snapshot: len(snapshot.broker.fetch_sessions),
    ),
)
