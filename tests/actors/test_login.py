"""The administrator of a secure cluster can log in with the password of client.properties, whatever starts failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from raylog.actors import placement
from raylog.actors.data_dir import make_data_dir
from raylog.actors.given_config import GivenConfig
from raylog.actors.login import AdministratorLogin, prepare_login


@pytest.fixture(autouse=True)
def _one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "alive_hosts", lambda: {"a": 1})


def prepare(data_dir: Path) -> AdministratorLogin:
    files = make_data_dir(str(data_dir), name="secure", brokers=1, controllers=1)
    _, login = prepare_login(files, GivenConfig(secure=True))
    assert login is not None
    return login


def test_a_password_is_new_until_a_start_has_completed(tmp_path: Path) -> None:
    first = prepare(tmp_path)
    again = prepare(tmp_path)  # the first start was interrupted before the cluster had the password
    assert (first.is_new, again.is_new) == (True, True)
    assert again.password.reveal() == first.password.reveal()
    again.write("localhost:9092")
    completed = prepare(tmp_path)
    assert not completed.is_new
    assert completed.password.reveal() == first.password.reveal()
