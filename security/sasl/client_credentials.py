"""(shell) Tokens for clients of OAUTHBEARER, by the client credentials grant. Source: RFC 6749, section 4.4."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from raylog.core.errors import KafkaError
from raylog.core.password import Password
from raylog.security.bounded_http import fetch
from raylog.security.sasl.mechanism import authentication_failed
from raylog.security.tls import client_context

if TYPE_CHECKING:
    from raylog.config.tls import TlsSettings

_REFRESH_FACTOR: Final = 0.8
"""A token is used for this part of its lifetime; Kafka's sasl.login.refresh.window.factor."""


class ClientCredentials:
    """Gets tokens by the client credentials grant of OAuth.

    Call it in a thread that may block; the same token is returned until it is nearly expired, and as long as it is
    valid if no other one can be had.
    """

    def __init__(
        self, url: str, client_id: str, client_secret: Password, *, scope: str = "", tls: TlsSettings | None = None
    ) -> None:
        """`url` is sasl.oauthbearer.token.endpoint.url: an https: or http: URL.

        Without `tls` the authorities of the system are trusted. Raises ConfigError if its stores cannot be read.
        """
        self._tls = None if tls is None else client_context(tls, check_host_name=True)
        self._url = url
        self._id = client_id
        self._secret = client_secret
        self._scope = scope
        self._lock = threading.Lock()
        self._token: Password | None = None
        self._use_until = self._valid_until = 0.0

    def __call__(self) -> Password:
        """Raises KafkaError(SASL_AUTHENTICATION_FAILED)."""
        with self._lock:
            began = time.monotonic()
            if self._token is not None and began < self._use_until:
                return self._token
            try:
                self._token, lifetime_seconds = self._requested()
            except KafkaError:
                if self._token is None or began >= self._valid_until:
                    raise
                return self._token
            self._use_until = began + _REFRESH_FACTOR * lifetime_seconds
            self._valid_until = began + lifetime_seconds
            return self._token

    def _requested(self) -> tuple[Password, float]:
        """A token, and its lifetime in seconds."""
        credentials = b64encode(f"{self._id}:{self._secret.reveal()}".encode()).decode()
        form = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/x-www-form-urlencoded"}
        try:
            answer = json.loads(fetch(self._url, form=urlencode(form).encode(), headers=headers, tls=self._tls))
            token, lifetime_seconds = answer["access_token"], float(answer.get("expires_in", 0))
        except OSError as error:
            raise _no_token(str(error)) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise _no_token(f"{self._url}: the answer contains no access_token") from None
        if not isinstance(token, str):
            raise _no_token(f"{self._url}: the access_token is not a text")
        return Password(token), lifetime_seconds


def _no_token(reason: str) -> KafkaError:
    return authentication_failed(f"no token: {reason}")
