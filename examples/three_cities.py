"""A city is lost: three clusters in one Ray, mirrors between them, and an audit that counts what that costs.

Lisbon and Oslo sell. Each has its own orders and a copy of the other's, and Geneva has copies of both. When Lisbon is
lost, its consumers go on in Oslo from translated offsets, and its shop sells there. Then Lisbon comes back and catches
up. Every order has an audit stamp, which mirrors copy with the record, so the audit, which is kept in Geneva, tells
what each city has and what was billed, order by order.

    python -m examples.three_cities
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import raylog
from raylog.client.audit.audit_topic import check_audit
from raylog.client.audit.checking import Finding
from raylog.client.client_config import ClientConfig
from raylog.mirror.config import MirrorConfig, mirror_config
from raylog.mirror.control_clients import ControlClients
from raylog.mirror.failover import fail_back

LISBON, OSLO, GENEVA = CITIES = ("lisbon", "oslo", "geneva")
FLOWS = ((LISBON, OSLO), (OSLO, LISBON), (LISBON, GENEVA), (OSLO, GENEVA))
ORDERS = "orders"
LISBON_IN_OSLO = f"{LISBON}.{ORDERS}"
BILLING = "billing"
FINDINGS = (Finding.LOST, Finding.DUPLICATED, Finding.UNREPORTED)
TASKS = ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.group.offsets", "emit.checkpoints")
CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 3,
    "auto.create.topics.enable": "false",
}
TIMEOUT_SECONDS = 120.0
AFTER_ALL_BUCKETS_MS = 600_000


class City(Protocol):
    """A cluster that can be lost."""

    @property
    def bootstrap_servers(self) -> str: ...

    def lose(self) -> None:
        """kill -9 of everything at once. Nothing is restarted."""

    def come_back(self) -> None:
        """Start it on what its disks have, at the same address."""


class Mirror(Protocol):
    def stop(self) -> None:
        """Commit what was copied, and end."""


class Seen(NamedTuple):
    """What a tier has counted of all orders that were acknowledged."""

    counted: int = 0
    lost: int = 0
    duplicated: int = 0
    unknown: int = 0
    """Not counted, by a city that does not report."""


class Exercise:
    """Its acts are methods, in this order."""

    def __init__(self, cities: Mapping[str, City], start_mirror: Callable[[MirrorConfig], Mirror]) -> None:
        self._cities = cities
        self._start_mirror = start_mirror
        self._config = mirror_config(mm2_properties({name: city.bootstrap_servers for name, city in cities.items()}))
        self._mirror: Mirror | None = None

    def close(self) -> None:
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            mirror.stop()

    def prosper(self) -> str:
        """Lisbon and Oslo sell, and every city has all orders. All but the last 200 are billed."""
        for city in (LISBON, OSLO):
            with raylog.AdminClient(bootstrap_servers=self._servers(city)) as admin:
                admin.create_topics(raylog.NewTopic(ORDERS, 1, 1))
        self._mirror = self._start_mirror(self._config)
        for city in (LISBON, OSLO):
            self._sell(city, 1000)
            self._bill(city, ORDERS, 1000)
        in_oslo = [self._have_all(city, 2000) for city in (GENEVA, LISBON, OSLO)][-1]
        self._wait_for_translation(1 + max(each.offset for each in in_oslo if each.topic == LISBON_IN_OSLO))
        self._sell(LISBON, 200)
        for city in CITIES:
            self._have_all(city, 200)
        return "Lisbon and Oslo have sold 2,200 orders and billed 2,000. Every city has all 2,200."

    def lose_lisbon(self) -> str:
        """The mirror is interrupted before, so that Lisbon takes with it what it has sold since."""
        self.close()
        self._sell(LISBON, 50)
        billed = self._bill(LISBON, ORDERS, 250)
        self._sell(LISBON, 70)
        self._cities[LISBON].lose()
        self._mirror = self._start_mirror(self._config)
        return (
            f"The mirror is interrupted. Lisbon sells 120, bills {billed}, and is lost by kill -9 of all its processes."
        )

    def go_on_in_oslo(self) -> str:
        """The billing of Lisbon, from its translated offset, and the shop of Lisbon."""
        billed = self._bill(OSLO, LISBON_IN_OSLO, 200, group=group_of(LISBON))
        self._sell(OSLO, 300)
        self._bill(OSLO, ORDERS, 300)
        for city in (OSLO, GENEVA):
            self._have_all(city, 300)
        return f"Lisbon's billing goes on in Oslo and bills {billed} again. Lisbon's shop sells 300 in Oslo."

    def come_back(self) -> str:
        """Lisbon gets what it has missed, the others what only Lisbon had, and the billing goes home."""
        self._cities[LISBON].come_back()
        for city, missed in ((OSLO, 120), (GENEVA, 120), (LISBON, 420)):
            self._have_all(city, missed)
        flows = {(flow.source.alias, flow.target.alias): flow for flow in self._config.flows}
        with ControlClients(flows[LISBON, OSLO]) as clients:
            fail_back(flows[LISBON, OSLO], flows[OSLO, LISBON], clients, dry_run=False)
        billed = self._bill(LISBON, ORDERS, 70)
        return f"Lisbon is back, and every city has all orders. Its billing is home and bills the last {billed}."

    def audit(self) -> dict[str, Seen]:
        """What each city has of all orders, and what was billed. All clients have sent their last reports before."""
        checked = check_audit(
            ClientConfig.of(self._servers(GENEVA), {}, isolation_level="read_committed"),
            from_ms=0,
            grace_ms=0,
            now_ms=int(time.time() * 1000) + AFTER_ALL_BUCKETS_MS,
        )
        found = dict.fromkeys((*CITIES, BILLING), Seen())
        for each in checked.result.verdicts:
            if each.tier in found:
                numbers = [each.findings[name].count if name in each.findings else 0 for name in FINDINGS]
                counts = zip(found[each.tier], (each.counted, *numbers), strict=True)
                found[each.tier] = Seen(*map(sum, counts))
        return found

    def _servers(self, city: str) -> str:
        return self._cities[city].bootstrap_servers

    def _sell(self, city: str, count: int) -> None:
        """Returns when all are acknowledged."""
        audit = raylog.ProducerAudit(bootstrap_servers=self._servers(GENEVA))
        with raylog.Producer(bootstrap_servers=self._servers(city), interceptors=[audit]) as producer:
            sent = [producer.send(ORDERS, f"{city} {number}") for number in range(count)]
            producer.flush(TIMEOUT_SECONDS)
            for delivery in sent:
                delivery.result(TIMEOUT_SECONDS)

    def _bill(self, city: str, topic: str, count: int, *, group: str = "") -> int:
        return len(self._read(city, [topic], count, group=group or group_of(city), tier=BILLING))

    def _have_all(self, city: str, count: int) -> list[raylog.ConsumerRecord]:
        """Wait until the city has so many orders more, its own and the copies, and count them."""
        copies = [f"{source}.{ORDERS}" for source, target in FLOWS if target == city]
        topics = copies if city == GENEVA else [ORDERS, *copies]
        return self._read(city, topics, count, group="audit", tier=city)

    def _read(self, city: str, topics: list[str], count: int, *, group: str, tier: str) -> list[raylog.ConsumerRecord]:
        """Read all that is there, at least so many, and commit. Raises TimeoutError."""
        audit = raylog.ConsumerAudit(tier, bootstrap_servers=self._servers(GENEVA), topic_of=original_topic)
        seen: list[raylog.ConsumerRecord] = []
        with (
            raylog.AdminClient(bootstrap_servers=self._servers(city)) as admin,
            raylog.Consumer(
                bootstrap_servers=self._servers(city),
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                interceptors=[audit],
            ) as consumer,
        ):
            wait_until(
                lambda: set(topics) <= {each.name for each in admin.list_topics()}, f"{city} does not have {topics}"
            )
            consumer.subscribe(topics)

            def has_all() -> bool:
                seen.extend(consumer.poll(0.1))
                return len(seen) >= count

            wait_until(has_all, f"{group} in {city} does not get {count} orders")
            consumer.commit()
        return seen

    def _wait_for_translation(self, offset: int) -> None:
        """Until the billing of Lisbon would go on there in Oslo."""
        copy = raylog.TopicPartition(LISBON_IN_OSLO, 0)
        with raylog.AdminClient(bootstrap_servers=self._servers(OSLO)) as admin:

            def is_known() -> bool:
                found = admin.list_consumer_group_offsets(group_of(LISBON), [copy])[copy]
                return found is not None and found.offset >= offset

            wait_until(is_known, "the offsets of Lisbon's billing are not translated")


def mm2_properties(bootstrap_servers: Mapping[str, str]) -> dict[str, str]:
    """The mirrors, as in a file of MirrorMaker 2."""
    return {
        "clusters": ",".join(CITIES),
        **{f"{city}.bootstrap.servers": servers for city, servers in bootstrap_servers.items()},
        **{f"{source}->{target}.enabled": "true" for source, target in FLOWS},
        "topics": ORDERS,
        "groups": f"{BILLING}-.*",
        "exactly.once.source.support": "enabled",
        "sync.group.offsets.enabled": "true",
        "emit.heartbeats.enabled": "false",
        **{f"{topic}replication.factor": "1" for topic in ("", "offset-syncs.topic.", "checkpoints.topic.")},
        **{f"{task}.interval.seconds": "1" for task in TASKS},
    }


def group_of(city: str) -> str:
    return f"{BILLING}-{city}"


def original_topic(topic: str) -> str:
    """Of a copy."""
    return topic.rpartition(".")[2]


def wait_until(met: Callable[[], bool], otherwise: str) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not met():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.02)


def table(before: Mapping[str, Seen], after: Mapping[str, Seen]) -> str:
    """The audit while Lisbon is lost, and in the end. What was lost and is not any more, was late."""
    rows: list[tuple[str, ...]] = [("", "COUNTED", "LOST", "UNKNOWN", "COUNTED", "LOST", "LATE", "DUPLICATED")]
    for tier, seen in after.items():
        then = before[tier]
        numbers = (then.counted, then.lost, then.unknown, seen.counted, seen.lost, then.lost - seen.lost)
        rows.append((tier, *(f"{each:,}" for each in (*numbers, seen.duplicated))))
    lines = [f"{'':8}{'while Lisbon is lost':>33}{'in the end':>44}"]
    return "\n".join(lines + [row[0].ljust(8) + "".join(each.rjust(11) for each in row[1:]) for row in rows])


def play(exercise: Exercise, report: Callable[[str], None] = print) -> tuple[dict[str, Seen], dict[str, Seen]]:
    """All acts. Returns the audit while Lisbon is lost, and in the end."""
    report(exercise.prosper())
    report(exercise.lose_lisbon())
    report(exercise.go_on_in_oslo())
    before = exercise.audit()
    report(exercise.come_back())
    after = exercise.audit()
    report(table(before, after))
    return before, after


class RayCity:
    """A cluster in Ray, with the name of the city."""

    def __init__(self, name: str, data_dir: Path) -> None:
        self._name = name
        self._data_dir = data_dir
        self._cluster = self._start(port=0)
        self.bootstrap_servers = self._cluster.bootstrap_servers

    def _start(self, port: int) -> raylog.Cluster:
        return raylog.start(self._name, data_dir=str(self._data_dir), port=port, config=CONFIG)

    def lose(self) -> None:
        """The supervisor first, which a cluster on several hosts has, so that Ray starts nothing again."""
        import ray

        from raylog.actors.cluster import cluster_status
        from raylog.actors.cluster_actors import current_handles, nodes_of
        from raylog.actors.names import SUPERVISOR_NAME

        status = cluster_status(self._name)
        handles = current_handles(self._name, [SUPERVISOR_NAME, *nodes_of(self._name)])
        for handle in handles.values():
            if handle is not None:
                ray.kill(handle, no_restart=True)
        for pid in [each.pid for each in status.controllers] + [each.pid for each in status.brokers]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def come_back(self) -> None:
        self._cluster = self._start(port=int(self.bootstrap_servers.rpartition(":")[2]))

    def stop(self) -> None:
        self._cluster.stop()


def main() -> None:
    from raylog.actors.mirror import start_mirror

    with tempfile.TemporaryDirectory(prefix="raylog-cities-") as directory, ExitStack() as stops:
        cities = {}
        for name in CITIES:
            cities[name] = RayCity(name, Path(directory) / name)
            stops.callback(cities[name].stop)
        exercise = Exercise(cities, lambda config: start_mirror(config, name="cities"))
        stops.callback(exercise.close)
        play(exercise)


if __name__ == "__main__":
    main()
