"""Client quotas: describe and change them (KIP-546). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from raylog.client.admin.calls import ANY_BROKER, CONTROLLER, Answer, Call, Steps, ask
from raylog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from raylog.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from raylog.quotas.client_quotas import QuotaEntity, entity
from raylog.quotas.filters import ANY_NAME as MATCH_ANY
from raylog.quotas.filters import DEFAULT_ONLY, EXACT


class AnyName(Enum):
    """Matches any entity of a type in a filter."""

    ANY_NAME = "any name"


ANY_NAME: Final = AnyName.ANY_NAME
NAME: Final = "quotas"


def describe_client_quotas(
    names: Mapping[str, str | AnyName | None] | None = None, *, strict: bool = False, timeout: float | None = None
) -> Steps[dict[QuotaEntity, dict[str, float]]]:
    """The quotas of entities that contain these names by type, such as `{"user": "alice"}`; None is the default entity.

    strict: only of those that contain nothing else.
    """
    components = tuple(_component(kind, name) for kind, name in (names or {}).items())
    request = DescribeClientQuotasRequest(components=components, strict=strict)

    def read(response: Any) -> dict[QuotaEntity, dict[str, float]]:
        return {
            _entity(each.entity): {value.key: value.value for value in each.values} for each in response.entries or ()
        }

    return (yield from ask(ANY_BROKER, NAME, lambda _: request, read))


def alter_client_quotas(
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
    timeout: float | None = None,
) -> Steps[dict[QuotaEntity, None]]:
    """Set quotas of entities, or remove those with the value None. An entity is a tuple of pairs of type and name."""
    wanted = {entity(dict(each)): dict(values) for each, values in changes.items()}

    def request(items: Sequence[QuotaEntity], _: int) -> AlterClientQuotasRequest:
        entries = tuple(_altered(item, wanted[item]) for item in items)
        return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)

    def read(response: Any, _: Sequence[QuotaEntity]) -> Iterator[Answer]:
        for each in response.entries:
            yield Answer(_entity(each.entity), None, each.error_code, each.error_message)

    found = yield Call(dict.fromkeys(wanted, CONTROLLER), lambda _: NAME, request, read)
    return found.checked()


def _component(kind: str, name: str | AnyName | None) -> ComponentData:
    if isinstance(name, AnyName):
        return ComponentData(entity_type=kind, match_type=MATCH_ANY, match=None)
    return ComponentData(entity_type=kind, match_type=DEFAULT_ONLY if name is None else EXACT, match=name)


def _entity(parts: Any) -> QuotaEntity:
    return entity({part.entity_type: part.entity_name for part in parts})


def _altered(item: QuotaEntity, values: Mapping[str, float | None]) -> RequestEntryData:
    return RequestEntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in item),
        ops=tuple(
            OpData(key=key, remove=True) if value is None else OpData(key=key, value=value)
            for key, value in values.items()
        ),
    )
