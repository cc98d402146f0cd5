"""The text of docs/limits.md, with the values of the declarations in the code: used by generate_docs.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raylog.actors.data_dir import BROKERS_MAX
from raylog.broker import topic_creation
from raylog.broker.handlers import fetch
from raylog.broker.local_readers import PARTITIONS_PER_READER_MAX, READERS_MAX
from raylog.config.groups import (
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    MAX_GROUPS_PER_BROKER,
    OFFSET_METADATA_MAX_BYTES,
)
from raylog.config.log import MESSAGE_MAX_BYTES
from raylog.config.network import (
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    SOCKET_REQUEST_MAX_BYTES,
)
from raylog.config.requests import (
    FETCH_MAX_BYTES,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    MAX_REQUEST_PARTITION_SIZE_LIMIT,
)
from raylog.config.streams_groups import GROUP_STREAMS_MAX_SIZE
from raylog.config.topic_lifecycle import MAX_PARTITIONS_PER_CLUSTER, PARTITIONS_PER_REQUEST_MAX, REPLICATION_FACTOR_MAX
from raylog.config.transactions import TRANSACTION_MAX_TIMEOUT_MS
from raylog.controller import client_quotas, delegation_tokens
from raylog.controller.acls import CHANGES_MAX
from raylog.core.config import INT_MAX, ConfigKey
from raylog.groupcoord.records import STRING_BYTES_MAX
from raylog.groupcoord.streams.configured import TASKS_MAX
from raylog.groupcoord.streams.topology import TOPOLOGY_ITEMS_MAX
from raylog.logstore.record_set import RECOMPRESSED_BYTES_MAX
from raylog.metadata.topic_names import TOPIC_NAME_LENGTH_MAX
from raylog.protocol.records.reader import DECOMPRESSED_BYTES_MAX
from raylog.protocol.records.record_scan import RECORD_ERRORS_MAX
from raylog.protocol.wire import ELEMENTS_MAX
from raylog.quotas.connections import WAIT_MS_MAX
from raylog.quotas.usage import METERS_MAX
from raylog.transport import server_connection
from raylog.transport.accepted_connection import TURN_BYTES_MAX, TURN_FRAMES_MAX
from raylog.transport.exchange import COMMIT_MS_MAX
from raylog.txncoord.transactions import TRANSACTIONAL_ID_BYTES_MAX

PAGE = """# Limits

What raylog bounds, so that no client takes the memory, the descriptors or the time of the others. A limit with a name
is a configuration key ([configuration.md](configuration.md)), shown with its default; the others are fixed.

{tables}
Producer state, groups and metadata are kept in memory, as in Kafka.

This page is generated from the declarations in the code by `script/generate_docs.py`.
"""


@dataclass(frozen=True, slots=True)
class Limit:
    """One row: what is limited, by a key or a fixed number of `unit`, and what happens at the limit."""

    what: str
    bound: ConfigKey[Any] | int
    unit: str
    effect: str

    def row(self) -> str:
        if not isinstance(self.bound, ConfigKey):
            return f"| {self.what} | {_number(self.bound, self.unit)} | {self.effect} |"
        default = "unlimited" if self.bound.default == INT_MAX else _number(self.bound.default, self.unit)
        return f"| {self.what} | `{self.bound.name}` ({default}) | {self.effect} |"


CLOSED = "the connection is closed"
WAITS = "the broker reads no further request of this connection until it is below the limit"
LIMITS: dict[str, tuple[Limit, ...]] = {
    "Connections and requests": (
        Limit("connections of a node", MAX_CONNECTIONS, "", "a new connection is closed at once"),
        Limit("connections from one address", MAX_CONNECTIONS_PER_IP, "", "a new connection is closed at once"),
        Limit("new connections per second", MAX_CONNECTION_CREATION_RATE, "", "further ones wait"),
        Limit("how long they wait", WAIT_MS_MAX, "ms", "a new connection is closed at once"),
        Limit("identities that are measured for one quota", METERS_MAX, "", "further ones share one measurement"),
        Limit("time without a request", CONNECTIONS_MAX_IDLE_MS, "ms", CLOSED),
        Limit("a request", SOCKET_REQUEST_MAX_BYTES, "bytes", CLOSED),
        Limit("array elements in a request", ELEMENTS_MAX, "", CLOSED),
        Limit("requests of a connection in progress", server_connection.REQUESTS_MAX, "", WAITS),
        Limit("their size", server_connection.REQUEST_BYTES_MAX, "bytes", WAITS),
        Limit("responses that the client has not read", server_connection.OUTPUT_BYTES_MAX, "bytes", WAITS),
        Limit("requests of a connection in one turn", TURN_FRAMES_MAX, "", "other connections are served first"),
        Limit("their size", TURN_BYTES_MAX, "bytes", "other connections are served first"),
        Limit("time until what a response reveals is committed", COMMIT_MS_MAX, "ms", "a retriable error"),
    ),
    "Reading": (
        Limit("a Fetch response", FETCH_MAX_BYTES, "bytes", "the rest with the next Fetch"),
        Limit("a Fetch response, whatever is configured", fetch.RESPONSE_BYTES_MAX, "bytes", "as above"),
        Limit(
            f"a Fetch response while clients leave more than {fetch.UNSENT_BYTES_MAX >> 20} MiB of responses unread",
            fetch.RESPONSE_BYTES_MAX_CROWDED,
            "bytes",
            "as above",
        ),
        Limit(
            "incremental fetch sessions", MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS, "", "full Fetch requests instead"
        ),
        Limit("partitions in a DescribeTopicPartitions response", MAX_REQUEST_PARTITION_SIZE_LIMIT, "", "a cursor"),
        Limit("local readers of a broker", READERS_MAX, "", "the reader uses the Kafka protocol"),
        Limit("partitions of a local reader", PARTITIONS_PER_READER_MAX, "", "an error that names the limit"),
        Limit("a batch that our readers decompress", DECOMPRESSED_BYTES_MAX, "bytes", "MalformedBatch"),
    ),
    "Writing": (
        Limit("a batch of records", MESSAGE_MAX_BYTES, "bytes", "MESSAGE_TOO_LARGE"),
        Limit("a batch of records, decompressed", DECOMPRESSED_BYTES_MAX, "bytes", "MESSAGE_TOO_LARGE"),
        Limit("a batch that is recompressed", RECOMPRESSED_BYTES_MAX, "bytes", "INVALID_RECORD"),
        Limit("record errors in a response", RECORD_ERRORS_MAX, "", "the first ones are returned"),
    ),
    "Topics and metadata": (
        Limit("partitions that one request creates", PARTITIONS_PER_REQUEST_MAX, "", "POLICY_VIOLATION"),
        Limit("partitions of all topics", MAX_PARTITIONS_PER_CLUSTER, "", "POLICY_VIOLATION"),
        Limit("a topic name", TOPIC_NAME_LENGTH_MAX, "characters", "INVALID_TOPIC_EXCEPTION"),
        Limit("replicas of a partition", REPLICATION_FACTOR_MAX, "", "INVALID_REPLICATION_FACTOR"),
        Limit(
            "topics that wait for automatic creation",
            topic_creation.WAITING_MAX,
            "",
            "LEADER_NOT_AVAILABLE, and the client's next Metadata request asks again",
        ),
        Limit("access control entries that one request changes", CHANGES_MAX, "", "POLICY_VIOLATION"),
        Limit("client quotas that one request changes", client_quotas.CHANGES_MAX, "", "POLICY_VIOLATION"),
        Limit("delegation tokens of a cluster", delegation_tokens.TOKENS_MAX, "", "POLICY_VIOLATION"),
        Limit("delegation tokens of one owner", delegation_tokens.TOKENS_PER_OWNER_MAX, "", "POLICY_VIOLATION"),
        Limit("renewers of a delegation token", delegation_tokens.RENEWERS_MAX, "", "POLICY_VIOLATION"),
        Limit(
            "names of its owner, requester and renewers", delegation_tokens.NAMES_BYTES_MAX, "bytes", "POLICY_VIOLATION"
        ),
        Limit("brokers of a cluster", BROKERS_MAX, "", "ConfigError"),
    ),
    "Groups and transactions": (
        Limit("groups of a broker", MAX_GROUPS_PER_BROKER, "", "POLICY_VIOLATION"),
        Limit("members of a group", GROUP_MAX_SIZE, "", "GROUP_MAX_SIZE_REACHED"),
        Limit("members of a streams group", GROUP_STREAMS_MAX_SIZE, "", "GROUP_MAX_SIZE_REACHED"),
        Limit(
            "subtopologies, topics and their configurations in a topology of Kafka Streams",
            TOPOLOGY_ITEMS_MAX,
            "",
            "STREAMS_INVALID_TOPOLOGY",
        ),
        Limit("tasks of a streams group", TASKS_MAX, "", "STREAMS_INVALID_TOPOLOGY"),
        Limit("the shortest session", GROUP_MIN_SESSION_TIMEOUT_MS, "ms", "INVALID_SESSION_TIMEOUT"),
        Limit("the longest session", GROUP_MAX_SESSION_TIMEOUT_MS, "ms", "INVALID_SESSION_TIMEOUT"),
        Limit("a group id", STRING_BYTES_MAX, "bytes", "INVALID_GROUP_ID; INVALID_REQUEST to a JoinGroup"),
        Limit("metadata of a committed offset", OFFSET_METADATA_MAX_BYTES, "bytes", "OFFSET_METADATA_TOO_LARGE"),
        Limit("a transactional id", TRANSACTIONAL_ID_BYTES_MAX, "bytes", "INVALID_REQUEST"),
        Limit("a transaction's timeout", TRANSACTION_MAX_TIMEOUT_MS, "ms", "INVALID_TRANSACTION_TIMEOUT"),
    ),
}


def limits_page() -> str:
    head = "| limited | at | what a client sees |\n| --- | --- | --- |\n"
    tables = [
        f"## {subject}\n\n{head}" + "".join(f"{limit.row()}\n" for limit in limits)
        for subject, limits in LIMITS.items()
    ]
    return PAGE.format(tables="\n".join(tables))


def _number(value: int, unit: str) -> str:
    """With thousands separated; bytes in MiB or KiB where they are whole."""
    for size, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if unit == "bytes" and value >= size and value % size == 0:
            return f"{value // size} {name}"
    return f"{value:,} {unit}".strip()
