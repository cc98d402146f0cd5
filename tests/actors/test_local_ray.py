"""A Ray that does not start is a ConfigError, whatever it raises."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from raylog.actors.local_ray import join_or_start_ray
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
