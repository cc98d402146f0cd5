"""Encryption of passwords in the metadata log, under a key derived from the cluster's secret (AES-256-GCM).

    version (1 byte) | nonce (12 bytes) | ciphertext | tag (16 bytes)

The version names cipher and derivation, so that both can change later. The broker and the name of the configuration key
are authenticated with the password: a value that was copied to another place cannot be decrypted there.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from raylog.core.ids import BrokerId
from raylog.core.password import Password

VERSION: Final = 1
NONCE_BYTES: Final = 12


class UnreadablePassword(Exception):
    """It was encrypted with another secret or by a later version, or it was changed."""


class PasswordCipher:
    """Encrypts passwords for the nodes of one cluster."""

    def __init__(self, cluster_secret: bytes, new_nonce: Callable[[int], bytes]) -> None:
        self._aead = AESGCM(hmac.digest(cluster_secret, b"passwords in the metadata log", "sha256"))
        self._new_nonce = new_nonce

    def encrypt(self, password: Password, *, broker_id: BrokerId, key: str) -> bytes:
        """Each time with a new nonce: equal passwords cannot be recognized."""
        nonce = self._new_nonce(NONCE_BYTES)
        return bytes([VERSION]) + nonce + self._aead.encrypt(nonce, password.reveal().encode(), _place(broker_id, key))

    def decrypt(self, encrypted: bytes, *, broker_id: BrokerId, key: str) -> Password:
        """Raises UnreadablePassword."""
        if encrypted[:1] != bytes([VERSION]):
            raise UnreadablePassword("it was encrypted by a later version of raylog")
        nonce, ciphertext = encrypted[1 : 1 + NONCE_BYTES], encrypted[1 + NONCE_BYTES :]
        try:
            return Password(self._aead.decrypt(nonce, ciphertext, _place(broker_id, key)).decode())
        except (InvalidTag, ValueError):
            raise UnreadablePassword("it was encrypted with another cluster secret, or it was changed") from None


def _place(broker_id: BrokerId, key: str) -> bytes:
    return f"{VERSION} {broker_id} {key}".encode()
