"""What a node asks before it serves a request: whether the client of the request has the permission.

Without an authorizer every operation is permitted.
"""

from __future__ import annotations

from typing import Final, Protocol

from raylog.core.errors import KafkaError
from raylog.security.acl import CLUSTER, OPERATIONS, Operation, Resource, ResourceType
from raylog.security.authorizer import REFUSALS, Authorizer
from raylog.security.decision_log import DecisionLog
from raylog.security.principal import Client

NOT_ASKED: Final = -(1 << 31)
"""Kafka's value for authorized operations that were not requested."""


class Requester(Protocol):
    """A request."""

    @property
    def client(self) -> Client:
        """The client whose rights are checked."""


class Authorization:
    """The authorizer of a node, where it has one, and the log of its decisions.

    As in Kafka, a denial is not logged where it refuses nothing: where a response omits resources that the client did
    not name, or where another permission is sufficient. Such callers set `logs_denial` to False.
    """

    def __init__(self, authorizer: Authorizer | None) -> None:
        self.authorizer = authorizer
        self.decisions = DecisionLog()

    def may(self, request: Requester, operation: Operation, resource: Resource, *, logs_denial: bool = True) -> bool:
        return self.authorizer is None or self.client_may(request.client, operation, resource, logs_denial=logs_denial)

    def client_may(self, client: Client, operation: Operation, resource: Resource, *, logs_denial: bool = True) -> bool:
        if self.authorizer is None:
            return True
        verdict = self.authorizer.decide(client.principal, client.host, operation, resource)
        if not verdict.allowed:
            if logs_denial:
                self.decisions.denied(client, operation, resource, verdict)
        elif self.decisions.logs_permissions:
            self.decisions.allowed(client, operation, resource, verdict)
        return verdict.allowed

    def may_with_any(self, request: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client has the permission for at least one resource of the type that exists or could exist.

        A denial is not logged.
        """
        if self.authorizer is None:
            return True
        client = request.client
        verdict = self.authorizer.decide(client.principal, client.host, operation, resource_type)
        if verdict.allowed and self.decisions.logs_permissions:
            self.decisions.allowed(client, operation, resource_type, verdict)
        return verdict.allowed

    def check(self, request: Requester, operation: Operation, resource: Resource) -> None:
        """Raises KafkaError, TOPIC_AUTHORIZATION_FAILED and the like, where the client has no permission."""
        if not self.may(request, operation, resource):
            raise KafkaError(REFUSALS[resource.type])

    def cluster_operations(self, request: Requester) -> int:
        """The authorized operations on the cluster as a bit field; 0 without DESCRIBE on the cluster."""
        may_describe = self.may(request, Operation.DESCRIBE, CLUSTER, logs_denial=False)
        return self.operations(request, CLUSTER) if may_describe else 0

    def operations(self, request: Requester, resource: Resource) -> int:
        """All operations that the client is permitted on the resource, as bits (KIP-430)."""
        if self.authorizer is None:
            return sum(1 << operation for operation in OPERATIONS[resource.type])
        return self.authorizer.operations(request.client, resource)
