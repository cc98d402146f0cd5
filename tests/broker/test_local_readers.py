"""Requests, pages and notifications of local readers, without sockets: pages and doorbells only record their calls."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field, replace

import pytest

from raylog.broker.local_readers import (
    PARTITIONS_PER_READER_MAX,
    READERS_MAX,
    LocalReader,
    LocalReaders,
)
from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.core.ids import Offset, TopicPartition
from raylog.core.outcome import Outcome
from raylog.logstore.shared_page import PageSnapshot
from raylog.metadata.records import ClientQuotaSet
from raylog.protocol.local_messages import (
    VERSION,
    AbortedInFile,
    AbortedListed,
    Answer,
    ClosePartition,
    Hello,
    ListAborted,
    LocateSegment,
    OpenPartition,
    PartitionClosed,
    PartitionOpened,
    Refused,
    Request,
    SegmentLocated,
    Welcome,
    pack_aborted,
)
from raylog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raylog.security.principal import LOCAL_HOST, Client, Principal
from tests.logstore.batches import append, batch, marker
from tests.support.direct_broker import DirectBroker

USER = 1000
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@dataclass
class ListPage:
    """A page that remembers all it has shown."""

    shown: list[PageSnapshot]
    descriptor: int = 77
    closed: bool = False

    def publish(self, snapshot: PageSnapshot) -> None:
        assert not self.closed
        self.shown.append(snapshot)

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@dataclass
class CountingBell:
    rung: int = 0
    closed: bool = False
    descriptors: tuple[int, int] = (78, 79)

    def ring(self) -> None:
        assert not self.closed
        self.rung += 1

    def close(self) -> None:
        assert not self.closed
        self.closed = True


@dataclass
class Bench:
    """A broker without sockets, and its local readers."""

    broker: DirectBroker = field(default_factory=DirectBroker)
    pages: list[ListPage] = field(default_factory=list)
    bells: list[CountingBell] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.readers = LocalReaders(self.broker.broker.partition, new_page=self.new_page, new_bell=self.new_bell)
        self.broker.broker.local_readers = self.readers
        self.broker.create_topic("t", partitions=2)

    def new_page(self, snapshot: PageSnapshot) -> ListPage:
        self.pages.append(ListPage([snapshot]))
        return self.pages[-1]

    def new_bell(self) -> CountingBell:
        self.bells.append(CountingBell())
        return self.bells[-1]

    def enter(self) -> LocalReader:
        reader = self.readers.connected(user=USER, broker_user=USER)
        assert reader is not None
        assert self.ask(reader, Hello(VERSION)) == Welcome("User:ANONYMOUS")
        return reader

    def ask(self, reader: LocalReader, request: Request) -> Answer:
        return self.readers.serve(reader, request).answer

    def refused(self, reader: LocalReader, request: Request) -> ErrorCode:
        answer = self.ask(reader, request)
        assert isinstance(answer, Refused)
        return answer.error_code

    def open(self, reader: LocalReader, tp: TopicPartition = T0) -> int:
        answer = self.ask(reader, OpenPartition(tp.topic, tp.partition))
        assert isinstance(answer, PartitionOpened)
        assert answer.topic_id == self.broker.broker.partition(tp).topic_id
        return answer.handle


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestConnect:
    def test_the_brokers_user_and_root_are_accepted(self, bench: Bench) -> None:
        for user, enters in ((USER, True), (0, True), (USER + 1, False), (65534, False)):
            assert (bench.readers.connected(user=user, broker_user=USER) is not None) == enters

    def test_the_number_of_readers_is_limited(self, bench: Bench) -> None:
        readers = [bench.readers.connected(user=USER, broker_user=USER) for _ in range(READERS_MAX)]
        assert bench.readers.connected(user=USER, broker_user=USER) is None
        assert readers[7] is not None
        bench.readers.disconnected(readers[7])
        assert bench.readers.connected(user=USER, broker_user=USER) is not None

    def test_hello_must_be_the_first_request_and_the_only_one(self, bench: Bench) -> None:
        reader = bench.readers.connected(user=USER, broker_user=USER)
        assert reader is not None
        for request in (OpenPartition("t", 0), LocateSegment(0, 0), ClosePartition(0)):
            with pytest.raises(ProtocolViolation, match="Hello"):
                bench.ask(reader, request)
        assert bench.refused(reader, Hello(VERSION + 1)) == ErrorCode.UNSUPPORTED_VERSION
        assert bench.readers.serve(reader, Hello(VERSION)).descriptors == (78, 79)
        with pytest.raises(ProtocolViolation, match="Hello"):
            bench.ask(reader, Hello(VERSION))

    def test_without_descriptors_requests_are_refused_and_nothing_is_kept(self, bench: Bench) -> None:
        def full(*_: object) -> ListPage:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        reader = bench.enter()
        bench.readers._new_page = full
        assert bench.refused(reader, OpenPartition("t", 0)) == ErrorCode.BROKER_NOT_AVAILABLE
        bench.readers._new_page = bench.new_page
        assert bench.open(reader) == 0


class TestPages:
    def test_the_first_open_creates_the_page_and_the_last_close_removes_it(self, bench: Bench) -> None:
        bench.broker.produce([b"before"])
        first, second = bench.enter(), bench.enter()
        assert not bench.pages
        handles = [bench.open(first), bench.open(second), bench.open(second)]
        assert len(bench.pages) == 1
        for reader, handle in zip((second, first, second), (handles[2], handles[0], handles[1]), strict=True):
            assert not bench.pages[0].closed
            assert bench.ask(reader, ClosePartition(handle)) == PartitionClosed()
        assert bench.pages[0].closed
        bench.broker.produce([b"unseen"])
        assert len(bench.pages[0].shown) == 1
        bench.open(first)
        assert len(bench.pages) == 2

    def test_a_closed_connection_releases_everything(self, bench: Bench) -> None:
        first, second = bench.enter(), bench.enter()
        for tp in (T0, T0, TopicPartition("t", 1)):
            bench.open(first, tp)
        bench.open(second)
        bench.readers.disconnected(first)
        assert [page.closed for page in bench.pages] == [False, True]
        assert [bell.closed for bell in bench.bells] == [True, False]
        bench.broker.produce([b"x"])
        assert (bench.bells[0].rung, bench.bells[1].rung) == (0, 1)
        bench.readers.disconnected(second)
        assert all(page.closed for page in bench.pages)

    def test_every_append_is_published_and_rings_readers_of_the_partition(self, bench: Bench) -> None:
        watching, other = bench.enter(), bench.enter()
        bench.open(watching)
        bench.open(other, TopicPartition("t", 1))
        for count in (1, 2, 3):
            bench.broker.produce([b"x"])
            assert bench.pages[0].shown[-1].high_watermark == count
            assert [bell.rung for bell in bench.bells] == [count, 0]

    def test_a_snapshot_has_all_offsets(self, bench: Bench) -> None:
        reader = bench.enter()
        bench.open(reader)
        bench.broker.produce([b"x"] * 3)
        log = bench.broker.broker.partition(T0).log
        assert bench.pages[0].shown[-1] == PageSnapshot(
            log_start_offset=0,
            log_end_offset=3,
            high_watermark=3,
            last_stable_offset=3,
            leader_epoch=bench.broker.broker.partition(T0).leader_epoch,
            generation=0,
            readable_base_offset=0,
            readable_position=log.size_bytes,
            aborted_upto=0,
            is_open=1,
        )

    def test_aborted_transactions_are_published_and_listed(self, bench: Bench) -> None:
        reader = bench.enter()
        handle = bench.open(reader)
        partition = bench.broker.broker.partition(T0)
        for committed in (True, False):
            bench.broker.produce([b"x"])
            for data in (
                batch(b"a", b"b", producer=(7, 0, -1), transactional=True),
                marker(7, committed=committed),
            ):
                append(partition.log, data, epoch=partition.leader_epoch, from_client=False)
        bench.broker.produce([b"x"])
        page = bench.pages[0].shown[-1]
        assert (page.last_stable_offset, page.aborted_upto) == (9, 8)
        begun = batch(b"open", producer=(8, 0, -1), transactional=True)
        append(partition.log, begun, epoch=partition.leader_epoch, from_client=False)
        file = bench.broker.disk.status(partition.locate(Offset(0)).path).identity
        request = ListAborted(handle, 0, *file, 0, 3)
        reply = bench.readers.serve(reader, request)
        assert reply.answer == AbortedListed(9)
        assert reply.content == pack_aborted([AbortedInFile(7, 5, 7)])
        for wrong in (
            replace(request, inode=file[1] + 1),
            replace(request, device=file[0] + 1),
            replace(request, base_offset=1),
            replace(request, wanted=10),
            replace(request, offset=4),
        ):
            assert bench.refused(reader, wrong) == ErrorCode.RESOURCE_NOT_FOUND
        bench.broker.call(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
        assert bench.refused(reader, request) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_deleted_records_and_retention_are_published(self) -> None:
        broker = DirectBroker({"log.retention.check.interval.ms": "1000", "log.retention.ms": "1"})
        bench = Bench(broker)
        bench.open(bench.enter())
        broker.produce([b"x"] * 5)
        part = DeleteRecordsPartition(partition_index=0, offset=2)
        broker.call(DeleteRecordsRequest(topics=(DeleteRecordsTopic(name="t", partitions=(part,)),)))
        assert bench.pages[0].shown[-1].log_start_offset == 2
        assert bench.bells[0].rung == 2
        broker.pass_time(2000)
        last = bench.pages[0].shown[-1]
        assert (last.log_start_offset, last.readable_base_offset, last.readable_position) == (5, 5, 0)
        assert bench.bells[0].rung == 3

    def test_markers_written_by_the_broker_are_published(self, bench: Bench) -> None:
        bench.broker.broker.request_topic("__consumer_offsets", bench.broker.now())
        bench.broker.settle()
        reader = bench.enter()
        for number in range(50):
            bench.open(reader, TopicPartition("__consumer_offsets", number))
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="t", partitions=(part,))
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=(topic,))
        bench.broker.call(request, version=9)
        assert sum(page.shown[-1].high_watermark for page in bench.pages) == 1
        bench.broker.call(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
        assert sum(page.shown[-1].high_watermark for page in bench.pages) == 2

    def test_a_deleted_topic_closes_its_pages(self, bench: Bench) -> None:
        reader = bench.enter()
        handle = bench.open(reader)
        bench.open(reader, TopicPartition("t", 1))
        bench.broker.call(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),)))
        assert all(page.closed for page in bench.pages)
        assert bench.bells[0].rung == 2
        assert bench.refused(reader, LocateSegment(handle, 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert bench.refused(reader, OpenPartition("t", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        bench.broker.create_topic("t")
        assert bench.refused(reader, LocateSegment(handle, 0)) == ErrorCode.UNKNOWN_TOPIC_ID
        assert bench.open(reader) > handle
        assert bench.ask(reader, ClosePartition(handle)) == PartitionClosed()
        assert [page.closed for page in bench.pages] == [True, True, False]
        bench.readers.disconnected(reader)
        assert bench.pages[2].closed

    def test_a_stopping_broker_closes_all_pages(self, bench: Bench) -> None:
        reader = bench.enter()
        bench.open(reader)
        bench.broker.broker.close(bench.broker.now())
        assert bench.pages[0].closed
        assert bench.bells[0].rung == 1
        bench.readers.disconnected(reader)

    def test_an_offline_log_closes_its_page(self, bench: Bench) -> None:
        """A failed append takes the log offline without an event: the broker checks for it periodically."""
        reader = bench.enter()
        bench.open(reader)
        bench.broker.disk.fail_next("pwrite", errno.EIO)
        assert bench.broker.produce([b"x"]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not bench.pages[0].closed
        bench.broker.pass_time(1000)
        assert bench.pages[0].closed
        assert bench.bells[0].rung == 1
        assert bench.refused(reader, OpenPartition("t", 0)) == ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_log_that_goes_offline_while_it_is_published(self, bench: Bench) -> None:
        bench.open(bench.enter())
        bench.broker.broker.partition(T0).log.take_offline("for the test")
        bench.readers.changed(T0)
        assert bench.pages[0].closed
        assert len(bench.pages[0].shown) == 1


class TestRequests:
    def test_segments_are_located(self) -> None:
        bench = Bench(DirectBroker({"log.segment.bytes": "300"}))
        reader = bench.enter()
        handle = bench.open(reader)
        for number in range(6):
            bench.broker.produce([b"%d" % number * 100])
        size = bench.pages[0].shown[1].readable_position
        for offset, base_offset in enumerate((0, 1, 2, 3, 4, 5)):
            reply = bench.readers.serve(reader, LocateSegment(handle, offset))
            assert reply.answer == SegmentLocated(base_offset, 0, 0)
            assert reply.path == f"/broker-0/t-0/{base_offset:020d}.log"
        assert bench.ask(reader, LocateSegment(handle, 6)) == SegmentLocated(5, size, 0)
        for offset in (-1, 7, 1 << 62):
            assert bench.refused(reader, LocateSegment(handle, offset)) == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_handles_belong_to_their_reader(self, bench: Bench) -> None:
        first, second = bench.enter(), bench.enter()
        handle = bench.open(first)
        for request in (LocateSegment(handle, 0), ClosePartition(handle)):
            with pytest.raises(ProtocolViolation, match="is not open"):
                bench.ask(second, request)
        assert bench.ask(first, ClosePartition(handle)) == PartitionClosed()
        with pytest.raises(ProtocolViolation, match="is not open"):
            bench.ask(first, ClosePartition(handle))

    def test_unavailable_partitions_are_refused(self, bench: Bench) -> None:
        reader = bench.enter()
        for topic, partition in (("t", 2), ("t", -1), ("none", 0), ("__cluster_metadata", 0), ("../t", 0), ("", 0)):
            assert bench.refused(reader, OpenPartition(topic, partition)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not bench.pages

    def test_the_number_of_open_partitions_is_limited(self, bench: Bench) -> None:
        reader = bench.enter()
        handles = [bench.open(reader) for _ in range(PARTITIONS_PER_READER_MAX)]
        assert bench.refused(reader, OpenPartition("t", 0)) == ErrorCode.POLICY_VIOLATION
        bench.ask(reader, ClosePartition(handles[3]))
        bench.open(reader)
        assert len(bench.pages) == 1
        bench.readers.disconnected(reader)
        assert bench.pages[0].closed

    def test_error_messages_are_short(self, bench: Bench) -> None:
        reader = bench.enter()
        bench.readers._partition = bench.broker.broker.partition
        answer = bench.ask(reader, OpenPartition("x" * 900, 0))
        assert isinstance(answer, Refused)
        assert len(answer.message) <= 200


class TestQuotas:
    """A client with a consumer quota must use Fetch, where the quota can be enforced."""

    @pytest.fixture
    def limited(self, bench: Bench) -> set[Client]:
        """The clients with a quota."""
        clients: set[Client] = set()
        bench.readers._is_limited = clients.__contains__
        return clients

    def test_a_client_with_a_quota_is_refused(self, bench: Bench, limited: set[Client]) -> None:
        reader, other = bench.enter(), bench.enter()
        other.client = Client(Principal("User", "other"), LOCAL_HOST)
        limited.add(reader.client)
        assert bench.refused(reader, OpenPartition("t", 0)) == ErrorCode.POLICY_VIOLATION
        bench.open(other)
        limited.clear()
        bench.open(reader)

    def test_a_new_quota_ends_the_reads_of_its_clients(self, bench: Bench, limited: set[Client]) -> None:
        reader, other = bench.enter(), bench.enter()
        other.client = Client(Principal("User", "other"), LOCAL_HOST)
        bench.open(reader)
        bench.open(other, T1)
        bench.readers.quotas_changed()
        assert not any(page.closed for page in bench.pages)
        limited.add(reader.client)
        bench.readers.quotas_changed()
        assert [page.closed for page in bench.pages] == [True, False]
        assert bench.bells[0].rung == 1
        assert bench.refused(reader, OpenPartition("t", 0)) == ErrorCode.POLICY_VIOLATION

    def test_the_broker_asks_for_the_consumer_quotas_of_the_cluster(self) -> None:
        broker = DirectBroker()
        broker.create_topic("t")
        readers = broker.broker.local_readers
        reader = readers.connected(user=USER, broker_user=USER)
        assert reader is not None
        assert not readers._is_limited(reader.client)
        for record in (
            ClientQuotaSet((("user", "ANONYMOUS"),), "producer_byte_rate", 1.0),
            ClientQuotaSet((("client-id", "c"),), "consumer_byte_rate", 1.0),
        ):
            assert not readers._is_limited(reader.client)
            broker.controller.decide(Outcome(None, [record]), broker.now())
            broker.controller.run(broker.now())
            broker.settle()
        assert readers._is_limited(reader.client), "its client id is unknown"
