"""The contents of znodes about users: ACLs, SCRAM credentials, delegation tokens."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from kraft_node.migration.tree.values import ZnodeError, ZnodeFields, read_texts
from kraft_node.security.names import Operation, PatternType, Permission, ResourceType, type_title
from kraft_protocol.wire.stored import DelegationTokenRecord, UserScramCredentialRecord

SCRAM_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Keys in the configuration of a user -> mechanisms of records."""
RESOURCE_TYPES: Final = {type_title(kind): int(kind) for kind in ResourceType}
"""Names of folders -> resource types."""


class AclEntry(NamedTuple):
    """One entry of a resource."""

    principal: str
    host: str
    operation: int
    permission: int


_OPERATIONS: Final = {"".join(part.capitalize() for part in one.name.split("_")): int(one) for one in Operation}
_PERMISSIONS: Final = {one.name.capitalize(): int(one) for one in Permission}
_OPERATION_NAMES: Final = {number: name for name, number in _OPERATIONS.items()}
_PERMISSION_NAMES: Final = {number: name for name, number in _PERMISSIONS.items()}


def read_acls(path: str, data: bytes) -> frozenset[AclEntry]:
    """Parse the ACLs of one resource. Raises ZnodeError for an entry with unknown or missing fields.

    A znode without data has none: it is the parent of a resource whose name contains `/`.
    """
    found: set[AclEntry] = set()
    if not data:
        return frozenset()
    for item in ZnodeFields(path, data).get("acls", list):
        try:
            operation, permission = _OPERATIONS[item["operation"]], _PERMISSIONS[item["permissionType"]]
            found.add(AclEntry(str(item["principal"]), str(item["host"]), operation, permission))
        except (KeyError, TypeError) as e:
            raise ZnodeError(path, f"{item!r} is not an entry of ACLs ({e})") from None
    return frozenset(found)


def acls_data(entries: Iterable[AclEntry]) -> bytes:
    """The data of the ACLs of one resource, version 1, in a stable order."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _PERMISSION_NAMES[entry.permission],
            "operation": _OPERATION_NAMES[entry.operation],
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return json.dumps({"version": 1, "acls": acls}, separators=(",", ":"), ensure_ascii=False).encode()


def acl_change_data(pattern: int, resource_type: int, name: str) -> bytes:
    """What brokers read that watch the ACLs of this pattern type."""
    type_name = ResourceType(resource_type).name
    if pattern == PatternType.LITERAL:
        return f"{type_name}:{name}".encode()
    change = {"version": 1, "resourceType": type_name, "name": name, "patternType": PatternType(pattern).name}
    return json.dumps(change, separators=(",", ":"), ensure_ascii=False).encode()


def read_scram(path: str, user: str, mechanism: str, text: str) -> UserScramCredentialRecord:
    """The credential in the configuration of a user: `salt=…,stored_key=…,server_key=…,iterations=…`."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored_key, server_key = (
            base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(parts["iterations"])
    except (KeyError, ValueError, binascii.Error):
        raise ZnodeError(path, f"the credential {mechanism} does not have Kafka's form") from None
    return UserScramCredentialRecord(user, SCRAM_MECHANISMS[mechanism], salt, stored_key, server_key, iterations)


def scram_text(record: Any) -> str:
    """The credential as Kafka writes it into the configuration of a user; inverse of `read_scram`."""
    salt, stored_key, server_key = (
        base64.b64encode(value).decode() for value in (record.salt, record.stored_key, record.server_key)
    )
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={record.iterations}"


def read_token(path: str, data: bytes) -> DelegationTokenRecord:
    """A delegation token. Its znode's version 1 lacks the date of expiry, versions 1 and 2 the requester."""
    fields = ZnodeFields(path, data)
    owner = _decoded_principal(fields.get("owner", str))
    requester = fields.get("tokenRequester", str, "")
    return DelegationTokenRecord(
        owner=owner,
        requester=_decoded_principal(requester) if requester else owner,
        renewers=[_decoded_principal(one) for one in read_texts(path, "renewers", fields.get("renewers", list))],
        issue_timestamp=fields.number("issueTimestamp"),
        max_timestamp=fields.number("maxTimestamp"),
        expiration_timestamp=fields.number("expiryTimestamp"),
        token_id=fields.get("tokenId", str),
    )


def token_data(record: DelegationTokenRecord) -> bytes:
    """The data of `/delegation_token/tokens/ID`, version 3, with times in milliseconds."""
    value = {
        "version": 3,
        "owner": _encoded_principal(record.owner),
        "tokenRequester": _encoded_principal(record.requester),
        "renewers": [_encoded_principal(one) for one in record.renewers],
        "issueTimestamp": record.issue_timestamp,
        "maxTimestamp": record.max_timestamp,
        "expiryTimestamp": record.expiration_timestamp,
        "tokenId": record.token_id,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _encoded_principal(principal: str) -> str:
    return quote(principal, safe="")


def _decoded_principal(text: str) -> str:
    return unquote(text)
