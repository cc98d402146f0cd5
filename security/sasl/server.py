"""The server's end of authentication by SASL on one connection: which mechanism, how far, as whom, and for how long.

    no identity --choose--> exchange --respond--> identity --choose--> exchange again (KIP-368)

A session ends when the credential does, and after connections.max.reauth.ms. Before that the client may repeat the
exchange on the same connection, with the same mechanism and as the same principal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.security.principal import Principal
from raylog.security.sasl.mechanism import Check, Identity, SaslServer, authentication_failed

if TYPE_CHECKING:
    from raylog.core.clock import Now

REAUTHENTICATION_MS_MIN: Final = 1000
"""A client repeats the exchange no earlier than this, as in Kafka."""


@dataclass(frozen=True, slots=True)
class OfferedMechanism:
    """One mechanism of a listener."""

    new_exchange: Callable[[], SaslServer]
    session_ms_max: int = 0
    """connections.max.reauth.ms; 0: a session lasts as long as the credential."""


BuildPrincipal = Callable[[str, str, bytes | None], Principal]
"""The principal of a user: of the mechanism, the user's name and the certificate. May block. Raises KafkaError."""


class SaslAuthenticator:
    """An `Authenticator`. After an error the connection must be closed."""

    def __init__(self, offered: Mapping[str, OfferedMechanism], build: BuildPrincipal | None = None) -> None:
        """Without `build` the principal is the one that the exchange has authenticated."""
        self._offered = offered
        self._build = build
        self.certificate: bytes | None = None
        self.mechanisms = tuple(offered)
        self.identity: Identity | None = None
        self.session_ends_ms: int | None = None
        """When the session ends (monotonic); None: it does not."""
        self.session_lifetime_ms = 0
        """The same as SaslAuthenticate returns it: counted from the end of the exchange; 0: it does not end."""
        self._mechanism = ""
        self._exchange: SaslServer | None = None
        self._authenticated_ms = 0

    @property
    def principal(self) -> Principal | None:
        return self.identity.principal if self.identity is not None else None

    @property
    def in_exchange(self) -> bool:
        return self._exchange is not None

    def choose(self, mechanism: str, now: Now) -> None:
        """Begin an exchange. Raises KafkaError: UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE."""
        if self._exchange is not None:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "another SASL exchange is in progress")
        if self.identity is not None:
            if now.monotonic_ms - self._authenticated_ms < REAUTHENTICATION_MS_MIN:
                raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "the connection has just been authenticated")
            if mechanism != self._mechanism:
                message = f"the connection was authenticated by {self._mechanism}, and must be so again"
                raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message)
        if mechanism not in self._offered:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        self._mechanism = mechanism
        self._exchange = self._offered[mechanism].new_exchange()

    def respond(self, message: bytes, now: Now) -> bytes | Check | None:
        """The next message to the client, or the check that leads to it; `Check.then` may raise as well.

        None: there is no further message.

        Raises KafkaError: ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED.
        """
        exchange = self._exchange
        if exchange is None:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
        answer = exchange.respond(message)
        if isinstance(answer, Check):
            return Check(answer.run, partial(self._after_check, exchange, answer, now))
        return self._after(exchange, answer, now)

    def session_expired(self, now: Now) -> bool:
        return self.session_ends_ms is not None and now.monotonic_ms >= self.session_ends_ms

    def _after_check(self, exchange: SaslServer, check: Check, now: Now, result: Any) -> bytes | Check | None:
        answer = check.then(result)
        assert not isinstance(answer, Check)
        return self._after(exchange, answer, now)

    def _after(self, exchange: SaslServer, answer: bytes | None, now: Now) -> bytes | Check | None:
        identity = exchange.identity
        if identity is None:
            return answer
        if self._build is not None and not identity.by_token:  # a token stands for the principal that has created it
            build = partial(self._build, self._mechanism, identity.principal.name, self.certificate)
            return Check(build, partial(self._built, identity, answer, now))
        self._complete(identity, now)
        return answer

    def _built(self, identity: Identity, answer: bytes | None, now: Now, principal: Principal) -> bytes | None:
        self._complete(identity._replace(principal=principal), now)
        return answer

    def _complete(self, identity: Identity, now: Now) -> None:
        if self.identity is not None and identity.principal != self.identity.principal:
            raise authentication_failed(
                f"Cannot change principals during re-authentication from {self.identity.principal}"
                f" to {identity.principal}"
            )
        lifetimes = [] if identity.expires_ms is None else [max(0, identity.expires_ms - now.wall_ms)]
        if session_ms_max := self._offered[self._mechanism].session_ms_max:
            lifetimes.append(session_ms_max)
        self.identity = identity
        self.session_lifetime_ms = min(lifetimes, default=0)
        self.session_ends_ms = now.monotonic_ms + self.session_lifetime_ms if lifetimes else None
        self._authenticated_ms = now.monotonic_ms
        self._exchange = None
