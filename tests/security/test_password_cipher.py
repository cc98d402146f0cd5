"""Passwords are encrypted so that only a node with the cluster's secret can read them, each at its own place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.core.ids import NO_BROKER_ID, BrokerId
from raylog.core.password import Password
from raylog.security.password_cipher import PasswordCipher, UnreadablePassword

KEY = "listener.name.ssl.ssl.keystore.password"
ZERO = BrokerId(0)


def cipher(secret: bytes = b"secret", seed: int = 1) -> PasswordCipher:
    return PasswordCipher(secret, random.Random(seed).randbytes)


def encrypted(text: str = "hunter2") -> bytes:
    return cipher().encrypt(Password(text), broker_id=ZERO, key=KEY)


@given(st.text(), st.integers(-1, 9), st.text())
def test_a_password_is_decrypted_by_another_node_of_the_cluster(text: str, broker: int, key: str) -> None:
    made = cipher().encrypt(Password(text), broker_id=BrokerId(broker), key=key)
    assert cipher(seed=2).decrypt(made, broker_id=BrokerId(broker), key=key) == Password(text)


def test_it_does_not_contain_the_password_and_differs_each_time() -> None:
    one = cipher()
    first, second = (one.encrypt(Password("hunter2"), broker_id=ZERO, key=KEY) for _ in range(2))
    assert b"hunter2" not in first + second
    assert first[13:] != second[13:]


def test_another_secret_cannot_decrypt_it() -> None:
    with pytest.raises(UnreadablePassword, match="another cluster secret"):
        cipher(b"other").decrypt(encrypted(), broker_id=ZERO, key=KEY)


@pytest.mark.parametrize(
    ("broker_id", "key"), [(BrokerId(1), KEY), (NO_BROKER_ID, KEY), (ZERO, "listener.name.ssl.ssl.key.password")]
)
def test_it_cannot_be_decrypted_at_another_place(broker_id: BrokerId, key: str) -> None:
    with pytest.raises(UnreadablePassword):
        cipher().decrypt(encrypted(), broker_id=broker_id, key=key)


def test_a_changed_or_truncated_one_is_refused() -> None:
    good = encrypted()
    for at in range(len(good)):
        with pytest.raises(UnreadablePassword):
            cipher().decrypt(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], broker_id=ZERO, key=KEY)
        with pytest.raises(UnreadablePassword):
            cipher().decrypt(good[:at], broker_id=ZERO, key=KEY)


def test_one_of_a_later_version_is_named_as_such() -> None:
    with pytest.raises(UnreadablePassword, match="a later version of raylog"):
        cipher().decrypt(b"\2" + encrypted()[1:], broker_id=ZERO, key=KEY)
