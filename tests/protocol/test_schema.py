"""Message classes behave as frozen dataclasses, although they share their methods and compile `__init__` late."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import pytest

from raylog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.protocol.schema import array, int32, message, string

FLIGHTS = MetadataRequestTopic(name="flights")
REQUEST = MetadataRequest(topics=(FLIGHTS,), allow_auto_topic_creation=False)


@message
class Empty:
    """A message without fields."""


@message
class Pair:
    """Of two fields."""

    number: int = int32(-1)
    names: tuple[str, ...] = array(string)


def test_fields_that_are_not_given_have_their_defaults() -> None:
    assert (Pair().number, Pair().names) == (-1, ())
    assert (Pair(number=7).number, Pair(names=("a",)).number) == (7, -1)


@pytest.mark.parametrize("first", [True, False])
def test_unknown_and_positional_fields_are_refused_by_the_first_call_and_later_ones(first: bool) -> None:
    @message
    class Fresh:
        """Not instantiated yet."""

        number: int = int32()

    made: Any = Fresh
    if not first:
        made()
    with pytest.raises(TypeError):
        made(size=1)
    with pytest.raises(TypeError):
        made(1)


def test_equal_fields_make_equal_messages_of_one_class() -> None:
    assert Pair(number=1) == Pair(number=1)
    assert Pair(number=1) != Pair(number=2)
    assert hash(Pair(number=1)) == hash(Pair(number=1))
    assert Empty() == Empty()
    other: object = Pair()
    assert Empty() != other


def test_messages_cannot_be_changed() -> None:
    changed: Any = Pair(number=1)
    with pytest.raises(FrozenInstanceError):
        changed.number = 2
    with pytest.raises(FrozenInstanceError):
        del changed.number
    with pytest.raises(FrozenInstanceError):
        changed.other = 2
    assert changed == Pair(number=1)


def test_messages_are_shown_with_all_fields() -> None:
    assert repr(Pair(number=1, names=("a",))) == "Pair(number=1, names=('a',))"
    assert repr(Empty()) == "Empty()"


@pytest.mark.parametrize("remake", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_are_equal(remake: Any) -> None:
    assert remake(REQUEST) == REQUEST


def test_functions_of_dataclasses_work() -> None:
    assert replace(REQUEST, topics=None).topics is None
    assert replace(REQUEST, topics=None).allow_auto_topic_creation is False
    assert asdict(Pair(number=3, names=("a",))) == {"number": 3, "names": ("a",)}
