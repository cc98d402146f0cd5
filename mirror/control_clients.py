"""(shell) The clients by which a flow's control reaches its two clusters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, Self, TypeVar

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.calls import Steps
from raylog.client.partition_reader import PartitionReader
from raylog.client.producer.producer import Producer
from raylog.config.client import CLIENT_CONFIG
from raylog.config.client_network import CLIENT_ID
from raylog.config.consumer import DEFAULT_API_TIMEOUT_MS
from raylog.config.producer import TRANSACTIONAL_ID
from raylog.core.errors import ErrorCode, KafkaError
from raylog.mirror.cluster_ends import ClusterEnd
from raylog.mirror.config import FlowConfig
from raylog.mirror.formats import MirrorRecord
from raylog.mirror.named_errors import naming

T = TypeVar("T")
ACKNOWLEDGED_SECONDS: Final = 60.0


class ControlClients:
    """Open until `close`; a context manager. Connections are made when they are first needed."""

    def __init__(self, flow: FlowConfig) -> None:
        """Raises ConfigError, and KafkaError if the brokers of a named cluster do not respond."""
        self._flow = flow
        self._open = ExitStack()
        self._producer: Producer | None = None
        self._tails: set[_Tail] = set()
        try:
            self.source = self._open.enter_context(_Admin(flow, flow.source))
            self.target = self._open.enter_context(_Admin(flow, flow.target))
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for tail in list(self._tails):
            tail.close()
        self._open.close()

    def write(self, topic: str, records: Sequence[MirrorRecord], now_ms: int) -> None:
        """Raises KafkaError."""
        target = self._flow.target
        with naming(target.alias):
            if self._producer is None:
                given = {name: value for name, value in target.producer.items() if name != TRANSACTIONAL_ID.name}
                self._producer = self._open.enter_context(Producer({CLIENT_ID.name: _client_id(self._flow), **given}))
            sent = [
                self._producer.send(topic, each.value, each.key, partition=0, timestamp_ms=now_ms) for each in records
            ]
            self._producer.flush(ACKNOWLEDGED_SECONDS)
            for delivery in sent:
                delivery.result(ACKNOWLEDGED_SECONDS)

    def open_tail(self, topic: str, *, in_source: bool) -> _Tail:
        """Raises KafkaError."""
        end = self._flow.source if in_source else self._flow.target
        given = {name: value for name, value in end.consumer.items() if name in CLIENT_CONFIG.keys}
        timeout_seconds = self._flow.admin_timeout_ms / 1000
        with naming(end.alias):
            reader = PartitionReader(
                end.bootstrap_servers,
                topic,
                0,
                skip_malformed=True,
                timeout_seconds=timeout_seconds,
                client_config=given,
            )
        tail = _Tail(reader, topic, end.alias, self._tails)
        self._tails.add(tail)
        return tail


class _Admin(AdminClient):
    """Its errors name the cluster."""

    def __init__(self, flow: FlowConfig, end: ClusterEnd) -> None:
        self._alias = end.alias
        defaults = {CLIENT_ID.name: _client_id(flow), DEFAULT_API_TIMEOUT_MS.name: str(flow.admin_timeout_ms)}
        with naming(end.alias):
            super().__init__({**defaults, **end.admin}, waits_for_brokers=False)

    def run(self, steps: Steps[T], timeout: float | None = None) -> T:
        with naming(self._alias):
            return super().run(steps, timeout)


class _Tail:
    def __init__(self, reader: PartitionReader, topic: str, alias: str, opened: set[_Tail]) -> None:
        self._reader = reader
        self._topic = topic
        self._alias = alias
        self._opened = opened

    def close(self) -> None:
        self._opened.discard(self)
        self._reader.close()

    def read(self) -> Sequence[MirrorRecord]:
        """Raises KafkaError, also if the topic was truncated or created again: open it anew then."""
        with naming(self._alias):
            return self._read()

    def _read(self) -> Sequence[MirrorRecord]:
        end = self._reader.end_offset()
        if end < self._reader.position:  # without new records the reader does not notice it
            text = f"ends at offset {end}, before {self._reader.position}: it was truncated or created again"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self._topic}: {text}")
        found: list[MirrorRecord] = []
        while self._reader.position < end:
            records = self._reader.read_records(max_wait_ms=100)
            if not records:
                end = min(end, self._reader.end_offset())
            found += [
                MirrorRecord(bytes(each.key), bytes(each.value))
                for each in records
                if each.key is not None and each.value is not None
            ]
        return found


def _client_id(flow: FlowConfig) -> str:
    return f"mirror-{flow.source.alias}-{flow.target.alias}"
