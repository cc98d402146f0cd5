"""What a node asks before it serves a request: whether the client of the request has the permission.

Without an authorizer every operation is permitted.
"""

from __future__ import annotations

from typing import Protocol

from raylog.core.errors import KafkaError
from raylog.security.acl import OPERATIONS, Operation, Resource, ResourceType
from raylog.security.authorizer import REFUSALS, Authorizer
from raylog.security.principal import Client


class Requester(Protocol):
    """A request."""

    @property
    def client(self) -> Client:
        """The client whose rights are checked."""


class Authorization:
    """The authorizer of a node, where it has one."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self.authorizer = authorizer

    def may(self, request: Requester, operation: Operation, resource: Resource) -> bool:
        return self.authorizer is None or self.client_may(request.client, operation, resource)

    def client_may(self, client: Client, operation: Operation, resource: Resource) -> bool:
        authorizer = self.authorizer
        return authorizer is None or authorizer.decide(client.principal, client.host, operation, resource).allowed

    def may_with_any(self, request: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client has the permission for at least one resource of the type that exists or could exist."""
        authorizer, client = self.authorizer, request.client
        if authorizer is None:
            return True
        return authorizer.decide_by_type(client.principal, client.host, operation, resource_type).allowed

    def check(self, request: Requester, operation: Operation, resource: Resource) -> None:
        """Raises KafkaError, TOPIC_AUTHORIZATION_FAILED and the like, where the client has no permission."""
        if not self.may(request, operation, resource):
            raise KafkaError(REFUSALS[resource.type])

    def operations(self, request: Requester, resource: Resource) -> int:
        """All operations that the client is permitted on the resource, as bits (KIP-430)."""
        if self.authorizer is None:
            return sum(1 << operation for operation in OPERATIONS[resource.type])
        return self.authorizer.operations(request.client, resource)
