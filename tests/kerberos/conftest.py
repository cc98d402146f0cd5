"""One realm for all of tests/kerberos, in whose environment the tests run; skipped with the reason if there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kerberos_realm import SERVICE, Realm, kerberos_realm, why_not


@pytest.fixture(scope="session")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with kerberos_realm(tmp_path_factory.mktemp("realm")) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="session")
def service_keytab(realm: Realm) -> Path:
    """That of the broker."""
    return realm.keytab(SERVICE, name="kafka")


@pytest.fixture(scope="session")
def alice_keytab(realm: Realm) -> Path:
    return realm.keytab("alice", name="alice")
