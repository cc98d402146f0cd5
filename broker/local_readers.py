"""Readers on this node that read partitions from their files, and their requests. Its shell is local_messages.py.

A reader is a connection: what it was given is released with it. It opens partitions, each by a handle, and gets the
page of each, which all readers of a partition share; the page is created for the first of them and removed after the
last. From then on the broker publishes to the page and wakes sleeping readers; further requests are for the place of
the next segment, and for the aborted transactions in a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from raylog.core.errors import ErrorCode, KafkaError, ProtocolViolation
from raylog.core.ids import Offset, TopicPartition
from raylog.logstore.shared_page import PageSnapshot, SharedPage
from raylog.protocol.local_messages import (
    REFUSAL_CHARACTERS_MAX,
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
from raylog.replication.partition import Partition
from raylog.security.principal import ANONYMOUS, LOCAL_HOST, Client, Principal
from raylog.transport.doorbell import Doorbell

READERS_MAX: Final = 256
"""Further readers are refused and use the Kafka protocol. Each costs the broker four descriptors, each page two."""
PARTITIONS_PER_READER_MAX: Final = 1024
ROOT: Final = 0


class Page(Protocol):
    """The page that the readers of one partition share: a SharedPage, or a test's list."""

    descriptor: int

    def publish(self, snapshot: PageSnapshot) -> None: ...

    def close(self) -> None: ...


class Bell(Protocol):
    """Wakes one reader: a Doorbell."""

    @property
    def descriptors(self) -> tuple[int, int]: ...

    def ring(self) -> None: ...

    def close(self) -> None: ...


class Reply(NamedTuple):
    """A response and what is sent with it: descriptors that the broker keeps, a file to be opened for reading, or the
    content of one that is made for the response."""

    answer: Answer
    descriptors: tuple[int, ...] = ()
    path: str | None = None
    content: bytes | None = None


@dataclass(eq=False, slots=True)
class LocalReader:
    """One connection at the local endpoint."""

    client: Client
    """The client for which partitions are opened."""
    bell: Bell | None = None
    """None until Hello."""
    opened: dict[int, _OpenPartition] = field(default_factory=dict)
    next_handle: int = 0


@dataclass(eq=False, slots=True)
class _OpenPartition:
    """A partition with readers. Once gone, its handles return errors, even if a topic of that name returns."""

    partition: Partition
    page: Page
    readers: dict[LocalReader, int] = field(default_factory=dict)
    """The number of handles each reader has for it."""
    gone: bool = False


class LocalReaders:
    """All readers of one broker. A page is in `_pages` while its partition is served and open in some reader."""

    def __init__(
        self,
        partition: Callable[[TopicPartition], Partition],
        *,
        may_read: Callable[[Client, TopicPartition], bool] = lambda client, tp: True,
        is_limited: Callable[[Client], bool] = lambda client: False,
        principal_of: Callable[[int], Principal] = lambda user: ANONYMOUS,
        new_page: Callable[[PageSnapshot], Page] = SharedPage,
        new_bell: Callable[[], Bell] = Doorbell,
    ) -> None:
        """`partition` returns one led by this broker, or raises KafkaError; `new_page` and `new_bell` raise OSError.

        `may_read` is checked on every open: a revoked right applies from the next open on. A client whose reads are
        limited by a quota must use Fetch: nothing could limit its reads of a mapped file. `principal_of` names whom a
        user of the operating system stands for.
        """
        self._partition = partition
        self._may_read = may_read
        self._is_limited = is_limited
        self._principal_of = principal_of
        self._new_page = new_page
        self._new_bell = new_bell
        self._readers: dict[LocalReader, None] = {}
        self._pages: dict[TopicPartition, _OpenPartition] = {}

    @property
    def reader_count(self) -> int:
        return len(self._readers)

    @property
    def partition_count(self) -> int:
        """The number of partitions that are open in a reader."""
        return len(self._pages)

    # --- readers

    def connected(self, *, user: int, broker_user: int) -> LocalReader | None:
        """A new connection of this user; None if the user is not allowed or READERS_MAX are connected."""
        if user not in (broker_user, ROOT) or len(self._readers) >= READERS_MAX:
            return None
        reader = LocalReader(Client(self._principal_of(user), LOCAL_HOST))
        self._readers[reader] = None
        return reader

    def disconnected(self, reader: LocalReader) -> None:
        """The connection is closed, or must be: everything it was given is released."""
        del self._readers[reader]
        for handle in list(reader.opened):
            self._close(reader, handle)
        if reader.bell is not None:
            reader.bell.close()

    def serve(self, reader: LocalReader, request: Request) -> Reply:
        """Raises ProtocolViolation for an invalid request; the connection must then be closed."""
        if (reader.bell is None) != isinstance(request, Hello):
            raise ProtocolViolation("the first request of a reader must be Hello, and there must be only one")
        try:
            match request:
                case Hello():
                    return self._welcome(reader, request.version)
                case OpenPartition():
                    return self._open(reader, TopicPartition(request.topic, request.partition))
                case LocateSegment():
                    return self._locate(reader, request.handle, Offset(request.offset))
                case ListAborted():
                    return self._list_aborted(reader, request)
                case ClosePartition():
                    self._close(reader, request.handle)
                    return Reply(PartitionClosed())
        except KafkaError as error:
            return refusal(error.code, error.message)
        except OSError as error:
            return refusal(ErrorCode.BROKER_NOT_AVAILABLE, f"the broker cannot open files: {error}")

    # --- changes of partitions

    def changed(self, tp: TopicPartition) -> None:
        """The high watermark, log start offset or leader epoch has changed, and the files contain the new state."""
        opened = self._pages.get(tp)
        if opened is None:
            return
        try:
            snapshot = opened.partition.publish()
        except KafkaError:  # offline: the readers get the error with their next request
            self.gone(tp)
            return
        opened.page.publish(snapshot)
        for reader in opened.readers:
            _ring(reader)

    def gone(self, tp: TopicPartition) -> None:
        """The partition is no longer served here."""
        opened = self._pages.pop(tp, None)
        if opened is None:
            return
        opened.gone = True
        opened.page.close()
        for reader in opened.readers:
            _ring(reader)

    def quotas_changed(self) -> None:
        """Quotas limit readers that they did not limit before: all readers of their partitions open them again."""
        limited = [reader for reader in self._readers if reader.opened and self._is_limited(reader.client)]
        for tp, opened in list(self._pages.items()):
            if any(reader in opened.readers for reader in limited):
                self.gone(tp)

    def close_offline(self) -> None:
        """Logs can also go offline without an event: their readers must not wait for data that cannot arrive."""
        for tp, opened in list(self._pages.items()):
            if opened.partition.log.offline_reason is not None:
                self.gone(tp)

    def close(self) -> None:
        """The broker stops: every reader is notified."""
        for tp in list(self._pages):
            self.gone(tp)

    # --- internals

    def _welcome(self, reader: LocalReader, version: int) -> Reply:
        if version != VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"version {version} of the local protocol is not supported, only version {VERSION}",
            )
        reader.bell = self._new_bell()
        return Reply(Welcome(str(reader.client.principal)), reader.bell.descriptors)

    def _open(self, reader: LocalReader, tp: TopicPartition) -> Reply:
        if len(reader.opened) >= PARTITIONS_PER_READER_MAX:
            what = f"the connection has {PARTITIONS_PER_READER_MAX} open partitions, the maximum: close one first"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, what)
        if not self._may_read(reader.client, tp):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._is_limited(reader.client):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "a client with the quota consumer_byte_rate must use Fetch")
        partition = self._partition(tp)
        opened = self._pages.get(tp)
        if opened is None:
            opened = _OpenPartition(partition, self._new_page(partition.publish()))
            self._pages[tp] = opened
        handle = reader.next_handle
        reader.next_handle += 1
        reader.opened[handle] = opened
        opened.readers[reader] = opened.readers.get(reader, 0) + 1
        return Reply(PartitionOpened(handle, partition.topic_id), (opened.page.descriptor,))

    def _locate(self, reader: LocalReader, handle: int, offset: Offset) -> Reply:
        partition = self._served(reader, handle)
        place = partition.locate(offset)
        return Reply(SegmentLocated(place.base_offset, place.position, partition.log.generation), path=place.path)

    def _list_aborted(self, reader: LocalReader, request: ListAborted) -> Reply:
        partition = self._served(reader, request.handle)
        identity = request.device, request.inode
        listed = partition.aborted_in_file(
            request.base_offset, identity, Offset(request.offset), Offset(request.wanted)
        )
        if listed is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"the file of segment {request.base_offset} was replaced")
        transactions, upto = listed
        found = (AbortedInFile(each.producer_id, each.first_offset, each.last_offset) for each in transactions)
        return Reply(AbortedListed(upto), content=pack_aborted(found))

    def _served(self, reader: LocalReader, handle: int) -> Partition:
        """The partition that the reader has opened, if it is still the one that this broker serves."""
        partition = _opened(reader, handle).partition
        served = self._partition(partition.topic_partition)
        if served.topic_id != partition.topic_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID, "the topic was deleted and created again: open the partition again"
            )
        if served is not partition:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition was closed and reopened by the broker: open it again"
            )
        return partition

    def _close(self, reader: LocalReader, handle: int) -> None:
        opened = _opened(reader, handle)
        del reader.opened[handle]
        opened.readers[reader] -= 1
        if not opened.readers[reader]:
            del opened.readers[reader]
        if not opened.readers and not opened.gone:
            opened.gone = True
            del self._pages[opened.partition.topic_partition]
            opened.page.close()


def refusal(code: ErrorCode, message: str) -> Reply:
    return Reply(Refused(code, message[:REFUSAL_CHARACTERS_MAX]))


def _opened(reader: LocalReader, handle: int) -> _OpenPartition:
    opened = reader.opened.get(handle)
    if opened is None:
        raise ProtocolViolation(f"handle {handle} is not open")
    return opened


def _ring(reader: LocalReader) -> None:
    assert reader.bell is not None  # it has opened a partition
    reader.bell.ring()
