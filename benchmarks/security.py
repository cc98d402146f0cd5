"""(shell) TLS beside plaintext, handshakes, log-ins, and decisions of the authorizer.

Clients and broker share the machine, so the costs of the broker's process say more than the rates.
"""

from __future__ import annotations

import os
import secrets
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

import raylog
from benchmarks import authorizer
from benchmarks.figures import Figure, cpu_seconds, figure, progress, timed
from benchmarks.librdkafka import NativeProducer
from benchmarks.turns import longest_turn
from benchmarks.wire import PRODUCER, VALUE, consume
from raylog.core.password import Password
from raylog.protocol.messages.api_versions import ApiVersionsRequest
from raylog.security import authority
from raylog.security.sasl import scram
from raylog.security.sasl.mechanism import SaslClient
from raylog.security.sasl.plain import PlainClient
from tests.support.connection import BlockingConnection, SocketStream, connect_tcp

HOST = "127.0.0.1"
CLIENT_THREADS = 2
USER, PASSWORD = "alice", Password("wonderland")
LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def measure(runs: int, megabytes: int, parent: str | None) -> list[Figure]:
    """Handshakes and log-ins are counted in proportion to the megabytes: 1000 of each kind for 400 MB."""
    figures = authorizer.measure(runs)
    count = max(megabytes * 5 // 2, 10)
    with TemporaryDirectory(prefix="raylog-bench-security-", dir=parent) as folder, ExitStack() as held:
        trusted = Path(folder) / "authority.pem"
        ports = {listener: held.enter_context(_reserved()) for listener in LISTENERS}
        servers = {listener: f"{HOST}:{sock.getsockname()[1]}" for listener, sock in ports.items()}
        config = _config(servers, Path(folder), trusted)
        held.close()
        with raylog.start("bench-security", data_dir=f"{folder}/data", config=config) as cluster:
            pid = cluster.status()[0].pid
            figures += _produce_and_fetch(servers, trusted, pid, runs, megabytes)
            figures.append(longest_turn(cluster))
            figures += _handshakes(servers["SSL"], trusted, pid, runs, count)
            _add_user(servers["PLAINTEXT"])
            figures += _log_ins(servers["SASL_PLAINTEXT"], pid, runs, count)
            figures.append(longest_turn(cluster))
    return figures


def _reserved() -> socket.socket:
    sock = socket.socket()
    sock.bind((HOST, 0))
    return sock


def _config(servers: Mapping[str, str], folder: Path, trusted: Path) -> dict[str, object]:
    signer = authority.Authority.new("Benchmark")
    trusted.write_bytes(signer.certificate)
    pair = signer.issue("broker", [HOST])
    keys = folder / "broker.pem"
    keys.write_bytes(pair.key + pair.chain)
    return {
        "listeners": ",".join(f"{listener}://{server}" for listener, server in servers.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_LOGIN} user_{USER}="{PASSWORD.reveal()}";',
        "message.max.bytes": 2_000_000,
        "num.partitions": 1,
        "log.segment.delete.delay.ms": 0,
    }


def _produce_and_fetch(servers: Mapping[str, str], trusted: Path, pid: int, runs: int, megabytes: int) -> list[Figure]:
    """Plaintext and TLS in turn, with the same client, so that a machine that slows down slows both."""
    count = megabytes * 1_000_000 // len(VALUE)
    gigabytes = count * len(VALUE) / 1e9
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(trusted)}
    samples: dict[str, list[float]] = defaultdict(list)
    admin = AdminClient({"bootstrap.servers": servers["PLAINTEXT"]})
    for run in range(runs + 1):
        shown = []
        for name, client in (
            ("plaintext", {"bootstrap.servers": servers["PLAINTEXT"]}),
            ("TLS", {"bootstrap.servers": servers["SSL"], **tls}),
        ):
            topic = f"bench-{name}-{run}"
            with NativeProducer(topic, VALUE, {**PRODUCER, **client}) as producer:
                producer.send(1)
                produced, produce_cost = _costs(partial(producer.send, count), pid)
            fetched, fetch_cost = _costs(partial(consume, client, topic, count), pid)
            admin.delete_topics([topic])[topic].result()
            shown.append(
                f"{name}: produce {gigabytes / produced:.2f} GB/s, {produce_cost / gigabytes:.2f} CPU-s/GB,"
                f" fetch {gigabytes / fetched:.2f} GB/s, {fetch_cost / gigabytes:.2f} CPU-s/GB"
            )
            if run:  # the first is for warming up
                samples[f"produce {name}"].append(produce_cost / gigabytes)
                samples[f"fetch {name}"].append(fetch_cost / gigabytes)
                samples[f"produce {name} speed"].append(gigabytes / produced * 1000)
                samples[f"fetch {name} speed"].append(gigabytes / fetched * 1000)
        progress(f"run {run}: {'; '.join(shown)}")
    figures = []
    for path in ("produce", "fetch"):
        plain, secure = samples[f"{path} plaintext"], samples[f"{path} TLS"]
        figures += [
            figure(f"{path} 1 KiB: plaintext", "MB/s", samples[f"{path} plaintext speed"]),
            figure(f"{path} 1 KiB: TLS", "MB/s", samples[f"{path} TLS speed"]),
            figure(f"{path} 1 KiB: plaintext, broker CPU", "CPU-s/GB", plain),
            figure(f"{path} 1 KiB: TLS, broker CPU", "CPU-s/GB", secure),
            figure(
                "  relative to plaintext",
                "ratio",
                [one / other for one, other in zip(secure, plain, strict=True)],
                solid=3.0,
                aim=2.0,
            ),
        ]
    return figures


def _costs(work: Callable[[], None], pid: int) -> tuple[float, float]:
    """Elapsed seconds, and CPU seconds of the broker."""
    before = cpu_seconds(pid)
    elapsed = timed(work)
    return elapsed, cpu_seconds(pid) - before


def _handshakes(server: str, trusted: Path, pid: int, runs: int, count: int) -> list[Figure]:
    host, _, port = server.rpartition(":")
    context = ssl.create_default_context(cafile=str(trusted))

    def connect(session: ssl.SSLSession | None) -> ssl.SSLSocket:
        sock = socket.create_connection((host, int(port)))
        return context.wrap_socket(sock, server_hostname=HOST, session=session)

    def one(session: ssl.SSLSession | None, _: int) -> None:
        with connect(session) as secured:
            assert secured.session_reused is (session is not None)

    with connect(None) as first:
        stream = SocketStream(first, server)
        BlockingConnection(stream, client_id="bench").call(ApiVersionsRequest())  # its response follows the ticket
        session, version, cipher = first.session, first.version(), first.cipher()
    progress(f"{version}, {cipher[0] if cipher else None}")
    return [
        each
        for name, given in (("full", None), ("resumed", session))
        for each in _repeated(f"{name} TLS handshakes", partial(one, given), pid, runs, count)
    ]


def _log_ins(server: str, pid: int, runs: int, count: int) -> list[Figure]:
    host, _, port = server.rpartition(":")

    def one(new_client: Callable[[], SaslClient], _: int) -> None:
        BlockingConnection(connect_tcp(host, int(port), login=new_client), client_id="bench").close()

    def by_scram(mechanism: scram.ScramMechanism) -> SaslClient:
        return scram.ScramClient(mechanism, USER, PASSWORD, nonce=secrets.token_bytes(16))

    mechanisms: dict[str, Callable[[], SaslClient]] = {
        "PLAIN": partial(PlainClient, USER, PASSWORD),
        "SCRAM-SHA-256": partial(by_scram, scram.ScramMechanism.SHA_256),
        "SCRAM-SHA-512": partial(by_scram, scram.ScramMechanism.SHA_512),
    }
    return [
        each
        for name, new_client in mechanisms.items()
        for each in _repeated(f"{name} log-ins", partial(one, new_client), pid, runs, count)
    ]


def _repeated(name: str, one: Callable[[int], None], pid: int, runs: int, count: int) -> list[Figure]:
    """The rate, and the broker's CPU time for each."""
    rates, costs = [], []

    def all_of_them() -> None:
        for _ in threads.map(one, range(count)):
            pass

    with ThreadPoolExecutor(CLIENT_THREADS) as threads:
        for _ in range(runs):
            elapsed, cost = _costs(all_of_them, pid)
            rates.append(count / elapsed)
            costs.append(cost / count * 1000)
    progress(f"{name}: {rates[-1]:.0f}/s, {costs[-1]:.2f} ms of the broker's CPU each")
    return [figure(name, "1/s", rates), figure("  broker CPU of each", "ms", costs)]


def _add_user(server: str) -> None:
    admin = AdminClient({"bootstrap.servers": server})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        changed = UserScramCredentialUpsertion(USER, info, PASSWORD.reveal().encode(), os.urandom(16))
        for done in admin.alter_user_scram_credentials([changed]).values():
            done.result()
