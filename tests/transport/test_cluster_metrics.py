"""The endpoint of a cluster shows the metrics of the nodes that answer, and says which do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raylog.config.metrics import MetricsAddress
from raylog.transport import cluster_metrics
from raylog.transport.cluster_metrics import ANSWER_SECONDS_MAX, ClusterMetrics
from raylog.transport.endpoints import Endpoint
from raylog.transport.metrics_endpoint import MetricsEndpoint
from tests.support.ports import free_port

ANY = MetricsAddress("127.0.0.1", 0, 0)
TEXT = "# HELP a A.\n# TYPE a gauge\na 1\n"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def node(text: str = TEXT) -> AsyncIterator[MetricsEndpoint]:
    """One that answers."""
    endpoint = MetricsEndpoint(lambda: iter([text]), lambda: True)
    await endpoint.open(ANY, 0)
    try:
        yield endpoint
    finally:
        endpoint.close()


@asynccontextmanager
async def peer(handler: Handler) -> AsyncIterator[Endpoint]:
    """One that does what `handler` does."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def scraped(metrics: ClusterMetrics) -> dict[str, dict[str, float]]:
    """The value of each metric by node."""
    done = asyncio.Event()
    metrics.prepare(done.set)
    await done.wait()
    families = text_string_to_metric_families("".join(metrics.pieces()))
    return {family.name: {each.labels["node"]: each.value for each in family.samples} for family in families}


async def silent(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def answering(answer: bytes) -> Handler:
    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    return handle


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metrics, "NODE_SECONDS_MAX", 1.0)
    monkeypatch.setattr(cluster_metrics, "DOWN_SECONDS_MAX", 0.01)


def test_the_nodes_that_answer_are_shown_and_the_others_are_down() -> None:
    async def test() -> None:
        metrics = ClusterMetrics()
        async with (
            node() as first,
            node("# HELP a A.\n# TYPE a gauge\na 2\n# HELP b B.\nb 3\n") as second,
            peer(silent) as hanging,
            peer(answering(b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n")) as refusing,
            peer(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + TEXT.encode())) as cut_off,
            peer(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff")) as not_text,
            peer(answering(b"\x00\x01\r\n\r\n")) as no_http,
        ):
            metrics.use(
                {
                    "broker-0": first.bound,
                    "broker-1": second.bound,
                    "hanging": hanging,
                    "refusing": refusing,
                    "cut off": cut_off,
                    "not text": not_text,
                    "no http": no_http,
                    "closed": Endpoint("127.0.0.1", free_port()),
                    "not running": None,
                }
            )
            found = await scraped(metrics)
            metrics.close()
        up = found.pop("raylog_node_up")
        assert {name for name, value in up.items() if value} == {"broker-0", "broker-1"}
        assert len(up) == 9
        assert found["a"] == {"broker-0": 1, "broker-1": 2}
        assert found["b"] == {"broker-1": 3}
        assert found["raylog_node_scrape_bytes"]["broker-0"] == len(TEXT)
        assert found["raylog_node_scrape_seconds"].keys() == {"broker-0", "broker-1"}

    asyncio.run(test())


def test_a_node_that_hangs_is_not_waited_for_again_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        metrics = ClusterMetrics()
        answers = asyncio.Event()

        async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answers.wait()
            await answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(TEXT), TEXT.encode()))(_, writer)

        async with node() as first, peer(handle) as hanging:
            metrics.use({"broker-0": first.bound, "broker-1": hanging})
            assert (await scraped(metrics))["raylog_node_up"] == {"broker-0": 1, "broker-1": 0}
            ended = metrics._nodes["broker-1"].attempt
            assert ended is not None
            await ended
            monkeypatch.setattr(cluster_metrics, "NODE_SECONDS_MAX", 60.0)
            assert (await scraped(metrics))["raylog_node_up"] == {"broker-0": 1, "broker-1": 0}
            attempt = metrics._nodes["broker-1"].attempt
            assert attempt is not None
            assert not attempt.done()  # this one was not waited for
            answers.set()
            await attempt
            assert (await scraped(metrics))["raylog_node_up"] == {"broker-0": 1, "broker-1": 1}
            metrics.close()

    asyncio.run(test())


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_metrics, "BYTES_MAX", 1_000)

    async def test() -> None:
        metrics = ClusterMetrics()
        async with node() as first, node(TEXT + "# comment\n" * 1_000) as second:
            metrics.use({"broker-0": first.bound, "broker-1": second.bound})
            found = await scraped(metrics)
        assert found["raylog_node_up"]["broker-1"] == 0
        assert "broker-1" not in found.get("a", {})

    asyncio.run(test())


def test_requests_at_the_same_time_share_one_scrape_of_the_nodes() -> None:
    async def test() -> None:
        metrics = ClusterMetrics()
        async with node() as first:
            metrics.use({"broker-0": first.bound})
            found = await asyncio.gather(*(scraped(metrics) for _ in range(3)))
            assert [each["a"] for each in found] == [{"broker-0": 1}] * 3
            assert first.cost.scrapes == 1

    asyncio.run(test())


def test_nodes_come_and_go() -> None:
    async def test() -> None:
        metrics = ClusterMetrics()
        async with node() as first, node() as second:
            metrics.use({"broker-0": first.bound, "broker-1": None})
            assert (await scraped(metrics))["raylog_node_up"] == {"broker-0": 1, "broker-1": 0}
            metrics.use({"broker-1": second.bound})
            assert (await scraped(metrics))["a"] == {"broker-1": 1}

    asyncio.run(test())


def test_over_http_with_targets() -> None:
    async def test() -> None:
        metrics = ClusterMetrics()
        endpoint = MetricsEndpoint(
            metrics.pieces,
            lambda: True,
            metrics.prepare,
            prepare_seconds_max=ANSWER_SECONDS_MAX,
            targets=lambda: '[{"targets": []}]',
        )
        await endpoint.open(ANY, 0)
        assert endpoint.bound is not None
        async with node() as first:
            metrics.use({"broker-0": first.bound})
            for path, wanted in (("/metrics", b'\na{node="broker-0"} 1\n'), ("/targets", b"application/json")):
                reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.bound.port)
                writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
                assert wanted in await reader.read()
                writer.close()
        endpoint.close()
        metrics.close()

    asyncio.run(test())
