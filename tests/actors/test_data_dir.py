"""cluster.json records the brokers and never reuses an id; hosts that missed a change adopt it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from raylog.actors.data_dir import (
    BROKERS_MAX,
    ClusterFiles,
    check_same_cluster,
    create_log_dirs,
    delete_data_dir,
    find_data_dir,
    find_log_dirs,
    make_data_dir,
    open_data_dir,
    plan_data_dir,
    share_data_dir,
    with_further_dirs,
    write_atomically,
)
from raylog.core.errors import ConfigError, KafkaError
from tests.support.mutations import mutations

NAME = "kept"


@pytest.fixture
def files(tmp_path: Path) -> ClusterFiles:
    """Of two brokers that are placed."""
    made = make_data_dir(str(tmp_path / "here"), name=NAME, brokers=2, controllers=3)
    return replace(made, hosts={"controller-0": "a", "broker-0": "a", "broker-1": "b"})


def kept(files: ClusterFiles) -> ClusterFiles:
    share_data_dir(files)
    return open_data_dir(str(files.path), name=NAME)


def test_added_and_removed_brokers_are_saved(files: ClusterFiles) -> None:
    changed = kept(files.with_brokers(2).without_broker(1))
    assert changed.broker_ids == [0, 2, 3]
    assert changed.hosts == {"controller-0": "a", "broker-0": "a"}
    assert changed == files.with_brokers(2).without_broker(1)


def test_the_id_of_a_removed_broker_is_not_reused(files: ClusterFiles) -> None:
    shrunk = files.without_broker(1)
    assert shrunk.broker_ids == [0]
    assert shrunk.with_brokers(1).broker_ids == [0, 2]
    most = files.with_brokers(BROKERS_MAX - 2).without_broker(5)
    with pytest.raises(ConfigError, match=f"cannot add 1 brokers: 0 ids are left below {BROKERS_MAX}"):
        most.with_brokers(1)


def test_ids_begin_where_the_first_start_says(tmp_path: Path) -> None:
    path = str(tmp_path / "from-100")
    assert plan_data_dir(path, name=NAME, brokers=2, first_broker_id=100).broker_ids == [100, 101]
    assert not Path(path).exists()
    made = make_data_dir(path, name=NAME, brokers=2, first_broker_id=100)
    assert made.broker_ids == [100, 101]
    for first in (None, 100):
        assert make_data_dir(path, name=NAME, brokers=None, first_broker_id=first) == made
    grown = kept(made.with_brokers(1).without_broker(100))
    assert grown.broker_ids == [101, 102]
    assert make_data_dir(path, name=NAME, brokers=3, first_broker_id=100).broker_ids == [101, 102, 103]
    with pytest.raises(ConfigError, match=r"node\.id=0: the first broker of .* has id 100, which is kept$"):
        make_data_dir(path, name=NAME, brokers=None, first_broker_id=0)
    with pytest.raises(ConfigError, match="cannot add 901 brokers: 900 ids are left below 1000"):
        plan_data_dir(None, name=NAME, brokers=901, first_broker_id=100)


def test_start_checks_the_number_of_brokers(files: ClusterFiles) -> None:
    path = str(files.path)
    share_data_dir(files.with_brokers(1).without_broker(0))
    for brokers, ids in ((None, [1, 2]), (2, [1, 2]), (3, [1, 2, 3])):
        assert make_data_dir(path, name=NAME, brokers=brokers).broker_ids == ids
    with pytest.raises(ConfigError, match="contains 3 brokers"):
        make_data_dir(path, name=NAME, brokers=2)
    with pytest.raises(ConfigError, match=r"controllers=1: .* contains 3; change the number with `raylog quorum add`"):
        make_data_dir(path, name=NAME, brokers=None, controllers=1)


def test_a_file_of_the_version_before_broker_removal_is_read(files: ClusterFiles) -> None:
    path = files.path / "cluster.json"
    said = json.loads(path.read_text())
    del said["removed"]
    path.write_text(json.dumps(said))
    assert open_data_dir(str(files.path), name=NAME).broker_ids == [0, 1]


def test_a_host_that_missed_changes_adopts_them(files: ClusterFiles) -> None:
    grown = files.with_brokers(1)
    here, there = (
        replace(grown, hosts={**files.hosts, "broker-2": "c"}),
        replace(files.without_broker(0), path=files.path.parent / "there"),
    )
    for one, other in ((here, there), (there, here)):
        merged = one.merged(other)
        assert (merged.path, merged.broker_ids) == (one.path, [1, 2])
        assert merged.hosts == {"controller-0": "a", "broker-1": "b", "broker-2": "c"}
    assert here.merged(here) == here


def test_a_cluster_with_the_same_name_and_another_id_is_refused(files: ClusterFiles, tmp_path: Path) -> None:
    other = make_data_dir(str(tmp_path / "other"), name=NAME, brokers=1)
    check_same_cluster(files, files.with_brokers(1))
    with pytest.raises(ConfigError, match=r"other'.*belongs to another cluster"):
        check_same_cluster(files, other)
    with pytest.raises(ConfigError, match="belongs to another cluster"):
        share_data_dir(replace(files, path=other.path))
    assert find_data_dir(str(tmp_path / "none"), name=NAME) is None


def test_log_directories_are_found_for_all_brokers(files: ClusterFiles) -> None:
    for broker_id in (0, 1):
        Path(files.log_paths(broker_id)[0]).mkdir()
    share_data_dir(files.without_broker(0))
    assert find_log_dirs(str(files.path)) == files.log_paths(1)


def test_an_incomplete_data_directory_is_removed_after_a_crash(tmp_path: Path) -> None:
    for name in ("secret.new", "secret", "cluster.new-17"):
        (tmp_path / name).write_bytes(b"half")
    made = make_data_dir(str(tmp_path), name="c", brokers=2, controllers=3)
    assert open_data_dir(str(tmp_path), name="c") == made
    (tmp_path / "cluster.json").unlink()
    (tmp_path / "mine").write_text("")
    with pytest.raises(ConfigError, match="is not empty"):
        make_data_dir(str(tmp_path), name="c", brokers=1)


def test_several_processes_replace_a_file_at_once(tmp_path: Path) -> None:
    """As the nodes of a host do, when each gets its certificate and that of the authority."""
    path = tmp_path / "authority.pem"
    program = (
        "import sys; from pathlib import Path; from raylog.actors.data_dir import write_atomically\n"
        "for number in range(300): write_atomically(Path(sys.argv[1]), b'authority %d' % (number % 2))"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [writer.communicate()[1] for writer in writers] == ["", "", ""]
    assert path.read_bytes().startswith(b"authority")
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_a_file_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "passwords.json"
    write_atomically(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    write_atomically(path, b"old")
    with pytest.raises(OSError, match=r"No space left on device: passwords\.json cannot be written"):
        write_atomically(path, b"new")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


def test_a_started_controller_is_recorded(files: ClusterFiles) -> None:
    files.mark_controller_started(1)
    assert [files.is_controller_started(number) for number in range(3)] == [False, True, False]


@pytest.mark.parametrize(
    "change",
    [
        {"brokers": None},
        {"brokers": "two"},
        {"brokers": 1.5},
        {"brokers": -1},
        {"brokers": 10**400},
        {"brokers": BROKERS_MAX + 1},
        {"controllers": []},
        {"controllers": 0},
        {"hosts": ["a"]},
        {"hosts": {"broker-0": 1}},
        {"removed": 5},
        {"removed": [None]},
        {"removed": [1e999]},
        {"cluster_id": None},
        {"cluster_id": ""},
        {"first_broker_id": -1},
    ],
    ids=str,
)
def test_an_identity_file_with_other_content_is_refused(files: ClusterFiles, change: dict[str, object]) -> None:
    path = files.path / "cluster.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match=r"cluster\.json"):
        open_data_dir(str(files.path), name=NAME)


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"[]", b"5", b"null", b"\xff", b'"kept"'])
def test_an_identity_file_that_is_no_object_is_refused(files: ClusterFiles, content: bytes) -> None:
    (files.path / "cluster.json").write_bytes(content)
    for read in (partial(open_data_dir, name=NAME), find_log_dirs):
        with pytest.raises(ConfigError, match=r"cluster\.json"):
            read(str(files.path))


def test_a_mutated_identity_file_is_refused_or_is_another_valid_one(files: ClusterFiles) -> None:
    kept(files)
    path = files.path / "cluster.json"
    for mutation in mutations(path.read_bytes(), 1000, "cluster.json"):
        path.write_bytes(mutation)
        try:
            found = open_data_dir(str(files.path), name=NAME)
        except ConfigError:
            continue
        assert all(0 <= broker_id < BROKERS_MAX for broker_id in found.broker_ids)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"[" * 100_000, b'{"PLAINTEXT": null}', b'{"PLAINTEXT": 1e999}', b"\xff"]
)
def test_any_port_is_used_if_the_file_of_the_last_ones_is_damaged(files: ClusterFiles, content: bytes) -> None:
    files.save_ports("broker-0", {"PLAINTEXT": 9092})
    (files.path / "run" / "broker-0.json").write_bytes(content)
    assert files.last_ports("broker-0") == {}


def test_passwords_are_readable_by_the_owner_only_and_shown_nowhere(files: ClusterFiles) -> None:
    share_data_dir(replace(files, passwords={"all:ssl.key.password": "hunter2"}), replace_passwords=True)
    path = files.path / "passwords.json"
    assert path.stat().st_mode & 0o777 == 0o600
    found = open_data_dir(str(files.path), name=NAME)
    assert found.passwords == {"all:ssl.key.password": "hunter2"}
    assert "hunter2" not in repr(found)
    assert repr(found.secret) not in repr(found)
    path.write_text('["hunter2"]')
    with pytest.raises(ConfigError, match=r"passwords\.json must contain a JSON object of texts") as refused:
        open_data_dir(str(files.path), name=NAME)
    assert "hunter2" not in refused.value.message


def test_passwords_of_a_host_are_replaced_at_a_start_only(files: ClusterFiles) -> None:
    newer, older = (replace(files, passwords={"all:k": value}) for value in ("newer", "older"))
    share_data_dir(newer, replace_passwords=True)
    share_data_dir(older)
    assert open_data_dir(str(files.path), name=NAME).passwords == {"all:k": "newer"}
    share_data_dir(older, replace_passwords=True)
    assert open_data_dir(str(files.path), name=NAME).passwords == {"all:k": "older"}


def test_a_directory_is_deleted_under_a_process_that_still_creates_files(tmp_path: Path) -> None:
    doomed = tmp_path / "data"
    (doomed / "controller-0").mkdir(parents=True)
    deleted = Event()

    def create_files() -> None:
        with suppress(FileNotFoundError):
            numbers = count()
            while not deleted.is_set():
                (doomed / "controller-0" / f"{next(numbers)}.checkpoint").touch()

    with ThreadPoolExecutor() as pool:
        creating = pool.submit(create_files)
        while not any((doomed / "controller-0").iterdir()):
            pass
        delete_data_dir(str(doomed))
        deleted.set()
        creating.result()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_does_not_exist_is_deleted_to_no_effect(tmp_path: Path) -> None:
    delete_data_dir(str(tmp_path / "absent"))
    assert list(tmp_path.iterdir()) == []


def test_further_directories_are_remembered_and_replaced(files: ClusterFiles, tmp_path: Path) -> None:
    assert files.log_paths(1) == [str(files.path / "broker-1")]
    several = with_further_dirs(files, [str(tmp_path / "b"), str(tmp_path / "c")])
    again = open_data_dir(str(files.path), name=NAME)
    assert again == several
    assert again.log_paths(1) == [f"{path}/broker-1" for path in (files.path, tmp_path / "b", tmp_path / "c")]
    assert with_further_dirs(again, [str(tmp_path / "d")]).further_dirs == (str(tmp_path / "d"),)
    with pytest.raises(ConfigError, match="names a directory twice"):
        with_further_dirs(files, [str(files.path / ".")])


def test_log_directories_are_created_only_if_the_broker_never_had_them(files: ClusterFiles, tmp_path: Path) -> None:
    paths = [str(tmp_path / name / "broker-0") for name in ("a", "b")]
    create_log_dirs(files, "broker-0", paths[:1])
    assert not Path(paths[0]).exists(), "the log directory itself does it"
    create_log_dirs(files, "broker-0", paths)
    assert all(Path(path).is_dir() for path in paths)
    Path(paths[1]).rmdir()
    third = str(tmp_path / "c" / "broker-0")
    create_log_dirs(files, "broker-0", [*paths, third])
    assert not Path(paths[1]).exists(), "its disk is not mounted"
    assert Path(third).is_dir()
    create_log_dirs(files, "broker-1", paths)
    assert Path(paths[1]).is_dir(), "another broker never had it"


def test_a_log_directory_that_cannot_be_created_is_named(files: ClusterFiles, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KafkaError, match="a log directory cannot be created"):
        create_log_dirs(files, "broker-0", [str(tmp_path / "a"), str(tmp_path / "file" / "broker-0")])
