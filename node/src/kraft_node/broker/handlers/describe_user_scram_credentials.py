"""DescribeUserScramCredentials (50), version 0: the SCRAM mechanisms of users, never the secrets (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.long_answers import answer
from kraft_protocol.errors import ErrorCode, fitting
from kraft_protocol.wire.messages import DescribeUserScramCredentialsResponse as Response

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.metadata.image import MetadataView


USERS_A_STEP: Final = 500


def describe_user_scram_credentials(turns: Turns, image: MetadataView, ctx: RequestContext, request: Any) -> Any:
    """The named users, each once; without names all users."""
    return answer(turns, ctx, request, _described(image, request.users or ()))


def _described(image: MetadataView, users: Sequence[Any]) -> Generator[None, None, Any]:
    infos: dict[str, list[Any]] = {}
    stored = list(image.scram.items())
    for part in _parts(stored):
        yield
        for (mechanism, user), record in part:
            infos.setdefault(user, []).append(Response.CredentialInfo(mechanism, record.iterations))
    times: Counter[str] = Counter()
    for part in _parts(users):
        yield
        times.update(user.name for user in part)
    results = []
    for part in _parts(list(times) if users else sorted(infos)):
        yield
        results += [_of(user, times[user], infos.get(user)) for user in part]
    return Response(results=results)


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + USERS_A_STEP] for start in range(0, len(items), USERS_A_STEP))


def _of(user: str, times: int, infos: list[Any] | None) -> Any:
    """The row of a user that the request names `times` times; None as `infos`: the user has no credentials."""
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return _failed(user, ErrorCode.DUPLICATE_RESOURCE, text)
    if infos is None:
        text = f"Attempt to describe a user credential that does not exist: {user}"
        return _failed(user, ErrorCode.RESOURCE_NOT_FOUND, text)
    return _result(user, sorted(infos, key=lambda info: info.mechanism))


def _result(user: str, infos: list[Any]) -> Any:
    return Response.DescribeUserScramCredentialsResult(user=user, error_message="", credential_infos=infos)


def _failed(user: str, code: ErrorCode, text: str) -> Any:
    return Response.DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=fitting(text))
