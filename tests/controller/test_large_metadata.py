"""The work for one more topic, and for each record at the start, does not grow with the size of the cluster."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest

from raylog.controller import topics
from raylog.metadata.image import MetadataImage
from raylog.metadata.records import MetadataRecord
from raylog.metadata.snapshot import decode_snapshot
from tests.controller.metadata import create, image_of, replay
from tests.metadata.snapshots import encode_snapshot
from tests.support.calls import calls_of

PARTITIONS = 10


def with_topics(count: int) -> tuple[MetadataImage, list[MetadataRecord]]:
    image = image_of(0, 1, 2)
    records: list[MetadataRecord] = []
    for number in range(count):
        records += create(
            image, f"t.{number}", topic_id=UUID(int=1000 + number), num_partitions=PARTITIONS, replication_factor=3
        )
    return image, records


def create_one_more(image: MetadataImage) -> None:
    create(image, "one.more", topic_id=UUID(int=1), num_partitions=PARTITIONS, replication_factor=3)


def test_the_work_to_create_a_topic_does_not_depend_on_the_others() -> None:
    few, _ = with_topics(10)
    many, _ = with_topics(300)
    assert calls_of(lambda: create_one_more(many)) == calls_of(lambda: create_one_more(few))


def test_the_work_to_admit_a_request_does_not_depend_on_the_others() -> None:
    few, _ = with_topics(10)
    many, _ = with_topics(300)
    admit = partial(topics.request_refusal, count=1000, partitions_max=200_000)
    assert calls_of(partial(admit, many)) == calls_of(partial(admit, few))


@pytest.mark.parametrize("by", ["records", "snapshot"])
def test_the_work_to_start_is_proportional_to_the_metadata(by: str) -> None:
    """On two cores: 1.0 s of CPU for 100,000 partitions with three replicas, whose records are 4.8 MB."""
    work = {}
    for count in (20, 200):
        image, records = with_topics(count)
        if by == "records":
            work[count] = calls_of(partial(replay, image_of(0, 1, 2), records))
        else:
            work[count] = calls_of(partial(decode_snapshot, encode_snapshot(image, now_ms=0)))
    assert work[200] < 11 * work[20]
