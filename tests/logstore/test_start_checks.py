"""Before a log directory is opened the machine is checked, and problems are reported with path and rule."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from raylog.core.errors import ErrorCode, KafkaError
from raylog.logstore import start_checks
from raylog.logstore.file_limit import FILES_BESIDE_LOGS, check_file_limit
from raylog.logstore.start_checks import check_machine

SOFT, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)


@pytest.fixture(autouse=True)
def same_limits_afterwards() -> Iterator[None]:
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD))


def warnings(caplog: pytest.LogCaptureFixture) -> dict[str, dict[str, object]]:
    """Fields by event."""
    return {record.getMessage(): vars(record) for record in caplog.records if record.levelno == logging.WARNING}


def test_the_check_counts_files_that_stay_open() -> None:
    room = 1000 - FILES_BESIDE_LOGS
    assert check_file_limit("/d", segments=0, files_max=1000) is None
    assert check_file_limit("/d", segments=500 - FILES_BESIDE_LOGS, files_max=1000) is None
    warned = check_file_limit("/d", segments=501 - FILES_BESIDE_LOGS, files_max=1000)
    assert warned is not None
    assert all(part in warned for part in ("/d has 245 segment files", "RLIMIT_NOFILE", "1000"))
    assert check_file_limit("/d", segments=room, files_max=1000) is not None
    with pytest.raises(KafkaError, match=f"/d has {room + 1} segment files.*RLIMIT_NOFILE.*1000") as refused:
        check_file_limit("/d", segments=room + 1, files_max=1000)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_the_limit_is_raised_up_to_the_hard_limit(tmp_path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (HARD - 1, HARD))
    check_machine(str(tmp_path / "not-yet"))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (HARD, HARD)


def test_every_segment_in_the_directory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        partition = tmp_path / f"t-{number}"
        partition.mkdir()
        for offset in range(number + 1):
            (partition / f"{offset:020d}.log").touch()
            (partition / f"{offset:020d}.index").touch()
    (tmp_path / "t-2").rename(tmp_path / f"t-2.{7:032x}-delete")
    (tmp_path / "meta.properties").touch()
    monkeypatch.setattr(start_checks, "_raise_file_limit", lambda: FILES_BESIDE_LOGS + 3)
    check_machine(str(tmp_path))
    (tmp_path / "t-0" / "00000000000000000009.log").touch()
    with pytest.raises(KafkaError, match=f"{tmp_path} has 4 segment files"):
        check_machine(str(tmp_path))


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
