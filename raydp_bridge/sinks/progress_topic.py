"""(shell) The progress topic of a sink: one partition for each task, of which the last record counts."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import Final

from raylog.client.admin.admin_client import AdminClient
from raylog.client.admin.configs import ConfigResource, ConfigResourceType
from raylog.client.admin.topics import BROKER_DEFAULT, NewTopic
from raylog.client.client_config import ClientConfig
from raylog.client.errors import AdminError, UnknownTopicError
from raylog.client.partition_reader import PartitionReader
from raylog.config.admin import ADMIN_CONFIG
from raylog.core.errors import ConfigError, ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.raydp_bridge.sinks.exactly_once import SinkId, TaskRows, check_tasks, decide_without_record

READ_SECONDS: Final = 60.0
FIRST_WINDOW: Final = 16
"""Offsets at the end of a partition in which its last record is searched first; a transaction has two of them."""
_READ_WAIT_MS: Final = 200
_POLICY: Final = "cleanup.policy"
_CONFIGS: Final = {_POLICY: "compact", "segment.bytes": str(1 << 20)}


def fix_tasks(
    brokers: ClientConfig,
    sink: SinkId,
    batch_id: int,
    *,
    tasks: int | None,
    default_tasks: int,
    replication_factor: int | None = None,
) -> int:
    """The number of tasks of each batch; the first batch of a sink fixes it, by creating the progress topic.

    Raises BatchRefused if a later batch finds no topic, ConfigError for another number of tasks than before, and
    KafkaError.
    """
    check_tasks(tasks, None, default=default_tasks)
    topic = sink.progress_topic
    with AdminClient(brokers.keys_of(ADMIN_CONFIG)) as admin:
        fixed = _partition_count(admin, topic)
        if fixed is None:
            decide_without_record(sink, batch_id, topic)
            count = check_tasks(tasks, None, default=default_tasks)
            factor = BROKER_DEFAULT if replication_factor is None else replication_factor
            try:
                admin.create_topics(NewTopic(topic, count, factor, configs=_CONFIGS))
            except AdminError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            deadline = monotonic() + READ_SECONDS
            while (fixed := _partition_count(admin, topic)) is None:
                if monotonic() > deadline:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} was created and is not there")
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        policy = admin.describe_configs([resource])[resource][_POLICY].value
        if policy != "compact":
            raise ConfigError(f"{topic}: {_POLICY}={policy}: must be compact, or the progress of the sink gets lost")
    return check_tasks(tasks, fixed, default=default_tasks)


def _partition_count(admin: AdminClient, topic: str) -> int | None:
    """None if there is no such topic."""
    try:
        return len(admin.describe_topics([topic])[topic].partitions)
    except UnknownTopicError:
        return None


def last_record(brokers: ClientConfig, topic: str, task: int) -> TaskRows | None:
    """The last committed record of the task's partition; None if there is none.

    Waits until everything in the partition is committed or aborted. Raises KafkaError, REQUEST_TIMED_OUT if that takes
    too long; BatchRefused for a record of something else.
    """
    tp = TopicPartition(topic, task)
    open_reader = partial(
        PartitionReader, brokers.bootstrap_servers, topic, task, client_config=brokers.properties, mapped=False
    )
    with open_reader(offset="latest", isolation_level="read_uncommitted") as reader:
        end = reader.position
    with open_reader(offset="earliest", isolation_level="read_committed") as reader:
        earliest = reader.position
        window = FIRST_WINDOW
        while True:
            start = max(earliest, end - window)
            reader.seek(start)
            value = _last_value(reader, end, tp)
            if value is not None:
                return TaskRows.decode(value)
            if start == earliest:
                return None
            window *= FIRST_WINDOW


def _last_value(reader: PartitionReader, end: int, tp: TopicPartition) -> bytes | None:
    value = None
    deadline = monotonic() + READ_SECONDS
    while reader.position < end:
        for record in reader.read_records(max_wait_ms=_READ_WAIT_MS):
            value = bytes(record.value or b"")
        if reader.position < end and monotonic() > deadline:
            text = f"{tp}: a transaction of another producer is open at offset {reader.position}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{text}, for {READ_SECONDS} s")
    return value
