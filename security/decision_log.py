"""The log of the authorizer's decisions, as Kafka's kafka.authorizer.logger: denials at INFO, permissions at DEBUG.

    INFO raylog.authorizer operation denied principal=User:mallory host=10.0.0.9 operation=READ resource=TOPIC:salaries
        reason="no entry allows the operation"

A client cannot fill the log with denials: at most CLIENT_DENIALS_MAX are logged for each client in a period, and
DENIALS_MAX for all; the others are counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from raylog.security.acl import Operation, Resource, ResourceType
    from raylog.security.authorizer import Verdict
    from raylog.security.principal import Client

log = logging.getLogger("raylog.authorizer")
PERIOD_MS: Final = 1000
CLIENT_DENIALS_MAX: Final = 10
"""Denials of one client, a principal at a host, that are logged in a period."""
DENIALS_MAX: Final = 50
"""Denials of all clients that are logged in a period."""
NAME_CHARACTERS_MAX: Final = 300
"""Longer names are shortened: those in a request may be as long as the request."""


class DecisionLog:
    """`begin_period` must be called every PERIOD_MS."""

    logs_permissions: bool
    """Whether permissions are logged, so that the caller can leave out `allowed`."""

    def __init__(self) -> None:
        self._logged: Counter[Client] = Counter()
        self._suppressed: Counter[Client] = Counter()
        """Denials that were not logged, of clients in `_logged`."""
        self._suppressed_others = 0
        self._read_level()

    def allowed(
        self, client: Client, operation: Operation, resource: Resource | ResourceType, verdict: Verdict
    ) -> None:
        log.debug("operation allowed", extra=_fields(client, operation, resource, verdict))

    def denied(self, client: Client, operation: Operation, resource: Resource, verdict: Verdict) -> None:
        if not self._logs_denials:
            return
        if self._logged[client] >= CLIENT_DENIALS_MAX:
            self._suppressed[client] += 1
        elif self._logged.total() < DENIALS_MAX:
            self._logged[client] += 1
            log.info("operation denied", extra=_fields(client, operation, resource, verdict))
        else:
            self._suppressed_others += 1

    def begin_period(self) -> None:
        """Log how many denials were suppressed since the last call, and log new ones again."""
        for client, count in self._suppressed.items():
            log.info("denials suppressed", extra={**_client_fields(client), "count": count})
        if self._suppressed_others:
            log.info("denials of other clients suppressed", extra={"count": self._suppressed_others})
        self._logged.clear()
        self._suppressed.clear()
        self._suppressed_others = 0
        self._read_level()

    def _read_level(self) -> None:
        """The levels are read once per period: reading them takes as long as a cached verdict."""
        self.logs_permissions = log.isEnabledFor(logging.DEBUG)
        self._logs_denials = log.isEnabledFor(logging.INFO)


def _fields(
    client: Client, operation: Operation, resource: Resource | ResourceType, verdict: Verdict
) -> dict[str, object]:
    kind, name = resource if isinstance(resource, tuple) else (resource, "any")
    fields: dict[str, object] = {
        **_client_fields(client),
        "operation": operation.name,
        "resource": f"{kind.name}:{_shortened(name)}",
        "reason": verdict.reason.value,
    }
    if verdict.entry is not None:
        fields["entry"] = _shortened(str(verdict.entry))
    return fields


def _client_fields(client: Client) -> dict[str, object]:
    return {"principal": _shortened(str(client.principal)), "host": client.host}


def _shortened(text: str) -> str:
    return text if len(text) <= NAME_CHARACTERS_MAX else f"{text[:NAME_CHARACTERS_MAX]}..."
