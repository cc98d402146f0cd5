"""(shell) An issuer of tokens for tests: its keys, tokens that it signs, and an HTTP server on 127.0.0.1."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "kafka"


@dataclass(frozen=True, slots=True)
class SigningKey:
    private: Any
    algorithm: str
    key_id: str

    def public_jwk(self) -> dict[str, Any]:
        kind = RSAAlgorithm if self.algorithm[1] == "S" and self.algorithm[0] in "RP" else ECAlgorithm
        described: Any = (OKPAlgorithm if self.algorithm == "EdDSA" else kind).to_jwk(
            self.private.public_key(), as_dict=True
        )
        return {**described, "kid": self.key_id, "use": "sig"}


@cache
def signing_key(algorithm: str = "RS256", key_id: str = "one") -> SigningKey:
    """The same key for the same arguments, since RSA keys take long to make."""
    private: Any
    if algorithm == "EdDSA":
        private = ed25519.Ed25519PrivateKey.generate()
    elif algorithm.startswith("ES"):
        curves = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
        private = ec.generate_private_key(curves[algorithm])
    else:
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return SigningKey(private, algorithm, key_id)


def jwks(*keys: SigningKey) -> bytes:
    return json.dumps({"keys": [key.public_jwk() for key in keys]}).encode()


def claims(now_s: float, **changed: Any) -> dict[str, Any]:
    """Valid ones, with changes; None leaves a claim out."""
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": int(now_s), "exp": int(now_s) + 60, **changed}
    return {name: value for name, value in given.items() if value is not None}


def signed(payload: dict[str, Any], key: SigningKey | None = None, **headers: Any) -> str:
    """The payload may be invalid. A header of None is left out."""
    key = key or signing_key()
    given = {name: value for name, value in {"kid": key.key_id, **headers}.items() if value is not None}
    return jwt.PyJWS().encode(json.dumps(payload).encode(), key.private, algorithm=key.algorithm, headers=given)


@dataclass
class Endpoint:
    """What the server answers, which tests change while it runs."""

    url: str = ""
    answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: None
    requests: list[tuple[str, bytes, str]] = field(default_factory=list)
    """Path, body and authorization of each request."""
    stopped: threading.Event = field(default_factory=threading.Event)

    def serve(self, document: bytes, *, status: int = 200) -> None:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(document)))
            handler.end_headers()
            handler.wfile.write(document)

        self.answer = answer

    def hang(self) -> None:
        """Answer nothing until the server stops."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            self.stopped.wait()

        self.answer = answer


@contextmanager
def http_endpoint(certificate: Path | None = None) -> Iterator[Endpoint]:
    """By https: with a certificate, a PEM file that contains its key."""
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            endpoint.requests.append((self.path, body, self.headers.get("Authorization") or ""))
            try:
                endpoint.answer(self)
            except OSError:
                pass  # the client has closed the connection

        do_POST = do_GET  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        endpoint.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_address[1]}/keys"
        try:
            yield endpoint
        finally:
            endpoint.stopped.set()
            server.shutdown()
            thread.join()
