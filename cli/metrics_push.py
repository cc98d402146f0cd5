"""(shell) Metrics pushed on: to a receiver of OTLP over HTTP, and to Ray's own metrics.

What cannot be sent is dropped: the next push has newer values, and counters count on. So a target that does not answer
costs neither memory nor anything of the nodes, which are only scraped.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from raylog.core.errors import ConfigError
from raylog.protocol.otlp_export import export_requests
from raylog.transport.cluster_metrics import ClusterMetrics

log = logging.getLogger("raylog.cli")
SEND_SECONDS_MAX: Final = 10.0
HEADERS_VARIABLE: Final = "OTEL_EXPORTER_OTLP_HEADERS"
"""Headers of the requests, as OpenTelemetry's own exporters read them: key=value,key=value, with values as in URLs."""


@dataclass(frozen=True, slots=True)
class OtlpTarget:
    """A receiver, and what it is sent besides the metrics."""

    url: str
    headers: Mapping[str, str]


def otlp_target(url: str, headers: str) -> OtlpTarget:
    """Raises ConfigError."""
    found = urlsplit(url)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise ConfigError(f"--otlp {url}: must be a URL like http://127.0.0.1:4318/v1/metrics")
    pairs: dict[str, str] = {}
    for each in filter(None, (part.strip() for part in headers.split(","))):
        name, separator, value = each.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"{HEADERS_VARIABLE}: must be key=value,key=value")
        pairs[name.strip()] = unquote(value.strip())
    return OtlpTarget(url, pairs)


async def push(metrics: ClusterMetrics, seconds: float, what: str, send: Callable[[Mapping[str, str]], None]) -> None:
    """Scrape, and `send` in a thread, so often, until it is cancelled. Logs a failure once, until it works again."""
    works = True
    while True:
        began = time.monotonic()
        texts = await metrics.texts()
        try:
            await asyncio.to_thread(send, texts)
        except Exception as error:
            if works:
                log.warning("metrics not pushed", extra={"target": what, "reason": f"{type(error).__name__}: {error}"})
            works = False
        else:
            if not works:
                log.info("metrics pushed again", extra={"target": what})
            works = True
        await asyncio.sleep(max(0.0, seconds - (time.monotonic() - began)))


def send_otlp(target: OtlpTarget, cluster: str, texts: Mapping[str, str]) -> None:
    """Raises OSError for the first request that is not accepted; the rest is not sent."""
    now_ns = time.time_ns()
    for node, text in texts.items():
        for request in export_requests(text, cluster=cluster, node=node, now_ns=now_ns):
            headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip", **target.headers}
            asked = urllib.request.Request(target.url, gzip.compress(request, 1), headers, method="POST")
            with urllib.request.urlopen(asked, timeout=SEND_SECONDS_MAX) as response:
                response.read(1 << 16)
