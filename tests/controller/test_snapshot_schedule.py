"""A snapshot is encoded in bounded steps and written by a job, while the controller continues to serve."""

from __future__ import annotations

import errno
from uuid import UUID

from raylog.controller.controller import CHECKPOINT_INTERVAL_MS, Controller
from raylog.controller.features import NEW_CLUSTER
from raylog.controller.snapshot_schedule import STEP_RECORDS
from raylog.core.outcome import Outcome
from raylog.logstore.checkpoint import decode_offsets
from raylog.metadata.records import TopicCreated
from raylog.metadata.snapshot import decode_snapshot
from raylog.metadata.topic_names import METADATA_PARTITION
from raylog.transport.node import Job
from tests.support.direct_quorum import DirectQuorum

TOPICS = 3 * STEP_RECORDS + 1
PATH = "/controller/__cluster_metadata-0"


def busy(quorum: DirectQuorum, first: int = 0, count: int = TOPICS) -> Controller:
    """A controller that has just decided so much that a snapshot is due."""
    controller = quorum.controllers[0] or quorum.start(0)
    created = [TopicCreated(f"t{number}", UUID(int=number + 1)) for number in range(first, first + count)]
    controller.decide(Outcome(None, created), quorum.now())
    controller.run(quorum.now())
    return controller


def alone() -> DirectQuorum:
    return DirectQuorum({"metadata.log.max.record.bytes.between.snapshots": "10000"}, count=1)


def encode(quorum: DirectQuorum, controller: Controller) -> tuple[int, Job]:
    """How many turns the encoding took, and the job that it ends in."""
    for turns in range(1, 100):
        assert controller.wants_turn
        controller.next_turn(quorum.now())
        jobs = controller.take_effects().jobs
        if jobs:
            assert not controller.wants_turn
            return turns, jobs[0]
    raise AssertionError("it has no end")


def test_each_turn_encodes_a_bounded_number_of_records_and_a_job_writes_the_file() -> None:
    quorum = alone()
    controller = busy(quorum)
    assert controller.snapshots.in_progress
    turns, job = encode(quorum, controller)
    assert turns == TOPICS // STEP_RECORDS + 1
    job.run()
    assert not controller.metadata_log.snapshots
    controller.job_ended(job, None, quorum.now())
    [snapshot] = controller.metadata_log.snapshots
    assert snapshot.end_offset == TOPICS + 1 + len(NEW_CLUSTER)
    assert not controller.snapshots.in_progress


def test_later_records_are_not_in_it() -> None:
    quorum = alone()
    controller = busy(quorum)
    controller.next_turn(quorum.now())
    busy(quorum, first=TOPICS, count=1)
    _, job = encode(quorum, controller)
    busy(quorum, first=TOPICS + 1, count=1)
    job.run()
    controller.job_ended(job, None, quorum.now())
    [snapshot] = controller.metadata_log.snapshots
    image = decode_snapshot(quorum.disks[0].read_file(f"{PATH}/{snapshot.file_name}"))
    assert len(image.topics) == TOPICS
    quorum.kill(0)
    assert len(quorum.start(0).image.topics) == TOPICS + 2


def test_a_failed_snapshot_is_retried_later() -> None:
    quorum = alone()
    controller = busy(quorum)
    _, job = encode(quorum, controller)
    controller.job_ended(job, OSError(errno.ENOSPC, "no space"), quorum.now())
    assert not controller.metadata_log.snapshots
    controller.run(quorum.now())
    assert not controller.snapshots.in_progress, "not at once"
    busy(quorum, first=TOPICS, count=TOPICS)
    _, job = encode(quorum, controller)
    job.run()
    controller.job_ended(job, None, quorum.now())
    assert len(controller.metadata_log.snapshots) == 1


def test_old_segments_and_snapshots_are_deleted_in_bounded_pieces() -> None:
    quorum = alone()
    disk = quorum.disks[0]
    jobs: list[Job] = []
    controller = quorum.start(0)
    for number in range(4):
        busy(quorum, first=number * TOPICS)
        while controller.wants_turn:
            before = disk.op_count
            controller.next_turn(quorum.now())
            assert disk.op_count - before <= 20, "no more than one segment"
            jobs += controller.take_effects().jobs
            while jobs:
                job = jobs.pop()
                job.run()
                before = disk.op_count
                controller.job_ended(job, None, quorum.now())
                assert disk.op_count - before <= 20
                jobs += controller.take_effects().jobs
    log = controller.metadata_log
    names = disk.listdir(PATH)
    assert [name for name in names if name.endswith(".checkpoint")] == [each.file_name for each in log.snapshots]
    assert len(log.snapshots) == 2
    assert log.log.segment_count == 2


def test_the_chore_that_writes_checkpoints_leaves_the_disk_to_jobs() -> None:
    quorum = alone()
    controller = quorum.start(0)
    quorum.create_topic(controller, "t")
    quorum.settle()
    controller.take_effects()
    quorum.clock_ms += CHECKPOINT_INTERVAL_MS
    before = quorum.disks[0].op_count
    controller.tick(quorum.now())
    assert quorum.disks[0].op_count == before
    for job in controller.take_effects().jobs:
        job.run()
        controller.job_ended(job, None, quorum.now())
    points = decode_offsets(quorum.disks[0].read_file("/controller/recovery-point-offset-checkpoint"))
    assert points == {METADATA_PARTITION: controller.next_offset}
