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

# kio's name of the API, what the request asks, what the response tells.
MESSAGES: tuple[tuple[str, str, str], ...] = (
    ("list_offsets", "Asks for the offset at a time, at the start or at the end of partitions.", "One offset each."),
    ("metadata", "Asks where topics live; null means all topics.", "The brokers, and the leaders of the partitions."),
    ("offset_commit", "Stores how far a group has read.", "What became of each committed offset."),
    ("offset_fetch", "Asks how far groups have read; null means all topics.", "The committed offsets."),
    ("join_group", "Asks to be a member, with the assignors it knows.", "The generation; for the leader, all members."),
    ("heartbeat", "A member is alive.", "Whether it should go on, or join again."),
    ("leave_group", "Members go.", "What became of each of them."),
    ("sync_group", "Asks for its part; the leader brings everybody's.", "The member's part."),
    ("describe_groups", "Asks for the state and the members of groups.", "One answer for each group."),
    ("list_groups", "Asks which groups there are.", "The groups this broker coordinates."),
    ("delete_groups", "Forgets groups and what they have committed.", "What became of each group."),
    ("offset_delete", "Forgets what a group has committed in partitions.", "What became of each partition."),
    ("find_coordinator", "Asks which broker coordinates a group or a transaction.", "The coordinators."),
    ("sasl_handshake", "Names the SASL mechanism the client wants.", "The mechanisms the broker offers."),
    ("api_versions", "First request of a connection: who is calling?", "The APIs and versions that are served."),
    ("create_topics", "Creates topics, or only checks that it could.", "What became of each topic."),
    ("delete_topics", "Deletes topics by name or by id.", "What became of each topic."),
    ("delete_records", "Deletes the records before an offset.", "Where each partition begins now."),
    ("init_producer_id", "Asks for a producer id and epoch.", "The id and epoch to write with."),
    ("offset_for_leader_epoch", "Asks where leader epochs ended.", "The end offset of each epoch asked for."),
    ("describe_configs", "Asks for configurations; null means all keys.", "Values, and where each came from."),
    ("add_partitions_to_txn", "Adds partitions to transactions, or asks if they are in.", "Whether they are in."),
    ("add_offsets_to_txn", "Adds the offsets of a group to a transaction.", "Whether they are in."),
    ("end_txn", "Commits or aborts a transaction.", "Whether it is decided."),
    ("write_txn_markers", "A coordinator tells leaders how transactions ended.", "Which partitions know."),
    ("txn_offset_commit", "Stores how far a group has read, as part of a transaction.", "What became of each offset."),
    ("describe_transactions", "Asks for the state of transactions.", "One answer for each transactional id."),
    ("list_transactions", "Asks which transactions there are.", "Those that this broker coordinates."),
    (
        "alter_replica_log_dirs",
        "Moves replicas between the log directories of a broker.",
        "What became of each replica.",
    ),
    ("describe_log_dirs", "Asks what lies in a broker's log directories; null means all.", "Sizes, by directory."),
    ("describe_acls", "Asks which access control lists match a filter.", "The matching ones, by resource."),
    ("create_acls", "Adds entries to access control lists.", "What became of each entry."),
    ("delete_acls", "Removes every entry that one of the filters matches.", "What each filter has removed."),
    ("sasl_authenticate", "Carries one step of a SASL exchange.", "The broker's step of the SASL exchange."),
    ("create_partitions", "Grows topics to more partitions.", "What became of each topic."),
    ("alter_configs", "Sets whole configurations.", "What became of each resource."),
    ("incremental_alter_configs", "Changes single configurations.", "What became of each resource."),
    ("envelope", "A client's request, forwarded by a broker to the controller.", "The controller's answer to it."),
    ("alter_partition", "A leader proposes who is in sync.", "The partitions as they stand now."),
    ("broker_registration", "A new incarnation of a broker makes itself known.", "The epoch of the incarnation."),
    ("broker_heartbeat", "A broker is alive, and says what it wishes.", "What the controller makes of it."),
    ("allocate_producer_ids", "A broker asks for a block of producer ids.", "The block."),
    ("describe_cluster", "Asks for the brokers of the cluster.", "The brokers, the controller and the cluster id."),
    ("describe_topic_partitions", "Asks for the partitions of topics; none named means all.", "A page of them."),
    ("describe_producers", "Asks who has written to partitions.", "The producers that each partition remembers."),
    ("vote", "A candidate asks a voter for its vote.", "Whether it is given, and who leads as the voter knows."),
    ("begin_quorum_epoch", "A voter tells another that it leads.", "The epoch that the other one is in."),
    ("fetch_snapshot", "Asks for a piece of a snapshot of the metadata.", "The piece, and the size of the whole."),
    ("describe_quorum", "Asks who keeps the metadata log.", "Its leader, its voters, and who follows it."),
    ("elect_leaders", "Asks for elections; null means in every partition.", "What became of each partition."),
    ("alter_partition_reassignments", "Moves replicas; null ends what is under way.", "What became of each partition."),
    ("list_partition_reassignments", "Asks which replicas are moving; null means everywhere.", "What is under way."),
    ("unregister_broker", "Forgets a broker that is gone for good.", "What became of it."),
    (
        "update_features",
        "Sets finalized levels of features, or only checks that it could.",
        "The result for each feature.",
    ),
    ("list_config_resources", "Asks what has a configuration; no types means all.", "Each resource, type and name."),
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
        sentence = f"Stands in `{cls.place}`"
        sentence += "." if (first, last) == (lowest, highest) else f", versions {first}-{last}."
    yield "@dataclass(frozen=True, slots=True, kw_only=True)"
    yield f"class {cls.name}:"
    yield f'    """{sentence}"""'
    yield ""
    if not cls.place:
        yield "    api: ClassVar[Api] = API"
    for each in cls.fields:
        yield field_line(each, first, last)
    yield ""
    yield ""


def module_text(api: str, asks: str, tells: str) -> str:
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
    for direction, sentence in (("request", asks), ("response", tells)):
        for cls in merge(api, direction, clashing):
            if cls.name not in seen:
                body += class_lines(cls, sentence, lowest, highest)
                seen.add(cls.name)
    text = "\n".join(body)
    words = sorted({*(scalar for scalar, _ in SCALARS.values()), "array", "struct"})
    used = [word for word in words if f"= {word}(" in text or f"= array({word}" in text]
    head = [
        f'"""{name} (key {key}). Made by script/generate_messages.py; change that, not this."""',
        "",
        "from dataclasses import dataclass",
        "from typing import ClassVar",
        *(["from uuid import UUID"] if "UUID" in text else []),
        "",
        *(["from raylog.core.errors import ErrorCode"] if "ErrorCode" in text else []),
        f"from raylog.protocol.schema import Api, {', '.join(used)}",
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
    return {(name := f"{api}.py"): tidy(module_text(api, asks, tells), name) for api, asks, tells in MESSAGES}


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
