"""DescribeClientQuotas (48), versions 0-1: quotas with entities that match a filter (KIP-546).

A component selects one type of entity: with a given name (match 0), the default (1), or any name or the default (2).
Strict: an entity must have no other types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.long_answers import answer
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import DescribeClientQuotasResponse as Response

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.metadata.image import MetadataView

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2
MATCH_TYPES: Final = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}
USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES: Final = frozenset((USER, CLIENT_ID, IP))


QUOTAS_A_STEP: Final = 500


def describe_client_quotas(turns: Turns, image: MetadataView, ctx: RequestContext, request: Any) -> Any:
    """Every quota with an entity that matches all components."""
    return answer(turns, ctx, request, _described(image, request))


def _described(image: MetadataView, request: Any) -> Generator[None, None, Any]:
    wanted = _filter(request.components)
    entries = []
    for number, (entity, values) in enumerate(list(image.quotas.items()), 1):
        if number % QUOTAS_A_STEP == 0:
            yield
        named = dict(entity)
        if request.strict and named.keys() != wanted.keys():
            continue
        if all(_matches(named, kind, *match) for kind, match in wanted.items()):
            entries.append(_entry(named, values))
    return Response(entries=entries)


def _filter(components: list[Any]) -> dict[str, tuple[int, str | None]]:
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        match_text = MATCH_TYPES.get(component.match_type)
        if match_text is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        if component.match_type == EXACT and component.match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Request specified {match_text}, but set match string to null."
            )
        if component.match_type != EXACT and component.match is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Request specified {match_text}, but also specified a match string."
            )
        wanted[kind] = (component.match_type, component.match)
    if IP in wanted and len(wanted) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )
    return wanted


def _matches(named: Mapping[str, str | None], kind: str, match_type: int, name: str | None) -> bool:
    if kind not in named:
        return False
    if match_type == SPECIFIED:
        return True
    return named[kind] == name if match_type == EXACT else named[kind] is None


def _entry(named: Mapping[str, str | None], values: Mapping[str, float]) -> Any:
    return Response.EntryData(
        entity=[Response.EntityData(kind, name) for kind, name in named.items()],
        values=[Response.ValueData(key, value) for key, value in values.items()],
    )
