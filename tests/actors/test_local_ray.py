"""A Ray that does not start is a ConfigError, whatever it raises; a Ray without authentication needs no token."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from raylog.actors.local_ray import OtherTokenError, join_or_start_ray, join_ray, use_token_file
from raylog.core.errors import ConfigError


@pytest.mark.parametrize("kind", [Exception, RuntimeError, OSError])
def test_a_local_ray_that_does_not_start_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """On an overloaded machine `ray.init` raises Exception itself."""

    def init(**_options: object) -> None:
        raise kind("The current node timed out during startup.\nMore lines.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, is_initialized=lambda: False))
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_gcs_rpc_server_reconnect_timeout_s"):
        monkeypatch.setenv(name, "")  # restored afterwards, though it was not set
    with pytest.raises(ConfigError) as raised:
        join_or_start_ray(None)
    assert raised.value.message == "Ray cannot be started on this machine: The current node timed out during startup."


@pytest.mark.parametrize(
    ("address", "variables", "has_file", "mode"),
    [
        (None, {}, False, "token"),  # Ray creates the file
        ("local", {"RAY_ADDRESS": "10.0.0.1:6379"}, False, "token"),
        ("10.0.0.1:6379", {}, False, None),
        (None, {"RAY_ADDRESS": "10.0.0.1:6379"}, False, None),  # as in a job
        (None, {"RAY_ADDRESS": "10.0.0.1:6379"}, True, "token"),
        ("10.0.0.1:6379", {"RAY_AUTH_TOKEN_PATH": "/run/token"}, False, "token"),
        (None, {"RAY_AUTH_TOKEN": "secret"}, False, None),
        (None, {"RAY_AUTH_MODE": "disabled"}, True, "disabled"),
    ],
)
def test_a_token_is_used_by_a_local_ray_and_sent_to_another_one_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    address: str | None,
    variables: dict[str, str],
    has_file: bool,
    mode: str | None,
) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), **variables})
    if has_file:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    use_token_file(address)
    assert os.environ.get("RAY_AUTH_MODE") == mode


@pytest.mark.parametrize(
    ("auth_mode", "has_file", "mode"), [(None, True, "token"), (None, False, None), ("x", True, "x")]
)
def test_a_ray_that_is_joined_is_sent_the_token_of_this_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, auth_mode: str | None, has_file: bool, mode: str | None
) -> None:
    """As by `raylog start --address`: `raylog status --address` finds the cluster that it has started."""
    read_again = SimpleNamespace(Config=SimpleNamespace(initialize=lambda _: None))
    ray = SimpleNamespace(init=lambda **_: None, _raylet=read_again)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray._raylet", read_again)
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    if has_file:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    join_ray("ray.example:6379", auth_mode=auth_mode)
    assert os.environ.get("RAY_AUTH_MODE") == mode


def test_a_ray_with_another_token_is_told_from_one_that_does_not_respond(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`ray.init` would try for 20 s, and report only that it cannot connect."""

    class AuthenticationError(Exception):
        """Ray's."""

    def refuse(address: str) -> None:
        raise AuthenticationError("InvalidAuthToken")

    inits: list[dict[str, object]] = []
    services = SimpleNamespace(canonicalize_bootstrap_address_or_die=lambda address: address)
    modules = {
        "ray": SimpleNamespace(init=lambda **options: inits.append(options)),
        "ray._private": SimpleNamespace(services=services),
        "ray._raylet": SimpleNamespace(GcsClient=refuse),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": "wrong"})
    with pytest.raises(OtherTokenError, match="requires another token than that of this process; set RAY_AUTH_TOKEN"):
        join_ray("ray.example:6379")
    assert not inits
    join_ray("ray://ray.example:10001")  # a Ray Client, which has no GCS at its address
    assert len(inits) == 1
