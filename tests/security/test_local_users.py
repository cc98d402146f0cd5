"""Whom a user of the operating system stands for."""

from __future__ import annotations

import pytest

from raylog.config.table import broker_configs
from raylog.core.errors import ConfigError
from raylog.security.local_users import LocalUsers
from raylog.security.principal import Principal


def test_the_first_entry_that_names_the_user_counts() -> None:
    users = LocalUsers(
        (
            "4711:alice",
            "root:operator",
            "0:other",
            "*:guest",
            "*:another",
        )
    )
    assert users.principal_of(4711) == Principal("User", "alice")
    assert users.principal_of(0) == Principal("User", "operator")
    assert users.principal_of(1) == Principal("User", "guest")


def test_without_an_entry_there_is_no_principal() -> None:
    assert LocalUsers(("4711:alice",)).principal_of(4712) is None
    assert LocalUsers(()).principal_of(0) is None


def test_an_unknown_user_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"local\.principal\.mapping: this machine has no user 'no-such-user'"):
        LocalUsers(("no-such-user:alice",))


@pytest.mark.parametrize("text", ["alice", ":alice", "root:", "root:a:b", "root:" + "x" * 201])
def test_a_malformed_entry_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"local\.principal\.mapping=.*: must be user:name"):
        broker_configs({"local.principal.mapping": text})
