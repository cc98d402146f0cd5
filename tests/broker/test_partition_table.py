"""Partitions are opened, created and removed in bounded pieces, and whatever happens meanwhile the last image holds.

The state machine changes the image, runs single steps and jobs, fills the disk and crashes. What is open is always
assigned, and in the end everything that is assigned is open, with the records that were synced.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.broker.partition_directories import STEP_PARTITIONS
from raylog.broker.partitions import PartitionTable
from raylog.config.table import broker_configs
from raylog.core.clock import Now
from raylog.core.config import LONG_MAX
from raylog.core.errors import KafkaError
from raylog.core.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from raylog.logstore.log_dir import DELETIONS_MAX, run_in_order
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import (
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ReplicasChanged,
    TopicCreated,
    TopicDeleted,
)
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import read_batches
from raylog.replication.partition import Partition
from tests.support.direct_work import DirectWork
from tests.support.sim_disk import Killed, SimDisk

NOW = Now(10_000, 1_700_000_000_000)
OWN, OTHER = BrokerId(0), BrokerId(1)
PATH = "/logs"
CONFIGS = broker_configs({"log.segment.delete.delay.ms": 0})


class Tables:
    """A table over a simulated disk, its image, and its background work."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        self.image = MetadataImage()
        self.gone: list[TopicPartition] = []
        self.opened = False
        """Whether everything was open, or could not be opened, at the last progress."""
        self.start()

    def start(self) -> None:
        self.work = DirectWork(NOW)
        self.table = PartitionTable(
            self.disk,
            [PATH],
            broker_id=OWN,
            cluster_id="cluster",
            configs=CONFIGS,
            new_id=self.new_id,
            background=self.work,
            on_change=lambda _: None,
            on_gone=self.gone.append,
            on_progress=self.progressed,
            on_placed=lambda *_: None,
            move_rate=lambda: LONG_MAX,
            now_ms=NOW.wall_ms,
            run_all=run_in_order,
        )
        self.table.follow(self.image)

    def progressed(self, _: Now) -> None:
        directories = self.table.directories
        self.opened = directories.has_opened(directories.last_ticket)

    def new_id(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128))

    def apply(self, record: MetadataRecord) -> None:
        self.image.replay(record)
        self.table.metadata_changed(record, NOW)

    def create(self, topic: str, count: int) -> UUID:
        topic_id = self.new_id()
        self.apply(TopicCreated(topic, topic_id))
        for number in range(count):
            self.apply(PartitionCreated(topic_id, number, (OWN,), OWN, LeaderEpoch(0)))
        return topic_id

    def append(self, tp: TopicPartition, value: bytes) -> None:
        partition = self.table.online[tp]
        batch = build_batch([NewRecord(None, value, NOW.wall_ms)])
        partition.log.append_as_leader(memoryview(batch), leader_epoch=partition.leader_epoch, now_ms=NOW.wall_ms)
        partition.log.flush()

    def values(self, tp: TopicPartition) -> list[bytes | None]:
        log = self.table.online[tp].log
        records = bytes(log.read(Offset(0), max_bytes=1 << 20, upto=log.log_end_offset).records)
        return [record.value for record in read_batches(records, from_offset=Offset(0))]

    def assigned(self) -> dict[TopicPartition, UUID]:
        return {tp: topic_id for tp, topic_id, _ in self.image.partitions_on(OWN)}

    def settle(self) -> None:
        wanted = any(self.table.directories.is_opening(tp) for tp in self.assigned())
        self.work.settle()
        assert self.opened or not wanted, "operations that wait for partitions are not notified"

    def on_disk(self) -> list[str]:
        return [name for name in self.disk.listdir(PATH) if self.disk.is_dir(f"{PATH}/{name}")]


def test_a_large_topic_is_created_in_jobs_and_opened_in_bounded_numbers() -> None:
    tables = Tables()
    before = tables.disk.op_count
    tables.create("t", 3 * STEP_PARTITIONS + 1)
    assert tables.disk.op_count == before
    assert not tables.table.online
    opened = 0
    while tables.work.steps or tables.work.jobs:
        before = tables.disk.op_count
        if tables.work.steps:
            tables.work.run_step()
            assert tables.disk.op_count == before
        else:
            tables.work.run_job()
        assert len(tables.table.online) - opened <= STEP_PARTITIONS
        opened = len(tables.table.online)
    assert opened == 3 * STEP_PARTITIONS + 1


def test_a_large_topic_is_removed_in_steps() -> None:
    tables = Tables()
    topic_id = tables.create("t", 3 * STEP_PARTITIONS + 1)
    tables.create("other", 1)
    tables.settle()
    before = tables.disk.op_count
    tables.apply(TopicDeleted(topic_id))
    assert tables.disk.op_count == before
    assert list(tables.table.online) == [TopicPartition("other", 0)]
    assert len(tables.gone) == 3 * STEP_PARTITIONS + 1
    while tables.work.steps:
        before = tables.disk.op_count
        tables.work.run_step()
        assert tables.disk.op_count - before <= STEP_PARTITIONS
    assert [name for name in tables.on_disk() if not name.endswith("-delete")] == ["other-0"]


def test_deleted_directories_are_removed_from_the_disk_by_jobs_of_bounded_size() -> None:
    tables = Tables()
    topic_id = tables.create("t", 3 * DELETIONS_MAX + 1)
    tables.settle()
    tables.apply(TopicDeleted(topic_id))
    tables.settle()
    left = len(tables.on_disk())
    assert left == 3 * DELETIONS_MAX + 1
    tables.table.delete_retired(NOW)
    while tables.work.jobs:
        tables.work.run_job()
        assert left - len(tables.on_disk()) <= DELETIONS_MAX
        left = len(tables.on_disk())
    assert left == 0


def test_the_deletion_of_a_topic_does_not_look_at_the_partitions_of_others() -> None:
    class OnlySearched(dict[TopicPartition, Partition]):
        def __iter__(self) -> Iterator[TopicPartition]:
            raise AssertionError("all partitions were looked at")

        items = values = keys = __iter__  # type: ignore[assignment]

    tables = Tables()
    tables.create("other", 2)
    topic_id = tables.create("t", 2)
    tables.settle()
    tables.table.online = OnlySearched(tables.table.online.items())
    tables.apply(TopicDeleted(topic_id))
    assert TopicPartition("t", 0) not in tables.table.online
    assert TopicPartition("other", 1) in tables.table.online


def test_a_topic_deleted_and_created_again_while_its_directories_are_created() -> None:
    tables = Tables()
    tables.apply(TopicDeleted(tables.create("t", 2)))
    tables.work.run_step()
    first = tables.create("t", 2)
    tables.work.run_step()
    assert len(tables.work.jobs) == 1
    tables.apply(TopicDeleted(first))
    second = tables.create("t", 2)
    tables.settle()
    assert {partition.log.topic_id for partition in tables.table.online.values()} == {second}
    assert len(tables.table.online) == 2


def test_partitions_that_fail_because_a_checkpoint_cannot_be_written_are_reported() -> None:
    tables = Tables()
    first = tables.create("t", 1)
    tables.settle()
    tables.table.write_recovery_points(NOW)
    tables.settle()
    tables.apply(TopicDeleted(first))
    tables.disk.capacity_bytes = tables.disk.used_bytes()
    tables.create("t", 1)
    tables.settle()
    assert not tables.table.online
    tables.disk.heal()
    tables.table.apply_retention(NOW)
    tables.settle()
    assert list(tables.table.online) == [TopicPartition("t", 0)]


def test_a_stop_while_directories_are_created_closes_their_files() -> None:
    for ran in (False, True):
        tables = Tables()
        tables.create("t", 2)
        tables.work.run_step()
        if ran:
            tables.work.jobs[0].run()
        tables.table.close(broker_epoch=1)
        assert tables.disk.open_files() == 0
        tables.start()
        tables.settle()
        assert tables.assigned().keys() == tables.table.online.keys()


def test_existing_logs_are_opened_in_steps_at_a_start() -> None:
    tables = Tables()
    tables.create("t", 2 * STEP_PARTITIONS + 1)
    tables.settle()
    tables.table.close(broker_epoch=1)
    tables.start()
    assert not tables.table.online
    tables.work.run_step()
    assert len(tables.table.online) == STEP_PARTITIONS
    tables.settle()
    assert len(tables.table.online) == 2 * STEP_PARTITIONS + 1


class AnyCourse(RuleBasedStateMachine):
    topics = Bundle("topics")

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[UUID, int], list[bytes]] = {}
        """The synced records of each partition."""
        self.appended = 0

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        self.tables = Tables(seed)

    @rule(topic=st.sampled_from(["a", "b"]), count=st.sampled_from([1, 2, STEP_PARTITIONS + 1]))
    def create(self, topic: str, count: int) -> None:
        if topic not in self.tables.image.topics:
            self.tables.create(topic, count)

    @rule(topic=st.sampled_from(["a", "b"]))
    def delete(self, topic: str) -> None:
        shown = self.tables.image.topics.get(topic)
        if shown is not None:
            self.tables.apply(TopicDeleted(shown.topic_id))

    @rule(topic=st.sampled_from(["a", "b"]), away=st.booleans())
    def move(self, topic: str, away: bool) -> None:
        shown = self.tables.image.topics.get(topic)
        if shown is not None:
            epoch = LeaderEpoch(shown.partitions[0].leader_epoch + 1)
            to = OTHER if away else OWN
            self.tables.apply(ReplicasChanged(shown.topic_id, 0, (to,), (), (), (to,), to, epoch))
            if away:
                self.kept.pop((shown.topic_id, 0), None)

    @rule(topic=st.sampled_from(["a", "b"]))
    def elect(self, topic: str) -> None:
        shown = self.tables.image.topics.get(topic)
        if shown is not None:
            first = shown.partitions[0]
            epoch = LeaderEpoch(first.leader_epoch + 1)
            self.tables.apply(LeaderChanged(shown.topic_id, 0, leader=first.replicas[0], leader_epoch=epoch))

    @rule(topic=st.sampled_from(["a", "b"]), number=st.sampled_from([0, 1, STEP_PARTITIONS]))
    def append(self, topic: str, number: int) -> None:
        tp = TopicPartition(topic, number)
        partition = self.tables.table.online.get(tp)
        if partition is not None and partition.is_leader:
            self.appended += 1
            value = b"%d" % self.appended
            try:
                self.tables.append(tp, value)
            except KafkaError:
                return
            self.kept.setdefault((partition.topic_id, number), []).append(value)

    @precondition(lambda self: self.tables.work.steps)
    @rule()
    def step(self) -> None:
        self.tables.work.run_step()

    @precondition(lambda self: self.tables.work.jobs)
    @rule()
    def job(self) -> None:
        self.tables.work.run_job()

    @rule(within=st.integers(1, 60), power_cut=st.booleans())
    def crash(self, within: int, power_cut: bool) -> None:
        tables = self.tables
        tables.disk.arm(kill_at_op=within)
        with suppress(Killed):
            tables.settle()
        tables.disk.crash(power_cut=power_cut)
        tables.start()

    @rule()
    def stop(self) -> None:
        with suppress(KafkaError):  # on a full disk
            self.tables.table.close(broker_epoch=1)
        self.tables.start()

    @rule()
    def fill(self) -> None:
        self.tables.disk.capacity_bytes = self.tables.disk.used_bytes()

    @rule()
    def write_checkpoints(self) -> None:
        table = self.tables.table
        table.write_recovery_points(NOW)
        table.write_log_start_offsets(NOW)
        table.write_high_watermarks(NOW)

    @rule()
    def delete_files(self) -> None:
        self.tables.table.delete_retired(NOW)

    @rule()
    def settle(self) -> None:
        tables = self.tables
        tables.disk.heal()
        tables.table.apply_retention(NOW)
        tables.settle()
        tables.table.delete_retired(NOW)
        tables.settle()
        assert tables.table.online.keys() == tables.assigned().keys()
        tables.table.close(broker_epoch=1)
        tables.start()  # it removes what is left of partitions that could not be created
        tables.settle()
        tables.table.delete_retired(NOW)
        tables.settle()
        assert tables.table.online.keys() == tables.assigned().keys()
        assert tables.on_disk() == sorted(map(str, tables.assigned()))

    @invariant()
    def what_is_open_is_assigned(self) -> None:
        tables = self.tables
        assigned = tables.assigned()
        for tp, partition in tables.table.online.items():
            assert partition.topic_id == partition.log.topic_id == assigned[tp]
            shown = tables.image.topics[tp.topic].partitions[tp.partition]
            assert (partition.leader_epoch, partition.is_leader) == (shown.leader_epoch, shown.leader == OWN)
            kept = self.kept.get((partition.topic_id, tp.partition), [])
            if partition.log.offline_reason is None:
                assert [value for value in tables.values(tp) if value in kept] == kept

    def teardown(self) -> None:
        if hasattr(self, "tables"):
            self.settle()


TestAnyCourse = AnyCourse.TestCase
