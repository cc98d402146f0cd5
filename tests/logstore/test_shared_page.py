"""A page has one consistent snapshot or none, also during writes, after a crash, and with hostile readers."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.logstore.shared_page import PAGE_BYTES, PageSnapshot, PageView, SharedPage
from tests.support.descriptors import descriptors, left_by_rounds

ROOT = Path(__file__).resolve().parent.parent.parent
SEEN_WANTED = 20_000
FIRST = PageSnapshot(0, 9, 8, 7, 6, 5, 4, 3, 2)


def moment(number: int) -> PageSnapshot:
    """A snapshot that no mixture of two others can be."""
    first = number, number + 1, number + 2, -number, number * 3, number ^ 0x5555
    return PageSnapshot(*first, number << 20, number * 7, number * 11)


@pytest.fixture
def page() -> Iterator[SharedPage]:
    page = SharedPage(FIRST)
    yield page
    page.close()


def test_published_snapshots_are_read(page: SharedPage) -> None:
    with PageView(page.descriptor) as view, PageView(page.descriptor) as other:
        assert view.snapshot() == FIRST
        page.publish(moment(77))
        assert view.snapshot() == other.snapshot() == moment(77)
        assert view.generation == moment(77).generation


def test_a_closed_page_is_seen_by_its_readers() -> None:
    page = SharedPage(FIRST)
    with PageView(page.descriptor) as view:
        page.close()
        assert view.snapshot() == FIRST._replace(is_open=0)


def test_a_reader_in_another_process_sees_consistent_snapshots_only(page: SharedPage) -> None:
    page.publish(moment(0))
    command = [sys.executable, "-m", "tests.logstore.test_shared_page", str(page.descriptor)]
    with subprocess.Popen(command, cwd=ROOT, pass_fds=[page.descriptor]) as reader:
        number = 0
        while reader.poll() is None:
            for _ in range(1000):
                number += 1
                page.publish(moment(number))
    assert reader.returncode == 0


def test_a_partial_write_is_not_read(page: SharedPage) -> None:
    """By a writer that died within a change, or on a machine that shows its stores in another order."""
    with PageView(page.descriptor) as view:
        words = memoryview(page._memory).cast("q")
        for word in range(PAGE_BYTES // 8):
            before = words[word]
            words[word] = before + 1
            assert view.snapshot() == (None if word <= 11 else FIRST), f"word {word}"
            words[word] = before
        words[0] += 2
        assert view.snapshot() is None, "fields and checksum of one change, the sequence of another"
        words.release()


def test_only_the_broker_can_write_or_resize_it(page: SharedPage) -> None:
    again = os.open(f"/proc/self/fd/{page.descriptor}", os.O_RDWR)
    for descriptor in (page.descriptor, again):
        for act in (
            lambda fd: os.pwrite(fd, b"x", 0),
            lambda fd: mmap.mmap(fd, PAGE_BYTES),
            lambda fd: os.ftruncate(fd, 0),
            lambda fd: os.ftruncate(fd, 2 * PAGE_BYTES),
            lambda fd: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
        ):
            with pytest.raises(PermissionError):
                act(descriptor)
    os.close(again)
    page.publish(moment(1))
    with PageView(page.descriptor) as view:
        assert view.snapshot() == moment(1)


def test_invalid_pages_are_refused() -> None:
    empty = os.memfd_create("empty")
    with pytest.raises((ValueError, OSError)):
        PageView(empty)
    os.close(empty)


def test_pages_and_views_release_their_resources(page: SharedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    def maps() -> int:
        return Path("/proc/self/maps").read_text().count("raylog-page")

    before, maps_before = descriptors(), maps()
    for _ in range(50):
        other = SharedPage(FIRST)
        view = PageView(other.descriptor)
        other.close()
        view.close()
        view.close()
    assert (left_by_rounds(before, 50), maps()) == ([], maps_before)

    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(mmap, "mmap", full)
    for _ in range(50):
        with pytest.raises(OSError, match="Too many"):
            SharedPage(FIRST)
    assert (left_by_rounds(before, 50), maps()) == ([], maps_before)


def _watch(descriptor: int) -> None:
    """Runs in the reader's process until enough different moments were seen, each of them whole and later than the
    last."""
    seen, last = 0, -1
    with PageView(descriptor) as view:
        while seen < SEEN_WANTED:
            snapshot = view.snapshot()
            if snapshot is None:
                continue
            number = snapshot.log_start_offset
            assert snapshot == moment(number), snapshot
            assert number >= last
            seen += number > last
            last = number


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
