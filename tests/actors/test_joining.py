"""Which Ray a program joins to find a cluster, and what it reports if there is none."""

from __future__ import annotations

import pytest

from raylog.actors import cluster
from raylog.actors.announcement import Announced
from raylog.actors.local_ray import OtherTokenError
from raylog.core.errors import ConfigError


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of the Rays that were joined."""
    addresses: list[str] = []
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster, "join_ray", lambda address, **_: addresses.append(address))
    monkeypatch.setattr(
        cluster, "find_announced", lambda name: Announced("announced", "token") if name == "a" else None
    )
    return addresses


def test_the_given_address_comes_first_then_the_environment_then_the_announcement(
    joined: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster._join_for("a", None)
    cluster._join_for("unannounced", None)
    monkeypatch.setenv("RAY_ADDRESS", "environment")
    cluster._join_for("a", None)
    cluster._join_for("a", "given")
    assert joined == ["announced", "auto", "environment", "given"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConfigError("address='auto': cannot join this Ray"), "no other Ray was found"),
        (OtherTokenError("address='auto': it requires another token"), "address='auto': it requires another token"),
    ],
)
def test_without_a_ray_to_join_the_name_and_the_reason_are_reported(
    joined: list[str], monkeypatch: pytest.MonkeyPatch, error: ConfigError, reason: str
) -> None:
    def fail(address: str) -> None:
        raise error

    monkeypatch.setattr(cluster, "join_ray", fail)
    with pytest.raises(ConfigError) as refused:
        cluster._join_for("other", None)
    assert refused.value.message == f"name='other': no `raylog start` of this user runs this cluster, and {reason}"
