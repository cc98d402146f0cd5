"""The production broker without sockets: a request goes in, its answer comes out, time moves when the test says so."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from raylog.broker.broker import Broker, BrokerIdentity
from raylog.broker.config import broker_configs
from raylog.broker.listeners import Endpoint, plan_listeners
from raylog.broker.request import ClientConnection
from raylog.core.clock import Now
from raylog.core.ids import BrokerId
from raylog.protocol import codec, fetch, registry
from raylog.protocol.framing import LENGTH_BYTES, frame
from raylog.protocol.header import decode_response_header, encode_request
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.registry import api_for
from raylog.protocol.schema import Message
from tests.support.sim_disk import SimDisk

WALL_START_MS = 1_700_000_000_000
SECRET = b"s" * 32
CLUSTER_ID = "ZGlyZWN0LWJyb2tlci10ZXN0"


class DirectBroker:
    """`call` asks on one connection; `connect` opens others. `restart` is clean unless told otherwise."""

    def __init__(self, config: dict[str, Any] | None = None, *, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        self.config = {"listeners": "PLAINTEXT://127.0.0.1:9092", **(config or {})}
        self._clock_ms = 1000
        self._correlation_id = 0
        self._start()

    def restart(self, *, clean: bool = True, power_cut: bool = False) -> None:
        if clean:
            self.broker.close(self.now())
        else:
            self.disk.crash(power_cut=power_cut)
        self._start()

    def now(self) -> Now:
        return Now(self._clock_ms, WALL_START_MS + self._clock_ms)

    def pass_time(self, ms: int) -> None:
        """Let `ms` go by, ticking whenever the broker asks for it."""
        end_ms = self._clock_ms + ms
        while (due_ms := self.broker.next_tick_ms()) <= end_ms:
            self._clock_ms = max(self._clock_ms, due_ms)
            self.broker.tick(self.now())
            for work in self.broker.take_disk_work():
                work.run()
                work.done(None)
        self._clock_ms = end_ms

    def connect(self, *, internal: bool = False, host: str = "127.0.0.1") -> ClientConnection:
        listener = self.listeners[-1 if internal else 0]
        connection = self.broker.connection_opened(listener, host, self.now())
        assert connection is not None
        return connection

    def send(
        self, request: Message, *, version: int | None = None, connection: ClientConnection | None = None
    ) -> tuple[int, int]:
        """Hand in a request and return (key, version), by which `answer` reads what comes back."""
        spec = api_for(request.api.key)
        assert spec is not None
        version = spec.highest if version is None else version
        self._correlation_id += 1
        buffers = encode_request(request, api_version=version, correlation_id=self._correlation_id, client_id="test")
        self.send_bytes(b"".join(frame(buffers)), connection=connection)
        return spec.key, version

    def send_bytes(self, data: bytes, *, connection: ClientConnection | None = None) -> None:
        connection = connection or self.connection
        while data and connection.wants_bytes:
            room = connection.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.broker.bytes_received(connection, count, self.now())

    def answer(self, sent: tuple[int, int], *, connection: ClientConnection | None = None) -> Any:
        """The answer that lies in the output, or None where there is none yet."""
        connection = connection or self.connection
        output = b"".join(connection.take_output())
        if not output:
            return None
        key, version = sent
        length = int.from_bytes(output[:LENGTH_BYTES], "big")
        assert length == len(output) - LENGTH_BYTES, "exactly one answer is expected"
        _, position = decode_response_header(key, version, output, LENGTH_BYTES)
        if key == registry.FETCH:
            return fetch.decode_fetch_response(version, memoryview(output), position)
        spec = api_for(key)
        assert spec is not None
        return codec.decode(spec.response, version, memoryview(output), position)

    def call(self, request: Message, *, version: int | None = None, connection: ClientConnection | None = None) -> Any:
        """The answer to `request`, which must come at once."""
        sent = self.send(request, version=version, connection=connection)
        answer = self.answer(sent, connection=connection)
        assert answer is not None, f"no answer: {(connection or self.connection).close_reason or 'parked'}"
        return answer

    def create_topic(self, topic: str = "t", *, partitions: int = 1, **configs: str) -> UUID:
        metadata = self.broker.metadata
        created = metadata.create_topic(
            topic,
            topic_id=self.broker.new_id(),
            num_partitions=partitions,
            replication_factor=1,
            assignments=None,
            configs={name.replace("_", "."): value for name, value in configs.items()},
            validate_only=False,
            now_ms=self.now().wall_ms,
        )
        return created.topic_id

    def produce(
        self,
        values: list[bytes],
        *,
        topic: str = "t",
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        connection: ClientConnection | None = None,
        **batch: Any,
    ) -> Any:
        """The partition's result; or None with acks=0. `batch` goes to `build_batch`."""
        records = build_batch([NewRecord(None, value, self.now().wall_ms) for value in values], **batch)
        return self.produce_bytes(
            bytes(records), topic=topic, partition=partition, acks=acks, version=version, connection=connection
        )

    def produce_bytes(
        self,
        records: bytes,
        *,
        topic: str = "t",
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        connection: ClientConnection | None = None,
    ) -> Any:
        part = ProducePartition(index=partition, records=memoryview(records))
        request = ProduceRequest(acks=acks, timeout_ms=1000, topics=[ProduceTopic(name=topic, partitions=[part])])
        sent = self.send(request, version=version, connection=connection)
        answer = self.answer(sent, connection=connection)
        return None if answer is None else answer.responses[0].partitions[0]

    def describe(self, *topics: str, version: int = 12, create: bool = False) -> Any:
        wanted = tuple(MetadataRequestTopic(name=topic) for topic in topics)
        return self.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=create), version=version)

    def _start(self) -> None:
        configs = broker_configs(self.config)
        self.listeners = plan_listeners(configs)
        identity = BrokerIdentity(BrokerId(0), CLUSTER_ID, self._new_id(), SECRET)
        self.broker = Broker(
            identity, configs, self.disk, "/broker-0", new_id=self._new_id, new_nonce=self.rng.randbytes, now=self.now()
        )
        endpoints = {listener.name: Endpoint("127.0.0.1", 9092) for listener in self.listeners}
        self.broker.serve(endpoints, client_listener=self.listeners[0].name, now=self.now())
        self.connection = self.connect()

    def _new_id(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128) | 1 << 127)
