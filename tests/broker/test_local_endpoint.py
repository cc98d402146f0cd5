"""A hostile process at the local endpoint ends its own connection only, and everything it was given is released."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from raylog.broker import local_endpoint
from raylog.broker.local_endpoint import LocalEndpoint, open_local_endpoint
from raylog.broker.local_readers import READERS_MAX, LocalReaders
from raylog.client import local_broker
from raylog.client.local_broker import LocalBroker, open_local
from raylog.core.errors import ErrorCode, InvariantViolation, KafkaError
from raylog.core.ids import BrokerId, TopicPartition
from raylog.protocol.local_messages import (
    DATAGRAM_BYTES_MAX,
    VERSION,
    Hello,
    LocateSegment,
    OpenPartition,
    PartitionOpened,
    Refused,
    SegmentLocated,
    decode_answer,
    encode,
)
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.replication.partition import Partition
from raylog.transport import unix
from tests.support.cluster_process import ClusterProcess, cluster_process
from tests.support.cluster_thread import cluster_thread
from tests.support.descriptors import descriptors, left_by_rounds, left_by_rounds_at_rest
from tests.support.hang import wait_until
from tests.support.raw_client import RawClient

TP = TopicPartition("t", 0)
SECONDS_MAX = 60.0
"""A hang guard."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    config = {"log.retention.ms": "-1"}  # the record is from 1970
    with cluster_process(config, tmp_path_factory.mktemp("local") / "log") as process:
        with RawClient(process.bootstrap_servers, client_id="test") as client:
            client.metadata(["t"], create=True)
            client.produce(TP, build_batch([NewRecord(None, b"first", 0)]))
        yield process


@pytest.fixture(autouse=True)
def others_notice_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Somebody else reads before and after, over the same connection; and the broker holds no more than before."""
    if "broker" not in request.fixturenames:
        yield
        return
    process: ClusterProcess = request.getfixturevalue("broker")
    witness = open_local(process.cluster_id, 0)
    assert witness is not None
    with witness, witness.open(TP, 0) as reader:
        assert [record.value for record in reader.read_records()] == [b"first"]
        before = process.open_files()
        yield
        reader.seek(0)
        assert [record.value for record in reader.read_records()] == [b"first"]
        assert witness.connection == 1
        wait_until(lambda: process.open_files() <= before)


def knock(broker: ClusterProcess) -> socket.socket:
    """A connection that has said nothing."""
    return unix.connect(
        unix.socket_path(unix.runtime_dirs()[0], broker.cluster_id, unix.local_socket_name(0)),
        unix.DATAGRAMS,
        timeout_seconds=SECONDS_MAX,
    )


def enter(broker: ClusterProcess) -> socket.socket:
    sock = knock(broker)
    unix.send(sock, encode(Hello(VERSION)))
    _, descriptors = unix.receive(sock, DATAGRAM_BYTES_MAX, descriptors_max=2)
    for descriptor in descriptors:
        os.close(descriptor)
    assert len(descriptors) == 2
    return sock


def is_hung_up(sock: socket.socket) -> bool:
    """After whatever else it was sent."""
    try:
        while sock.recv(DATAGRAM_BYTES_MAX):
            pass
    except ConnectionResetError:
        pass
    return True


class TestHostilePeers:
    def test_random_bytes(self, broker: ClusterProcess) -> None:
        rng = random.Random(7)
        for number in range(300):
            with (enter if number % 2 else knock)(broker) as sock:
                sock.send(rng.randbytes(rng.randint(1, 200)))
                assert is_hung_up(sock)

    @pytest.mark.parametrize("size", [0, DATAGRAM_BYTES_MAX + 1, 100_000])
    def test_datagrams_of_invalid_size(self, broker: ClusterProcess, size: int) -> None:
        with enter(broker) as sock:
            sock.send(encode(OpenPartition("t", 0)) + bytes(size) if size else b"")
            assert is_hung_up(sock)

    def test_requests_out_of_order(self, broker: ClusterProcess) -> None:
        for first, request in (
            (knock, OpenPartition("t", 0)),
            (enter, Hello(VERSION)),
            (enter, LocateSegment(0, 0)),
            (enter, LocateSegment(-1, 0)),
        ):
            with first(broker) as sock:
                unix.send(sock, encode(request))
                assert is_hung_up(sock)

    def test_received_descriptors_are_closed(self, broker: ClusterProcess) -> None:
        with enter(broker) as sock:
            before = broker.open_files()
            for _ in range(50):
                socket.send_fds(sock, [encode(OpenPartition("none", 0))], [sock.fileno()] * 250)
                assert isinstance(decode_answer(sock.recv(DATAGRAM_BYTES_MAX)), Refused)
            assert broker.open_files() <= before

    @pytest.mark.parametrize("request_", [OpenPartition("t", 0), OpenPartition("none", 0)])
    def test_a_client_that_requests_and_never_reads(self, broker: ClusterProcess, request_: OpenPartition) -> None:
        with enter(broker) as sock:
            try:
                for _ in range(100_000):
                    unix.send(sock, encode(request_))
            except OSError:
                pass
            else:
                pytest.fail("the connection was not closed")
            assert is_hung_up(sock)

    def test_too_many_connections(self, broker: ClusterProcess) -> None:
        """Silent ones. Those within the bound stay, those above are turned away, and room that is left is used
        again."""
        held = [knock(broker) for _ in range(READERS_MAX - 1)]
        for _ in range(5):
            with knock(broker) as sock:
                assert is_hung_up(sock)
        held.pop().close()
        wait_until(lambda: self.is_let_in(broker))
        for sock in held:
            sock.close()

    def is_let_in(self, broker: ClusterProcess) -> bool:
        with knock(broker) as sock:
            try:
                unix.send(sock, encode(Hello(VERSION)))
                return sock.recv(DATAGRAM_BYTES_MAX) != b""
            except OSError:
                return False

    def test_too_many_open_partitions(self, broker: ClusterProcess) -> None:
        with enter(broker) as sock:
            while True:
                unix.send(sock, encode(OpenPartition("t", 0)))
                datagram, descriptors = unix.receive(sock, DATAGRAM_BYTES_MAX, descriptors_max=2)
                answer = decode_answer(datagram)
                if isinstance(answer, Refused):
                    assert answer.error_code == ErrorCode.POLICY_VIOLATION
                    break
                os.close(descriptors[0])

    def test_a_connection_that_closes_during_a_request(self, broker: ClusterProcess) -> None:
        for _ in range(100):
            with knock(broker) as sock:
                unix.send(sock, encode(Hello(VERSION)))

    def test_received_descriptors_are_read_only(self, broker: ClusterProcess) -> None:
        with enter(broker) as sock:
            unix.send(sock, encode(OpenPartition("t", 0)))
            datagram, (page,) = unix.receive(sock, DATAGRAM_BYTES_MAX, descriptors_max=2)
            opened = decode_answer(datagram)
            assert isinstance(opened, PartitionOpened)
            assert isinstance(opened.topic_id, UUID)
            unix.send(sock, encode(LocateSegment(opened.handle, 0)))
            datagram, (file,) = unix.receive(sock, DATAGRAM_BYTES_MAX, descriptors_max=2)
            assert decode_answer(datagram) == SegmentLocated(0, 0, 0)
            assert fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            for descriptor in (page, file):
                with pytest.raises(OSError, match=r"Bad file descriptor|not permitted"):
                    os.pwrite(descriptor, b"x", 0)
                with pytest.raises(OSError, match=r"Invalid argument|not permitted"):
                    os.ftruncate(descriptor, 0)
                os.close(descriptor)


class TestLifecycle:
    def test_the_socket_exists_while_the_broker_runs(self, tmp_path: Path) -> None:
        with cluster_thread({}, tmp_path / "log") as running:
            identity = running.broker.identity
            path = unix.socket_path(unix.runtime_dirs()[0], identity.cluster_id, unix.local_socket_name(0))
            assert path.is_socket()
            local = open_local(identity.cluster_id, 0)
            assert local is not None
            local.close()
        assert not path.parent.exists()
        assert open_local(identity.cluster_id, 0) is None

    def test_after_a_kill_the_next_incarnation_replaces_the_socket(self, tmp_path: Path) -> None:
        killed = ClusterProcess({}, tmp_path / "log")
        path = unix.socket_path(unix.runtime_dirs()[0], killed.cluster_id, unix.local_socket_name(0))
        killed.kill()
        assert path.is_socket()
        assert open_local(killed.cluster_id, 0) is None
        with cluster_process({}, tmp_path / "log"):
            local = open_local(killed.cluster_id, 0)
            assert local is not None
            local.close()

    def test_a_broker_without_a_usable_runtime_directory_serves_over_tcp(
        self, tmp_path: Path, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        open_to_all = runtime_dir / "open"
        open_to_all.mkdir()
        open_to_all.chmod(0o755)
        monkeypatch.setattr(unix, "runtime_dirs", lambda: (Path("/proc/none/raylog"), open_to_all))
        with (
            cluster_thread({}, tmp_path / "log") as running,
            RawClient(running.bootstrap_servers, client_id="t") as c,
        ):
            assert c.metadata([]).brokers
            assert open_local(running.broker.identity.cluster_id, 0) is None
        (warning,) = [record for record in caplog.records if record.message == "local endpoint not opened"]
        assert "No such file" in warning.__dict__["reason"]
        assert "accessible to other users (mode 755" in warning.__dict__["reason"]

    def test_the_second_runtime_directory_is_used_if_the_first_is_unusable(
        self, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        too_long = Path("/tmp") / ("x" * 100)
        monkeypatch.setattr(unix, "runtime_dirs", lambda: (too_long, runtime_dir / "raylog"))
        with cluster_thread({}, tmp_path / "log") as running:
            local = open_local(running.broker.identity.cluster_id, 0)
            assert local is not None
            local.close()

    def test_an_invariant_violation_ends_the_broker_and_closes_its_readers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise InvariantViolation("cannot be")

        def scenario() -> None:
            with cluster_thread({}, tmp_path / "log") as running:
                with RawClient(running.bootstrap_servers, client_id="test") as client:
                    client.metadata(["t"], create=True)
                    client.leader(TP)
                local = open_local(running.cluster_id, 0)
                assert local is not None
                with local, local.open(TP, 0) as reader:
                    monkeypatch.setattr(LocalReaders, "serve", broken)
                    with pytest.raises(KafkaError, match="closed the connection"):
                        local.open(TP, 0)
                    with pytest.raises(KafkaError, match="no broker at"):
                        reader.read()

        with pytest.raises(InvariantViolation, match="cannot be"):
            scenario()

    def test_a_broker_that_refuses_hello_is_not_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local_broker, "VERSION", VERSION + 1)
        with cluster_thread({}, tmp_path / "log") as running:
            before = descriptors()
            for _ in range(20):
                assert open_local(running.cluster_id, 0) is None
            assert left_by_rounds_at_rest(before, 20) == []
            local = LocalBroker(
                [unix.socket_path(unix.runtime_dirs()[0], running.cluster_id, unix.local_socket_name(0))]
            )
            with pytest.raises(KafkaError) as refused:
                local.connect()
            assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
            assert not local.connected


@contextmanager
def few_files(more: int) -> Iterator[None]:
    """So many can be opened within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.dup(0)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class TestShell:
    """The endpoint alone, on a loop of the test's own."""

    def test_accept_pauses_when_the_process_has_no_descriptors_left(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario() -> None:
            endpoint, path = self.endpoint()
            loop = asyncio.get_running_loop()
            client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            client.setblocking(False)
            monkeypatch.setattr(local_endpoint, "ACCEPT_PAUSE_SECONDS", 0.01)
            with few_files(0):
                client.connect(str(path))
                await asyncio.sleep(0.1)
            refusals = [record for record in caplog.records if record.message == "local reader connection delayed"]
            assert 1 <= len(refusals) <= 50
            await loop.sock_sendall(client, encode(Hello(VERSION)))
            assert await loop.sock_recv(client, DATAGRAM_BYTES_MAX)
            client.close()
            endpoint.close()

        asyncio.run(scenario())

    def test_an_invariant_violation_ends_the_broker_and_another_exception_the_connection(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario() -> None:
            broken: asyncio.Queue[InvariantViolation] = asyncio.Queue()
            raised: list[BaseException] = [RuntimeError("bug"), InvariantViolation("cannot be")]

            def partition(_: TopicPartition) -> Partition:
                raise raised[0]

            endpoint, path = self.endpoint(partition, broken.put_nowait)
            for count in (0, 1):
                local = LocalBroker([path])
                await asyncio.to_thread(local.connect)
                call = asyncio.to_thread(local.call, OpenPartition("t", 0), PartitionOpened, descriptors=1)
                if count == 0:
                    with pytest.raises(KafkaError, match="closed the connection"):
                        await call
                    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == [
                        "local reader failed"
                    ]
                else:
                    task = asyncio.ensure_future(call)
                    assert str(await broken.get()) == "cannot be"
                    endpoint.close()
                    with pytest.raises(KafkaError, match="lost"):
                        await task
                local.close()
                del raised[0]
            assert broken.empty()

        asyncio.run(scenario())

    def test_close_releases_all_resources(self) -> None:
        async def scenario() -> None:
            before = descriptors()
            for _ in range(20):
                endpoint, path = self.endpoint()
                clients = [LocalBroker([path]) for _ in range(3)]
                for client in clients:
                    await asyncio.to_thread(client.connect)
                endpoint.close()
                for client in clients:
                    client.close()
            assert left_by_rounds(before, 20) == []

        async def warm() -> None:
            await asyncio.to_thread(int)
            await scenario()

        asyncio.run(warm())

    def endpoint(
        self,
        partition: Callable[[TopicPartition], Partition] | None = None,
        on_failure: Callable[[InvariantViolation], None] = lambda _: None,
    ) -> tuple[LocalEndpoint, Path]:
        def nothing(_: TopicPartition) -> Partition:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        readers = LocalReaders(partition or nothing)
        endpoint = open_local_endpoint(readers, cluster_id="shell", broker_id=BrokerId(0), on_failure=on_failure)
        assert endpoint is not None
        return endpoint, unix.socket_path(unix.runtime_dirs()[0], "shell", unix.local_socket_name(0))
