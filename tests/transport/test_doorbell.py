"""A sleeping reader is woken once, an awake one is not notified, and no reader can harm the broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.transport.doorbell import Doorbell, Sleeper
from tests.support.descriptors import descriptors, left_by_rounds


class Pair:
    """A doorbell and its reader, as if the descriptors had gone through a socket."""

    def __init__(self) -> None:
        self.bell = Doorbell()
        self.sleeper = Sleeper(*(os.dup(descriptor) for descriptor in self.bell.descriptors))

    def rung(self) -> int:
        """How often, since the last look."""
        try:
            return os.eventfd_read(self.sleeper.fileno())
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self.bell.close()
        self.sleeper.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def test_a_sleeping_reader_is_woken_once(pair: Pair) -> None:
    pair.sleeper.arm()
    for _ in range(3):
        pair.bell.ring()
    assert pair.rung() == 1
    pair.sleeper.arm()
    pair.bell.ring()
    assert pair.rung() == 1


def test_an_awake_reader_is_not_notified(pair: Pair) -> None:
    pair.bell.ring()
    pair.sleeper.arm()
    pair.sleeper.disarm()
    pair.bell.ring()
    assert pair.rung() == 0


def test_earlier_notifications_are_cleared_on_waking(pair: Pair) -> None:
    pair.sleeper.arm()
    pair.bell.ring()
    pair.sleeper.disarm()
    assert pair.rung() == 0


def test_each_reader_has_its_own_doorbell(pair: Pair) -> None:
    other = Pair()
    pair.sleeper.arm()
    other.bell.ring()
    pair.bell.ring()
    assert (pair.rung(), other.rung()) == (1, 0)
    other.close()


def test_a_reader_that_fills_its_own_eventfd_does_not_block_the_broker(pair: Pair) -> None:
    os.eventfd_write(pair.sleeper.fileno(), (1 << 64) - 2)
    pair.sleeper.arm()
    pair.bell.ring()


def test_a_reader_cannot_resize_the_flag(pair: Pair) -> None:
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(pair.bell.descriptors[1], size)
    os.pwrite(pair.bell.descriptors[1], b"\xff" * 4096, 0)  # what is in it is the reader's
    pair.bell.ring()
    assert pair.rung() == 1


def test_all_resources_are_released() -> None:
    def maps() -> int:
        return Path("/proc/self/maps").read_text().count("raylog-armed")

    before, maps_before = descriptors(), maps()
    for _ in range(50):
        Pair().close()
    assert (left_by_rounds(before, 50), maps()) == ([], maps_before)
    for _ in range(50):
        event, empty = os.eventfd(0), os.memfd_create("empty")
        with pytest.raises((ValueError, OSError)):
            Sleeper(event, empty)
    assert (left_by_rounds(before, 50), maps()) == ([], maps_before)
