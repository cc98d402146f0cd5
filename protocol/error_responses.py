"""The response that rejects a whole request with one error, for every API and version.

A response has an error code at the top level, in each item, or both. If it has an item for each item of the request, an
error response has the error in each of them: clients look up their topic or group in the response.
Source: `getErrorResponse` of Kafka's request classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from raylog.core.errors import ErrorCode
from raylog.protocol import registry
from raylog.protocol.registry import api_for
from raylog.protocol.schema import Wire
from raylog.protocol.schema import error as error_type


@dataclass(frozen=True, slots=True)
class Items:
    """An array of the response with one item for each item of the request's array `source` (`dirs.topics`: of all
    dirs).

    Fields of the same name are copied, those in `renamed` from a field of another name. If the request's items are
    plain values, `value` is the field that holds them. `preset` are fields with a fixed value, `nested` the arrays
    inside the items.
    """

    source: str
    value: str | None = None
    preset: Mapping[str, object] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    nested: Mapping[str, tuple[Items, ...]] = field(default_factory=dict)


def _by_topic(topics: str = "topics", partitions: Items | None = None) -> tuple[Items, ...]:
    return (Items(topics, nested={"partitions": (partitions or Items("partitions"),)}),)


def _number(source: str, value: str = "partition_index", **preset: object) -> Items:
    return Items(source, value, preset)


_ITEMS: Final[Mapping[int, Mapping[str, tuple[Items, ...]]]] = {
    registry.PRODUCE: {"responses": _by_topic(partitions=Items("partitions", preset={"base_offset": -1}))},
    registry.LIST_OFFSETS: {"topics": _by_topic()},
    registry.METADATA: {"topics": (Items("topics"),)},
    registry.OFFSET_COMMIT: {"topics": _by_topic()},
    registry.OFFSET_FETCH: {
        "topics": _by_topic(partitions=_number("partition_indexes", committed_offset=-1)),
        "groups": (Items("groups"),),
    },
    registry.FIND_COORDINATOR: {"coordinators": (Items("coordinator_keys", "key", {"node_id": -1, "port": -1}),)},
    registry.LEAVE_GROUP: {"members": (Items("members"),)},
    registry.CONSUMER_GROUP_DESCRIBE: {"groups": (Items("group_ids", "group_id"),)},
    registry.DESCRIBE_GROUPS: {"groups": (Items("groups", "group_id"),)},
    registry.CREATE_TOPICS: {"topics": (Items("topics", preset={"num_partitions": -1, "replication_factor": -1}),)},
    registry.DELETE_TOPICS: {"responses": (Items("topic_names", "name"), Items("topics"))},
    registry.DELETE_RECORDS: {"topics": _by_topic(partitions=Items("partitions", preset={"low_watermark": -1}))},
    registry.OFFSET_FOR_LEADER_EPOCH: {"topics": _by_topic()},
    registry.ADD_PARTITIONS_TO_TXN: {
        "results_by_topic_v3_and_below": (
            Items("v3_and_below_topics", nested={"results_by_partition": (_number("partitions"),)}),
        )
    },
    registry.WRITE_TXN_MARKERS: {
        "markers": (Items("markers", nested={"topics": _by_topic(partitions=_number("partition_indexes"))}),)
    },
    registry.TXN_OFFSET_COMMIT: {"topics": _by_topic()},
    registry.CREATE_ACLS: {"results": (Items("creations"),)},
    registry.DELETE_ACLS: {"filter_results": (Items("filters"),)},
    registry.DESCRIBE_CONFIGS: {"results": (Items("resources"),)},
    registry.ALTER_CONFIGS: {"responses": (Items("resources"),)},
    registry.ALTER_REPLICA_LOG_DIRS: {
        "results": (
            Items("dirs.topics", renamed={"topic_name": "name"}, nested={"partitions": (_number("partitions"),)}),
        )
    },
    registry.CREATE_PARTITIONS: {"results": (Items("topics"),)},
    registry.DELETE_GROUPS: {"results": (Items("groups_names", "group_id"),)},
    registry.ELECT_LEADERS: {
        "replica_election_results": (
            Items("topic_partitions", nested={"partition_result": (_number("partitions", "partition_id"),)}),
        )
    },
    registry.INCREMENTAL_ALTER_CONFIGS: {"responses": (Items("resources"),)},
    registry.ALTER_PARTITION_REASSIGNMENTS: {"responses": _by_topic()},
    registry.ALTER_CLIENT_QUOTAS: {"entries": (Items("entries", nested={"entity": (Items("entity"),)}),)},
    registry.DESCRIBE_USER_SCRAM_CREDENTIALS: {"results": (Items("users", renamed={"user": "name"}),)},
    registry.ALTER_USER_SCRAM_CREDENTIALS: {
        "results": (
            Items("deletions", renamed={"user": "name"}),
            Items("upsertions", renamed={"user": "name"}),
        )
    },
    registry.DESCRIBE_PRODUCERS: {"topics": _by_topic(partitions=_number("partition_indexes"))},
    registry.DESCRIBE_TRANSACTIONS: {
        "transaction_states": (
            Items("transactional_ids", "transactional_id", {"producer_id": -1, "producer_epoch": -1}),
        )
    },
    registry.DESCRIBE_TOPIC_PARTITIONS: {"topics": (Items("topics"),)},
    registry.DESCRIBE_SHARE_GROUP_OFFSETS: {"groups": (Items("groups"),)},
    registry.SHARE_GROUP_DESCRIBE: {"groups": (Items("group_ids", "group_id"),)},
    registry.STREAMS_GROUP_DESCRIBE: {"groups": (Items("group_ids", "group_id"),)},
    registry.INITIALIZE_SHARE_GROUP_STATE: {"results": _by_topic()},
    registry.READ_SHARE_GROUP_STATE: {"results": _by_topic()},
    registry.WRITE_SHARE_GROUP_STATE: {"results": _by_topic()},
    registry.DELETE_SHARE_GROUP_STATE: {"results": _by_topic()},
    registry.READ_SHARE_GROUP_STATE_SUMMARY: {"results": _by_topic()},
}
"""By API key. Responses of APIs that are not listed have one error code at the top level."""

_COPIED_AT_THE_TOP: Final[Mapping[int, tuple[str, ...]]] = {
    registry.JOIN_GROUP: ("member_id",),
    registry.ALTER_PARTITION_REASSIGNMENTS: ("allow_replication_factor_change",),
}


def error_response(request: Any, code: ErrorCode, message: str | None = None) -> Any:
    """The response to `request` with error `code`, and with `message` if the response has a field for it."""
    spec = api_for(request.api.key)
    assert spec is not None
    given = {name: getattr(request, name) for name in _COPIED_AT_THE_TOP.get(spec.key, ())}
    return _built(spec.response, request, given, _ITEMS.get(spec.key, {}), code, message)


def _item(response: type[Any], source: Any, items: Items, code: ErrorCode, message: str | None) -> Any:
    """The response item for one item of the request."""
    given = dict(items.preset)
    if items.value is not None:
        given[items.value] = source
    else:
        for name, wire in _wires(response):
            origin = items.renamed.get(name, name)
            if name not in given and not wire.is_array and wire.element is not error_type and hasattr(source, origin):
                given[name] = getattr(source, origin)
    return _built(response, source, given, items.nested, code, message)


def _built(
    response: type[Any],
    source: Any,
    given: dict[str, Any],
    arrays: Mapping[str, tuple[Items, ...]],
    code: ErrorCode,
    message: str | None,
) -> Any:
    for name, wire in _wires(response):
        if wire.element is error_type:
            given[name] = code
        elif name == "error_message":
            given[name] = message
        elif name in arrays:
            assert isinstance(wire.element, type)
            given[name] = tuple(
                _item(wire.element, each, items, code, message)
                for items in arrays[name]
                for each in _sources(source, items.source)
            )
    return response(**given)


def _sources(source: Any, path: str) -> Iterable[Any]:
    first, _, rest = path.partition(".")
    found = getattr(source, first) or ()
    return (each for outer in found for each in _sources(outer, rest)) if rest else found


def _wires(response: type[Any]) -> list[tuple[str, Wire]]:
    return [(each.name, each.metadata["wire"]) for each in fields(response)]
