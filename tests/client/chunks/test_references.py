"""Values in a store: written before their records, fetched within bounded memory, and deleted only without a record."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.cli.main import main
from raylog.client.admin.admin_client import AdminClient
from raylog.client.chunks.envelope import digest_text, new_digest
from raylog.client.chunks.fsspec_store import FsspecStore
from raylog.client.chunks.references import (
    Reference,
    StoredValue,
    ValueMissing,
    reference_headers,
    reference_of,
    superfluous,
)
from raylog.client.chunks.source import ValueSource
from raylog.client.chunks.sweeper import sweep_values
from raylog.client.consumer.async_consumer import AsyncConsumer
from raylog.client.consumer.consumer import Consumer
from raylog.client.errors import ValueMissingError
from raylog.client.producer.producer import Producer
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from tests.client.consumer_faces import FACES
from tests.client.producer_faces import FACES as PRODUCER_FACES
from tests.client.served import Target
from tests.client.test_large_messages import check_memory, polled, value_of
from tests.support.cluster_thread import cluster_thread
from tests.support.hang import HANG_SECONDS

Make = Callable[..., Any]
both = pytest.mark.parametrize(
    ("send_face", "face"), list(zip(PRODUCER_FACES, FACES, strict=True)), ids=lambda face: face.__name__
)
faces = pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
OLD_SECONDS = 1_000_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/values"


@pytest.fixture
def make(target: Target, request: pytest.FixtureRequest, url: str) -> Make:
    """Makes a producer or consumer with the store, and closes it at the end of the test."""

    def made(face: Any, **settings: Any) -> Any:
        common = {"large_message_enabled": True, "large_message_store_url": url}
        own = {"auto_offset_reset": "earliest"} if face in FACES else {"max_message_segment_bytes": 1000}
        client = face(**target.settings("unix"), **common | own | settings)
        request.addfinalizer(lambda: client.close(5))
        return client

    return made


def files_of(url: str, topic: str) -> list[Path]:
    return sorted(Path(url.removeprefix("file://"), topic).glob("*"))


def age(*paths: Path) -> None:
    """Older than any grace period of a test."""
    for path in paths:
        moment = path.stat().st_mtime - OLD_SECONDS
        os.utime(path, (moment, moment))


@both
def test_large_values_are_written_to_the_store_and_fetched(
    target: Target, make: Make, url: str, send_face: Any, face: Any
) -> None:
    topic = target.new_topic()
    values = [value_of(999), value_of(1001), value_of(3_000_000), b""]
    make(send_face).send_all(topic, values, key=b"k", headers={"own": b"header"})
    assert sorted(path.stat().st_size for path in files_of(url, topic)) == [1001, 3_000_000]
    consumer = make(face)
    consumer.assign([(topic, 0)])
    records = polled(consumer, 4)
    assert [record.value for record in records] == values
    assert {(record.key, record.headers, type(record.value)) for record in records} == {
        (b"k", (("own", b"header"),), bytes)
    }
    message = target.read(topic, 2)[1]
    digest = new_digest()
    digest.update(values[1])
    assert message.value() == b""
    reference = reference_of(message.headers())
    assert reference is not None
    assert reference == Reference(reference.name, 1001, digest_text(digest))
    assert Path(url.removeprefix("file://"), reference.name).read_bytes() == values[1]


def test_a_value_is_on_disk_before_its_record_is_sent(
    target: Target, make: Make, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = target.new_topic()
    events: list[str] = []
    sender = threading.current_thread()

    def noted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*given: Any) -> Any:
            if name == "try_append" or threading.current_thread() is sender:  # brokers sync files of their own
                events.append(name)
            return real(*given)

        monkeypatch.setattr(owner, name, call)

    producer = make(Producer)
    noted(os, "fsync")
    noted(os, "replace")
    noted(producer._core, "try_append")
    producer.send(topic, value_of(5000)).result()
    assert events[:4] == ["fsync", "replace", "fsync", "fsync"]
    assert set(events[4:]) == {"try_append"}


def test_a_value_that_cannot_be_written_is_not_sent(target: Target, make: Make, tmp_path: Path) -> None:
    topic = target.new_topic()
    (tmp_path / "values").write_text("no folder")
    with pytest.raises(KafkaError, match=r"value .* was not written to file://.*NotADirectoryError") as raised:
        make(Producer).send(topic, value_of(5000))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@faces
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.unlink(), "FileNotFoundError"),
        (lambda path: path.write_bytes(b"?" * 2000), "its digest is another one"),
        (lambda path: path.write_bytes(b"?" * 1999), "it has 1999 of 2000 bytes"),
        (lambda path: path.write_bytes(b"?" * 2001), "it is larger than the 2000 bytes"),
    ],
)
def test_a_value_that_is_missing_or_another_one_is_a_named_error(
    target: Target, make: Make, url: str, face: Any, spoil: Callable[[Path], object], why: str
) -> None:
    topic = target.new_topic()
    with make(Producer) as producer:
        producer.send(topic, b"before")
        producer.send(topic, value_of(2000))
        producer.send(topic, b"behind").result()
    (path,) = files_of(url, topic)
    kept = path.read_bytes()
    spoil(path)
    consumer = make(face)
    consumer.assign([(topic, 0)])
    assert [record.value for record in polled(consumer, 1)] == [b"before"]
    for _ in range(2):  # the position stays
        with pytest.raises(ValueMissingError, match=rf"{topic}-0, offset 1: the value {topic}/{path.name} .*: .*{why}"):
            polled(consumer, 1)
    assert consumer.position((topic, 0)) == 1
    path.write_bytes(kept)
    assert [record.value for record in polled(consumer, 2)] == [kept, b"behind"]


@faces
def test_a_poll_fetches_no_more_than_fits(target: Target, make: Make, face: Any) -> None:
    topic = target.new_topic()
    with make(Producer) as producer:
        for size in (2000, 2000, 2000, 4001):
            producer.send(topic, value_of(size))
    consumer = make(face, message_assembler_buffer_capacity=4000, mapped=False)
    consumer.assign([(topic, 0)])
    polls: list[int] = []
    while sum(polls) < 3:
        polls.append(len(consumer.poll(1.0)))
    assert max(polls) <= 2
    with pytest.raises(ValueMissingError, match=r"its 4001 bytes are more than message.assembler.buffer.capacity"):
        polled(consumer, 1)
    without = make(face, large_message_store_url="")
    without.assign([(topic, 0)])
    with pytest.raises(ValueMissingError, match=r"large.message.store.url is not set"):
        polled(without, 1)


@pytest.mark.slow
def test_the_memory_of_a_value_in_a_store_is_bounded(target: Target, url: str) -> None:
    check_memory(target, large_message_store_url=url)


# --- the sweeper


def test_values_without_a_record_are_deleted_and_all_others_kept(target: Target, make: Make, url: str) -> None:
    topic = target.new_topic(partitions=2)
    with make(Producer) as producer:
        for partition in (0, 1):
            producer.send(topic, value_of(2000), partition=partition).result()
    transactional = make(Producer, transactional_id=f"sweep-{topic}")
    transactional.init_transactions()
    ends = {}
    for end in ("abort_transaction", "commit_transaction", None):
        before = set(files_of(url, topic))
        transactional.begin_transaction()
        transactional.send(topic, value_of(2000), partition=0).result()
        (ends[end],) = set(files_of(url, topic)) - before
        if end is not None:
            getattr(transactional, end)()
    store = FsspecStore(url)
    unrecorded = [store.write(f"{topic}/{number:032x}", ValueSource(b"x")) and number for number in range(2)]
    orphans = [Path(url.removeprefix("file://"), topic, f"{number:032x}") for number in unrecorded]
    age(*files_of(url, topic))
    os.utime(orphans[1])  # younger than the grace period
    everything = set(files_of(url, topic))
    config = {"bootstrap.servers": target.plain}
    wait_until_decided(config, topic)
    planned = sweep_values(config, store, topic, dry_run=True)
    assert set(files_of(url, topic)) == everything
    swept = sweep_values(config, store, topic)
    assert swept == planned
    assert sorted(swept.deleted) == sorted(f"{topic}/{path.name}" for path in (orphans[0], ends["abort_transaction"]))
    assert everything - set(files_of(url, topic)) == {orphans[0], ends["abort_transaction"]}
    assert ends[None].exists()  # its transaction is open
    transactional.abort_transaction()


def wait_until_decided(config: dict[str, Any], topic: str) -> None:
    """Until the markers of the ended transactions are written, and the stable offset is that of the open one."""
    tp = TopicPartition(topic, 0)
    with Consumer(config, isolation_level="read_committed") as consumer:
        while consumer.end_offsets([tp])[tp] < 5:
            consumer.partitions_for_topic(topic)


def test_values_of_a_topic_that_does_not_exist_are_kept(tmp_path: Path) -> None:
    """The addresses may be those of another cluster, where the topic must not be created without these records."""
    store = FsspecStore(str(tmp_path / "values"))
    name = f"no-such-topic/{'0' * 32}"
    store.write(name, ValueSource(b"value"))
    age(tmp_path / "values" / name)
    with cluster_thread({"auto.create.topics.enable": "true"}, tmp_path / "data") as running:
        config = {"bootstrap.servers": running.bootstrap_servers, "default.api.timeout.ms": 1000}
        with pytest.raises(KafkaError, match="no-such-topic"):
            sweep_values(config, store, "no-such-topic")
        assert (tmp_path / "values" / name).exists()
        with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
            assert "no-such-topic" not in {each.name for each in admin.list_topics()}


def test_files_that_are_no_values_are_kept(target: Target, tmp_path: Path) -> None:
    """The URL may be that of another folder by mistake."""
    topic = target.new_topic()
    value = "1" * 32
    names = ["report.csv", value[1:], f"{value}.csv", f"other/{value}", value, f"{value}.unfinished"]
    for name in names:
        path = tmp_path / topic / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("content")
        age(path)
    swept = sweep_values({"bootstrap.servers": target.plain}, FsspecStore(f"file://{tmp_path}"), topic)
    assert (swept.kept, sorted(swept.deleted)) == (0, [f"{topic}/{name}" for name in names[-2:]])
    left = {str(path.relative_to(tmp_path / topic)) for path in (tmp_path / topic).rglob("*") if path.is_file()}
    assert left == set(names[:-2])


def test_the_command_deletes_values_of_expired_records(
    target: Target, make: Make, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = target.new_topic()
    with make(Producer) as producer:
        for _ in range(2):
            producer.send(topic, value_of(2000)).result()
    consumer = make(Consumer, large_message_enabled=False, large_message_store_url="")
    consumer.assign([(topic, 0)])
    first, second = (reference_of(record.headers) for record in polled(consumer, 2))
    assert first is not None
    assert second is not None
    with AdminClient(bootstrap_servers=target.plain) as client:
        client.delete_records({(topic, 0): 1})
    age(*files_of(url, topic))
    arguments = ["sweep-values", topic, "--store", url, "-b", target.plain]
    before = files_of(url, topic)
    assert main([*arguments[:2], "no-such-topic", *arguments[2:]]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), "'no-such-topic'" in err) == ("", 1, True)
    assert err.startswith("raylog: UNKNOWN_TOPIC_OR_PARTITION")
    assert files_of(url, topic) == before
    assert main([*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{first.name}\n{topic}: 1 values would be deleted, 1 kept\n"
    assert main([*arguments, "--json"]) == 0
    assert capsys.readouterr().out == f'{{"topic": "{topic}", "kept": 1, "deleted": ["{first.name}"]}}\n'
    assert [path.name for path in files_of(url, topic)] == [second.name.partition("/")[2]]


def test_only_old_values_without_a_record_are_superfluous() -> None:
    stored = [StoredValue(name, written_ms) for name, written_ms in (("a", 9), ("b", 9), ("c", 10))]
    assert superfluous(stored, {"a"}, before_ms=10) == ["b"]


# --- headers and settings


@pytest.mark.parametrize(
    "name",
    [
        "../etc/" + "0" * 32,
        "../" + "0" * 32,
        "./" + "0" * 32,
        "/" + "0" * 32,
        "topic/../../" + "0" * 32,
        "topic/" + "0" * 31,
        "topic/" + "0" * 33,
        "topic/" + "g" * 32,
        "topic\n/" + "0" * 32,
        "a" * 250 + "/" + "0" * 32,
        "file:///etc/passwd",
        "",
    ],
)
def test_a_reference_never_leads_out_of_the_store(name: str) -> None:
    good = Reference("topic/" + "0" * 32, 7, b"sha256:" + b"0" * 64)
    assert reference_of(reference_headers(good)) == good
    assert reference_of(reference_headers(Reference(name, 7, good.digest))) is None


@pytest.mark.parametrize("topic", ["../evil", "a/b", "..", ""])
def test_a_topic_never_leads_out_of_the_store(topic: str, make: Make, tmp_path: Path) -> None:
    with pytest.raises(KafkaError):
        make(Producer).send(topic, value_of(2000))
    assert not list(tmp_path.rglob("*"))


class Held:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def write(self, name: str, source: Any) -> bytes:
        self.values[name] = source.whole()
        digest = new_digest()
        digest.update(self.values[name])
        return digest_text(digest)

    def read(self, name: str, size: int) -> Iterator[bytes]:
        if name not in self.values:
            raise ValueMissing("it was lost")
        yield self.values[name]

    def values_of(self, topic: str) -> Iterator[StoredValue]:
        yield from (StoredValue(name, 0) for name in self.values if name.startswith(topic + "/"))

    def delete(self, name: str) -> None:
        self.values.pop(name, None)


@both
def test_a_program_can_give_its_own_store(target: Target, make: Make, send_face: Any, face: Any) -> None:
    topic, store = target.new_topic(), Held()
    make(send_face, value_store=store, large_message_store_url="").send_all(topic, [value_of(5000)])
    consumer = make(face, value_store=store, large_message_store_url="")
    consumer.assign([(topic, 0)])
    assert [record.value for record in polled(consumer, 1)] == [value_of(5000)]
    store.values.clear()
    consumer.seek((topic, 0), 0)
    with pytest.raises(ValueMissingError, match="it was lost"):
        polled(consumer, 1)


@both
def test_after_an_exception_of_the_store_the_next_poll_returns_all_records(
    target: Target, make: Make, send_face: Any, face: Any
) -> None:
    class Failing(Held):
        error: BaseException | None = ValueError("of the store")

        def read(self, name: str, size: int) -> Iterator[bytes]:
            if self.error is not None:
                raise self.error
            return super().read(name, size)

    topic, store = target.new_topic(), Failing()
    values = [b"small", value_of(5000), b"other"]
    make(send_face, value_store=store, large_message_store_url="").send_all(topic, values)
    consumer = make(face, value_store=store, large_message_store_url="")
    consumer.assign([(topic, 0)])
    with pytest.raises(ValueError, match="of the store"):
        polled(consumer, 2)
    store.error = None
    assert [record.value for record in polled(consumer, 3)] == values


def test_after_a_cancelled_poll_the_next_one_goes_on_where_it_began(target: Target, make: Make) -> None:
    fetching, may_go_on = threading.Event(), threading.Event()

    class Slow(Held):
        def read(self, name: str, size: int) -> Iterator[bytes]:
            fetching.set()
            may_go_on.wait(HANG_SECONDS)
            return super().read(name, size)

    topic, store = target.new_topic(), Slow()
    values = [b"small", value_of(5000), b"other"]
    with make(Producer, value_store=store, large_message_store_url="") as producer:
        for value in values:
            producer.send(topic, value)

    async def use(meanwhile: Callable[[AsyncConsumer], None]) -> list[Any]:
        fetching.clear()
        may_go_on.clear()
        settings: dict[str, Any] = {"large_message_enabled": True, "value_store": store}
        async with AsyncConsumer(**target.settings("unix"), **settings, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0)])
            polling = asyncio.create_task(consumer.poll(HANG_SECONDS))
            await asyncio.to_thread(fetching.wait, HANG_SECONDS)
            polling.cancel()
            meanwhile(consumer)
            may_go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await polling
            consumer.assign([(topic, 0)])
            return [record.value for record in await consumer.poll(HANG_SECONDS)]

    assert asyncio.run(use(lambda consumer: None)) == values
    assert asyncio.run(use(lambda consumer: consumer.assign([]))) == values
    assert asyncio.run(use(lambda consumer: consumer.seek((topic, 0), 2))) == [b"other"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"large_message_store_url": "nothing://here"}, "large.message.store.url=nothing://here"),
        ({"value_store": Held(), "large_message_enabled": False}, "value_store requires large.message.enabled=true"),
        ({"value_store": Held(), "large_message_store_url": "memory://x"}, "has given a value_store too"),
    ],
)
@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_contradicting_settings_are_refused(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(bootstrap_servers="localhost:1", **{"large_message_enabled": True} | settings)
