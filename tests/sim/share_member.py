"""raylog's share consumer in a simulated cluster: a member that is late, is killed, leaves and returns."""

from __future__ import annotations

import random
from functools import partial

from raylog.client.share.core import ShareConsumerCore
from raylog.config.share_consumer import SHARE_CONSUMER_CONFIG, ShareConsumerSettings, share_consumer_settings
from raylog.core.config import Configs, ConfigSource, Layer
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.metadata.config_resources import GROUP as GROUP_RESOURCE
from raylog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from raylog.protocol.share import AcknowledgeType
from tests.sim.broker_host import PORT, BrokerHost
from tests.sim.client import SimClient
from tests.sim.client_driver import ClientDriver
from tests.sim.share_ledger import ShareLedger
from tests.sim.world import World

GROUP = "sharers"
LOCK_MS = 1000
SHARE_CONFIG = {
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.session.timeout.ms": "500",
    "group.share.session.timeout.ms": "800",
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.min.isr": "1",
}
MAY_FAIL = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
)


class GroupConfigurer(SimClient):
    """Has the group begin with the earliest records; creates the topic."""

    def __init__(self, world: World, hosts: list[BrokerHost], topic: str) -> None:
        self._topic = topic
        super().__init__(world, hosts, "configurer")

    def begin(self) -> None:
        self.describe(self._topic, self._described, create=True)

    def _described(self, topic: object) -> None:
        configs = (AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest"),)
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=configs)
        self.ask(self.any_broker(), IncrementalAlterConfigsRequest(resources=(resource,)), self._altered)

    def _altered(self, answer: object) -> None:
        (response,) = answer.responses  # type: ignore[attr-defined]
        if response.error_code is ErrorCode.NONE:
            self.finished = True
        else:
            self.restart()


def random_settings(rng: random.Random) -> ShareConsumerSettings:
    texts = {
        "group.id": GROUP,
        "share.acknowledgement.mode": rng.choice(("explicit", "explicit", "implicit")),
        "share.acquire.mode": rng.choice(("batch_optimized", "record_limit")),
        "max.poll.records": rng.choice(("1", "5", "500")),
        "max.poll.interval.ms": rng.choice(("500", "5000")),
        "fetch.max.wait.ms": rng.choice(("20", "500")),
        "fetch.max.bytes": rng.choice(("1", "1000", "52428800")),
        "request.timeout.ms": rng.choice(("300", "1000", "3000")),
        "default.api.timeout.ms": "3000",
        "metadata.max.age.ms": rng.choice(("100", "300000")),
        "connections.max.idle.ms": rng.choice(("200", "540000")),
    }
    layer = Layer(ConfigSource.STATIC_BROKER_CONFIG, SHARE_CONSUMER_CONFIG.parse(texts))
    return share_consumer_settings(Configs(SHARE_CONSUMER_CONFIG, [layer]))


class ShareMember:
    """A seat in the group: each life of it is another consumer."""

    def __init__(self, world: World, hosts: list[BrokerHost], ledger: ShareLedger, topic: str) -> None:
        self.world = world
        self.trouble = True
        """While this holds it may be late, leave and be killed, and it says all kinds of things of records."""
        self.driver: ClientDriver
        self.core: ShareConsumerCore
        self._hosts = hosts
        self._ledger = ledger
        self._topic = topic
        self._life = 0
        self._begin()

    def break_connection(self) -> None:
        self.driver.break_connection()

    # --- lives

    def _begin(self) -> None:
        servers = ",".join(f"{host.name}:{PORT}" for host in self._hosts)
        self.core = ShareConsumerCore(servers, random_settings(self.world.rng), self.world.rng)
        self.driver = ClientDriver(self.world, self._hosts, self.core.network)
        self.core.subscribe([self._topic])
        self._life += 1
        self.world.after(self.world.rng.choice((1, 50, 500)), partial(self._poll, self._life))

    def _end(self) -> None:
        """The process is killed, or ends in order."""
        self._life += 1
        if self.world.rng.random() < 0.5:
            self.world.marks["share member killed"] += 1
            self._close()
            return
        self.world.marks["share member closed"] += 1
        self.core.end_sessions(self.world.now(), 300)
        self.driver.event(self.core.network.run)
        life, until_ms = self._life, self.world.time_ms + 300

        def go_on() -> None:
            if life == self._life and not self.core.sessions.closed and self.world.time_ms < until_ms:
                self.world.after(10, go_on)
            elif life == self._life:
                self.core.unsubscribe("closed", self.world.now(), 300)
                self.driver.event(self.core.network.run)
                self.world.after(20, self._close)

        go_on()

    def _close(self) -> None:
        self.driver.close()
        self.world.after(self.world.rng.choice((1, 300, 3000)), self._begin)

    # --- polling

    def _poll(self, life: int) -> None:
        if life != self._life:
            return
        rng, now = self.world.rng, self.world.now()
        if self.trouble and rng.random() < 0.02:
            self._end()
            return
        self.core.begin_poll(now)
        try:
            self.core.raise_error()
            for record in self.core.take(self.core.settings.poll_records, now):
                tp = TopicPartition(record.topic, record.partition)
                self._ledger.got(tp, record.offset, record.value or b"", record.delivery_count)
                self.world.marks[f"delivery {min(record.delivery_count, 3)}"] += 1
                if self.core.settings.explicit:
                    self.core.acknowledge(record[:3], self._kind())
        except KafkaError as error:
            self.world.marks[f"share member met {error.code.name}"] += 1
            if error.code not in MAY_FAIL:
                raise
        finally:
            self.core.end_poll(now)
        if rng.random() < 0.3:
            self.core.commit(now, 3000)
        self.driver.event(self.core.network.run)
        late = self.trouble and rng.random() < 0.02
        self.world.after(2 * LOCK_MS if late else rng.choice((1, 5, 50)), partial(self._poll, life))

    def _kind(self) -> AcknowledgeType:
        if not self.trouble or self.world.rng.random() < 0.7:
            return AcknowledgeType.ACCEPT
        kind = self.world.rng.choice((AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW))
        self.world.marks[f"share member said {kind.name}"] += 1
        return kind
