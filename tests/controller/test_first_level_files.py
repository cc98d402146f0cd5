"""Files from before metadata levels existed open unchanged: metadata log, snapshot and log directories.

The files in `tests/golden/first-level` were written by the last version that knew no levels (commit b5ade05): a
controller that was closed, broker 0 that was shut down and broker 1 that was killed. `image.json` beside them is the
metadata as that version saw it.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from raylog.broker.partitions import PartitionTable
from raylog.config.table import broker_configs
from raylog.controller.controller import Controller
from raylog.controller.features import raise_level
from raylog.core.clock import Now
from raylog.core.config import LONG_MAX
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import BrokerId, Offset, TopicPartition
from raylog.logstore.disk import RealDisk
from raylog.logstore.log_dir import run_in_order
from raylog.metadata.image import MetadataImage
from raylog.metadata.levels import FIRST_LEVEL, LATEST_LEVEL, METADATA_FEATURE
from raylog.metadata.records import FeatureLevelChanged, MetadataRecord
from raylog.metadata.snapshot import records_of
from raylog.protocol.records.reader import read_batches
from raylog.transport.node import NodeIdentity
from tests.support.direct_work import DirectWork

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "first-level"
CLUSTER_ID = "ZGlyZWN0LWNsdXN0ZXItdGVz"
NOW = Now(10_000_000, 1_700_100_000_000)
TOLD: dict[str, Any] = json.loads((GOLDEN / "image.json").read_text())
SNAPSHOT = "00000000000000000025-0000000001.checkpoint"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN, tmp_path / "data")
    return tmp_path / "data"


def opened(data_dir: Path) -> Controller:
    rng = random.Random(1)
    return Controller(
        NodeIdentity(BrokerId(1000), CLUSTER_ID, UUID(int=1), b"s" * 32),
        broker_configs({}),
        RealDisk(),
        str(data_dir / "controller"),
        may_be_new=False,
        new_id=lambda: UUID(int=rng.getrandbits(128)),
        new_nonce=rng.randbytes,
        now=NOW,
    )


def plain(image: MetadataImage) -> list[Any]:
    return [[type(record).__name__, _fields(record)] for record in records_of(image)]


def _fields(record: MetadataRecord) -> dict[str, Any]:
    return {each.name: _plain(getattr(record, each.name)) for each in fields(record)}


def _plain(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def told() -> list[Any]:
    """As the version before told of it; a field that came later has its default."""
    added: dict[str, dict[str, Any]] = {
        "BrokerRegistered": {"features": [], "directory_ids": []},
        "BrokerConfigsChanged": {"passwords": []},
        "PartitionCreated": {"emptied": []},
    }
    return [[kind, {**added.get(kind, {}), **values}] for kind, values in TOLD["records"]]


@pytest.mark.parametrize("by", ["snapshot and log", "log alone"])
def test_the_metadata_is_equal(data_dir: Path, by: str) -> None:
    if by == "log alone":
        (data_dir / "controller" / "__cluster_metadata-0" / SNAPSHOT).unlink()
    controller = opened(data_dir)
    assert controller.next_offset == TOLD["next_offset"] + 1, "the epoch's first record, and nothing else"
    assert sorted(plain(controller.image), key=str) == sorted(told(), key=str)
    assert controller.image.metadata_level == FIRST_LEVEL
    controller.close(NOW)


def test_existing_files_are_unchanged(data_dir: Path) -> None:
    opened(data_dir).close(NOW)
    for path in sorted((GOLDEN / "controller").rglob("0*.log")):
        now = (data_dir / "controller" / path.relative_to(GOLDEN / "controller")).read_bytes()
        assert now.startswith(path.read_bytes())


@pytest.mark.parametrize("broker_id", [0, 1])
def test_the_records_of_a_broker_are_equal(data_dir: Path, broker_id: int) -> None:
    controller = opened(data_dir)
    work = DirectWork(NOW)
    table = PartitionTable(
        RealDisk(),
        [str(data_dir / f"broker-{broker_id}")],
        broker_id=BrokerId(broker_id),
        cluster_id=CLUSTER_ID,
        configs=broker_configs({}),
        new_id=lambda: UUID(int=77),
        background=work,
        on_change=lambda _: None,
        on_gone=lambda _: None,
        on_progress=lambda _: None,
        on_placed=lambda *_: None,
        move_rate=lambda: LONG_MAX,
        now_ms=NOW.wall_ms,
        run_all=run_in_order,
    )
    table.follow(controller.image)
    work.settle()
    found = {
        str(tp): [record.value for record in read_batches(_read(table, tp), from_offset=Offset(0))]
        for tp in sorted(table.online)
    }
    orders = {
        f"orders-{number}": [b"order %d/%d/%d" % (number, turn, each) for turn in range(4) for each in range(3)]
        for number in range(3)
    }
    assert found == {"events-0": [b"idempotent"], "late-0": [], **orders}
    table.close(broker_epoch=1)
    controller.close(NOW)


def _read(table: PartitionTable, tp: TopicPartition) -> bytes:
    log = table.online[tp].log
    return bytes(log.read(Offset(0), max_bytes=1 << 20, upto=log.log_end_offset).records)


def test_its_level_is_raised_once_its_brokers_support_it(data_dir: Path) -> None:
    controller = opened(data_dir)
    with pytest.raises(KafkaError) as refused:
        raise_level(controller.image, LATEST_LEVEL, voters=controller.voter.levels.of_all(controller.quorum.voters.ids))
    assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION, "brokers 0 and 1 have registered no range"
    changed = FeatureLevelChanged(METADATA_FEATURE, LATEST_LEVEL)
    image = MetadataImage()
    for record in (*records_of(controller.image), changed):
        image.replay(record)
    assert image.metadata_level == LATEST_LEVEL
    controller.close(NOW)
