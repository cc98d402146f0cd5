"""Writes protocol/messages/*.py from the schemas of kio (a development dependency; nothing imports it at run time).

    .venv/bin/python script/generate_messages.py            write the modules
    .venv/bin/python script/generate_messages.py --check    exit 1 when a committed module differs

To serve one more API, add its line to MESSAGES and run this. kio has one class per version; ours has one class for all
versions, so the fields of all versions are merged in wire order and each is marked with the versions that have it.
kio also turns milliseconds into datetime and timedelta under a shorter name; here they are whole numbers again under
Kafka's name, which ends in `_ms`.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from graphlib import TopologicalSorter
from pathlib import Path
from types import NoneType, UnionType

from kio.schema.index import api_key_map

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "protocol" / "messages"

# kio's name of the API, the docstring of its request, the docstring of its response.
MESSAGES: tuple[tuple[str, str, str], ...] = (
    (
        "list_offsets",
        "Looks up offsets of partitions: earliest, latest, or by timestamp.",
        "The offset found in each partition.",
    ),
    (
        "metadata",
        "Requests brokers, topics and partition leaders; null topics means all.",
        "The brokers, and the topics with the leaders of their partitions.",
    ),
    ("offset_commit", "Commits offsets of a group.", "The result for each partition."),
    (
        "offset_fetch",
        "Fetches the committed offsets of groups; null topics means all.",
        "The committed offsets of each group.",
    ),
    (
        "join_group",
        "Joins a group, with the protocols that the member supports.",
        "The new generation; for the group leader with all members.",
    ),
    ("heartbeat", "Keeps the session of a group member alive.", "REBALANCE_IN_PROGRESS if the member must rejoin."),
    ("leave_group", "Removes members from a group.", "The result for each member."),
    (
        "sync_group",
        "Requests the member's assignment; the group leader sends all assignments.",
        "The member's assignment.",
    ),
    ("describe_groups", "Requests the state and the members of groups.", "One description for each group."),
    ("list_groups", "Lists groups, filtered by state and type.", "The groups that this broker coordinates."),
    (
        "consumer_group_heartbeat",
        "Joins, remains in or leaves a group whose coordinator assigns the partitions; null: as before.",
        "The member's epoch, and its assignment if it has changed.",
    ),
    (
        "consumer_group_describe",
        "Requests the state and the members of such groups.",
        "One description for each group.",
    ),
    (
        "share_group_heartbeat",
        "Joins, remains in or leaves a share group; null: as before.",
        "The member's epoch, and its assignment if it has changed.",
    ),
    ("share_group_describe", "Requests the state and the members of share groups.", "One description for each group."),
    (
        "streams_group_heartbeat",
        "Joins, remains in or leaves a streams group; null: as before.",
        "The member's epoch, its tasks if they have changed, and the state of the group.",
    ),
    (
        "streams_group_describe",
        "Requests the state, the topology and the members of streams groups.",
        "One description for each group.",
    ),
    (
        "share_fetch",
        "Acquires records of share-partitions, and acknowledges those acquired before.",
        "The acquired records of each partition.",
    ),
    ("share_acknowledge", "Acknowledges acquired records.", "The result for each partition."),
    (
        "get_telemetry_subscriptions",
        "Asks which metrics this client is to push.",
        "The names of the metrics, and how often to push them.",
    ),
    ("push_telemetry", "Metrics of the client, in the format of OTLP.", "Whether they were accepted."),
    (
        "initialize_share_group_state",
        "Creates the state of share-partitions; sent by group coordinators.",
        "The result for each partition.",
    ),
    (
        "read_share_group_state",
        "Reads the state of share-partitions; sent by their leaders.",
        "The state of each partition.",
    ),
    (
        "write_share_group_state",
        "Writes the state of share-partitions; sent by their leaders.",
        "The result for each partition.",
    ),
    ("delete_share_group_state", "Deletes the state of share-partitions.", "The result for each partition."),
    (
        "read_share_group_state_summary",
        "Reads the start offsets of share-partitions.",
        "The start offset of each partition.",
    ),
    (
        "describe_share_group_offsets",
        "Requests the start offsets of share groups; null topics means all.",
        "The start offsets of each group.",
    ),
    ("alter_share_group_offsets", "Sets the start offsets of a share group.", "The result for each partition."),
    ("delete_share_group_offsets", "Deletes the start offsets of a share group.", "The result for each topic."),
    ("delete_groups", "Deletes groups and their committed offsets.", "The result for each group."),
    ("offset_delete", "Deletes committed offsets of a group.", "The result for each partition."),
    ("find_coordinator", "Looks up the coordinators of groups or transactional ids.", "The coordinator of each key."),
    ("sasl_handshake", "Selects a SASL mechanism.", "The mechanisms that the broker supports."),
    (
        "api_versions",
        "Requests the supported APIs; the first request of a connection.",
        "The supported APIs and their versions.",
    ),
    ("create_topics", "Creates topics; with `validate_only` only validates the request.", "The result for each topic."),
    ("delete_topics", "Deletes topics by name or by id.", "The result for each topic."),
    ("delete_records", "Deletes the records before an offset.", "The new log start offset of each partition."),
    ("init_producer_id", "Requests a producer id and epoch.", "The allocated producer id and epoch."),
    (
        "offset_for_leader_epoch",
        "Requests the end offsets of leader epochs.",
        "The end offset of each requested epoch.",
    ),
    ("describe_configs", "Requests configurations; null keys means all.", "Keys with their values and sources."),
    (
        "add_partitions_to_txn",
        "Adds partitions to transactions, or with `verify_only` checks that they were added.",
        "The result for each partition.",
    ),
    ("add_offsets_to_txn", "Adds the offsets of a group to a transaction.", "The result."),
    ("end_txn", "Commits or aborts a transaction.", "The result."),
    (
        "write_txn_markers",
        "Writes transaction markers to partitions; sent by a transaction coordinator.",
        "The result for each partition.",
    ),
    ("txn_offset_commit", "Commits offsets of a group in a transaction.", "The result for each partition."),
    ("describe_transactions", "Requests the state of transactions.", "One description for each transactional id."),
    (
        "list_transactions",
        "Lists transactions, filtered by state, producer id and duration.",
        "The transactions that this broker coordinates.",
    ),
    (
        "assign_replicas_to_dirs",
        "Reports the log directories in which a broker has its replicas.",
        "The result for each replica.",
    ),
    (
        "alter_replica_log_dirs",
        "Moves replicas between the log directories of a broker.",
        "The result for each replica.",
    ),
    (
        "describe_log_dirs",
        "Requests the content of a broker's log directories; null topics means all.",
        "The replicas and their sizes, by log directory.",
    ),
    ("describe_acls", "Requests the access control entries that match a filter.", "The matching entries, by resource."),
    ("create_acls", "Adds access control entries.", "The result for each entry."),
    (
        "delete_acls",
        "Deletes the access control entries that match any of the filters.",
        "The entries deleted by each filter.",
    ),
    (
        "describe_user_scram_credentials",
        "Requests which SCRAM credentials users have; null users means all.",
        "The mechanisms and iterations of each user; no keys.",
    ),
    (
        "alter_user_scram_credentials",
        "Sets and deletes SCRAM credentials of users.",
        "The result for each user.",
    ),
    ("create_delegation_token", "Requests a new delegation token.", "The token with its HMAC, the secret part."),
    ("renew_delegation_token", "Moves the expiry of a delegation token.", "The new expiry."),
    ("expire_delegation_token", "Sets the expiry of a delegation token, or deletes it.", "The new expiry."),
    (
        "describe_delegation_token",
        "Requests the delegation tokens of owners; null owners means all.",
        "The tokens that the client may see.",
    ),
    (
        "describe_client_quotas",
        "Requests the client quotas of the entities that match the components.",
        "The quotas of each entity.",
    ),
    ("alter_client_quotas", "Sets and removes client quotas of entities.", "The result for each entity."),
    (
        "sasl_authenticate",
        "One message of the client in a SASL exchange.",
        "The broker's message in the SASL exchange.",
    ),
    ("create_partitions", "Increases the number of partitions of topics.", "The result for each topic."),
    ("alter_configs", "Replaces the configuration of resources.", "The result for each resource."),
    (
        "incremental_alter_configs",
        "Changes single keys in the configuration of resources.",
        "The result for each resource.",
    ),
    (
        "envelope",
        "A client's request, forwarded to the controller by a broker.",
        "The controller's response to the client's request.",
    ),
    ("alter_partition", "Proposes new ISRs; sent by partition leaders.", "The resulting state of each partition."),
    ("broker_registration", "Registers a new incarnation of a broker.", "The broker epoch of the incarnation."),
    (
        "broker_heartbeat",
        "Keeps the session of a broker alive; requests fencing or shutdown.",
        "The state of the broker as the controller sees it.",
    ),
    ("allocate_producer_ids", "Requests a block of producer ids for a broker.", "The allocated block."),
    ("describe_cluster", "Requests the brokers of the cluster.", "The brokers, the controller and the cluster id."),
    (
        "describe_topic_partitions",
        "Requests partitions of topics; no topics means all.",
        "The partitions, and a cursor if there are more.",
    ),
    ("describe_producers", "Requests the active producers of partitions.", "The producer state of each partition."),
    (
        "vote",
        "Requests a vote in an election of the metadata log.",
        "Whether the vote is granted, and the current leader.",
    ),
    ("begin_quorum_epoch", "Announces the new leader of the metadata log to a voter.", "The epoch of the voter."),
    ("fetch_snapshot", "Requests a part of a metadata snapshot.", "The part, and the size of the snapshot."),
    (
        "describe_quorum",
        "Requests the state of the quorum of the metadata log.",
        "The leader, the voters and the observers.",
    ),
    ("elect_leaders", "Requests leader elections; null partitions means all.", "The result for each partition."),
    (
        "alter_partition_reassignments",
        "Starts reassignments; null replicas cancels one.",
        "The result for each partition.",
    ),
    (
        "list_partition_reassignments",
        "Lists the ongoing reassignments; null topics means all.",
        "The ongoing reassignments.",
    ),
    ("unregister_broker", "Removes the registration of a broker.", "The result."),
    (
        "list_config_resources",
        "Lists the resources that have a configuration; no types means all.",
        "The resources, with type and name.",
    ),
    (
        "update_features",
        "Sets the finalized levels of features, or only validates the change.",
        "The result for each feature.",
    ),
    ("add_raft_voter", "Adds a controller to the voters of the quorum.", "Whether it was added."),
    ("remove_raft_voter", "Removes a controller from the voters of the quorum.", "Whether it was removed."),
    (
        "update_raft_voter",
        "Reports the listeners of a voter, and the levels of kraft.version that it supports.",
        "Whether they were recorded, and the current leader.",
    ),
)

# kio's scalar -> ours, with the Python type.
SCALARS: dict[str, tuple[str, str]] = {
    "bool": ("boolean", "bool"),
    "bytes": ("binary", "bytes"),
    "records": ("binary", "bytes"),
    "datetime_i64": ("int64", "int"),
    "error_code": ("error", "ErrorCode"),
    "float64": ("float64", "float"),
    "int8": ("int8", "int"),
    "int16": ("int16", "int"),
    "int32": ("int32", "int"),
    "int64": ("int64", "int"),
    "string": ("string", "str"),
    "timedelta_i32": ("int32", "int"),
    "timedelta_i64": ("int64", "int"),
    "uint16": ("uint16", "int"),
    "uuid": ("uuid", "UUID"),
}
ZEROS = {"bool": False, "bytes": b"", "float": 0.0, "int": 0, "str": ""}
NAMED_IN_MILLISECONDS = ("datetime_i64", "timedelta_i32", "timedelta_i64")
NEVER_NULL_ON_THE_WIRE = ("datetime_i64", "uuid")


@dataclass
class MergedField:
    """One field over all versions. `default` is MISSING where Kafka gives none."""

    name: str
    wire: str
    python: str
    is_array: bool
    is_struct: bool
    tag: int | None
    default: object = MISSING
    versions: list[int] = field(default_factory=list)
    null_versions: list[int] = field(default_factory=list)


@dataclass
class MergedClass:
    """One structure over all versions, its fields in an order that agrees with the wire order of every version."""

    name: str
    place: str
    fields: list[MergedField]
    versions: list[int]


def versions_of(api: str) -> list[int]:
    package = importlib.import_module(f"kio.schema.{api}")
    return sorted(int(module.name[1:]) for module in pkgutil.iter_modules(package.__path__) if module.name[0] == "v")


def top_class(api: str, version: int, direction: str) -> type:
    module = importlib.import_module(f"kio.schema.{api}.v{version}")
    suffix = direction.capitalize()
    (name,) = (name for name in module.__all__ if name.endswith(suffix))
    found = getattr(module, name)
    assert isinstance(found, type)
    return found


def strip_optional(hint: object) -> tuple[object, bool]:
    if typing.get_origin(hint) in (UnionType, typing.Union):
        inner = [argument for argument in typing.get_args(hint) if argument is not NoneType]
        return inner[0], True
    return hint, False


def plain_default(kio_default: object) -> object:
    """A default of kio's as a plain value: milliseconds for times, kio's None for a time becomes -1."""
    if isinstance(kio_default, timedelta):
        return kio_default // timedelta(milliseconds=1)
    if isinstance(kio_default, datetime):
        return int(kio_default.timestamp() * 1000)
    return kio_default


def read_field(kio_field: Field[object], hint: object) -> tuple[MergedField, bool, type | None]:
    """One field of one version: (field, whether null is allowed, the nested class)."""
    inner, nullable = strip_optional(hint)
    is_array = typing.get_origin(inner) is tuple
    if is_array:
        inner, _ = strip_optional(typing.get_args(inner)[0])
    tag = kio_field.metadata.get("tag")
    default = MISSING if kio_field.default is MISSING else plain_default(kio_field.default)
    if is_dataclass(inner):
        assert isinstance(inner, type)
        default = MISSING if is_dataclass(default) else default  # a structure of defaults, as ours starts anyway
        merged = MergedField(kio_field.name, inner.__name__, inner.__name__, is_array, True, tag, default)
        return merged, nullable, inner
    kind = kio_field.metadata["kafka_type"]
    wire, python = SCALARS[kind]
    name = kio_field.name + ("_ms" if kind in NAMED_IN_MILLISECONDS else "")
    if kind in NEVER_NULL_ON_THE_WIRE and not is_array:
        nullable = False
        if default is None:
            default = -1 if kind == "datetime_i64" else MISSING
    return MergedField(name, wire, python, is_array, False, tag, default), nullable, None


def merge(api: str, direction: str, clashing: frozenset[str] = frozenset()) -> list[MergedClass]:
    """The classes of one message over all versions, nested ones first.

    Names in `clashing`, which mean one thing in the request and another in the response, get the direction before them.
    """

    def named(cls: type) -> str:
        return direction.capitalize() + cls.__name__ if cls.__name__ in clashing else cls.__name__

    merged: dict[str, MergedClass] = {}
    orders: dict[str, TopologicalSorter[str]] = {}
    by_name: dict[str, dict[str, MergedField]] = {}
    nested_in: dict[str, list[str]] = {}

    def visit(cls: type, version: int, place: str) -> None:
        name = named(cls)
        known = merged.setdefault(name, MergedClass(name, place, [], []))
        if version in known.versions:
            return
        known.versions.append(version)
        order = orders.setdefault(name, TopologicalSorter())
        previous: str | None = None
        hints = typing.get_type_hints(cls)
        for kio_field in fields(cls):
            new, nullable, nested = read_field(kio_field, hints[kio_field.name])
            if nested is not None:
                new.wire = new.python = named(nested)
            old = by_name.setdefault(name, {}).setdefault(new.name, new)
            assert (old.wire, old.is_array, old.tag) == (new.wire, new.is_array, new.tag), (api, name, new.name)
            if new.default is not MISSING:
                old.default = new.default
            old.versions.append(version)
            if nullable:
                old.null_versions.append(version)
            order.add(new.name, *([previous] if previous else []))
            previous = new.name
            if nested is not None:
                visit(nested, version, f"{name}.{new.name}")
                nested_in.setdefault(name, []).append(named(nested))

    versions = versions_of(api)
    for version in versions:
        top = top_class(api, version, direction)
        visit(top, version, "")
    for name, cls in merged.items():
        ordered = [by_name[name][each] for each in orders[name].static_order()]
        cls.fields = sorted(ordered, key=lambda each: -1 if each.tag is None else each.tag)
    graph = TopologicalSorter({name: nested_in.get(name, ()) for name in merged})
    return [merged[name] for name in graph.static_order()]


def clashing_names(api: str) -> frozenset[str]:
    """Of structures that differ between request and response, or hold such."""
    clashing: frozenset[str] = frozenset()
    while True:
        in_request = {cls.name: cls.fields for cls in merge(api, "request", clashing)}
        in_response = {cls.name: cls.fields for cls in merge(api, "response", clashing)}
        differing = {name for name in in_request.keys() & in_response if in_request[name] != in_response[name]}
        if not differing:
            return clashing
        clashing |= differing


def contiguous(versions: Sequence[int]) -> tuple[int, int]:
    assert list(versions) == list(range(versions[0], versions[-1] + 1)), versions
    return versions[0], versions[-1]


def field_line(each: MergedField, lowest: int, highest: int) -> str:
    since, until = contiguous(each.versions)
    arguments: list[str] = [each.wire] if each.is_array or each.is_struct else []
    python = f"tuple[{each.python}, ...]" if each.is_array else each.python
    marks: list[str] = []
    if since > lowest:
        marks.append(f"since={since}")
    if until < highest:
        marks.append(f"until={until}")
    default = each.default
    if each.null_versions:
        null_since, null_until = contiguous(each.null_versions)
        assert null_until == until, each
        python += " | None"
        marks.append(f"null_since={null_since}")
        if default is MISSING and null_since == since:
            default = None
    if default is not MISSING:
        zero = () if each.is_array else ZEROS.get(each.python, MISSING)
        if isinstance(default, int) and not isinstance(default, bool):
            default = int(default)  # kio's own subclasses of int would show in the text
        if not (default == zero or (each.python == "ErrorCode" and default == 0)):
            arguments.append(repr(default))
    if each.tag is not None:
        marks.append(f"tag={each.tag}")
    wire = "array" if each.is_array else "struct" if each.is_struct else each.wire
    return f"    {each.name}: {python} = {wire}({', '.join(arguments + marks)})"


def class_lines(cls: MergedClass, sentence: str, lowest: int, highest: int) -> Iterator[str]:
    first, last = contiguous(cls.versions)
    if cls.place:
        sentence = f"An item of `{cls.place}`"
        sentence += "." if (first, last) == (lowest, highest) else f", versions {first}-{last}."
    yield "@message"
    yield f"class {cls.name}:"
    yield f'    """{sentence}"""'
    yield ""
    if not cls.place:
        yield "    api: ClassVar[Api] = API"
    for each in cls.fields:
        yield field_line(each, first, last)
    yield ""
    yield ""


def module_text(api: str, request_doc: str, response_doc: str) -> str:
    """One module, before ruff format."""
    versions = versions_of(api)
    lowest, highest = contiguous(versions)
    request = top_class(api, highest, "request")
    name = request.__name__.removesuffix("Request")
    key = {kio_name: number for number, kio_name in api_key_map.items()}[api]
    flexible = [version for version in versions if top_class(api, version, "request").__flexible__]
    flexible_from = flexible[0] if flexible else None
    clashing = clashing_names(api)
    body: list[str] = []
    seen: set[str] = set()
    for direction, sentence in (("request", request_doc), ("response", response_doc)):
        for cls in merge(api, direction, clashing):
            if cls.name not in seen:
                body += class_lines(cls, sentence, lowest, highest)
                seen.add(cls.name)
    text = "\n".join(body)
    words = sorted({*(scalar for scalar, _ in SCALARS.values()), "array", "struct"})
    used = [word for word in words if f"= {word}(" in text or f"= array({word}" in text]
    head = [
        f'"""{name} (key {key}). Generated by script/generate_messages.py; do not edit."""',
        "",
        "from typing import ClassVar",
        *(["from uuid import UUID"] if "UUID" in text else []),
        "",
        *(["from raylog.core.errors import ErrorCode"] if "ErrorCode" in text else []),
        f"from raylog.protocol.schema import Api, message, {', '.join(used)}",
        "",
        f"API = Api(key={key}, name={name!r}, lowest={lowest}, highest={highest}, flexible_from={flexible_from})",
        "",
        "",
    ]
    return "\n".join(head) + text


def tidy(text: str, name: str) -> str:
    """The text as the project's ruff wants it."""
    place = f"--stdin-filename={TARGET / name}"
    for command in (["check", "--select=I", "--fix", "--quiet"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, place, "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def modules() -> dict[str, str]:
    """Every generated file: name -> content."""
    return {
        (name := f"{api}.py"): tidy(module_text(api, request_doc, response_doc), name)
        for api, request_doc, response_doc in MESSAGES
    }


def main(arguments: list[str]) -> int:
    made = modules()
    found = {path.name: path.read_text() for path in TARGET.glob("*.py") if path.name != "__init__.py"}
    stale = sorted(name for name in made.keys() | found.keys() if made.get(name) != found.get(name))
    for name in stale:
        if "--check" in arguments:
            print(f"{name} is not what the generator makes")
        elif name in made:
            (TARGET / name).write_text(made[name])
            print(f"wrote {name}")
        else:
            (TARGET / name).unlink()
            print(f"removed {name}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
