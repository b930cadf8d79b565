"""SCRAM users: AlterUserScramCredentials (51) v0 (KIP-554); brokers answer DescribeUserScramCredentials.

The stored keys are derived from the salted password that the client sends (RFC 5802). The server never sees the
password.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraft_node.controller.migration import check_znode_name
from kraft_node.controller.plan import Plan
from kraft_node.controller.state.controller_state import ControllerState, check_operation_size
from kraft_node.metadata.features import SCRAM_SUPPORTED
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kraft_protocol.wire.stored import RemoveUserScramCredentialRecord, UserScramCredentialRecord

MECHANISMS: Final = {1: "sha256", 2: "sha512"}
"""SCRAM-SHA-256 and SCRAM-SHA-512."""

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384

_TWICE: Final = "A user credential cannot be altered twice in the same request"


class Scram:
    """Answers AlterUserScramCredentials."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: ControllerState) -> None:
        self._cluster = cluster

    def alter(self, request: AlterUserScramCredentialsRequest) -> Plan:
        """Plan changes, with one result per user. A user that is named twice gets no change."""
        errors: dict[str, KafkaError] = {}
        planned: dict[str, Any] = {}
        requested: list[tuple[str, Any, Callable[[Any], Any]]] = [
            (d.name, d, self._deletion) for d in request.deletions
        ]
        requested += [(u.name, u, self._upsertion) for u in request.upsertions]
        for name, entry, plan in requested:
            if name in errors:
                continue
            try:
                if planned.pop(name, None) is not None:
                    raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
                if self._cluster.level < SCRAM_SUPPORTED:
                    message = "The current metadata.version does not support SCRAM"
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
                planned[name] = plan(entry)
            except KafkaError as e:
                errors[name] = e
        for user in request.upsertions:
            if user.name in planned and not user.salted_password:  # Java rejects an empty HMAC key, without a text
                del planned[user.name]
                errors[user.name] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        response = AlterUserScramCredentialsResponse()
        for name in dict.fromkeys(name for name, _, _ in requested):
            error = errors.get(name)
            response.results.append(
                AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                    user=name,
                    error_code=0 if error is None else error.code,
                    error_message=None if error is None else error.message,
                )
            )
        records = list(planned.values())
        check_operation_size(records)
        return Plan(response, records)

    def _deletion(self, requested: AlterUserScramCredentialsRequest.ScramCredentialDeletion) -> Any:
        _check_user(requested.name, requested.mechanism)
        if (requested.mechanism, requested.name) not in self._cluster.view.scram:
            message = "Attempt to delete a user credential that does not exist"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
        return RemoveUserScramCredentialRecord(name=requested.name, mechanism=requested.mechanism)

    def _upsertion(self, requested: AlterUserScramCredentialsRequest.ScramCredentialUpsertion) -> Any:
        _check_user(requested.name, requested.mechanism)
        check_znode_name(self._cluster, requested.name, is_encoded=True)
        if requested.iterations < ITERATIONS_MIN:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if requested.iterations > ITERATIONS_MAX:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        stored_key, server_key = scram_keys(requested.mechanism, bytes(requested.salted_password))
        return UserScramCredentialRecord(
            name=requested.name,
            mechanism=requested.mechanism,
            salt=bytes(requested.salt),
            stored_key=stored_key,
            server_key=server_key,
            iterations=requested.iterations,
        )


def scram_keys(mechanism: int, salted_password: bytes) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of RFC 5802, section 3."""
    import hashlib  # noqa: PLC0415  (brings OpenSSL: 30 ms of a start and 4 MiB, for what is rarely asked)
    import hmac  # noqa: PLC0415

    algorithm = MECHANISMS[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    return hashlib.new(algorithm, client_key).digest(), hmac.digest(salted_password, b"Server Key", algorithm)


def _check_user(name: str, mechanism: int) -> None:
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in MECHANISMS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
