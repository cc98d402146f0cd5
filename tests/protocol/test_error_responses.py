"""Every API has an error response in every version, with the error for each item of the request."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest

from raylog.core.errors import ErrorCode
from raylog.protocol import registry
from raylog.protocol.error_responses import error_response
from raylog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.protocol.messages.init_producer_id import InitProducerIdRequest
from raylog.protocol.messages.join_group import JoinGroupRequest
from raylog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from raylog.protocol.registry import APIS, ApiSpec
from raylog.protocol.schema import Wire, WireType
from raylog.protocol.schema import error as error_type

CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE
WITHOUT_ERRORS = {registry.API_VERSIONS}


def filled(message: type[Any], depth: int = 0) -> Any:
    """A request with two of everything."""
    given: dict[str, Any] = {}
    for each in fields(message):
        wire: Wire = each.metadata["wire"]
        element = wire.element
        if isinstance(element, WireType):
            value: Any = {"string": f"s{depth}", "uuid": UUID(int=7), "boolean": True, "binary": b"b"}.get(
                element.name, 3
            )
            if element.name in ("record_set", "record_buffers"):
                value = None
        else:
            value = None
        if wire.is_array:
            given[each.name] = (
                (value, value) if isinstance(element, WireType) else tuple(filled(element, n) for n in range(2))
            )
        elif isinstance(element, WireType):
            given[each.name] = value
    return message(**given)


def codes_in(message: Any) -> list[ErrorCode]:
    found = []
    for each in fields(message):
        wire: Wire = each.metadata["wire"]
        value = getattr(message, each.name)
        if wire.element is error_type:
            found.append(value)
        elif wire.is_array and not isinstance(wire.element, WireType):
            found += [code for item in value or () for code in codes_in(item)]
    return found


@pytest.mark.parametrize("spec", [spec for spec in APIS if not spec.internal], ids=lambda spec: spec.name)
def test_the_code_is_in_every_error_field_of_every_version(spec: ApiSpec) -> None:
    request = filled(spec.request)
    response = error_response(request, CODE, "why")
    codes = codes_in(response)
    if spec.key not in WITHOUT_ERRORS:
        assert codes
    assert set(codes) <= {CODE}
    for version in range(spec.lowest, spec.highest + 1):
        body = b"".join(map(bytes, spec.encode_response(version, response)))
        assert body or spec.key in WITHOUT_ERRORS


def test_each_requested_topic_and_partition_has_the_error() -> None:
    request = DeleteTopicsRequest(topic_names=("a", "b"), topics=(DeleteTopicState(name=None, topic_id=UUID(int=9)),))
    response = error_response(request, CODE, "why")
    assert [(each.name, each.topic_id.int, each.error_code, each.error_message) for each in response.responses] == [
        ("a", 0, CODE, "why"),
        ("b", 0, CODE, "why"),
        (None, 9, CODE, "why"),
    ]


def test_error_responses_have_no_producer_id_and_keep_the_member_id() -> None:
    assert error_response(InitProducerIdRequest(producer_id=7), CODE).producer_id == -1
    assert error_response(JoinGroupRequest(member_id="m", protocol_type="consumer"), CODE).member_id == "m"


def test_null_arrays_have_no_items() -> None:
    assert error_response(OffsetFetchRequest(topics=None), CODE).topics == ()
    groups = error_response(OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),)), CODE)
    assert [(each.group_id, each.error_code, each.topics) for each in groups.groups] == [("g", CODE, ())]
