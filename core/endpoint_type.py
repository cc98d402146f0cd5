"""The endpoint type of DescribeCluster: whether a client asks for the brokers or for the controllers (KIP-919)."""

from __future__ import annotations

from enum import IntEnum

from raylog.core.errors import ErrorCode, KafkaError


class EndpointType(IntEnum):
    """The numbers of DescribeCluster, with Kafka's names."""

    BROKER = 1
    CONTROLLER = 2


def check_endpoint_type(wanted: int, served: EndpointType, *, api_version: int) -> None:
    """Raises KafkaError: UNSUPPORTED_ENDPOINT_TYPE, MISMATCHED_ENDPOINT_TYPE, and INVALID_REQUEST in version 0, which
    has neither."""
    if wanted == served:
        return
    known = wanted in [*EndpointType]
    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    message = (
        f"This is an endpoint of type {served.name}; the request is for one of type {EndpointType(wanted).name}."
        if known
        else f"Endpoint type {wanted} is not supported."
    )
    raise KafkaError(ErrorCode.INVALID_REQUEST if api_version == 0 else code, message)
