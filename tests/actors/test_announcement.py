"""A user without a home directory, as in a container with an arbitrary user id, gets a clear error."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from raylog.actors.announcement import announcing, find_announced
from raylog.actors.local_ray import use_token_file
from raylog.core.errors import ConfigError


def test_a_name_that_is_taken_is_an_error_of_what_runs_under_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with (
        announcing("shop"),
        pytest.raises(ConfigError, match=r"'shop': another .raylog start"),
        announcing("shop"),
    ):
        pass
    with announcing("mirror-m"), pytest.raises(ConfigError) as refused, announcing("mirror-m", taken="name='m': taken"):
        pass
    assert refused.value.message == "name='m': taken"


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown_user(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown_user)
    monkeypatch.setattr(os, "environ", {})


@pytest.mark.usefixtures("homeless")
def test_a_cluster_is_neither_announced_nor_found_without_a_home_directory() -> None:
    with pytest.raises(ConfigError, match="in the home directory: this user has none; set HOME"), announcing("shop"):
        pass
    assert find_announced("shop") is None


@pytest.mark.usefixtures("homeless")
def test_a_ray_is_joined_without_a_token_from_a_home_directory() -> None:
    use_token_file("10.0.0.1:6379")
    assert "RAY_AUTH_MODE" not in os.environ
