"""A snapshot is taken in steps of bounded size and written off the loop, while the controller goes on deciding."""

from __future__ import annotations

import errno
from uuid import UUID

from raylog.controller.controller import Controller
from raylog.controller.snapshot_schedule import STEP_RECORDS
from raylog.core.outcome import Outcome
from raylog.metadata.records import TopicCreated
from raylog.metadata.snapshot import decode_snapshot
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


def test_each_turn_encodes_a_bounded_number_of_records_and_none_writes_the_file() -> None:
    quorum = alone()
    controller = busy(quorum)
    assert controller.snapshots.in_progress
    turns, job = encode(quorum, controller)
    assert turns == TOPICS // STEP_RECORDS + 1
    job.run()
    assert not controller.metadata_log.snapshots
    controller.job_ended(job, None, quorum.now())
    [snapshot] = controller.metadata_log.snapshots
    assert snapshot.end_offset == TOPICS + 2
    assert not controller.snapshots.in_progress


def test_what_is_decided_meanwhile_is_not_in_it() -> None:
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


def test_one_that_cannot_be_written_is_tried_again_later() -> None:
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
