"""A snapshot restores its image, and a damaged one is refused."""

from __future__ import annotations

import random
from itertools import pairwise
from uuid import UUID

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.core.errors import KafkaError
from raylog.core.ids import NO_BROKER_ID, BrokerId, LeaderEpoch, Offset, ProducerId
from raylog.metadata.control_records import VotersChanged
from raylog.metadata.features import FEATURES
from raylog.metadata.image import MetadataImage, acl_added
from raylog.metadata.levels import FIRST_LEVEL, LATEST_LEVEL, METADATA_FEATURE, UnsupportedLevel
from raylog.metadata.records import (
    AccessControlEntryRemoved,
    BrokerConfigsChanged,
    BrokerDirectoriesChanged,
    BrokerFenced,
    BrokerUnfenced,
    BrokerUnregistered,
    ClientMetricsConfigsChanged,
    ClientQuotaRemoved,
    ClientQuotaSet,
    ControlledShutdownBegun,
    DelegationTokenCreated,
    DelegationTokenExpiryChanged,
    DelegationTokenRemoved,
    FeatureLevelChanged,
    GroupConfigsChanged,
    IsrChanged,
    LeaderChanged,
    MetadataRecord,
    PartitionCreated,
    ProducerIdsAllocated,
    ReplicasAssignedToDirectory,
    ReplicasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from raylog.metadata.snapshot import (
    SnapshotDecoder,
    SnapshotId,
    decode_snapshot,
    records_of,
    snapshot_named,
)
from raylog.metadata.snapshot_writer import BATCH_RECORDS, SnapshotWriter
from raylog.metadata.voters import QuorumVoter, VoterSet
from raylog.protocol.records.builder import NewRecord, build_batch
from tests.controller.metadata import registered
from tests.metadata.snapshots import ANY, encode_snapshot
from tests.security.acls import binding
from tests.support.sim_disk import SimDisk


def random_image(rng: random.Random, steps: int) -> MetadataImage:
    """Of a history of so many decisions, each of which follows from those before it."""
    image = MetadataImage()
    for step in range(steps):
        record = _random_record(rng, image, step)
        if record is not None:
            image.replay(record)
    return image


def _random_record(rng: random.Random, image: MetadataImage, step: int) -> MetadataRecord | None:
    topics = list(image.topics.values())
    topic = rng.choice(topics) if topics else None
    partition = rng.choice(topic.partitions) if topic is not None and topic.partitions else None
    broker = image.brokers.get(BrokerId(rng.randrange(4)))
    match rng.randrange(18):
        case 11 if image.metadata_level == FIRST_LEVEL and rng.random() < 0.2:
            return FeatureLevelChanged(METADATA_FEATURE, LATEST_LEVEL)
        case 11 if rng.random() < 0.2:
            name = rng.choice([*FEATURES])
            return FeatureLevelChanged(name, rng.randint(FEATURES[name].lowest, FEATURES[name].highest))
        case 0:
            name = f"t{rng.randrange(6)}"
            return None if name in image.topics else TopicCreated(name, UUID(int=step + 1), (("retention.ms", "5"),))
        case 1 if topic is not None and rng.random() < 0.2:
            return TopicDeleted(topic.topic_id)
        case 2 | 3 if topic is not None:
            replicas = tuple(BrokerId(number) for number in rng.sample(range(4), rng.randint(1, 3)))
            isr = rng.choice((None, replicas[:1]))
            return PartitionCreated(
                topic.topic_id, len(topic.partitions), replicas, replicas[0], LeaderEpoch(rng.randrange(3)), isr
            )
        case 4 if topic is not None and partition is not None:
            leader = rng.choice((*partition.replicas, NO_BROKER_ID))
            epoch = LeaderEpoch(partition.leader_epoch + 1)
            isr, emptied = rng.choice(((None, ()), ((leader,), ()), ((), partition.replicas[:1])))
            return LeaderChanged(topic.topic_id, partition.partition, leader, epoch, isr, emptied)
        case 5 if topic is not None and partition is not None and rng.random() < 0.5:
            replicas = tuple(BrokerId(number) for number in rng.sample(range(4), rng.randint(1, 4)))
            adding, removing = replicas[rng.randint(1, 4) :], replicas[: rng.randint(0, 1)]
            epoch = LeaderEpoch(partition.leader_epoch + 1)
            kept = replicas[:1]
            return ReplicasChanged(
                topic.topic_id, partition.partition, replicas, adding, removing, kept, kept[0], epoch
            )
        case 5 if topic is not None and partition is not None:
            return IsrChanged(topic.topic_id, partition.partition, partition.replicas[: rng.randint(1, 3)])
        case 6:
            return registered(rng.randrange(4), epoch=step)
        case 7 if broker is not None:
            if rng.random() < 0.3:
                began = broker.registration
                return ControlledShutdownBegun(began.broker_id, began.broker_epoch, Offset(step))
            if rng.random() < 0.3:
                left = tuple(UUID(int=number) for number in range(1, rng.randint(1, 4)))
                return BrokerDirectoriesChanged(broker.registration.broker_id, broker.registration.broker_epoch, left)
            kind = rng.choice((BrokerFenced, BrokerUnfenced, BrokerUnregistered))
            return kind(broker.registration.broker_id, broker.registration.broker_epoch)
        case 8:
            return ProducerIdsAllocated(ProducerId(image.next_producer_id + 1000))
        case 9 if topic is not None:
            return rng.choice(
                (
                    TopicConfigsChanged(topic.topic_id, (("segment.bytes", str(step)),)),
                    BrokerConfigsChanged(
                        BrokerId(rng.randrange(-1, 3)),
                        (("num.io.threads", str(step)),),
                        (("ssl.key.password", rng.randbytes(9)),) * rng.randrange(2),
                    ),
                )
            )
        case 10:
            if image.acls and rng.random() < 0.4:
                return AccessControlEntryRemoved(rng.choice(list(image.acls.entries)))
            return acl_added(UUID(int=step + 1), binding(f"t{step}"))
        case 12:
            if image.scram_credentials and rng.random() < 0.4:
                user, mechanism = rng.choice(list(image.scram_credentials))
                return ScramCredentialRemoved(user, mechanism.value)
            return ScramCredentialSet(f"u{step % 5}", rng.randint(1, 2), b"salt", b"stored", b"server", 4096)
        case 13:
            if image.client_quotas and rng.random() < 0.4:
                entity, values = rng.choice(list(image.client_quotas.entries.items()))
                return ClientQuotaRemoved(entity, rng.choice(list(values)))
            entity = (("user", rng.choice((None, f"u{step % 5}"))),)
            return ClientQuotaSet(entity, rng.choice(("producer_byte_rate", "consumer_byte_rate")), float(step))
        case 15 if topic is not None and partition is not None:
            holder = rng.choice(partition.replicas)
            return ReplicasAssignedToDirectory(
                holder, UUID(int=rng.randint(1, 3)), ((topic.topic_id, partition.partition),)
            )
        case 16:
            if rng.random() < 0.3:
                chosen = rng.sample(range(1000, 1006), rng.randint(1, 5))
                host = (("CONTROLLER", "host", 9093),) * rng.randrange(2)
                return VotersChanged(
                    VoterSet(QuorumVoter(BrokerId(each), UUID(int=each + step), host) for each in chosen)
                )
            of_group = () if rng.random() < 0.2 else (("consumer.session.timeout.ms", str(step)),)
            return GroupConfigsChanged(f"g{rng.randrange(6)}", of_group)
        case 17:
            subscribed = () if rng.random() < 0.2 else (("interval.ms", str(step)), ("metrics", "*"))
            return ClientMetricsConfigsChanged(f"s{rng.randrange(4)}", subscribed)
        case 14:
            if image.delegation_tokens and rng.random() < 0.5:
                token_id = rng.choice(list(image.delegation_tokens))
                if rng.random() < 0.5:
                    return DelegationTokenRemoved(token_id)
                return DelegationTokenExpiryChanged(token_id, step)
            users = [("User", f"u{number}") for number in range(step % 4)]
            return DelegationTokenCreated(
                f"token-{step}", ("User", "o"), ("User", "r"), tuple(users), 0, 2 * step, step
            )
    return None


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 120))
def test_it_restores_the_image(seed: int, steps: int) -> None:
    image = random_image(random.Random(seed), steps)
    assert vars(decode_snapshot(encode_snapshot(image, now_ms=5))) == vars(image)


def test_the_random_history_contains_every_record_kind() -> None:
    image = random_image(random.Random(3), 3000)
    assert all(vars(image).values())
    assert image.metadata_level == LATEST_LEVEL
    partitions = [each for topic in image.topics.values() for each in topic.partitions]
    assert any(each.partition_epoch > 1 for each in partitions)
    assert any(each.adding and each.former for each in partitions)
    assert any(each.emptied for each in partitions)


def test_a_large_snapshot_has_several_batches() -> None:
    image = MetadataImage()
    for number in range(BATCH_RECORDS + 10):
        image.replay(TopicCreated(f"t{number}", UUID(int=number + 1)))
    assert len(decode_snapshot(encode_snapshot(image, now_ms=5)).topics) == BATCH_RECORDS + 10
    assert len(list(records_of(image))) == BATCH_RECORDS + 10


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 120), st.integers(1, 40))
def test_the_file_does_not_depend_on_the_step_size(seed: int, steps: int, step_records: int) -> None:
    image = random_image(random.Random(seed), steps)
    assert encode_snapshot(image, now_ms=5, step_records=step_records) == encode_snapshot(image, now_ms=5)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 120), st.integers(1, 20))
def test_the_image_may_change_while_it_is_encoded(seed: int, steps: int, step_records: int) -> None:
    rng = random.Random(seed)
    image = random_image(rng, steps)
    expected = encode_snapshot(image, now_ms=5)
    writer, step = SnapshotWriter(ANY, image, now_ms=5), steps
    while not writer.step(step_records):
        step += 1
        record = _random_record(rng, image, step)
        if record is not None:
            image.replay(record)
    disk = SimDisk(rng)
    disk.mkdir("/log")
    writer.write(disk, "/log")
    written = disk.read_file(f"/log/{ANY.file_name}")
    assert (written, writer.size_bytes) == (expected, len(expected))


def test_a_truncated_or_changed_snapshot_is_refused() -> None:
    image = random_image(random.Random(3), 300)
    data = encode_snapshot(image, now_ms=5)
    rng = random.Random(4)
    for _ in range(200):
        with pytest.raises(KafkaError):
            decode_snapshot(data[: rng.randrange(len(data))])
        at = rng.randrange(len(data))
        changed = data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
        try:
            found = decode_snapshot(changed)
        except KafkaError:
            continue
        assert vars(found) == vars(image), f"byte {at} was changed, and another image is believed"


@given(st.integers(0, 1 << 32), st.lists(st.integers(0, 1 << 30), max_size=20))
def test_pieces_of_any_size_make_the_same_image(seed: int, cuts: list[int]) -> None:
    image = random_image(random.Random(seed), 100)
    data = encode_snapshot(image, now_ms=5, step_records=30)
    ends = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    decoder = SnapshotDecoder()
    for begin, end in pairwise(ends):
        decoder.feed(data[begin:end])
        assert decoder.size_bytes == end
    assert vars(decoder.finish()) == vars(image)


def test_a_piece_is_decoded_when_it_arrives() -> None:
    """Not all of them with the last one, which would take long."""
    image = MetadataImage()
    for number in range(3 * BATCH_RECORDS):
        image.replay(TopicCreated(f"t{number}", UUID(int=number + 1)))
    data = encode_snapshot(image, now_ms=5)
    decoder = SnapshotDecoder()
    decoder.feed(data[: 2 * len(data) // 3])
    assert len(decoder._image.topics) >= BATCH_RECORDS


def test_a_snapshot_of_a_later_version_is_not_reported_as_damaged() -> None:
    later = build_batch([NewRecord(b"snapshot", msgpack.packb(1), 5)])
    later += build_batch([NewRecord(None, msgpack.packb([18, METADATA_FEATURE, LATEST_LEVEL + 1]), 5)])
    with pytest.raises(UnsupportedLevel, match=rf"the metadata log is at raylog\.metadata level {LATEST_LEVEL + 1}"):
        decode_snapshot(bytes(later))


def test_the_file_name_has_offset_and_epoch() -> None:
    snapshot = SnapshotId(Offset(123), LeaderEpoch(4))
    assert snapshot.file_name == "00000000000000000123-0000000004.checkpoint"
    assert snapshot_named(snapshot.file_name) == snapshot
    for other in ("00000000000000000123.log", snapshot.file_name + ".tmp", "quorum-state"):
        assert snapshot_named(other) is None
