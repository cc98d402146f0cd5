"""A cluster's directory: made once, found again, and never taken for another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.actors.data_dir import make_data_dir, open_data_dir, share_data_dir
from raylog.core.errors import ConfigError


def test_what_a_crash_has_left_of_its_making_is_no_other_s_data(tmp_path: Path) -> None:
    for name in ("secret.new", "secret", "cluster.new"):
        (tmp_path / name).write_bytes(b"half")
    made = make_data_dir(str(tmp_path), name="c", brokers=2, controllers=3)
    assert open_data_dir(str(tmp_path), name="c") == made
    assert (made.brokers, made.controllers) == (2, 3)


def test_a_directory_with_anything_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(ConfigError, match="is not empty"):
        make_data_dir(str(tmp_path), name="c", brokers=1)


def test_the_number_of_controllers_stays(tmp_path: Path) -> None:
    make_data_dir(str(tmp_path), name="c", brokers=1, controllers=3)
    assert make_data_dir(str(tmp_path), name="c", brokers=1).controllers == 3
    for other in (1, 5):
        with pytest.raises(ConfigError, match="of a cluster with 3, which cannot be changed"):
            make_data_dir(str(tmp_path), name="c", brokers=1, controllers=other)


def test_another_host_gets_the_same_and_keeps_what_is_another_s(tmp_path: Path) -> None:
    here = make_data_dir(str(tmp_path / "here"), name="c", brokers=1)
    there = tmp_path / "there"
    moved = type(here)(there, here.cluster_id, here.name, here.secret, 1, 1, {"broker-0": "a"})
    share_data_dir(moved)
    share_data_dir(moved)
    assert open_data_dir(str(there), name="c") == moved
    other = make_data_dir(str(tmp_path / "other"), name="c", brokers=1)
    with pytest.raises(ConfigError, match="another cluster"):
        share_data_dir(type(here)(other.path, here.cluster_id, here.name, here.secret, 1, 1, {}))


def test_a_controller_that_has_begun_is_remembered(tmp_path: Path) -> None:
    files = make_data_dir(str(tmp_path), name="c", brokers=1, controllers=3)
    files.remember_controller(1)
    assert [files.controller_has_begun(number) for number in range(3)] == [False, True, False]
