"""Requests that any broker accepts and forwards to the controller.

CreateTopics (19), DeleteTopics (20), CreateAcls (30), DeleteAcls (31), CreatePartitions (37),
CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40), ElectLeaders (43),
AlterPartitionReassignments (45), ListPartitionReassignments (46), AlterClientQuotas (49),
AlterUserScramCredentials (51), DescribeQuorum (55), UpdateFeatures (57), UnregisterBroker (64), AddRaftVoter (80),
RemoveRaftVoter (81). AlterConfigs (33) and IncrementalAlterConfigs (44) are forwarded by `alter_configs`.

The request is forwarded unchanged (KIP-590), and again if the connection breaks before the response, as in Kafka: a
client may therefore get TOPIC_ALREADY_EXISTS for a topic that it has just created. The client's principal and host are
sent with it, and the controller checks the ACLs. The client gets the response once this broker's own image includes
the change, and this broker's replicas of a new topic are open. The versions are those of the controller's handlers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from raylog.core.errors import ErrorCode, KafkaError
from raylog.protocol import registry
from raylog.protocol.error_responses import error_response
from raylog.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from raylog.security.delegation_tokens import check_token_requests
from raylog.security.principal import encode_host, encode_principal
from raylog.transport.exchange import EncodedAnswer
from raylog.transport.throttling import encoded_throttle_time

if TYPE_CHECKING:
    from raylog.broker.services import BrokerServices
    from raylog.core.clock import Now
    from raylog.transport.exchange import Exchange

FORWARD_MS_MAX = 20_000
"""Shorter than the 30 s that clients wait for a response."""


CREATES_PARTITIONS: Final = frozenset({registry.CREATE_TOPICS, registry.CREATE_PARTITIONS})
"""These wait until this broker has opened its partitions; the others need not wait for a large topic."""
PARTITIONS_OPENED: Final = "partitions opened"
"""The key of delayed operations that wait for partitions of this broker."""


class _DelayedUntilOpened:
    """A response that waits until the partitions in the image at that time are open."""

    def __init__(self, broker: BrokerServices, exchange: Exchange, answer: EncodedAnswer, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self._directories = broker.table.directories
        self._exchange = exchange
        self._answer = answer
        self._ticket = -1

    def image_caught_up(self, _: Now) -> None:
        self._ticket = self._directories.last_ticket
        if not self._exchange.cancelled and not self.try_complete(0):
            self._exchange.wait_for(self, [PARTITIONS_OPENED])

    def try_complete(self, grown_bytes: int) -> bool:
        if not self._directories.has_opened(self._ticket):
            return False
        self.complete()
        return True

    def complete(self) -> None:
        self._exchange.answer(self._answer)


def handle_token_request(broker: BrokerServices, exchange: Exchange, request: Any) -> None:
    """Create, renew or expire a delegation token: only this broker knows how the client is connected."""
    try:
        check_token_requests(exchange.client, exchange.connection.listener.security)
    except KafkaError as error:
        exchange.answer(error_response(request, error.code))
    else:
        handle(broker, exchange, request)


def handle(broker: BrokerServices, exchange: Exchange, request: Any) -> None:
    forward(broker, exchange, request, envelope_of(exchange))


def envelope_of(exchange: Exchange) -> EnvelopeRequest:
    """The request as it is forwarded. Its frame is valid until the handler returns."""
    client = exchange.client
    return EnvelopeRequest(
        request_data=bytes(exchange.frame),
        request_principal=encode_principal(client.principal, token_authenticated=client.token_authenticated),
        client_host_address=encode_host(client.host),
    )


def forward(broker: BrokerServices, exchange: Exchange, request: Any, envelope: EnvelopeRequest) -> None:
    """Answer with the response of the controller."""
    deadline_ms = broker.now.monotonic_ms + FORWARD_MS_MAX
    link = broker.lifecycle.link

    def ask(now: Now) -> None:
        link.request(envelope, answered, failed, now=now, timeout_ms=deadline_ms - now.monotonic_ms)

    def answered(response: EnvelopeResponse, now: Now) -> None:
        if response.error_code == ErrorCode.NOT_CONTROLLER:  # not executed; find the active controller
            link.disconnect()
            ask(now)
        elif response.error_code != ErrorCode.NONE or response.response_data is None:
            failed(KafkaError(response.error_code), now)
        else:
            answer = EncodedAnswer(bytes(response.response_data))
            throttle_ms = encoded_throttle_time(answer.data, exchange.spec, exchange.api_version)
            if throttle_ms:
                broker.request_quotas.throttled_by_controller(exchange, throttle_ms)
            if exchange.spec.key in CREATES_PARTITIONS:
                opened = _DelayedUntilOpened(broker, exchange, answer, deadline_ms)
                broker.follower.catch_up(link, opened.image_caught_up, now)
            else:
                broker.follower.catch_up(link, lambda _: exchange.answer(answer), now)

    def failed(error: KafkaError, now: Now) -> None:
        if error.code == ErrorCode.NETWORK_EXCEPTION and now.monotonic_ms < deadline_ms:
            ask(now)
            return
        code = ErrorCode.REQUEST_TIMED_OUT if error.code == ErrorCode.NETWORK_EXCEPTION else error.code
        exchange.answer(error_response(request, code, f"The controller did not respond: {error.message}"))

    exchange.hold_back()
    ask(broker.now)
