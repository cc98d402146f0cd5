"""Mutual authentication with the cluster's secret on the inter-broker listener: a SASL mechanism, sans-IO, both ends.

Each side proves that it has the secret without sending it. The proof covers a nonce of each side, so that recorded
messages cannot be replayed, and a peer without the secret learns nothing about it.

    client -> server   client nonce (32 bytes)
    server -> client   server nonce (32 bytes) + HMAC(secret, "server" + both nonces)
    client -> server   HMAC(secret, "client" + both nonces)
    server -> client   empty
"""

from __future__ import annotations

import hmac

from raylog.core.password import Password
from raylog.security.principal import CLUSTER_PRINCIPAL
from raylog.security.sasl.mechanism import Identity, authentication_failed

MECHANISM = "RAYLOG-CLUSTER"
NONCE_BYTES = 32
_MAC_BYTES = 32


def token_secret(secret: bytes) -> Password:
    """The key for delegation tokens that all nodes have without being given one. It reveals nothing of the secret."""
    return Password(hmac.digest(secret, b"delegation tokens", "sha512").hex())


class SecretVerifier:
    """The server's end: its client is the cluster after a valid proof."""

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        assert len(nonce) == NONCE_BYTES
        self._secret = secret
        self._nonce = nonce
        self._client_nonce: bytes | None = None
        self.identity: Identity | None = None

    def respond(self, message: bytes) -> bytes:
        """The next message to the client. Raises KafkaError(SASL_AUTHENTICATION_FAILED); then close the connection."""
        if self._client_nonce is None:
            if len(message) != NONCE_BYTES:
                raise authentication_failed("the client nonce has the wrong length")
            self._client_nonce = message
            return self._nonce + _proof(self._secret, b"server", message, self._nonce)
        if not hmac.compare_digest(message, _proof(self._secret, b"client", self._client_nonce, self._nonce)):
            raise authentication_failed("the peer does not have the cluster's secret")
        self.identity = Identity(CLUSTER_PRINCIPAL)
        return b""


class SecretProver:
    """The client's end."""

    mechanism = MECHANISM

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        assert len(nonce) == NONCE_BYTES
        self._secret = secret
        self._proved = False
        self.first_message = nonce

    def respond(self, message: bytes) -> bytes | None:
        """The proof, then None. Raises KafkaError(SASL_AUTHENTICATION_FAILED) if the server lacks the secret."""
        if self._proved:
            return None
        server_nonce, server_proof = message[:NONCE_BYTES], message[NONCE_BYTES:]
        expected = _proof(self._secret, b"server", self.first_message, server_nonce)
        if len(message) != NONCE_BYTES + _MAC_BYTES or not hmac.compare_digest(server_proof, expected):
            raise authentication_failed("the server does not have the cluster's secret")
        self._proved = True
        return _proof(self._secret, b"client", self.first_message, server_nonce)


def _proof(secret: bytes, role: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    return hmac.digest(secret, role + client_nonce + server_nonce, "sha256")
