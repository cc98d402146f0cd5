"""A TLS listener with real sockets: what clients and strangers send, keys that change, and who is delayed by whom."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from raylog.client.client_config import ClientConfig
from raylog.core.ids import TopicPartition
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.records.reader import read_batches
from raylog.transport import server as transport_server
from raylog.transport import system_time, tls_endpoint
from tests.support.administration import create_topic
from tests.support.certificates import Certificates
from tests.support.cluster_thread import RunningCluster, cluster_thread
from tests.support.connection import BlockingConnection, SocketStream
from tests.support.hang import HANG_SECONDS
from tests.support.raw_client import RawClient

TP = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates.new(tmp_path_factory.mktemp("certificates"))
    made.issue("first", "127.0.0.1")
    made.issue("second", "127.0.0.1")
    return made


@pytest.fixture
def keys(certificates: Certificates, tmp_path: Path) -> Path:
    """The broker's key store, which a test may replace."""
    return Path(shutil.copy(certificates.folder / "first.pem", tmp_path / "keys.pem"))


@pytest.fixture
def cluster(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningCluster]:
    monkeypatch.setattr(transport_server, "TLS_REFRESH_SECONDS", 0.05)
    config = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
    }
    with cluster_thread(config, tmp_path / "data") as running:
        yield running


def port(cluster: RunningCluster, listener: str = "SSL") -> int:
    return cluster.broker.endpoints[listener].port


def dial(cluster: RunningCluster, listener: str = "SSL") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port(cluster, listener)), timeout=HANG_SECONDS)


def secured(cluster: RunningCluster, certificates: Certificates) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(certificates.trusted))
    return context.wrap_socket(dial(cluster), server_hostname="127.0.0.1")


def certificate_of(sock: ssl.SSLSocket) -> str:
    subject = (sock.getpeercert() or {})["subject"]
    return str(dict(pair for names in subject for pair in names)["commonName"])  # type: ignore[misc]


def client(cluster: RunningCluster, certificates: Certificates) -> RawClient:
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.trusted),
    }
    return RawClient(ClientConfig.of(f"127.0.0.1:{port(cluster)}", properties))


def is_closed(sock: socket.socket) -> bool:
    """Whether the broker closes the connection, after what it may send first."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def metadata_of(sock: socket.socket) -> int:
    """The number of brokers that Metadata shows on this connection."""
    connection = BlockingConnection(SocketStream(sock, "the broker"), client_id="test")
    return len(connection.call(MetadataRequest(topics=None)).brokers)


def test_large_requests_and_responses(cluster: RunningCluster, certificates: Certificates) -> None:
    """More than any buffer on the way, in both directions."""
    values = [bytes([number]) * 900_000 for number in range(12)]
    with client(cluster, certificates) as own:
        create_topic(own, "t", num_partitions=1, replication_factor=1, configs={})
        for number, value in enumerate(values):
            assert own.produce(TP, build_batch([NewRecord(None, value, 0)])) == number
        offset, read = 0, []
        while offset < len(values):
            for record in read_batches(
                own.fetch(TP, offset, max_bytes=50_000_000, max_wait_ms=100).batches, from_offset=offset
            ):
                read.append(bytes(record.value or b""))
                offset = record.offset + 1
    assert read == values


def produce_request(value: bytes, *, acks: int = 1) -> bytes:
    sent = ProducePartition(index=0, records=memoryview(build_batch([NewRecord(None, value, 0)])))
    request = ProduceRequest(acks=acks, timeout_ms=0, topics=[ProduceTopic(name="t", partitions=[sent])])
    return b"".join(frame(encode_request(request, api_version=9, correlation_id=7)))


def create_t(cluster: RunningCluster, certificates: Certificates) -> None:
    with client(cluster, certificates) as own:
        create_topic(own, "t", num_partitions=1, replication_factor=1, configs={})


def test_a_large_request_in_small_records_wakes_the_broker_seldom(
    cluster: RunningCluster, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka writes one TLS record for each of its own: to be called for every few of them is expensive."""
    create_t(cluster, certificates)
    calls: list[int] = []
    original = tls_endpoint.TlsEndpoint.buffer_updated

    def counted(endpoint: tls_endpoint.TlsEndpoint, nbytes: int) -> None:
        calls.append(nbytes)
        original(endpoint, nbytes)

    monkeypatch.setattr(tls_endpoint.TlsEndpoint, "buffer_updated", counted)
    request = produce_request(bytes(900_000))
    with secured(cluster, certificates) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        calls.clear()
        for start in range(0, len(request), 1000):
            sock.sendall(request[start : start + 1000])
            if start % 8000 == 0:
                time.sleep(0.001)
        assert sock.recv(4)
    while sum(calls) > len(request) // 2:  # before that the kernel has a small buffer for the connection
        calls.pop(0)
    assert len(calls) < 20, "56 and more without pieces of a size"


def test_a_large_request_through_a_small_receive_buffer(
    cluster: RunningCluster, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer never holds as much as the broker would like to read at once."""
    create_t(cluster, certificates)
    original = tls_endpoint.TlsEndpoint.connection_made

    def with_small_buffer(endpoint: tls_endpoint.TlsEndpoint, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        original(endpoint, transport)

    monkeypatch.setattr(tls_endpoint.TlsEndpoint, "connection_made", with_small_buffer)
    request = produce_request(bytes(900_000))
    with secured(cluster, certificates) as sock:
        sock.settimeout(HANG_SECONDS)
        for start in range(0, len(request), 1000):
            sock.sendall(request[start : start + 1000])
        assert len(sock.recv(4)) == 4


@pytest.mark.parametrize("size", [100, 16_000, 33_000, 130_000, 165_000, 300_000, 900_000])
def test_the_last_bytes_of_a_request_are_not_waited_with(
    cluster: RunningCluster, certificates: Certificates, size: int
) -> None:
    create_t(cluster, certificates)
    request = produce_request(bytes(size))
    with secured(cluster, certificates) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(HANG_SECONDS)
        for cut in (1, 2, 1000, 16_384, 40_000, 150_000):
            if cut < len(request):
                sock.sendall(request[:-cut])
                time.sleep(0.01)  # what has been sent is read, and the rest comes alone
                sock.sendall(request[-cut:])
                assert len(sock.recv(4)) == 4
                assert int.from_bytes(sock.recv(4), "big") == 7
                assert sock.recv(4096)


def test_a_request_before_the_end_of_the_session_is_served(cluster: RunningCluster, certificates: Certificates) -> None:
    create_t(cluster, certificates)
    with secured(cluster, certificates) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # both arrive together
        sock.sendall(produce_request(b"the last", acks=0))
        sock.settimeout(0.0)
        with pytest.raises((TimeoutError, ssl.SSLError)):
            sock.unwrap()  # it sends the end of the session, and does not wait for the broker's
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        deadline = time.monotonic() + HANG_SECONDS  # a close with unread bytes would reset the connection
        while cluster.do(lambda: cluster.broker.partitions[TP].log.log_end_offset) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_handshake_in_single_bytes(cluster: RunningCluster, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.trusted))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with closing(dial(cluster)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        done = False
        while not done:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            for byte in outgoing.read():
                sock.sendall(bytes([byte]))
            if not done:
                incoming.write(sock.recv(4096))
        assert tls.version() == "TLSv1.3"
        sock.sendall(b"")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x13\0\x12\0\0\0\0\0\x01\0\x09no client",
        b"\x16\x03\x01\xff\xff" + b"\x01" * 300,
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        bytes(100_000),
    ],
)
def test_what_is_no_handshake_closes_the_connection(
    cluster: RunningCluster, certificates: Certificates, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(dial(cluster)) as sock:
        sock.sendall(sent)
        assert is_closed(sock)
    assert [record.levelname for record in caplog.records if record.msg == "TLS handshake failed"] == ["WARNING"]
    with closing(secured(cluster, certificates)) as sock:
        assert metadata_of(sock) == 1


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x13\0\x12\0\0\0\0\0\x01\0\x09no client"])
def test_a_client_without_tls_gets_an_alert_by_which_it_knows_the_listener(
    cluster: RunningCluster, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(dial(cluster)) as sock:
        sock.sendall(sent)
        assert sock.recv(4096) == bytes((0x15, 3, 3, 0, 2, 2, 10))  # fatal: unexpected_message
        assert is_closed(sock)
    [refused] = [record for record in caplog.records if record.msg == "TLS handshake failed"]
    assert "the client may not use TLS" in vars(refused)["reason"]


def test_tls_on_a_plaintext_listener_closes_the_connection(cluster: RunningCluster, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.trusted))
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(dial(cluster, "PLAINTEXT"), server_hostname="127.0.0.1")
    with closing(dial(cluster, "PLAINTEXT")) as sock:
        assert metadata_of(sock) == 1


def test_silent_handshakes_are_closed_after_a_while(
    cluster: RunningCluster, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as opened:
        served = opened.enter_context(closing(secured(cluster, certificates)))
        monkeypatch.setattr(tls_endpoint, "HANDSHAKE_SECONDS_MAX", 0.5)
        silent = [opened.enter_context(closing(dial(cluster))) for _ in range(200)]
        for sock in silent[::2]:
            sock.sendall(b"\x16\x03\x01\x02")
        assert metadata_of(served) == 1
        assert all(map(is_closed, silent))
        monkeypatch.undo()  # a handshake may take longer on a busy machine
        assert metadata_of(opened.enter_context(closing(secured(cluster, certificates)))) == 1


def test_silent_handshakes_do_not_keep_others_out(
    cluster: RunningCluster, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_server, "HANDSHAKES_MAX", 10)
    with ExitStack() as opened:
        silent = [opened.enter_context(closing(dial(cluster))) for _ in range(30)]
        assert all(map(is_closed, silent[:15]))
        assert metadata_of(opened.enter_context(closing(secured(cluster, certificates)))) == 1


def test_a_request_right_behind_the_handshake_is_served(cluster: RunningCluster, certificates: Certificates) -> None:
    """It arrives together with the last message of the handshake, or while that is computed."""
    for _ in range(20):
        with closing(secured(cluster, certificates)) as sock:
            assert metadata_of(sock) == 1


def test_a_session_that_the_client_ends(cluster: RunningCluster, certificates: Certificates) -> None:
    sock = secured(cluster, certificates)
    assert metadata_of(sock) == 1
    with closing(sock.unwrap()) as plain:
        assert is_closed(plain)
    assert metadata_of(secured(cluster, certificates)) == 1


def asks_for_certificates(certificates: Certificates) -> dict[str, str]:
    """The configuration of such a listener."""
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.folder / "first.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.trusted),
        "ssl.client.auth": "required",
    }


def test_the_log_says_why_a_certificate_is_refused(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.trusted))
    context.load_cert_chain(certificates.issue("late", now=datetime(2020, 1, 1, tzinfo=UTC)))
    with (
        cluster_thread(asks_for_certificates(certificates), tmp_path / "data") as cluster,
        closing(context.wrap_socket(dial(cluster), server_hostname="127.0.0.1")) as sock,
        pytest.raises(ssl.SSLError, match="certificate expired"),
    ):
        is_closed(sock)
    [refused] = [record for record in caplog.records if record.msg == "TLS handshake failed"]
    assert vars(refused)["reason"] == "certificate has expired"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_not_resumed_with_a_certificate_that_has_expired(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.trusted))
    context.load_cert_chain(certificates.issue("alice", days=1))
    context.minimum_version = context.maximum_version = version
    with cluster_thread(asks_for_certificates(certificates), tmp_path / "data") as cluster:

        def resumed(session: ssl.SSLSession | None) -> ssl.SSLSocket:
            return context.wrap_socket(dial(cluster), server_hostname="127.0.0.1", session=session)

        with closing(resumed(None)) as first:
            assert metadata_of(first) == 1
            session = first.session
        with closing(resumed(session)) as second:
            assert second.session_reused
            assert metadata_of(second) == 1
            session = second.session
        after_ms = system_time.now().wall_ms + 2 * 24 * 3600 * 1000
        monkeypatch.setattr(tls_endpoint, "now", lambda: system_time.now()._replace(wall_ms=after_ms))
        with closing(resumed(session)) as third:
            assert third.session_reused
            assert is_closed(third)


class TestNewKeys:
    def test_new_connections_get_them_and_open_ones_stay(
        self, cluster: RunningCluster, certificates: Certificates, keys: Path
    ) -> None:
        with closing(secured(cluster, certificates)) as before:
            assert certificate_of(before) == "first"
            shutil.copy(certificates.folder / "second.pem", keys.with_suffix(".new"))
            keys.with_suffix(".new").rename(keys)
            until = time.monotonic() + HANG_SECONDS
            while True:
                with closing(secured(cluster, certificates)) as after:
                    if certificate_of(after) == "second":
                        break
                assert time.monotonic() < until
            assert metadata_of(before) == 1

    def test_keys_that_cannot_be_read_are_not_used(
        self, cluster: RunningCluster, certificates: Certificates, keys: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        keys.write_text("half of a new file")
        until = time.monotonic() + HANG_SECONDS
        while not any(record.msg == "TLS keys not changed" for record in caplog.records):
            assert time.monotonic() < until
            time.sleep(0.01)
        [refused] = [record for record in caplog.records if record.msg == "TLS keys not changed"]
        assert refused.levelno == logging.ERROR
        with closing(secured(cluster, certificates)) as sock:
            assert certificate_of(sock) == "first"
