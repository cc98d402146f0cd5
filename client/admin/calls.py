"""What an administrative operation asks: items, the broker that serves each, and how the answers are read. Pure.

An operation is a generator: it yields a `Call`, is sent the `Results` once each item has an answer or has failed for
good, and returns what the user gets.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from raylog.client.coordinators import KeyType
from raylog.client.errors import AdminError
from raylog.client.given_values import checked_partitions, items_of, iterator_of, shown
from raylog.core.errors import ErrorCode, KafkaError
from raylog.core.ids import TopicPartition
from raylog.protocol.messages.metadata import MetadataRequest
from raylog.protocol.schema import Message


@dataclass(frozen=True, slots=True)
class AnyBroker:
    """Any broker serves it; one that has served a change of this client shows that change."""


@dataclass(frozen=True, slots=True)
class Controller:
    """The active controller, or the broker that forwards to it."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker with this id."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of a group, or of a transactional id."""

    key_type: KeyType
    key: str


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition."""

    tp: TopicPartition


Route = AnyBroker | Controller | Broker | Coordinator | Leader
ANY_BROKER: Final = AnyBroker()
CONTROLLER: Final = Controller()


def group(group_id: str) -> Coordinator:
    """Raises KafkaError."""
    check_text("group", group_id)
    return Coordinator(KeyType.GROUP, group_id)


def transaction(transactional_id: str) -> Coordinator:
    """Raises KafkaError."""
    check_text("transactional id", transactional_id)
    return Coordinator(KeyType.TRANSACTION, transactional_id)


class Answer(NamedTuple):
    """What a response says of one item: a value, or an error."""

    item: Any
    value: Any = None
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


class Results(NamedTuple):
    """The results and the errors of a call's items: each item is in one of the two."""

    values: dict[Any, Any]
    errors: dict[Any, KafkaError]

    def checked(self) -> dict[Any, Any]:
        """The values. Raises AdminError if an item has failed; it has the values of the others."""
        if self.errors:
            raise AdminError.of(self.errors, self.values)
        return self.values


Item = TypeVar("Item", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """Items of one broker go out in one request, if `batched`."""

    routes: Mapping[Any, Route]
    name: Callable[[Any], str]
    """Names an item in an error; empty if the broker does."""
    request: Callable[[Sequence[Any], int], Message] | None
    """For these items; the broker may take so many milliseconds. None: what is known of a `Leader` is the value."""
    read: Callable[[Any, Sequence[Any]], Iterable[Answer]]
    """What the response says of these items."""
    version_max: int | None = None
    batched: bool = True
    wait_ms: int = 0
    """How long the broker may wait before it serves the request, in addition to request.timeout.ms."""


Steps = Generator[Call, Results, T]
"""An operation that returns a T."""


def ask(
    route: Route,
    name: str,
    request: Callable[[int], Message],
    read: Callable[[Any], T],
) -> Steps[T]:
    """One request that succeeds or fails as a whole. `read` makes the result of a response without an error."""

    def answers(response: Any, items: Sequence[Any]) -> Iterator[Answer]:
        code = getattr(response, "error_code", ErrorCode.NONE)
        message = getattr(response, "error_message", None)
        yield Answer(None, None if code else read(response), code, message)

    call = Call({None: route}, lambda _: name, lambda _, left_ms: request(left_ms), answers)
    found = yield call
    result: T = found.checked()[None]
    return result


def refused_as_a_whole(response: Any, items: Sequence[Any]) -> list[Answer]:
    """The same error for each item, if the response has one for all."""
    code = getattr(response, "error_code", ErrorCode.NONE)
    message = getattr(response, "error_message", None)
    return [Answer(item, None, code, message) for item in items] if code else []


def about(name: str, text: str) -> str:
    """The text of an error; without a name it is that of the broker alone."""
    return f"{name}: {text}" if name else text


def named(kind: str) -> Callable[[Any], str]:
    """Names items such as `topic 'orders'`."""
    return lambda item: f"{kind} {item!r}" if isinstance(item, str) else f"{kind} {item}"


def distinct(items: Iterable[Item], name: Callable[[Item], str]) -> list[Item]:
    """The items. Raises KafkaError if one is given twice."""
    found: dict[Item, None] = {}
    for item in iterator_of("the items of a call", items):
        try:
            if item in found:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name(item)} is given twice")
        except TypeError:  # it cannot be hashed
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shown(item)} is of a wrong type") from None
        found[item] = None
    return list(found)


def several(items: Iterable[str] | str) -> list[str]:
    """A text stands for itself, not for its characters. Raises KafkaError."""
    listed = [items] if isinstance(items, str) else items_of("names", items)
    for each in listed:
        check_text("name", each)
    return listed


def check_text(what: str, value: Any) -> None:
    """Raises KafkaError."""
    if not isinstance(value, str):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the {what} must be text, not {shown(value)}")


def partitions_in(partitions: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Raises KafkaError if one is given twice, or is none."""
    return distinct(checked_partitions(partitions), str)


def joined(answers: Iterable[Answer], items: Iterable[Any], name: Callable[[Any], str]) -> dict[Any, Any]:
    """The values of a response that has been accepted as a whole. Raises AdminError if an item has failed."""
    shown = {answer.item: answer for answer in answers}
    values, errors = {}, {}
    for item in items:
        answer = shown.get(item, Answer(item, None, ErrorCode.UNKNOWN_SERVER_ERROR, "the response does not contain it"))
        if answer.code:
            errors[item] = KafkaError(answer.code, about(name(item), answer.message or answer.code.sentence))
        else:
            values[item] = answer.value
    return Results(values, errors).checked()


def alive_nodes() -> Steps[list[Any]]:
    """The brokers and coordinators that are alive, as in Metadata."""
    request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
    response = yield from ask(ANY_BROKER, "the cluster", lambda _: request, lambda response: response)
    return sorted(response.brokers, key=lambda node: int(node.node_id))


def node_ids() -> Steps[list[int]]:
    """The ids of `alive_nodes`."""
    return [node.node_id for node in (yield from alive_nodes())]
