"""Decides whether a client may do an operation: Kafka's StandardAuthorizer, without its class loader (KIP-801).

Super users may do everything. Otherwise the entries for the resource decide, by its name, by a prefix of it, or for
its whole type. A denial takes precedence over a permission. If entries exist and no entry matches, the operation is
denied. If no entry exists, `allow.everyone.if.no.acl.found` decides.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kraft_node.security import audit
from kraft_node.security.acls import AclIndex
from kraft_node.security.names import (
    ALLOWED_BY,
    CLUSTER_NAME,
    DENIED_BY,
    EVERYBODY,
    SUPPORTED,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.request import RequestContext
    from kraft_node.metadata.delta import MetadataDelta
    from kraft_node.metadata.image import MetadataImage

CLASS_KEY: Final = "authorizer.class.name"
STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS_KEY: Final = "super.users"
ALLOW_KEY: Final = "allow.everyone.if.no.acl.found"

HOSTS_KEPT: Final = 1024
"""Maximum of IPv6 addresses with a cached Java form: more clients are rarely connected at the same time."""

_ANY_RESOURCE: Final = "hardcode"
"""The name that Kafka uses to check whether a whole resource type is allowed."""


class Authorizer:
    """The decisions of one node. Until `completed` is called, only super users are served."""

    __slots__ = ("_allows_without_acls", "_index", "_super_users", "allowed", "denied", "generation", "is_ready")

    def __init__(self, super_users: Iterable[str] = (), *, allows_without_acls: bool = False) -> None:
        self._index = AclIndex()
        self._super_users = frozenset(super_users)
        self._allows_without_acls = allows_without_acls
        self.is_ready = False
        self.generation = 0
        """Increases with every change of the entries, so that users of cached decisions can notice."""
        self.allowed = 0
        """Number of decisions, counted as in Kafka."""
        self.denied = 0

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._index)

    # Following the metadata

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A publisher of the metadata loader. The cost is proportional to the changes."""
        if delta.is_snapshot:
            self.generation += 1
            self._index.load(dict(image.acls.items()))
            return
        for acl_id in delta.acls:
            self.generation += 1
            record = image.acls.get(acl_id)
            if record is None:
                self._index.remove(acl_id)
            else:
                self._index.put(acl_id, record)

    def completed(self) -> None:
        """Note that the image contains everything that was committed before this start."""
        self.is_ready = True

    # Asking

    def allows(
        self,
        ctx: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        log_allowed: bool = True,
        log_denied: bool = True,
        count: int = 1,
    ) -> bool:
        """Whether the client of `ctx` may do the operation on the resource; by default, on the cluster.

        `log_…`: whether the outcome is logged in the audit log. `count`: how often the request names the resource, for
        that line. Raises KafkaError for all but super users until the entries are known.
        """
        principal, host = ctx.principal, ctx.client_host
        if ":" in host:
            host = written_out(host)
        if principal in self._super_users:
            allowed = True
        elif not self.is_ready:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The access control entries have not been read yet.")
        else:
            allowed = self._decide(principal, host, operation, resource_type, name)
        if allowed:
            self.allowed += 1
        else:
            self.denied += 1
        level = audit.level_of(allowed=allowed, log_allowed=log_allowed, log_denied=log_denied)
        if audit.log.isEnabledFor(level):
            rule = self._rule(principal, host, operation, resource_type, name)
            audit.write(level, ctx, host, operation, resource_type, name, count, rule, allowed=allowed)
        return allowed

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        exists = permitted = False
        denying, permitting = DENIED_BY[operation], ALLOWED_BY[operation]
        for entries in self._index.concerning(resource_type, name):
            exists = True
            for who in (principal, EVERYBODY):
                for record in entries.get(who, ()):
                    if record.host not in (WILDCARD, host):
                        continue
                    if record.permission_type == Permission.DENY:
                        if record.operation in denying:
                            return False
                    elif record.operation in permitting:
                        permitted = True
        return permitted if exists else self._allows_without_acls

    def _rule(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> str:
        """The reason of the decision in Kafka's words, for the audit log only."""
        if principal in self._super_users:
            return "SuperUser"
        found = list(self._index.concerning(resource_type, name))
        who = (principal, EVERYBODY)
        records = itertools.chain.from_iterable(entries.get(p, ()) for entries in found for p in who)
        rule = audit.rule_among(records, host, operation)
        if rule is not None:
            return rule
        return "DefaultAllow" if not found and self._allows_without_acls else "DefaultDeny"

    def allows_some(self, ctx: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do the operation on any resource of the type, existing or not (KIP-679)."""
        if self.allows(ctx, operation, resource_type, _ANY_RESOURCE, log_denied=False, count=0):
            return True
        host = written_out(ctx.client_host) if ":" in ctx.client_host else ctx.client_host
        denied: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        permitted: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        for record in self._index.of_type(resource_type, tuple({ctx.principal, EVERYBODY})):
            if record.host not in (WILDCARD, host) or record.operation not in DENIED_BY[operation]:
                continue  # operations that only imply this operation do not count here, as in Kafka
            patterns = denied if record.permission_type == Permission.DENY else permitted
            patterns[record.pattern_type].add(record.resource_name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        if WILDCARD in permitted[PatternType.LITERAL]:
            return True
        return any(
            not (pattern == PatternType.LITERAL and name in denied[PatternType.LITERAL])
            and not any(name[:end] in denied[PatternType.PREFIXED] for end in range(1, len(name) + 1))
            for pattern, names in permitted.items()
            for name in names
        )

    def require(self, ctx: RequestContext, operation: Operation) -> None:
        """Raise CLUSTER_AUTHORIZATION_FAILED unless the client may do the operation on the cluster."""
        if not self.allows(ctx, operation, ResourceType.CLUSTER):
            message = f"{ctx.principal} needs {operation.name} permission on the cluster."
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)

    def permitted(
        self,
        ctx: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        log_denied: bool = True,
    ) -> set[str]:
        """The named resources on which the client may do the operation; each is checked once."""
        return {
            name
            for name, count in Counter(names).items()
            if self.allows(ctx, operation, resource_type, name, log_denied=log_denied, count=count)
        }

    def operations(self, ctx: RequestContext, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """A bit field of all operations that the client may do on the resource (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self.allows(ctx, operation, resource_type, name, log_allowed=False, log_denied=False)
        )


@lru_cache(maxsize=HOSTS_KEPT)
def written_out(host: str) -> str:
    """An IPv6 address in Java's form, which ACLs use: 0:0:0:0:0:0:0:1 for ::1; the IPv4 address if it contains one."""
    import ipaddress  # noqa: PLC0415  (a few ms that nodes without IPv6 clients do not need)

    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def authorizer_of(config: NodeConfig) -> Authorizer | None:
    """The configured authorizer; None without an authorizer. Raises ValueError for an unsupported class."""
    wanted = config.string(CLASS_KEY).strip()
    if not wanted:
        return None
    if wanted != STANDARD:
        raise ValueError(f"{CLASS_KEY}={wanted} is not supported (there is no JVM to load classes); use {STANDARD}")
    super_users = [text.strip() for text in config.texts.get(SUPER_USERS_KEY, "").split(";") if text.strip()]
    for text in super_users:
        check_principal(SUPER_USERS_KEY, text)
    allows = config.texts.get(ALLOW_KEY, "false").strip().lower() == "true"
    return Authorizer(super_users, allows_without_acls=allows)


def check_principal(key: str, text: str) -> None:
    """Raise ValueError, naming the configuration key, unless the text is a principal: a type, a colon, a name."""
    if ":" not in text:
        raise ValueError(f"{key}: expected principals as type:name (User:alice), separated by semicolons, not {text!r}")
