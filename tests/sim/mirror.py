"""A mirror between two simulated clusters: production flow workers that are killed and replaced, and what must hold."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from raylog.client.admin.async_admin_client import AsyncAdminClient
from raylog.client.admin.topics import NewTopic
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.mirror import flow_worker, shard_worker
from raylog.mirror.config import FlowConfig, mirror_config
from raylog.mirror.flow_worker import FlowWorker
from raylog.mirror.formats import OffsetSync
from raylog.mirror.offset_translation import OffsetSyncStore
from raylog.mirror.progress import SHARDS_MIN, FlowId, decode_progress
from raylog.mirror.shard import ShardSettings
from raylog.protocol.records.batch import split_batches
from raylog.protocol.records.markers import read_marker
from raylog.protocol.records.reader import Record, read_batches
from tests.sim.asyncio_process import AsyncioProcess, simulated
from tests.sim.broker_host import PORT
from tests.sim.bursts import Bursts
from tests.sim.client_transactor import ClientTransactor
from tests.sim.client_world import ALL_PARTITIONS, CALM_MS
from tests.sim.cluster import SimCluster
from tests.sim.quorum_bursts import QuorumBursts
from tests.sim.scenario import PARTITIONS, QUIET_MS, SERVED_MS_MAX, TOPIC, random_config
from tests.sim.test_clients import SimProducer, random_settings
from tests.sim.transfer_ledger import TransferLedger
from tests.sim.trouble import USUAL_MS, end_trouble, plan_trouble
from tests.sim.world import World

TRANSFERS = "transfers"
FIRST_TARGET_ID = 10
WORKERS = 2
COPIED_MS_MAX = 120_000
LOOK_MS = 100
SYNCED_MS = 5_000
"""A worker that has just started has written the offset syncs of what its predecessor has copied."""
Visible = list[tuple[int, bytes | None]]
"""(offset, value) of what a reader with read_committed gets."""


class MirrorWorld:
    """Two clusters, programs that write to the first one, and workers of a flow to the second one."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        rng = self.world.rng
        self.exactly_once = rng.random() < 0.75
        self.from_end = rng.random() < 0.25
        self.configs: list[dict[str, str]] = []
        self.source, self.target = (self._cluster(first_id) for first_id in (0, FIRST_TARGET_ID))
        self.flow = self._flow()
        self.flow_id = FlowId("A", "B")
        self.settings = ShardSettings(
            exactly_once=self.exactly_once,
            commit_interval_ms=rng.choice((20, 100, 500)),
            commit_bytes=rng.choice((500, 5_000, 1 << 20)),
            backoff_ms=50,
            backoff_ms_max=1_000,
        )
        self.workers: dict[int, tuple[AsyncioProcess, asyncio.Task[None], FlowWorker]] = {}
        self.dead: list[tuple[AsyncioProcess, asyncio.Task[None]]] = []
        self.kills = True

    def _cluster(self, first_id: int) -> SimCluster:
        rng = self.world.rng
        brokers, power_cuts = rng.choice((1, 3)), rng.random() < 0.5
        config = random_config(rng, broker_count=brokers, power_cuts=power_cuts)
        self.configs.append(config)
        cluster = SimCluster(
            self.world, config, broker_count=brokers, controller_count=1, power_cuts=power_cuts, first_id=first_id
        )
        cluster.replica_watch.producers_give_up = True
        cluster.start()
        return cluster

    def _flow(self) -> FlowConfig:
        rng = self.world.rng
        entries = {
            "clusters": "A,B",
            "A.bootstrap.servers": servers(self.source),
            "B.bootstrap.servers": servers(self.target),
            "A->B.enabled": "true",
            "topics": f"{TOPIC},{TRANSFERS}",
            "exactly.once.source.support": "enabled" if self.exactly_once else "disabled",
            "offset-syncs.topic.location": "target",
            "offset.lag.max": rng.choice(("0", "5", "100")),
            "refresh.topics.interval.seconds": "1",
            "replication.factor": "-1",
            "B.producer.delivery.timeout.ms": "3000",
            "B.producer.request.timeout.ms": rng.choice(("300", "1000")),
            "B.producer.max.block.ms": "3000",
            "A.consumer.max.partition.fetch.bytes": rng.choice(("300", "1048576")),
            "A.consumer.auto.offset.reset": "latest" if self.from_end else "earliest",
            "consumer.poll.timeout.ms": rng.choice(("20", "1000")),
        }
        (flow,) = mirror_config(entries).flows
        return flow

    # --- the workers

    def start_workers(self) -> None:
        self.control = AsyncioProcess(self.world, self.target.brokers)
        self.created = self.control.start(self._create_topics)
        for number in range(WORKERS):
            self._start(number)
        self.world.after(self.world.rng.randint(100, 1500), self._replace_one)

    def _start(self, number: int) -> None:
        process = AsyncioProcess(self.world, [*self.source.brokers, *self.target.brokers])
        worker = FlowWorker(self.flow, settings=self.settings, share=(number, WORKERS), has_control=False)
        self.workers[number] = process, process.start(worker.run), worker

    def _replace_one(self) -> None:
        """A worker is killed, and its successor started; or the successor first, so that it fences a living one."""
        if not self.kills:
            return
        rng = self.world.rng
        number = rng.randrange(WORKERS)
        process, task, _ = self.workers[number]
        self.dead.append((process, task))
        if rng.random() < 0.5:
            self.world.marks["worker killed"] += 1
            process.kill()
        else:
            self.world.marks["worker fenced"] += 1
            self.world.after(rng.randint(1, 2_000), process.kill)
        self._start(number)
        self.world.after(rng.randint(100, 2_500), self._replace_one)

    async def _create_topics(self) -> None:
        """As the control of a flow does, until it has succeeded."""
        copies = [NewTopic(f"A.{topic}", PARTITIONS, -1) for topic in (TOPIC, TRANSFERS)]
        syncs = NewTopic(self.flow.offset_syncs_topic, 1, -1, configs={"cleanup.policy": "compact"})
        async with AsyncAdminClient(self.flow.target.admin) as admin:
            for topic in (*copies, syncs):
                while True:
                    try:
                        await admin.create_topics([topic])
                        break
                    except KafkaError as error:
                        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                            break
                        await asyncio.sleep(0.3)

    def break_connections(self) -> None:
        self.workers[self.world.rng.randrange(WORKERS)][0].break_connections()

    # --- a run

    def run(self) -> None:
        """Raises AssertionError for a violated guarantee."""
        with simulated(self.world, flow_worker, shard_worker):
            try:
                self._run()
            finally:
                living = [(process, task) for process, task, _ in self.workers.values()]
                for process, task in [*self.dead, *living, (self.control, self.created)]:
                    process.bury(task)

    def _run(self) -> None:
        world, rng = self.world, self.world.rng
        ledger = TransferLedger(TRANSFERS, PARTITIONS)
        producer = SimProducer(world, self.source.brokers, "producer")
        transactor = ClientTransactor(
            world,
            self.source.brokers,
            ledger,
            "transfers",
            new_settings=partial(random_settings, rng, transactional_id="transfers"),
        )
        self.start_workers()
        breaks = [producer.driver.break_connection, transactor.break_connection, self.break_connections]
        for cluster, config in zip((self.source, self.target), self.configs, strict=True):
            bursts = Bursts(cluster, config, list(ALL_PARTITIONS)), QuorumBursts(cluster, config)
            plan_trouble(cluster, breaks, *bursts, trouble_ms=USUAL_MS)
        world.run(until=lambda: False, limit_ms=USUAL_MS)
        self.kills = False
        for cluster in (self.source, self.target):
            end_trouble(cluster)
        world.run(until=lambda: False, limit_ms=CALM_MS)
        producer.ends = transactor.ends = True
        assert world.run(until=lambda: producer.finished and transactor.finished, limit_ms=QUIET_MS), (
            "a client is stuck"
        )
        for process, _ in self.dead:
            process.kill()
        assert world.run(until=self.source.serves, limit_ms=SERVED_MS_MAX)
        assert world.run(until=lambda: ledger.is_at_rest(self.source), limit_ms=QUIET_MS), "a transaction stays open"
        self._wait_until_copied()
        for process, _, _ in self.workers.values():
            process.kill()
        assert world.run(until=self.target.serves, limit_ms=SERVED_MS_MAX)
        self.check()

    def _wait_until_copied(self) -> None:
        end_ms = self.world.time_ms + COPIED_MS_MAX
        while True:
            self.world.run(until=lambda: False, limit_ms=LOOK_MS)
            serves = self.created.done() and self.world.run(until=self.target.serves, limit_ms=LOOK_MS)
            if serves and self._all_is_copied():
                break
            status = [worker.status() for _, _, worker in self.workers.values()]
            assert self.world.time_ms < end_ms, f"records are not copied: {status}"
        for number, (process, task, _) in list(self.workers.items()):
            process.kill()  # with the offset syncs that it has not written
            self.dead.append((process, task))
            self._start(number)
        self.world.run(until=lambda: False, limit_ms=SYNCED_MS)

    def _all_is_copied(self) -> bool:
        if self.from_end and not self._starts().keys() >= set(self._partitions()):
            return False
        return all(
            {value for _, value in self._of_source(tp)} <= {value for _, value in visible(self.target, copy_of(tp))}
            for tp in self._partitions()
        )

    def _of_source(self, tp: TopicPartition) -> Visible:
        """What the flow copies, from its first progress on.

        At least once it reads what is not committed too, as MirrorMaker does.
        """
        start = self._starts().get(tp, 0) if self.from_end else 0
        return [each for each in visible(self.source, tp, committed=self.exactly_once) if each[0] >= start]

    def _starts(self) -> dict[TopicPartition, int]:
        """The first progress of each partition."""
        found: dict[TopicPartition, int] = {}
        for shard in range(SHARDS_MIN):
            for record in seen(self.target, TopicPartition(self.flow_id.progress_topic, shard)):
                tp, progress = decode_progress(self.flow_id, record.key, record.value)
                assert progress is not None
                found.setdefault(tp, progress.next_offset)
        return found

    def _partitions(self) -> list[TopicPartition]:
        topics = [topic for topic in (TOPIC, TRANSFERS) if topic in self.source.ledger.image.topics]
        return [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]

    def check(self) -> None:
        """That readers of the copies see the source's records, and that no offset is translated too far."""
        syncs = self._syncs()
        self.world.marks["offset syncs"] += len(syncs)
        store = OffsetSyncStore()
        store.loaded()
        for sync in syncs:
            store.add(sync)
        for tp in self._partitions():
            source, copy = self._of_source(tp), visible(self.target, copy_of(tp))
            self.world.marks["copied"] += len(source)
            values = [value for _, value in copy]
            if self.exactly_once:
                assert values == [value for _, value in source], f"{tp}: the copy has other records"
            else:
                assert set(values) == {value for _, value in source}, f"{tp}: the copy has other records"
                self.world.marks["copied again"] += len(copy) - len(source)
            self._check_syncs(tp, dict(source), dict(copy), [each for each in syncs if each.tp == tp])
            if self.exactly_once:
                self._check_translations(tp, source, copy, store)
                if source:
                    there = store.translate(tp, source[-1][0])
                    assert there == copy[-1][0], f"{tp}: no offset sync of the end, which is translated to {there}"

    def _check_syncs(
        self,
        tp: TopicPartition,
        source: dict[int, bytes | None],
        copy: dict[int, bytes | None],
        syncs: list[OffsetSync],
    ) -> None:
        for sync in syncs:
            at = sync.downstream_offset
            assert at in copy, f"{tp}: a sync describes offset {at} of the copy, where no reader finds a record"
            assert copy[at] == source.get(sync.upstream_offset), f"{tp}: {sync} describes another record"

    def _check_translations(self, tp: TopicPartition, source: Visible, copy: Visible, store: OffsetSyncStore) -> None:
        for index, (offset, _) in enumerate(source):
            there = store.translate(tp, offset)
            if there is not None:
                self.world.marks["translated"] += 1
                assert there <= copy[index][0], f"{tp}: offset {offset} is translated to {there}, behind its record"

    def _syncs(self) -> list[OffsetSync]:
        tp = TopicPartition(self.flow.offset_syncs_topic, 0)
        batches = self.target.batches(tp)
        records = read_batches(batches, from_offset=0)
        return [OffsetSync.decode(each.key or b"", each.value or b"") for each in records]


def servers(cluster: SimCluster) -> str:
    return ",".join(f"{host.name}:{PORT}" for host in cluster.brokers)


def copy_of(tp: TopicPartition) -> TopicPartition:
    return TopicPartition(f"A.{tp.topic}", tp.partition)


def visible(cluster: SimCluster, tp: TopicPartition, *, committed: bool = True) -> Visible:
    """What a reader with read_committed gets, of a transaction that is open nothing; else what any reader gets."""
    return [(record.offset, record.value) for record in seen(cluster, tp, committed=committed)]


def seen(cluster: SimCluster, tp: TopicPartition, *, committed: bool = True) -> list[Record]:
    batches = cluster.batches(tp)
    pending: dict[int, list[Record]] = {}
    found: list[Record] = []
    for position, header in split_batches(batches):
        if header.is_control:
            marker = read_marker(batches, position, header)
            assert marker is not None
            found += pending.pop(header.producer_id, []) if marker.committed else []
            pending.pop(header.producer_id, None)
            continue
        batch = batches[position : position + header.size_bytes]
        records = list(read_batches(batch, from_offset=header.base_offset))
        if header.is_transactional and committed:
            pending.setdefault(header.producer_id, []).extend(records)
        else:
            found += records
    return sorted(found, key=lambda record: record.offset)


def run(seed: int) -> Any:
    """The marks of the run. Raises AssertionError for a violated guarantee."""
    mirrored = MirrorWorld(seed)
    mirrored.run()
    return mirrored.world.marks
