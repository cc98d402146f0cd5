"""Production brokers and their controller without sockets: tests pass requests in and get responses back.

Time advances only when the test calls `pass_time`, and messages between nodes are delivered when it calls `settle`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from raylog.broker.broker import Broker, peer_name
from raylog.config.log import log_dir_settings
from raylog.controller import topics
from raylog.controller.controller import Controller
from raylog.core.clock import Now
from raylog.core.ids import BrokerId
from raylog.metadata.voters import voter_named
from raylog.protocol import codec, fetch, registry
from raylog.protocol.framing import LENGTH_BYTES, frame
from raylog.protocol.header import decode_response_header, encode_request
from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from raylog.protocol.records.builder import NewRecord, build_batch
from raylog.protocol.registry import api_for
from raylog.protocol.schema import Message
from raylog.transport.accepted_connection import AcceptedConnection
from raylog.transport.endpoints import Endpoint, Listener
from raylog.transport.listeners import plan_listeners
from raylog.transport.node import Node, NodeIdentity
from tests.support.direct_link import DirectLinks, settle
from tests.support.sim_disk import SimDisk
from tests.support.small_segments import with_small_segments

WALL_START_MS = 1_700_000_000_000
SECRET = b"s" * 32
CONTROLLER_ID = BrokerId(1000)
CLUSTER_ID = "ZGlyZWN0LWNsdXN0ZXItdGVz"


class DirectCluster:
    """`brokers[i]` is broker i. All nodes run after construction; tests stop and start them."""

    def __init__(
        self,
        broker_count: int = 2,
        config: dict[str, Any] | None = None,
        *,
        racks: tuple[str, ...] = (),
        coordinators: tuple[int, ...] = (),
        seed: int = 0,
    ) -> None:
        """`racks[i]` is the rack of broker i. `coordinators` are the ids of coordinators, which follow the brokers."""
        self.rng = random.Random(seed)
        self.config = {"offsets.topic.replication.factor": "1", **(config or {})}
        self.racks = racks
        self.controller_disk = SimDisk(self.rng)
        self.controller: Controller | None = None
        self.brokers: list[DirectMember] = []
        self._clock_ms = 1000
        self.start_controller()
        for broker_id in (*range(broker_count), *coordinators):
            self.brokers.append(DirectMember(self, BrokerId(broker_id)))
            self.brokers[-1].start()

    def now(self) -> Now:
        return Now(self._clock_ms, WALL_START_MS + self._clock_ms)

    def settle(self) -> None:
        """Deliver messages between the nodes until there are none left."""
        for node in self._nodes():
            settle(node, self.now())
        while any(member.carry() for member in self.brokers):
            pass

    def pass_time(self, ms: int) -> None:
        """Advance the time by `ms`, and tick each node whenever it is due."""
        end_ms = self._clock_ms + ms
        while (due_ms := min((node.next_tick_ms() for node in self._nodes()), default=end_ms + 1)) <= end_ms:
            self._clock_ms = max(self._clock_ms, due_ms)
            for node in self._nodes():
                node.tick(self.now())
            self.settle()
        self._clock_ms = end_ms

    def new_id(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128) | 1 << 127)

    def member(self, broker_id: int) -> DirectMember:
        return next(member for member in self.brokers if member.broker_id == broker_id)

    def node_named(self, peer: str) -> Node | None:
        """The node with this link name; None while it is stopped."""
        if voter_named(peer) is not None:
            return self.controller
        for member in self.brokers:
            if peer == peer_name(member.broker_id):
                return member.broker if member.running else None
        return None

    # --- the controller

    @property
    def active(self) -> Controller:
        """The controller, which must be running."""
        assert self.controller is not None
        return self.controller

    def start_controller(self, *, may_be_new: bool = True) -> None:
        self.controller = Controller(
            NodeIdentity(CONTROLLER_ID, CLUSTER_ID, self.new_id(), SECRET),
            with_small_segments(self.config),
            self.controller_disk,
            "/controller",
            may_be_new=may_be_new,
            new_id=self.new_id,
            new_nonce=self.rng.randbytes,
            now=self.now(),
        )

    def stop_controller(self, *, clean: bool = True, power_cut: bool = False) -> None:
        """Stop the controller. The brokers notice that their links break."""
        if clean:
            self.active.close(self.now())
        else:
            self.controller_disk.crash(power_cut=power_cut)
        controller, self.controller = self.controller, None
        for member in self.brokers:
            member.links.cut(self.now(), server_gone=True, server=controller)

    def create_topic(
        self,
        topic: str = "t",
        *,
        partitions: int = 1,
        on: list[int] | list[list[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> UUID:
        """Create a topic; every connected broker replays it. `on` is the replica assignment."""
        outcome = topics.create_topic(
            self.active.image,
            topic,
            topic_id=self.new_id(),
            num_partitions=partitions,
            replication_factor=1,
            assignments=None if on is None else [[one] if isinstance(one, int) else one for one in on],
            configs=configs,
        )
        created = self.active.decide(outcome, self.now())
        self.active.run(self.now())
        self.settle()
        return created.topic_id

    def delete_topic(self, topic: str = "t") -> None:
        self.active.decide(topics.delete_topic(self.active.image, topic), self.now())
        self.active.run(self.now())
        self.settle()

    def _nodes(self) -> list[Node]:
        brokers = [member.broker for member in self.brokers if member.running]
        return [*brokers, *([self.controller] if self.controller is not None else [])]


class DirectMember:
    """One broker of a cluster, on its disk. `call` sends requests on one connection; `connect` opens others."""

    broker: Broker
    links: DirectLinks
    connection: AcceptedConnection

    def __init__(self, cluster: DirectCluster, broker_id: BrokerId) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.disk = SimDisk(cluster.rng)
        self.log_path = f"/broker-{broker_id}"
        self.log_paths = log_dir_settings(with_small_segments(cluster.config)).paths or (self.log_path,)
        """By log.dirs: the members have disks of their own, so that theirs may have the same names."""
        if len(self.log_paths) > 1:
            for path in self.log_paths:
                self.disk.mkdir(path)
        self.port = 9092 + broker_id
        self.running = False
        self.client_id = "test"
        """Of the requests that it sends."""
        self.silent = False
        """While set, its links deliver nothing, and neither side notices."""
        self.listeners: list[Listener] = []
        self._correlation_id = 0

    def start(self, *, accepting: bool = True) -> None:
        """Start a new incarnation on the same disk, which the controller unfences, unless `accepting` is False."""
        cluster = self.cluster
        own = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        if self.broker_id < len(cluster.racks):
            own["broker.rack"] = cluster.racks[self.broker_id]
        configs = with_small_segments({**own, **cluster.config})
        self.listeners = plan_listeners(configs)
        self.broker = Broker(
            NodeIdentity(self.broker_id, CLUSTER_ID, cluster.new_id(), SECRET),
            configs,
            self.disk,
            self.log_paths,
            new_id=cluster.new_id,
            new_nonce=cluster.rng.randbytes,
            now=cluster.now(),
        )
        self.running = True
        self.links = DirectLinks(self.broker, self.listeners[-1], cluster.node_named)
        endpoints = {listener.name: Endpoint("127.0.0.1", self.port) for listener in self.listeners}
        self.broker.start(endpoints, cluster.now())
        cluster.settle()
        if accepting:
            assert self.broker.accepting
        self.connection = self.connect()

    def stop(self, *, clean: bool = True, power_cut: bool = False, noticed: bool = True) -> None:
        """Stop the broker. With `noticed` the controller sees the links break; not so after a power failure."""
        if clean:
            self.broker.close(self.cluster.now())
        else:
            self.disk.crash(power_cut=power_cut)
        self.running = False
        if noticed:
            self.links.cut(self.cluster.now(), node_gone=True)
            for member in self.cluster.brokers:
                if member.running:
                    member.links.cut(self.cluster.now(), server_gone=True, server=self.broker)
        self.cluster.settle()

    def shut_down(self, *, within_ms: int = 1000) -> None:
        """Controlled shutdown, as by its shell: close once it may, which must be within `within_ms`."""
        self.broker.begin_shutdown(self.cluster.now())
        self.cluster.settle()
        end_ms = self.cluster.now().monotonic_ms + within_ms
        while not self.broker.can_close:
            assert self.cluster.now().monotonic_ms < end_ms, "it may not close"
            self.cluster.pass_time(1)
        self.stop()

    def carry(self) -> bool:
        return self.running and not self.silent and self.links.carry(self.cluster.now())

    def connect(
        self, *, internal: bool = False, host: str = "127.0.0.1", listener_name: str = ""
    ) -> AcceptedConnection:
        """A connection to the first listener, to the internal one, or to the one of this name."""
        listener = self.listeners[-1 if internal else 0]
        if listener_name:
            [listener] = [each for each in self.listeners if each.name == listener_name]
        connection = self.broker.connection_opened(listener, host, self.cluster.now())
        assert connection is not None
        return connection

    def send(
        self, request: Message, *, version: int | None = None, connection: AcceptedConnection | None = None
    ) -> tuple[int, int]:
        """Send a request and return (key, version), with which `answer` decodes the response."""
        spec = api_for(request.api.key)
        assert spec is not None
        version = spec.highest if version is None else version
        self._correlation_id += 1
        buffers = encode_request(
            request, api_version=version, correlation_id=self._correlation_id, client_id=self.client_id
        )
        self.send_bytes(b"".join(frame(buffers)), connection=connection)
        return spec.key, version

    def send_bytes(self, data: bytes, *, connection: AcceptedConnection | None = None) -> None:
        connection = connection or self.connection
        while data and connection.wants_bytes:
            room = connection.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.broker.bytes_received(connection, count, self.cluster.now())
        self.cluster.settle()

    def answer(self, sent: tuple[int, int], *, connection: AcceptedConnection | None = None) -> Any:
        """The response in the output, or None if there is none yet."""
        connection = connection or self.connection
        output = b"".join(self.broker.take_output(connection))
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

    def call(
        self, request: Message, *, version: int | None = None, connection: AcceptedConnection | None = None
    ) -> Any:
        """The response to `request`, which must arrive at once."""
        sent = self.send(request, version=version, connection=connection)
        answer = self.answer(sent, connection=connection)
        assert answer is not None, f"no answer: {(connection or self.connection).close_reason or 'parked'}"
        return answer

    def produce(
        self,
        values: list[bytes],
        *,
        topic: str = "t",
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        connection: AcceptedConnection | None = None,
        **batch: Any,
    ) -> Any:
        """The partition's result, or None with acks=0. `batch` is passed to `build_batch`."""
        records = build_batch([NewRecord(None, value, self.cluster.now().wall_ms) for value in values], **batch)
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
        connection: AcceptedConnection | None = None,
    ) -> Any:
        part = ProducePartition(index=partition, records=memoryview(records))
        request = ProduceRequest(acks=acks, timeout_ms=1000, topics=[ProduceTopic(name=topic, partitions=[part])])
        sent = self.send(request, version=version, connection=connection)
        answer = self.answer(sent, connection=connection)
        return None if answer is None else answer.responses[0].partitions[0]

    def describe(self, *topics: str, version: int = 12, create: bool = False) -> Any:
        wanted = tuple(MetadataRequestTopic(name=topic) for topic in topics)
        return self.call(MetadataRequest(topics=wanted, allow_auto_topic_creation=create), version=version)
