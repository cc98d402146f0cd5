"""The HTTP endpoint of a node answers Prometheus, and bears any other peer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from raylog.config.metrics import RAYLOG_METRICS_ADDRESS, metrics_settings
from raylog.config.table import broker_configs
from raylog.core.errors import ConfigError
from raylog.transport import metrics_endpoint
from raylog.transport.metrics_endpoint import CONNECTIONS_MAX, SCRAPES_MAX, MetricsEndpoint
from tests.support.hang import HANG_SECONDS
from tests.support.ports import free_port

LOOPBACK = "127.0.0.1:0"


def run(
    test: Callable[[MetricsEndpoint, int], Awaitable[None]],
    *,
    scrape: Callable[[], Iterator[str]] = lambda: iter(["a 1\n", "", "b 2\n"]),
    ready: bool = True,
) -> None:
    async def run_all() -> None:
        endpoint = MetricsEndpoint(scrape, lambda: ready)
        address = metrics_settings(broker_configs({RAYLOG_METRICS_ADDRESS.name: LOOPBACK})).shown_at
        assert address is not None
        await endpoint.open(address, 0)
        assert endpoint.bound is not None
        try:
            async with asyncio.timeout(HANG_SECONDS):
                await test(endpoint, endpoint.bound.port)
        finally:
            endpoint.close()

    asyncio.run(run_all())


async def asked(port: int, request: bytes, *, end: bool = False) -> bytes:
    """All that is answered to these bytes, until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if end:
            writer.write_eof()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def get(path: str, *headers: str, version: str = "1.1") -> bytes:
    lines = [f"GET {path} HTTP/{version}", "Host: h", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


def test_a_scrape_is_answered_in_the_text_format() -> None:
    async def test(_: MetricsEndpoint, port: int) -> None:
        head, body = (await asked(port, get("/metrics", version="1.0"))).split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"text/plain; version=0.0.4" in head
        assert body == b"a 1\nb 2\n"

    run(test)


@pytest.mark.parametrize(("ready", "status"), [(True, b"200"), (False, b"503")])
def test_health_says_whether_clients_can_connect(ready: bool, status: bytes) -> None:
    async def test(_: MetricsEndpoint, port: int) -> None:
        assert (await asked(port, get("/healthz"))).split()[1] == status

    run(test, ready=ready)


def test_a_connection_serves_many_requests() -> None:
    async def test(endpoint: MetricsEndpoint, port: int) -> None:
        again = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
        answer = await asked(port, again * 5 + get("/metrics"))
        assert answer.count(b"HTTP/1.1 200") == 6
        assert endpoint.cost.scrapes == 6

    run(test)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/"), b"404"),
        (get("/metrics/../../etc/passwd"), b"404"),
        (get("/" + "a" * 10_000), b"404"),
        (get("/" + "a" * 100_000), b"431"),
        (b"POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", b"413"),
        (b"POST /metrics HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n" + b"a" * 1000, b"413"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"400"),
        (b"\x00\x01\x02\x03" * 100 + b"\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (get("/metrics", "X: " + "y" * 1_000_000), b"431"),
        (get("/metrics", *["X: y"] * 50_000), b"431"),
    ],
)
def test_what_is_no_scrape_gets_an_error(request_bytes: bytes, status: bytes) -> None:
    async def test(_: MetricsEndpoint, port: int) -> None:
        answer = await asked(port, request_bytes)
        assert not answer or answer.split()[1] == status, answer[:200]
        assert (await asked(port, get("/metrics"))).startswith(b"HTTP/1.1 200"), "others are served"

    run(test)


def test_half_a_request_is_given_up_when_the_peer_ends() -> None:
    async def test(_: MetricsEndpoint, port: int) -> None:
        answer = await asked(port, b"GET /metr", end=True)
        assert b"200" not in answer

    run(test)


def test_silent_peers_do_not_keep_prometheus_out() -> None:
    async def test(_: MetricsEndpoint, port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX * 3)]
        assert (await asked(port, get("/metrics"))).startswith(b"HTTP/1.1 200")
        assert await silent[0][0].read() == b"", "the longest idle one is closed"
        for each in silent:
            each[1].close()

    run(test)


def test_a_peer_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_endpoint, "ANSWER_SECONDS_MAX", 0.2)

    def endless() -> Iterator[str]:
        while True:
            yield "a 1\n" * 10_000

    async def test(endpoint: MetricsEndpoint, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/metrics"))
        while not endpoint._answering:  # noqa: ASYNC110 - the endpoint has no event for it
            await asyncio.sleep(0.01)
        while endpoint._answering:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        writer.close()

    run(test, scrape=endless)


def test_the_node_has_its_events_between_the_pieces() -> None:
    held: list[int] = []

    async def test(_: MetricsEndpoint, port: int) -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                held.append(turns)
                await asyncio.sleep(0)

        counting = asyncio.get_running_loop().create_task(count())
        await asked(port, get("/metrics"))
        counting.cancel()

    seen: list[int] = []

    def scrape() -> Iterator[str]:
        for _ in range(100):
            seen.append(len(held))
            yield "a 1\n"

    run(test, scrape=scrape)
    assert len(set(seen)) == len(seen) == 100


def test_scrapes_at_once_are_bounded() -> None:
    def slow() -> Iterator[str]:
        begun.append(True)
        if len(begun) == SCRAPES_MAX:
            all_began.set()
        while not done:
            yield ""
        yield "a 1\n"

    begun: list[bool] = []
    all_began = asyncio.Event()
    done: list[bool] = []

    async def test(_: MetricsEndpoint, port: int) -> None:
        first = [asyncio.ensure_future(asked(port, get("/metrics"))) for _ in range(SCRAPES_MAX)]
        await all_began.wait()
        assert (await asked(port, get("/metrics"))).split()[1] == b"503"
        assert (await asked(port, get("/healthz"))).split()[1] == b"200"
        done.append(True)
        assert all(answer.split()[1] == b"200" for answer in await asyncio.gather(*first))

    run(test, scrape=slow)


def test_a_failed_read_ends_the_scrape_and_nothing_else() -> None:
    def failing() -> Iterator[str]:
        yield "a 1\n"
        raise KeyError("x")

    async def test(_: MetricsEndpoint, port: int) -> None:
        assert b"0\r\n\r\n" not in await asked(port, get("/metrics")), "Prometheus must see that it is incomplete"
        assert (await asked(port, get("/healthz"))).split()[1] == b"200"

    run(test, scrape=failing)


def test_a_scrape_begins_soon_although_another_node_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_endpoint, "PREPARE_SECONDS_MAX", 0.05)

    async def run_all() -> None:
        endpoint = MetricsEndpoint(lambda: iter(["a 1\n"]), lambda: True, lambda done: None)
        address = metrics_settings(broker_configs({RAYLOG_METRICS_ADDRESS.name: LOOPBACK})).shown_at
        assert address is not None
        await endpoint.open(address, 0)
        assert endpoint.bound is not None
        async with asyncio.timeout(HANG_SECONDS):
            assert b"a 1\n" in await asked(endpoint.bound.port, get("/metrics"))
        endpoint.close()

    asyncio.run(run_all())


class TestAddress:
    @pytest.mark.parametrize(
        "text",
        ["x", "127.0.0.1", ":-1", "h:1-", "h:9-3", "h:0-5", "h:70000", "h:1-70000", "http://h:1", "h h:1", "[h:1"],
    )
    def test_what_is_no_address_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError, match=r"raylog\.metrics\.address"):
            broker_configs({RAYLOG_METRICS_ADDRESS.name: text})

    def test_empty_shows_nothing(self) -> None:
        assert metrics_settings(broker_configs({})).shown_at is None

    def test_each_node_of_a_host_prefers_another_port(self) -> None:
        address = metrics_settings(broker_configs({RAYLOG_METRICS_ADDRESS.name: "[::1]:9404-9407"})).shown_at
        assert address is not None
        assert address.host == "::1"
        assert [next(address.ports(node)) for node in range(4)] == [9404, 9405, 9406, 9407]
        assert list(address.ports(1002)) == [9406, 9407, 9404, 9405]

    def test_a_port_in_use_is_passed_over_and_none_is_no_failure(self) -> None:
        async def run_all() -> None:
            port = free_port()
            address = metrics_settings(broker_configs({RAYLOG_METRICS_ADDRESS.name: f"127.0.0.1:{port}"})).shown_at
            assert address is not None
            first, second = (MetricsEndpoint(lambda: iter(()), lambda: True) for _ in range(2))
            await first.open(address, 0)
            await second.open(address, 1)
            assert first.bound is not None
            assert second.bound is None
            first.close()
            second.close()

        asyncio.run(run_all())
