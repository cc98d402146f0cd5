"""Before a log directory is opened the machine is checked, and problems are reported with path and rule."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore import start_checks
from raylog.logstore.start_checks import FILES_MIN, check_machine

SOFT, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)


@pytest.fixture(autouse=True)
def same_limits_afterwards() -> Iterator[None]:
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD))


def warnings(caplog: pytest.LogCaptureFixture) -> dict[str, dict[str, object]]:
    """Fields by event."""
    return {record.getMessage(): vars(record) for record in caplog.records if record.levelno == logging.WARNING}


def test_the_limit_is_raised_up_to_the_hard_limit(tmp_path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (HARD - 1, HARD))
    check_machine(str(tmp_path / "not-yet"))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (HARD, HARD)


def test_half_of_the_files_are_for_segments_and_a_low_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_checks, "_raise_file_limit", lambda: FILES_MIN)
    assert check_machine(str(tmp_path)) == FILES_MIN // 2
    monkeypatch.setattr(start_checks, "_raise_file_limit", lambda: FILES_MIN - 1)
    with pytest.raises(KafkaError, match=f"needs {FILES_MIN} files, but RLIMIT_NOFILE is {FILES_MIN - 1}") as refused:
        check_machine(str(tmp_path))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_network_file_system_causes_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"31 27 0:40 / {tmp_path.resolve()}/real rw - nfs4 host:/x rw\n")
    monkeypatch.setattr(start_checks, "MOUNTS", mounts)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    check_machine(str(tmp_path / "link" / "broker-0"))
    fields = warnings(caplog)["network file system detected"]
    assert (fields["path"], fields["file_system"]) == (str(tmp_path / "link" / "broker-0"), "nfs4")
    assert fields["mount"] == f"{tmp_path.resolve()}/real"
    assert fields["rule"]


def test_a_local_disk_with_enough_descriptors_causes_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_machine(str(tmp_path))
    assert warnings(caplog) == {}


def test_without_a_list_of_mounts_there_is_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(start_checks, "MOUNTS", tmp_path / "missing")
    check_machine(str(tmp_path))
    assert warnings(caplog) == {}
