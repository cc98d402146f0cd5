"""Records the requests of stock clients: a broker with one empty topic that stores each kind of request once.

    .venv/bin/python -m tests.support.capture            writes tests/golden/<client>.json

A file holds a list of frames: `hex` (without the length prefix), the `header`, and the `message` with those fields that
are not at their default (bytes and records as hex, uuids as text, errors by name); `spare_bytes` is the number of bytes
after the message. Review changes before committing them: the file is the reference, not the program.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from raylog.core.errors import ErrorCode, ProtocolViolation
from raylog.protocol import codec, fetch, produce
from raylog.protocol.framing import LENGTH_BYTES, REQUEST_BYTES_MAX, frame, frame_length
from raylog.protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_request_start,
    encode_request_header,
    encode_response_header,
)
from raylog.protocol.messages import (
    api_versions,
    create_topics,
    describe_configs,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
)
from raylog.protocol.registry import API_VERSIONS, APIS, ApiSpec, api_for

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
TOPIC = "golden"
TOPIC_ID = UUID(int=0x60_1D)
GROUP = "readers"
CLIENT_SECONDS = 20


def shown(value: Any) -> Any:
    """A message as JSON: only the fields that are not at their default."""
    if is_dataclass(value):
        return {
            each.name: shown(found)
            for each in fields(value)
            if (found := getattr(value, each.name)) != each.default or each.name == "records"
        }
    if isinstance(value, tuple):
        return [shown(each) for each in value]
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, ErrorCode):
        return value.name
    return str(value) if isinstance(value, UUID) else value


def encoded(header: RequestHeader, message: Any) -> bytes:
    """The request as raylog encodes it."""
    start = encode_request_header(header.api_key, header.api_version, header.correlation_id, header.client_id)
    if isinstance(message, fetch.FetchRequest):
        return start + fetch.encode_fetch_request(header.api_version, message)
    return start + codec.encode(message, header.api_version)


class CapturingBroker:
    """Answers enough for a client to continue; keeps the first frame of each API, version and number of spare bytes."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.frames: dict[tuple[int, int, int], dict[str, Any]] = {}
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection:
            stream = connection.makefile("rb")
            while len(prefix := stream.read(LENGTH_BYTES)) == LENGTH_BYTES:
                request = stream.read(frame_length(prefix, max_bytes=REQUEST_BYTES_MAX))
                try:
                    for each in frame(self.answer(request)):
                        connection.sendall(each)
                except (ProtocolViolation, OSError):
                    return

    def answer(self, request: bytes) -> list[Any]:
        start = decode_request_start(request)
        spec = api_for(start.api_key)
        if spec is not None and spec.key == API_VERSIONS and not spec.serves(start.api_version):
            refusal = served(ErrorCode.UNSUPPORTED_VERSION)
            return [encode_response_header(API_VERSIONS, 0, start.correlation_id), codec.encode(refusal, 0)]
        header, position = decode_request_header(request)
        assert spec is not None
        message = spec.decode_request(header.api_version, request, position)
        self.keep(request, header, message)
        response = self.respond(spec, message)
        return [
            encode_response_header(spec.key, header.api_version, header.correlation_id),
            *spec.encode_response(header.api_version, response),
        ]

    def keep(self, request: bytes, header: RequestHeader, message: Any) -> None:
        spare_bytes = len(request) - len(encoded(header, message))
        kept = {"hex": request.hex(), "header": asdict(header), "message": shown(message), "spare_bytes": spare_bytes}
        self.frames.setdefault((header.api_key, header.api_version, spare_bytes), kept)

    def respond(self, spec: ApiSpec, message: Any) -> Any:
        match message:
            case api_versions.ApiVersionsRequest():
                return served(ErrorCode.NONE)
            case metadata.MetadataRequest():
                return self.metadata()
            case find_coordinator.FindCoordinatorRequest(key=key, coordinator_keys=keys):
                one = find_coordinator.Coordinator(key=keys[0] if keys else key, host="127.0.0.1", port=self.port)
                return find_coordinator.FindCoordinatorResponse(host="127.0.0.1", port=self.port, coordinators=(one,))
            case init_producer_id.InitProducerIdRequest():
                return init_producer_id.InitProducerIdResponse(producer_id=7, producer_epoch=0)
            case produce.ProduceRequest():
                appended = produce.ProducePartitionResponse(index=0, base_offset=0)
                topic = produce.ProduceTopicResponse(name=TOPIC, topic_id=TOPIC_ID, partitions=(appended,))
                return produce.ProduceResponse(responses=(topic,))
            case fetch.FetchRequest():
                time.sleep(0.1)
                read = fetch.FetchPartitionResponse(high_watermark=0, last_stable_offset=0, log_start_offset=0)
                found = fetch.FetchTopicResponse(name=TOPIC, topic_id=TOPIC_ID, partitions=(read,))
                return fetch.FetchResponse(responses=(found,))
            case list_offsets.ListOffsetsRequest():
                offset = list_offsets.ListOffsetsPartitionResponse(offset=0, leader_epoch=0)
                listed = list_offsets.ListOffsetsTopicResponse(name=TOPIC, partitions=(offset,))
                return list_offsets.ListOffsetsResponse(topics=(listed,))
            case offset_fetch.OffsetFetchRequest():
                return offset_fetch.OffsetFetchResponse(groups=(offset_fetch.OffsetFetchResponseGroup(group_id=GROUP),))
            case offset_commit.OffsetCommitRequest():
                committed = offset_commit.OffsetCommitResponseTopic(
                    name=TOPIC, topic_id=TOPIC_ID, partitions=(offset_commit.OffsetCommitResponsePartition(),)
                )
                return offset_commit.OffsetCommitResponse(topics=(committed,))
            case create_topics.CreateTopicsRequest():
                result = create_topics.CreatableTopicResult(name=TOPIC, topic_id=TOPIC_ID)
                return create_topics.CreateTopicsResponse(topics=(result,))
            case describe_configs.DescribeConfigsRequest(resources=(resource, *_)):
                described = describe_configs.DescribeConfigsResult(
                    resource_type=resource.resource_type, resource_name=resource.resource_name
                )
                return describe_configs.DescribeConfigsResponse(results=(described,))
            case _:
                return spec.response()

    def metadata(self) -> metadata.MetadataResponse:
        partition = metadata.MetadataResponsePartition(leader_epoch=0, replica_nodes=(0,), isr_nodes=(0,))
        return metadata.MetadataResponse(
            brokers=(metadata.MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self.port),),
            cluster_id="capture",
            controller_id=0,
            topics=(metadata.MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=(partition,)),),
        )


def served(code: ErrorCode) -> api_versions.ApiVersionsResponse:
    rows = [(spec.key, spec.advertised_from, spec.highest) for spec in APIS]
    keys = tuple(api_versions.ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in rows)
    return api_versions.ApiVersionsResponse(error_code=code, api_keys=keys)


# The clients: each sends requests to the broker until it fails.


def kcat(address: str) -> None:
    for arguments, typed in ((["-L"], ""), (["-P", "-t", TOPIC], "hello\n"), (["-C", "-t", TOPIC, "-e"], "")):
        command = ["kcat", "-b", address, "-m", "5", *arguments]
        subprocess.run(command, input=typed, text=True, timeout=CLIENT_SECONDS, capture_output=True, check=False)


def confluent_kafka(address: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "compression.type": "lz4"})
    producer.produce(TOPIC, key=b"k", value=b"hello", headers={"h": b"1"})
    producer.flush(5)
    admin = AdminClient({"bootstrap.servers": address})
    admin.list_topics(timeout=5)
    admin.create_topics([NewTopic(TOPIC, 1, 1, config={"retention.ms": "1000"})])[TOPIC].result(5)
    for answer in admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, TOPIC)]).values():
        answer.result(5)
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    consumer.poll(1)
    consumer.committed([TopicPartition(TOPIC, 0)], timeout=2)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5)], asynchronous=False)
    consumer.close()


def kafka_python(address: str) -> None:
    import kafka
    from kafka.admin import NewTopic

    producer = kafka.KafkaProducer(bootstrap_servers=address, acks="all")
    producer.send(TOPIC, key=b"k", value=b"hello").get(5)
    producer.close(timeout=5)
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, group_id=GROUP, enable_auto_commit=False)
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    consumer.poll(1000)
    consumer.close()
    admin = kafka.KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(TOPIC, 1, 1)])
    admin.close()


def aiokafka(address: str) -> None:
    import aiokafka as library

    async def talk() -> None:
        producer = library.AIOKafkaProducer(bootstrap_servers=address)
        await producer.start()
        await producer.send_and_wait(TOPIC, b"hello", key=b"k")
        await producer.stop()
        consumer = library.AIOKafkaConsumer(bootstrap_servers=address, group_id=GROUP, enable_auto_commit=False)
        await consumer.start()
        consumer.assign([library.TopicPartition(TOPIC, 0)])
        await consumer.getmany(timeout_ms=1000)
        await consumer.stop()

    asyncio.run(asyncio.wait_for(talk(), CLIENT_SECONDS))


CLIENTS: tuple[Callable[[str], None], ...] = (kcat, confluent_kafka, kafka_python, aiokafka)


def main() -> int:
    for client in CLIENTS:
        broker = CapturingBroker()
        try:
            client(broker.address)
        except Exception as error:  # only the frames sent until then are needed
            print(f"{client.__name__} stopped: {error!r}", file=sys.stderr)  # noqa: T201
        broker.listener.close()
        frames = [broker.frames[key] for key in sorted(broker.frames)]
        (GOLDEN / f"{client.__name__}.json").write_text(json.dumps(frames, indent=1, ensure_ascii=False) + "\n")
        print(f"{client.__name__}: (key, version, spare bytes) {sorted(broker.frames)}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
