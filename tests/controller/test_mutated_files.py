"""A controller starts from damaged files with metadata that it once had, or the error names the directory."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.metadata.image import MetadataImage
from raylog.metadata.snapshot import records_of
from tests.support.direct_quorum import LOG_PATH, DirectQuorum
from tests.support.forms import by_form
from tests.support.mutations import mutations
from tests.support.sim_disk import SimDisk

MUTATIONS = by_form(30, quick=5, long=1000)
"""Of each file."""
SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "1000"}

Content = list[str]
"""Of an image."""


def stopped(*, clean: bool) -> tuple[SimDisk, list[Content]]:
    """The disk of a controller, with log and snapshots, and what its image contained after each decision."""
    quorum = DirectQuorum(SMALL_SNAPSHOTS, count=1)
    active = quorum.start_all()
    states = [content(active.image)]
    for number in range(30):
        quorum.create_topic(active, f"topic-{number}")
        states.append(content(active.image))
        quorum.pass_time(400)
    if clean:
        active.close(quorum.now())
    else:
        quorum.kill(0)
    return quorum.disks[0], states


def content(image: MetadataImage) -> Content:
    return sorted(map(repr, records_of(image)))


def files(disk: SimDisk, path: str = LOG_PATH) -> Iterator[str]:
    for name in disk.listdir(path):
        inner = f"{path}/{name}"
        if disk.is_dir(inner):
            yield from files(disk, inner)
        elif name != ".lock" and disk.read_file(inner):
            yield inner


def restarted(disk: SimDisk, path: str, damaged: bytes) -> MetadataImage:
    """The image after a start of the controller on a copy of the disk, with one damaged file. Raises KafkaError."""
    quorum = DirectQuorum(SMALL_SNAPSHOTS, count=1)
    quorum.disks = [deepcopy(disk)]
    quorum.has_past = [True]
    quorum.disks[0].overwrite(path, damaged)
    return quorum.start_all().image


def test_wrong_leader_epochs_do_not_discard_the_log_behind_the_snapshot() -> None:
    disk, states = stopped(clean=True)
    path = f"{LOG_PATH}/__cluster_metadata-0/leader-epoch-checkpoint"
    assert disk.read_file(path) == b"0\n1\n1 15\n"
    for start_offset in (1, 20, 42, 10_000):
        assert content(restarted(disk, path, b"0\n1\n1 %d\n" % start_offset)) == states[-1]


@pytest.mark.parametrize("clean", [True, False])
def test_mutated_files_are_repaired_or_reported(clean: bool) -> None:
    disk, states = stopped(clean=clean)
    found = list(files(disk))
    assert {path.rpartition(".")[2] for path in found} >= {"log", "checkpoint", "properties"}
    refused = 0
    for path in found:
        for mutation in mutations(disk.read_file(path), MUTATIONS, path):
            try:
                image = restarted(disk, path, mutation)
            except KafkaError as error:
                refused += is_declared(error)
                continue
            assert content(image) in states, (path, mutation)
            if not path.endswith(".log"):
                assert content(image) == states[-1], (path, mutation)
    assert refused


def is_declared(error: KafkaError) -> bool:
    """Whether the operator can tell from the error what is damaged. Fails if not."""
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert LOG_PATH in error.message
    return True
