"""SCRAM-SHA-256 and SCRAM-SHA-512: both ends prove that they know the password, and none of them sends it.

    client -> server   n,,n=<user>,r=<client nonce>
    server -> client   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client -> server   c=biws,r=<both nonces>,p=<proof>
    server -> client   v=<signature>

The server has `ScramCredential`, from which the password cannot be computed but by trying. For an unknown user it goes
on with a salt that looks like any other, so that a client does not learn which users exist.

Source: RFC 5802, RFC 7677. As in Kafka, names and passwords are UTF-8 without SASLprep, there is no channel binding,
and the extension `tokenauth=true` says that user and password are those of a delegation token (KIP-48).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from raylog.core.errors import KafkaError
from raylog.core.password import Password
from raylog.security.sasl.mechanism import Check, Identity, authentication_failed

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""Kafka's limit: more would let one client keep the others busy."""
NONCE_BYTES: Final = 24
SALT_BYTES: Final = 20
TOKEN_EXTENSION: Final = "tokenauth"
_WITHOUT_BINDING: Final = ("n", "y")
"""`y`: the client could bind the exchange to the TLS channel, and takes it that the server cannot."""
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,512}")
_NAME: Final = re.compile(r"(?:[^=,\0]|=2C|=3D)+")


class ScramMechanism(Enum):
    """The value is the number in requests (KIP-554)."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def digest(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def digest_bytes(self) -> int:
        return 32 if self is ScramMechanism.SHA_256 else 64

    @property
    def sasl_name(self) -> str:
        return "SCRAM-SHA-256" if self is ScramMechanism.SHA_256 else "SCRAM-SHA-512"

    @classmethod
    def named(cls, sasl_name: str) -> ScramMechanism:
        """Raises KeyError."""
        return _BY_NAME[sasl_name]


_BY_NAME: Final[Mapping[str, ScramMechanism]] = {each.sasl_name: each for each in ScramMechanism}


class ScramCredential(NamedTuple):
    """What a server keeps of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's SaltedPassword: some milliseconds of work on purpose."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential that belongs to a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(mechanism.digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.digest),
        iterations=iterations,
    )


class ScramUser(NamedTuple):
    """A name that can log in by SCRAM, and whom it stands for."""

    credential: ScramCredential
    identity: Identity


class PendingUser(NamedTuple):
    """A user whose credential must be computed first, which takes some milliseconds."""

    run: Callable[[], ScramCredential]
    """Is called off the loop."""
    then: Callable[[ScramCredential], ScramUser]


class ScramServer:
    """One exchange."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str, bool], ScramUser | PendingUser | None],
        *,
        nonce: bytes,
        decoy_key: bytes,
    ) -> None:
        """`find(name, is_token)` returns the credential of a user or of a delegation token.

        `decoy_key` gives unknown users a salt: the same for the same name, and unknown to clients.
        """
        self._mechanism = mechanism
        self._find = find
        self._nonce = b64encode(nonce).decode()
        self._decoy_key = decoy_key
        self._user: ScramUser | None = None
        self._header = self._first = ""
        """The client's first message, and the server's, as the proof covers them; empty before they are exchanged."""
        self._nonces = ""
        self._credential: ScramCredential
        self.identity: Identity | None = None

    def respond(self, message: bytes) -> bytes | Check:
        text = _text(message)
        return self._begin(text) if not self._first else self._verify(text)

    def _begin(self, text: str) -> bytes | Check:
        binding, _, rest = text.partition(",")
        authorization, _, bare = rest.partition(",")
        if binding not in _WITHOUT_BINDING:
            raise _malformed("channel binding is not supported")
        parts = bare.split(",")
        if len(parts) < 2 or not parts[0].startswith("n=") or not parts[1].startswith("r="):
            raise _malformed("expected n=<user>,r=<nonce>")
        name, nonce = _name(parts[0][2:]), parts[1][2:]
        if not _NONCE.fullmatch(nonce):
            raise _malformed("the nonce is invalid")
        if authorization and (not authorization.startswith("a=") or _name(authorization[2:]) != name):
            raise authentication_failed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        extensions = dict(part.partition("=")[::2] for part in parts[2:])
        self._nonces = nonce + self._nonce
        self._header = f"{binding},{authorization},"
        user = self._find(name, extensions.get(TOKEN_EXTENSION, "").lower() == "true")
        if isinstance(user, PendingUser):
            return Check(user.run, lambda credential: self._challenge(bare, name, user.then(credential)))
        return self._challenge(bare, name, user)

    def _challenge(self, bare: str, name: str, user: ScramUser | None) -> bytes:
        self._user = user
        self._credential = user.credential if user else self._decoy(name)
        salt = b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonces},s={salt},i={self._credential.iterations}"
        self._first = f"{bare},{challenge}"
        return challenge.encode()

    def _verify(self, text: str) -> bytes:
        signed, separator, proof_text = text.rpartition(",p=")
        if not separator:
            raise _malformed("expected a proof")
        parts = signed.split(",")
        if len(parts) < 2 or parts[0] != f"c={b64encode(self._header.encode()).decode()}":
            raise _malformed("the channel binding is not that of the first message")
        # librdkafka before 2.6.1 repeats its own nonce in front of both, and Kafka accepts that: the proof covers it
        if not parts[1].startswith("r=") or not parts[1].endswith(self._nonces):
            raise _malformed("the nonce is not that of this exchange")
        covered = f"{self._first},{signed}".encode()
        digest, credential = self._mechanism.digest, self._credential
        signature = hmac.digest(credential.stored_key, covered, digest)
        proof = _decoded(proof_text)
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        matches = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        if self._user is None or not matches or len(proof) != len(signature):
            raise invalid_credentials(self._mechanism)
        self.identity = self._user.identity
        return b"v=" + b64encode(hmac.digest(credential.server_key, covered, digest))

    def _decoy(self, name: str) -> ScramCredential:
        """For a user who does not exist: no password leads to its keys."""
        noise = hmac.digest(self._decoy_key, name.encode(), self._mechanism.digest)
        keys = hmac.digest(self._decoy_key, noise, self._mechanism.digest)
        return ScramCredential(noise[:SALT_BYTES], keys, keys, ITERATIONS_MIN)


class ScramClient:
    """One exchange."""

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: Password, *, nonce: bytes, is_token: bool = False
    ) -> None:
        self.mechanism = mechanism.sasl_name
        self._mechanism = mechanism
        self._password = password
        self._nonce = b64encode(nonce).decode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}" + (f",{TOKEN_EXTENSION}=true" if is_token else "")
        self.first_message = f"n,,{self._bare}".encode()
        self._expected: bytes | None = None
        """The server's signature."""

    def respond(self, message: bytes) -> bytes | None:
        text = _text(message)
        if self._expected is None:
            return self._prove(text)
        if not text.startswith("v="):
            raise authentication_failed(f"the server refused the proof: {text[:100]!r}")
        if not hmac.compare_digest(_decoded(text[2:].partition(",")[0]), self._expected):
            raise authentication_failed("the server does not know the password")
        return None

    def _prove(self, text: str) -> bytes:
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        nonces, salt, iterations = parts.get("r", ""), _decoded(parts.get("s", "")), parts.get("i", "")
        if not nonces.startswith(self._nonce) or nonces == self._nonce or not salt:
            raise _malformed("the server's nonce or salt is invalid")
        if not re.fullmatch(r"[0-9]{1,6}", iterations) or int(iterations) < ITERATIONS_MIN:
            raise _malformed(
                f"the server asks for {iterations[:20]!r} iterations, less than {ITERATIONS_MIN} or too many"
            )
        digest = self._mechanism.digest
        salted = salted_password(self._mechanism, self._password.reveal(), salt, int(iterations))
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        signed = f"c=biws,r={nonces}"
        covered = f"{self._bare},{text},{signed}".encode()
        signature = hmac.digest(stored_key, covered, digest)
        proof = b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True)))
        self._expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), covered, digest)
        return f"{signed},p=".encode() + proof


def invalid_credentials(mechanism: ScramMechanism) -> KafkaError:
    """The same for an unknown user and a wrong password; Kafka's text."""
    return authentication_failed(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism"
        f" {mechanism.sasl_name}"
    )


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise _malformed("the user name is invalid")
    return text.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise _malformed("it is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise _malformed("a value is not base64") from None


def _malformed(reason: str) -> KafkaError:
    return authentication_failed(f"Authentication failed: invalid SCRAM message: {reason}")
