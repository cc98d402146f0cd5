"""Losses and duplicates are found over a real broker: stamped by producers, counted by consumers and in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as Position

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.partitions import OffsetSpec
from raylog.client.audit.audit_topic import CheckedAudit, check_audit
from raylog.client.audit.checking import Finding
from raylog.client.audit.counting import CELLS_MAX
from raylog.client.audit.interceptors import ConsumerAudit, ProducerAudit
from raylog.client.audit.log_audit import audit_log
from raylog.client.audit.stamps import AUDIT_HEADER, Stamper, read_stamp
from raylog.client.client_config import ClientConfig
from raylog.client.consumer.consumer import Consumer
from raylog.client.consumer.fetched import ConsumerRecord
from raylog.client.consumer.interceptors import ConsumerInterceptor
from raylog.client.producer.producer import Producer
from raylog.core.errors import ConfigError, KafkaError
from raylog.transport.system_time import now
from tests.client import consumer_faces, producer_faces
from tests.client.served import Target

Found = dict[tuple[str, Finding], int]


class Audit:
    """An audit topic of its own."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.topic = f"{target.new_topic()}-audit"
        self.brokers = ClientConfig.of(target.plain)

    def producer_audit(self, **options: Any) -> ProducerAudit:
        return ProducerAudit(audit_topic=self.topic, **self.target.settings(), **options)

    def consumer_audit(self, tier: str = "billing", **options: Any) -> ConsumerAudit:
        return ConsumerAudit(tier, audit_topic=self.topic, **self.target.settings(), **options)

    def produce(self, topic: str, *values: Any, **options: Any) -> None:
        settings = {**self.target.settings(), **options}
        with Producer(interceptors=[self.producer_audit()], **settings) as producer:
            for value in values:
                producer.send(topic, value)

    def consume(self, topic: str, count: int, *interceptors: ConsumerInterceptor, partitions: int = 1) -> None:
        with Consumer(
            interceptors=[*interceptors, self.consumer_audit()],
            auto_offset_reset="earliest",
            **self.target.settings(),
        ) as consumer:
            consumer.assign([(topic, number) for number in range(partitions)])
            read = 0
            while read < count:
                read += len(consumer.poll(5.0))

    def until_reports(self, count: int) -> None:
        """Until there are so many, such as the first ones of reporters that are killed later."""
        with AdminClient(**self.target.settings()) as client:
            while self.topic not in {listed.name for listed in client.list_topics()}:
                pass
        while self.check().reports < count:
            pass

    def log(self, topic: str) -> None:
        """Audit the log. Apache Kafka answers a commit before its records are visible to the check."""
        audit_log(topic, self.brokers, audit_topic=self.topic)
        latest = {(self.topic, 0): OffsetSpec.LATEST}
        with AdminClient(**self.target.settings()) as client:
            while client.list_offsets(latest, read_committed=True) != client.list_offsets(latest):
                pass

    def check(self, **options: Any) -> CheckedAudit:
        """As if an hour later."""
        given = {"grace_ms": 300_000, "now_ms": now().wall_ms + 3_600_000, **options}
        return check_audit(self.brokers, audit_topic=self.topic, **given)

    def findings(self, **options: Any) -> Found:
        """How many records, by tier and finding."""
        found = Counter[tuple[str, Finding]]()
        for verdict in self.check(**options).result.verdicts:
            for finding, numbers in verdict.findings.items():
                found[verdict.tier, finding] += numbers.count
        return dict(found)

    def counted(self) -> dict[str, int]:
        found = Counter[str]()
        for verdict in self.check().result.verdicts:
            found[verdict.tier] += verdict.counted
        return dict(found)


@pytest.fixture
def audit(target: Target) -> Audit:
    return Audit(target)


class Without(ConsumerInterceptor):
    """Loses one value."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record for record in records if record.value != self._value]


def test_all_that_was_sent_has_arrived(audit: Audit) -> None:
    topic = audit.target.new_topic(partitions=3)
    audit.produce(topic, *(b"%d" % number for number in range(5_000)), linger_ms=5)
    audit.log(topic)
    audit.consume(topic, 5_000, partitions=3)
    assert audit.findings() == {}
    assert audit.counted() == {"producer": 5_000, "log": 5_000, "billing": 5_000}


def test_one_record_that_a_consumer_loses_and_one_that_another_program_writes_again(audit: Audit) -> None:
    """The copy is made by librdkafka, with the stamp of the record; it reads the stamps, too."""
    topic = audit.target.new_topic()
    audit.produce(topic, *(b"%d" % number for number in range(5_000)), linger_ms=5)
    messages = audit.target.read(topic, 5_000)
    assert [read_stamp(message.headers()).sequence for message in messages] == list(range(5_000))  # type: ignore[union-attr]
    copier = confluent_kafka.Producer({"bootstrap.servers": audit.target.plain})
    copier.produce(topic, b"again", headers=messages[1234].headers())
    copier.produce(topic, b"by somebody else")
    copier.flush()
    audit.log(topic)
    audit.consume(topic, 5_001, Without(b"4321"))
    result = audit.check().result
    said = [
        (verdict.tier, finding, [(start, end) for start, end, _ in numbers.ranges])
        for verdict in result.verdicts
        for finding, numbers in verdict.findings.items()
    ]
    assert sorted(said) == [
        ("billing", Finding.DUPLICATED, [(1234, 1235)]),
        ("billing", Finding.LOST, [(4321, 4322)]),
        ("log", Finding.DUPLICATED, [(1234, 1235)]),
    ]
    assert [(each.tier, each.count) for each in result.unstamped] == [("billing", 1), ("log", 1)]


def test_aborted_transactions(audit: Audit) -> None:
    """Records that were sent are aborted, not lost; those that were not sent any more have failed."""
    topic = audit.target.new_topic()
    with Producer(
        interceptors=[audit.producer_audit()], transactional_id=f"{topic}-writer", **audit.target.settings()
    ) as producer:
        producer.init_transactions()
        for ends in ("commit", "abort", "commit"):
            producer.begin_transaction()
            for number in range(10):
                producer.send(topic, b"%d" % number)
            producer.flush()
            producer.commit_transaction() if ends == "commit" else producer.abort_transaction()
    audit.log(topic)
    audit.consume(topic, 20)
    assert audit.findings() == {("log", Finding.ABORTED): 10, ("billing", Finding.ABORTED): 10}


def test_the_auditor_of_the_log_counts_each_record_once(audit: Audit) -> None:
    topic = audit.target.new_topic(partitions=2)
    for number in range(3):
        audit.produce(topic, *[b"x"] * 10)
        for _ in range(number + 1):
            audit.log(topic)
    audit.consume(topic, 30, partitions=2)
    assert audit.findings() == {}
    assert audit.counted() == {"producer": 30, "log": 30, "billing": 30}


def test_the_auditor_of_the_log_does_not_judge_what_is_still_open(audit: Audit) -> None:
    """Behind the first record of an open transaction nothing can be read, and so nothing is lost."""
    topic = audit.target.new_topic()
    settings = audit.target.settings()
    audit.produce(topic, b"before")
    with Producer(transactional_id=f"{topic}-writer", **settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open").result()
        audit.produce(topic, b"behind")
        audit.log(topic)
        assert audit.findings() == {("log", Finding.UNREPORTED): 1}
        producer.commit_transaction()
    audit.log(topic)
    assert audit.findings() == {}


def test_records_that_were_deleted_before_they_were_audited(audit: Audit) -> None:
    topic = audit.target.new_topic()
    audit.log(topic)
    audit.produce(topic, *[b"x"] * 10)
    delete_records(audit.target, topic, 7)
    audit.log(topic)
    assert audit.findings() == {("log", Finding.UNREPORTED): 7}


def delete_records(target: Target, topic: str, before: int) -> None:
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": target.plain})
    for future in client.delete_records([Position(topic, 0, before)]).values():
        future.result(30)


def test_a_group_whose_member_crashed(audit: Audit) -> None:
    """What it had committed is unreported, what it had not committed is read again, and nothing is lost."""
    topic, group = audit.target.new_topic(), audit.target.new_group()
    audit.produce(topic, *[b"x"] * 20)
    crashing = audit.consumer_audit(report_seconds=3_600)
    audit.until_reports(3)
    settings = {**audit.target.settings(), "group_id": group, "enable_auto_commit": False}
    with Consumer(interceptors=[Crash(crashing)], auto_offset_reset="earliest", max_poll_records=10, **settings) as one:
        one.subscribe(topic)
        read = 0
        while read < 10:
            read += len(one.poll(5.0, max_records=10 - read))
        one.commit({(topic, 0): 7})
    with Consumer(interceptors=[audit.consumer_audit()], auto_offset_reset="earliest", **settings) as two:
        two.subscribe(topic)
        read = 0
        while read < 13:
            read += len(two.poll(5.0))
    assert audit.findings() == {("billing", Finding.UNREPORTED): 7}
    crashing.close()
    assert audit.findings() == {("billing", Finding.DUPLICATED): 3}
    audit.log(topic)
    assert audit.findings() == {("billing", Finding.REDELIVERED): 3}


class Crash(ConsumerInterceptor):
    """Does not close the audit, as a process that is killed."""

    def __init__(self, audit: ConsumerAudit) -> None:
        self._audit = audit

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return self._audit.on_consume(records)


def test_a_consumer_that_goes_back_tells_what_is_redelivered(audit: Audit) -> None:
    topic = audit.target.new_topic()
    audit.produce(topic, *[b"x"] * 10)
    with Consumer(interceptors=[audit.consumer_audit()], **audit.target.settings()) as consumer:
        consumer.assign([(topic, 0)])
        for start in (0, 4):
            consumer.seek((topic, 0), start)
            read = 0
            while read < 10 - start:
                read += len(consumer.poll(5.0))
    assert audit.findings() == {("billing", Finding.REDELIVERED): 6}


def test_a_producer_that_crashed_and_its_successor(audit: Audit) -> None:
    """What the first one has not reported is unreported; the second one begins at 0 under a new id."""
    topic = audit.target.new_topic()

    class Killed(ProducerAudit):
        def close(self) -> None: ...

    killed = Killed(audit_topic=audit.topic, report_seconds=3_600, **audit.target.settings())
    audit.until_reports(1)
    with Producer(interceptors=[killed], **audit.target.settings()) as producer:
        for _ in range(5):
            producer.send(topic, b"x")
    audit.produce(topic, *[b"y"] * 5)
    audit.log(topic)
    assert audit.findings() == {("producer", Finding.UNREPORTED): 5}
    ProducerAudit.close(killed)
    assert audit.findings() == {}


@pytest.mark.parametrize("face", producer_faces.FACES, ids=lambda face: face.__name__)
def test_both_producers_stamp_and_report_failures(audit: Audit, face: Callable[..., producer_faces.Face]) -> None:
    topic = audit.target.new_topic(max_message_bytes="1000")
    producer = face(interceptors=[audit.producer_audit()], **audit.target.settings())
    outcomes = producer.send_all(topic, [b"a", b"b" * 5_000, b"c"], headers={"own": b"1", AUDIT_HEADER: b"copied"})
    with pytest.raises(KafkaError):
        producer.send(topic, {"not": "bytes"})
    producer.close()
    producer.close()
    assert [isinstance(outcome, KafkaError) for outcome in outcomes] == [False, True, False]
    first, second = audit.target.read(topic, 2)
    assert [name for name, _ in first.headers()] == ["own", AUDIT_HEADER]
    assert [read_stamp(each.headers()).sequence for each in (first, second)] == [0, 2]  # type: ignore[union-attr]
    audit.log(topic)
    assert audit.findings() == {}
    assert audit.counted() == {"producer": 2, "log": 2}


@pytest.mark.parametrize("face", consumer_faces.FACES, ids=lambda face: face.__name__)
def test_both_consumers_report(audit: Audit, face: Any) -> None:
    topic = audit.target.new_topic()
    audit.produce(topic, *[b"x"] * 10)
    consumer = face(interceptors=[audit.consumer_audit()], auto_offset_reset="earliest", **audit.target.settings())
    consumer.assign([(topic, 0)])
    read = 0
    while read < 10:
        read += len(consumer.poll(5.0))
    consumer.close()
    assert audit.counted() == {"producer": 10, "billing": 10}


def test_large_messages_are_counted_once(audit: Audit) -> None:
    topic = audit.target.new_topic()
    settings = audit.target.settings()
    with Producer(
        interceptors=[audit.producer_audit()],
        large_message_enabled=True,
        max_message_segment_bytes=1_000,
        **settings,
    ) as producer:
        producer.send(topic, b"x" * 10_000, b"key")
        producer.send(topic, b"small", b"key")
    audit.log(topic)
    with Consumer(
        interceptors=[audit.consumer_audit()],
        auto_offset_reset="earliest",
        large_message_enabled=True,
        **settings,
    ) as consumer:
        consumer.assign([(topic, 0)])
        read = 0
        while read < 2:
            read += len(consumer.poll(5.0))
    assert audit.findings() == {}
    assert audit.counted() == {"producer": 2, "log": 2, "billing": 2}
    assert audit.check().result.unstamped == []


def test_large_reports_are_sent_before_the_interval_is_over(audit: Audit) -> None:
    topic = audit.target.new_topic()
    counting = audit.consumer_audit(report_seconds=3_600)
    audit.until_reports(1)
    for step in range(1, 4):
        for number in range(10 * CELLS_MAX):
            stamp = Stamper(number.to_bytes(16, "big"), 1).stamped(topic, (), step)
            headers = tuple(stamp) if step == 2 else ()
            counting.on_consume([ConsumerRecord(topic, 0, 0, 60_000 * step * number, 0, None, None, headers)])
        audit.until_reports(10 * step - 5)  # the last few wait for the end of the interval
    counting.close()
    assert sum(each.count for each in audit.check().result.unstamped) == 20 * CELLS_MAX
    assert audit.counted()["billing"] == 10 * CELLS_MAX


def test_hostile_headers_and_reports(audit: Audit) -> None:
    """A thousand made-up producers, absurd numbers, and what is no stamp or report at all."""
    topic = audit.target.new_topic()
    audit.produce(topic, b"x")
    (stamp,) = [value for name, value in audit.target.read(topic, 1)[0].headers() if name == AUDIT_HEADER]
    hostile = confluent_kafka.Producer(
        {"bootstrap.servers": audit.target.plain, "queue.buffering.max.messages": 10_000}
    )
    for number in range(1_000):
        client = stamp[:1] + number.to_bytes(16, "big")
        for tail in (b"\x7f" + b"\xff" * 7 + b"\x7f" + b"\xff" * 7, b"\xff" * 16, b"", b"\0" * 5_000):
            hostile.produce(topic, b"", headers=[(AUDIT_HEADER, client + tail)])
        hostile.produce(audit.topic, stamp * number)
    hostile.produce(audit.topic, None)
    hostile.flush()
    audit.consume(topic, 4_001)
    audit.log(topic)
    checked = audit.check()
    assert checked.malformed == 1_001
    assert checked.result.lost == 0
    assert {(each.tier, each.count) for each in checked.result.unstamped} == {("billing", 3_000), ("log", 3_000)}


def test_without_brokers_the_program_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    audit = ProducerAudit(bootstrap_servers="127.0.0.1:1", max_block_ms=10)
    audit.close()
    assert set(caplog.messages) == {"audit report failed"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket_seconds": 0}, "bucket_seconds"),
        ({"bucket_seconds": 1e9}, "bucket_seconds"),
        ({"report_seconds": float("nan")}, "report_seconds"),
        ({"report_seconds": -1}, "report_seconds"),
        ({"tier": ""}, "tier"),
        ({"tier": "x" * 250}, "tier"),
        ({"tier": "producer"}, "tier"),
        ({"tier": "log"}, "tier"),
    ],
)
def test_absurd_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConsumerAudit(**{"tier": "t", "bootstrap_servers": "127.0.0.1:1", **options})


def test_the_audit_topic_has_the_time_of_the_brokers(audit: Audit) -> None:
    audit.produce(audit.target.new_topic(), b"x")
    consumer = Consumer(auto_offset_reset="earliest", **audit.target.settings())
    with consumer:
        consumer.assign([(audit.topic, 0)])
        assert {record.timestamp_type for record in consumer.poll(5.0)} == {1}
