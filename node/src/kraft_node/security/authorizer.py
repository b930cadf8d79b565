"""Whether somebody may do something: Kafka's StandardAuthorizer, without its class loader (KIP-801).

Super users may do everything. Otherwise the entries for the resource decide, whether they name it, a prefix of it or
all of its type: a denial first, then a permission. Where entries exist and none fits, the answer is no; where none
exist at all it is what `allow.everyone.if.no.acl.found` says.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kraft_node.base.errors import ErrorCode, KafkaError
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
"""IPv6 addresses whose other spelling is remembered: more clients are rarely connected at a time."""

_ANY_RESOURCE: Final = "hardcode"
"""The name that Kafka asks for when it wants to know whether a whole type is open to somebody."""


class Authorizer:
    """The decisions of one node. Not ready until `completed` is called: then only super users are served."""

    __slots__ = ("_allows_without_acls", "_index", "_super_users", "allowed", "denied", "generation", "is_ready")

    def __init__(self, super_users: Iterable[str] = (), *, allows_without_acls: bool = False) -> None:
        self._index = AclIndex()
        self._super_users = frozenset(super_users)
        self._allows_without_acls = allows_without_acls
        self.is_ready = False
        self.generation = 0
        """Goes up with every change of the entries: for those who keep what they were allowed."""
        self.allowed = 0
        """Decisions so far, as Kafka counts them."""
        self.denied = 0

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._index)

    # Following the metadata

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A publisher of the metadata loader: costs what changed."""
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
        """What was committed before this start is in the image now."""
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
        """Whether the client of `ctx` may do that to the resource; by default, the cluster.

        `log_…`: whether the outcome is worth a line in the audit log. `count`: how often the request names the
        resource, for that line. Raises KafkaError for everybody but super users while the entries are not known yet.
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
        """Why it was decided so, in Kafka's words: for the audit log alone."""
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
        """Whether there is any resource of the type, existing or not, on which the client may do that (KIP-679)."""
        if self.allows(ctx, operation, resource_type, _ANY_RESOURCE, log_denied=False, count=0):
            return True
        host = written_out(ctx.client_host) if ":" in ctx.client_host else ctx.client_host
        denied: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        permitted: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        for record in self._index.of_type(resource_type, tuple({ctx.principal, EVERYBODY})):
            if record.host not in (WILDCARD, host) or record.operation not in DENIED_BY[operation]:
                continue  # what merely implies the operation does not count here, as in Kafka
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
        """Raise CLUSTER_AUTHORIZATION_FAILED unless the client may do that to the cluster."""
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
        """Those of the named resources on which the client may do that, each asked once."""
        return {
            name
            for name, count in Counter(names).items()
            if self.allows(ctx, operation, resource_type, name, log_denied=log_denied, count=count)
        }

    def operations(self, ctx: RequestContext, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """All that the client may do to the resource, as a bit field (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self.allows(ctx, operation, resource_type, name, log_allowed=False, log_denied=False)
        )


@lru_cache(maxsize=HOSTS_KEPT)
def written_out(host: str) -> str:
    """An IPv6 address as Java writes it, and so as ACLs name it: 0:0:0:0:0:0:0:1 for ::1, IPv4 where that is inside."""
    import ipaddress  # noqa: PLC0415  (a few ms that nodes without IPv6 clients do not need)

    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def authorizer_of(config: NodeConfig) -> Authorizer | None:
    """The authorizer that the configuration wants, None for none. Raises ValueError for what cannot be."""
    wanted = config.string(CLASS_KEY).strip()
    if not wanted:
        return None
    if wanted != STANDARD:
        raise ValueError(f"{CLASS_KEY}={wanted} is not possible here: there is no JVM to load it, only {STANDARD}")
    super_users = [text.strip() for text in config.texts.get(SUPER_USERS_KEY, "").split(";") if text.strip()]
    for text in super_users:
        check_principal(SUPER_USERS_KEY, text)
    allows = config.texts.get(ALLOW_KEY, "false").strip().lower() == "true"
    return Authorizer(super_users, allows_without_acls=allows)


def check_principal(key: str, text: str) -> None:
    """Raise ValueError, naming the configuration key, unless the text is a principal: a type, a colon, a name."""
    if ":" not in text:
        raise ValueError(f"{key}: expected principals as type:name (User:alice), separated by semicolons, not {text!r}")
