"""Credentials, ACLs and quotas of users through Kafka's protocol, many users in few requests.

Error messages of the cluster name users, ACLs and keys, never passwords: only salted passwords are sent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from kraft_operator.plan.users import ACLS, ALLOW, CREDENTIALS, DENY, QUOTAS, Acl, UserChange, UsersSeen
from kraft_protocol.client.aio import Address, Client
from kraft_protocol.errors import ErrorCode, error_name
from kraft_protocol.sasl.scram import ALGORITHMS, NUMBERS, salted_password
from kraft_protocol.wire import messages as m

A_REQUEST: Final = 500
"""Names and ACLs in one request."""
SINGLY_MAX: Final = 8
"""Up to so many users, ACLs are read by user; more than that, all ACLs of the cluster at once."""
PRINCIPAL: Final = "User:"
ANY: Final = 1
"""Matches all resource types, patterns, operations and permissions."""
USER: Final = "user"
EXACT: Final = 0
SPECIFIED: Final = 2
"""Match types of quotas: one name, or any name."""
SALT_BYTES: Final = 20
NO_CREDENTIAL: Final = ErrorCode.RESOURCE_NOT_FOUND
NO_AUTHORIZER: Final = ErrorCode.SECURITY_DISABLED
DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
MECHANISM_OF: Final = {number: name for name, number in NUMBERS.items()}
T = TypeVar("T")
RIGHTS: Final = {CREDENTIALS: "Describe", ACLS: "Describe", QUOTAS: "DescribeConfigs"}


async def look(client: Client, broker: Address, users: Sequence[str]) -> UsersSeen:
    """Read what the cluster has of these users. Raises UnreachableError."""
    if not users:
        return UsersSeen()
    hidden: dict[str, str] = {}
    hidden_users: dict[str, str] = {}
    credentials = await _credentials(client, broker, users, hidden, hidden_users)
    acls = await _acls(client, broker, users, hidden)
    quotas = await _quotas(client, broker, users, hidden)
    return UsersSeen(credentials, acls, quotas, hidden, hidden_users)


def _note_hidden(hidden: dict[str, str], view: str, error: int, message: str | None) -> None:
    if error == NO_AUTHORIZER:
        text = "the cluster has no authorizer, so no ACL acts: set authorizer.class.name in spec.config of the cluster"
    elif error == DENIED:
        text = f"the operator may not read {view}: allow its principal the operation {RIGHTS[view]} on the cluster"
    else:
        text = f"the cluster does not show {view} ({error_name(error)}: {message or 'no message'})"
    hidden[view] = text


async def _credentials(
    client: Client, broker: Address, users: Sequence[str], hidden: dict[str, str], hidden_users: dict[str, str]
) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for names in _pieces(users, A_REQUEST):
        asked = [m.DescribeUserScramCredentialsRequest.UserName(name) for name in names]
        request = m.DescribeUserScramCredentialsRequest(asked)
        answer: m.DescribeUserScramCredentialsResponse = await client.request(broker, request)
        if answer.error_code:
            _note_hidden(hidden, CREDENTIALS, answer.error_code, answer.error_message)
            return {}
        for one in answer.results:
            if not one.error_code:
                infos = one.credential_infos
                found[one.user] = {MECHANISM_OF.get(i.mechanism, str(i.mechanism)): i.iterations for i in infos}
            elif one.error_code != NO_CREDENTIAL:
                text = f"the cluster does not show the credentials of {one.user} ({error_name(one.error_code)})"
                hidden_users[one.user] = text
        for name in set(names) - {one.user for one in answer.results}:
            hidden_users[name] = f"the cluster did not answer whether {name} has credentials"
    return found


async def _acls(
    client: Client, broker: Address, users: Sequence[str], hidden: dict[str, str]
) -> dict[str, frozenset[Acl]]:
    asked = [PRINCIPAL + user for user in users] if len(users) <= SINGLY_MAX else [None]
    wanted = set(users)
    found: dict[str, set[Acl]] = {}
    for principal in asked:
        request = m.DescribeAclsRequest(ANY, None, ANY, principal, None, ANY, ANY)
        answer: m.DescribeAclsResponse = await client.request(broker, request)
        if answer.error_code:
            _note_hidden(hidden, ACLS, answer.error_code, answer.error_message)
            return {}
        for one in answer.resources:
            for acl in one.acls:
                user = acl.principal.removeprefix(PRINCIPAL)
                if user in wanted and acl.principal.startswith(PRINCIPAL):
                    made = Acl(
                        one.resource_type,
                        one.resource_name,
                        one.pattern_type,
                        acl.host,
                        acl.operation,
                        acl.permission_type,
                    )
                    found.setdefault(user, set()).add(made)
    return {user: frozenset(acls) for user, acls in found.items()}


async def _quotas(
    client: Client, broker: Address, users: Sequence[str], hidden: dict[str, str]
) -> dict[str, dict[str, float]]:
    """Quotas of exactly a user, without those of a user's clients."""
    component = m.DescribeClientQuotasRequest.ComponentData
    match = component(USER, EXACT, users[0]) if len(users) == 1 else component(USER, SPECIFIED, None)
    request = m.DescribeClientQuotasRequest([match], strict=True)
    answer: m.DescribeClientQuotasResponse = await client.request(broker, request)
    if answer.error_code:
        _note_hidden(hidden, QUOTAS, answer.error_code, answer.error_message)
        return {}
    wanted = set(users)
    return {
        name: {one.key: one.value for one in entry.values}
        for entry in answer.entries or ()
        for name in (entry.entity[0].entity_name,)
        if len(entry.entity) == 1 and name in wanted and name is not None
    }


def _pieces(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in pieces of at most `size`."""
    return (items[first : first + size] for first in range(0, len(items), size))


# Changes


async def carry_out(
    client: Client, broker: Address, changes: Mapping[str, UserChange], passwords: Mapping[str, str]
) -> dict[str, str]:
    """Carry out the changes and return the refusals by user. Raises UnreachableError.

    A user loses its credentials before its ACLs, so it never has more rights than before. Denials are created before
    permissions and deleted after them.
    """
    refused: dict[str, str] = {}
    await _change_credentials(client, broker, changes, passwords, refused)
    await _create_acls(client, broker, changes, refused)
    await _delete_acls(client, broker, changes, refused)
    await _change_quotas(client, broker, changes, refused)
    return refused


def _note(refused: dict[str, str], user: str, what: str, error: int, message: str | None) -> None:
    if error:
        refused.setdefault(user, f"the cluster refuses {what} of {user}: {message or error_name(error)}")


async def _change_credentials(
    client: Client,
    broker: Address,
    changes: Mapping[str, UserChange],
    passwords: Mapping[str, str],
    refused: dict[str, str],
) -> None:
    setting = []
    for user, change in changes.items():
        if change.upsert and user in passwords:
            setting.append((user, *change.upsert, passwords[user]))
        elif change.upsert:
            refused[user] = f"the password of {user} was deleted meanwhile"
    deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    left = {
        user: [deletion(user, NUMBERS[name]) for name in one.drop]
        for user, one in changes.items()
        if one.drop and user not in refused
    }
    # Hashing takes milliseconds for each password.
    upsertions = await asyncio.to_thread(_salted, setting) if setting else []
    # If a request names a user twice, with any mechanisms, Kafka changes nothing of this user. So the new password
    # comes first. Once the cluster has it, each further request deletes one former password.
    while left or upsertions:
        new = {one.name for one in upsertions}
        deletions = [waiting.pop(0) for user, waiting in left.items() if user not in new]
        request = m.AlterUserScramCredentialsRequest(deletions, upsertions)
        answer: m.AlterUserScramCredentialsResponse = await client.request(broker, request)
        for one in answer.results:
            if one.error_code != NO_CREDENTIAL:
                _note(refused, one.user, "the credentials", one.error_code, one.error_message)
        upsertions = []
        left = {user: waiting for user, waiting in left.items() if waiting and user not in refused}


def _salted(
    setting: Iterable[tuple[str, str, int, str]],
) -> list[m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion]:
    found = []
    for user, mechanism, iterations, password in setting:
        salt = os.urandom(SALT_BYTES)
        salted = salted_password(ALGORITHMS[mechanism], password, salt, iterations)
        upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
        found.append(upsertion(user, NUMBERS[mechanism], iterations, salt, salted))
    return found


def _ordered(changes: Mapping[str, UserChange], field: str, first: int) -> Iterator[Sequence[tuple[str, Acl]]]:
    """All ACLs of a field with their users, ACLs of the permission `first` first, in pieces of a request."""
    found = [(user, acl) for user, change in changes.items() for acl in sorted(getattr(change, field))]
    return _pieces(sorted(found, key=lambda one: one[1].permission != first), A_REQUEST)


def _fields(user: str, acl: Acl) -> tuple[int, str, int, str, str, int, int]:
    """The fields of a user's ACL as requests order them."""
    kind, name, pattern, host, operation, permission = acl
    return kind, name, pattern, PRINCIPAL + user, host, operation, permission


async def _create_acls(
    client: Client, broker: Address, changes: Mapping[str, UserChange], refused: dict[str, str]
) -> None:
    for part in _ordered(changes, "create", DENY):
        creations = [m.CreateAclsRequest.AclCreation(*_fields(user, acl)) for user, acl in part]
        answer: m.CreateAclsResponse = await client.request(broker, m.CreateAclsRequest(creations))
        for (user, _), one in zip(part, answer.results, strict=True):
            _note(refused, user, "an ACL", one.error_code, one.error_message)


async def _delete_acls(
    client: Client, broker: Address, changes: Mapping[str, UserChange], refused: dict[str, str]
) -> None:
    for part in _ordered(changes, "delete", ALLOW):
        filters = [m.DeleteAclsRequest.DeleteAclsFilter(*_fields(user, acl)) for user, acl in part]
        answer: m.DeleteAclsResponse = await client.request(broker, m.DeleteAclsRequest(filters))
        for (user, _), one in zip(part, answer.filter_results, strict=True):
            _note(refused, user, "the deletion of an ACL", one.error_code, one.error_message)


async def _change_quotas(
    client: Client, broker: Address, changes: Mapping[str, UserChange], refused: dict[str, str]
) -> None:
    entries: list[Any] = []
    data, op = m.AlterClientQuotasRequest.EntryData, m.AlterClientQuotasRequest.OpData
    for user, change in changes.items():
        ops = [op(key, value, remove=False) for key, value in change.put.items()]
        ops += [op(key, 0.0, remove=True) for key in change.remove]
        if ops:
            entries.append(data([m.AlterClientQuotasRequest.EntityData(USER, user)], ops))
    if entries:
        answer: m.AlterClientQuotasResponse = await client.request(broker, m.AlterClientQuotasRequest(entries))
        for one in answer.entries:
            _note(refused, one.entity[0].entity_name or "", "the quotas", one.error_code, one.error_message)
