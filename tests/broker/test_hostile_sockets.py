"""Over real sockets: floods of invalid bytes and clients that do not read use bounded memory; others are served."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest

from raylog.core.ids import TopicPartition
from raylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.protocol.framing import frame
from raylog.protocol.header import encode_request
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.registry import APIS
from tests.support.cluster_process import ClusterProcess, cluster_process
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.slow

GROWTH_BYTES_MAX = 64 << 20
TOPIC = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with cluster_process({"message.max.bytes": "2000000"}, tmp_path_factory.mktemp("hostile") / "log") as process:
        yield process


@pytest.fixture
def witness(broker: ClusterProcess) -> Iterator[RawClient]:
    """Somebody else's connection, which must not notice anything."""
    with RawClient(broker.bootstrap_servers, client_id="witness") as client:
        client.metadata(["t"], create=True)
        client.leader(TOPIC)
        yield client


def connect(broker: ClusterProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=20)


def test_a_flood_of_invalid_bytes(broker: ClusterProcess, witness: RawClient) -> None:
    rng = random.Random(11)
    before = broker.anonymous_bytes()
    held: list[socket.socket] = []
    for number in range(600):
        sock = connect(broker)
        try:
            sock.sendall(_rubbish(rng))
        except OSError:
            pass  # the broker closed the connection while the client was still sending, as expected
        if rng.random() < 0.3:
            held.append(sock)  # half a frame, and then silence
        else:
            sock.close()
        if number % 50 == 0:
            assert witness.call_any(MetadataRequest(topics=())).brokers
    assert witness.call_any(MetadataRequest(topics=())).brokers
    assert broker.anonymous_bytes() - before < GROWTH_BYTES_MAX
    for sock in held:
        sock.close()


def test_a_large_frame_that_is_not_a_valid_message(broker: ClusterProcess, witness: RawClient) -> None:
    """90 MB of empty topics in one Produce: refused, and what it took is given back."""
    before = broker.anonymous_bytes()
    with connect(broker) as sock:
        head = struct.pack(">hhih", 0, 9, 1, -1) + b"\0" + b"\0" + struct.pack(">hi", 1, 1000)
        body = head + b"\x80\x80\x80\x10" + b"\1\1\0" * 30_000_000
        sock.sendall(struct.pack(">i", len(body)) + body)
        assert sock.recv(1) == b""
    assert witness.call_any(MetadataRequest(topics=())).brokers
    assert broker.anonymous_bytes() - before < GROWTH_BYTES_MAX


def test_a_client_that_requests_and_never_reads(broker: ClusterProcess, witness: RawClient) -> None:
    value = bytes(1_000_000)
    for _ in range(30):
        witness.produce(TOPIC, build_batch([NewRecord(None, value, 0)]))
    before = broker.anonymous_bytes()
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(name="t", partitions=wanted)])
    question = b"".join(frame(encode_request(request, api_version=12, correlation_id=1, client_id="greedy")))
    greedy = [connect(broker) for _ in range(3)]
    for sock in greedy:
        sock.setblocking(False)
        sent = 0
        while sent < 2000 * len(question):
            try:
                sent += sock.send(question * 100)
            except BlockingIOError:
                break  # the broker has stopped reading: its bound holds
    for _ in range(20):
        assert len(witness.fetch(TOPIC, 0, max_bytes=1 << 20, max_wait_ms=0).batches) > len(value)
    answer_bytes = 30 * len(value)
    assert broker.anonymous_bytes() - before < len(greedy) * answer_bytes + GROWTH_BYTES_MAX
    for sock in greedy:
        sock.close()
    assert witness.call_any(MetadataRequest(topics=())).brokers


def _rubbish(rng: random.Random) -> bytes:
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(rng.randint(1, 5000))
    if kind == 1:
        return struct.pack(">i", rng.choice((-1, 0, 7, 104_857_600, 104_857_601, (1 << 31) - 1))) + rng.randbytes(100)
    spec = rng.choice(APIS)
    head = struct.pack(">hhih", spec.key, rng.randint(spec.lowest, spec.highest), rng.getrandbits(31), -1)
    if kind == 2:
        body = rng.randbytes(rng.randint(0, 2000))
    elif kind == 3:
        body = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\1\0")) * rng.randint(1, 1000)
    else:
        body = bytes(rng.randint(1, 200_000))
    whole = struct.pack(">i", len(head) + len(body)) + head + body
    return whole[: rng.randint(1, len(whole))] if rng.random() < 0.3 else whole
