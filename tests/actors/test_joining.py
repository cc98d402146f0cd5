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


def test_without_any_ray_the_name_is_reported(joined: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: str) -> None:
        raise ConfigError(f"address={address!r}: cannot join this Ray")

    monkeypatch.setattr(cluster, "join_ray", fail)
    with pytest.raises(ConfigError) as refused:
        cluster._join_for("other", None)
    assert refused.value.message == (
        "name='other': no `raylog start` of this user runs this cluster, and no other Ray was found"
    )


def test_a_ray_that_requires_another_token_is_not_reported_as_none(
    joined: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str) -> None:
        raise OtherTokenError(f"address={address!r}: it requires another token")

    monkeypatch.setattr(cluster, "join_ray", refuse)
    with pytest.raises(ConfigError) as refused:
        cluster._join_for("other", None)
    assert refused.value.message == (
        "name='other': no `raylog start` of this user runs this cluster, and address='auto': it requires another token"
    )
