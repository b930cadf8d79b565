"""`spec.security` of a KRaftCluster, and the rules about it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Model, Name, Rule, SecretName

NODES_PORT: Final = 9091
"""The port of the nodes' own listener in a cluster with TLS."""
NODES_LISTENER: Final = "replication"
CERTIFICATE_DAYS_MAX: Final = 36_500
SECURITY_KEYS: Final = (
    "authorizer.class.name",
    "ssl.allow.san.changes",
    "ssl.client.auth",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "super.users",
)
"""Kafka's keys that the operator derives from `spec.security`, if that has TLS."""

_SECURE: Final = "(has({0}.security) && {0}.security.tls == 'Enabled')"
_KEYS_CEL: Final = "[" + ",".join(f"'{key}'" for key in SECURITY_KEYS) + "]"
_SAFE_LISTENER_CEL: Final = (
    "(self.security.tls == 'Enabled' && (!has(l.tls) || l.tls || has(l.authentication))"
    " && (!has(l.authentication) || l.authentication != 'Anonymous'))"
)

SECURITY_RULES: Final = (
    Rule(
        "(self.hibernated && oldSelf.hibernated) || !has(self.security) || !has(oldSelf.security)"
        " || self.security.tls == oldSelf.security.tls",
        "nodes with TLS and nodes without it cannot connect to each other: set hibernated to true, and change"
        " security.tls then",
    ),
    Rule(
        f"!{_SECURE.format('self')} || (self.metrics.port != {NODES_PORT} && self.listeners.all(l,"
        f" l.port != {NODES_PORT} && l.name != '{NODES_LISTENER}'))",
        f"with TLS, port {NODES_PORT} and the name {NODES_LISTENER} are of the nodes' own listener: choose others",
    ),
    Rule(
        "!has(self.security) || self.security.tls == 'Enabled'"
        " || self.listeners.all(l, !has(l.authentication) && (!has(l.tls) || !l.tls) && !has(l.certificate))",
        "tls, certificate and authentication of a listener need the authorities of the cluster: set security.tls to"
        " Enabled",
    ),
    Rule(
        "self.listeners.all(l, !has(l.authentication) || l.authentication != 'MutualTls' || !has(l.tls) || l.tls)",
        "a listener without TLS cannot have authentication MutualTls: leave tls out, or choose ScramSha512",
    ),
    Rule(
        "!has(self.security) || self.listeners.all(l, l.type == 'Internal'"
        f" || l.name in self.security.openListeners || {_SAFE_LISTENER_CEL})",
        "a listener outside of Kubernetes without authentication is open to everybody who reaches it: set"
        " authentication to MutualTls or ScramSha512, or name the listener in security.openListeners",
    ),
    Rule(
        "has(self.security) || self.listeners.all(l, l.type == 'Internal' || !has(l.authentication)"
        " || l.authentication != 'Anonymous')",
        "a listener outside of Kubernetes with authentication Anonymous is open to everybody who reaches it: set"
        " authentication to MutualTls or ScramSha512, or name the listener in security.openListeners",
    ),
    Rule(
        "self.listeners.all(l, l.type == 'LoadBalancer' || (l.sourceRanges.size() == 0 && !has(l.loadBalancerClass)))",
        "sourceRanges and loadBalancerClass are of listeners of type LoadBalancer: leave them out, or change the type",
    ),
    Rule(
        f"!{_SECURE.format('self')} || (self.config.all(k, !(k in {_KEYS_CEL}))"
        f" && self.nodePools.all(p, p.config.all(k, !(k in {_KEYS_CEL}))))",
        "config has a key that follows from spec.security (" + ", ".join(SECURITY_KEYS) + "): use spec.security",
    ),
)
"""Rules of the specification. Without `security`, the mode is in the record alone: passes check the rest."""

MODE_RULES: Final = (
    Rule(
        "!has(self.spec.security) || (self.spec.hibernated && oldSelf.spec.hibernated)"
        " || (has(oldSelf.spec.security) && oldSelf.spec.security.tls == self.spec.security.tls)"
        " || !has(oldSelf.status) || !has(oldSelf.status.security)"
        " || (self.spec.security.tls == 'Enabled') == (oldSelf.status.security == 'Tls')",
        "security.tls differs from status.security, and nodes with TLS and nodes without it cannot connect to each"
        " other: set hibernated to true, and change security.tls then",
    ),
    Rule(
        "has(self.spec.security) || !has(oldSelf.status) || !has(oldSelf.status.security)"
        " || oldSelf.status.security == 'Tls' || self.spec.listeners.all(l, l.type == 'Internal'"
        " || oldSelf.spec.listeners.exists(o, o.name == l.name && o.type != 'Internal'))",
        "this cluster has no TLS, so a listener outside of Kubernetes is open to everybody who reaches it: set"
        " security.tls to Disabled, and name the listener in security.openListeners",
    ),
    Rule(
        "has(self.spec.security) || !has(oldSelf.status) || !has(oldSelf.status.security)"
        " || oldSelf.status.security == 'Tls'"
        " || self.spec.listeners.all(l, !has(l.authentication) && (!has(l.tls) || !l.tls) && !has(l.certificate))",
        "this cluster began without TLS, so a listener has no tls, certificate or authentication: turn TLS on first",
    ),
)
"""Rules of the whole resource about changes: they compare with the mode in which the cluster runs."""


class CertificateAuthority(Model):
    """A certificate authority of the cluster. Without a Secret of yours, the operator makes it."""

    RULES: ClassVar = (
        Rule(
            "self.renewBeforeDays < self.validityDays",
            "an authority is renewed before its end: keep renewBeforeDays below validityDays",
        ),
    )
    secret_name: (
        Annotated[
            SecretName,
            Field(description="your own authority: a Secret with ca.crt and ca.key, or of cert-manager; you renew it"),
        ]
        | None
    ) = None
    validity_days: Annotated[int, Field(ge=2, le=CERTIFICATE_DAYS_MAX)] = 1825
    renew_before_days: Annotated[
        int,
        Field(
            ge=1,
            le=CERTIFICATE_DAYS_MAX,
            description="an authority is renewed, with its key, this long before it expires",
        ),
    ] = 90
    overlap_minutes: Annotated[
        int,
        Field(
            ge=0,
            le=525_600,
            description="after a replacement, clients have this long to trust the new authority before it issues",
        ),
    ] = 60


class Security(Model):
    """TLS, authentication and permissions of the cluster."""

    tls: Annotated[
        Literal["Enabled", "Disabled"],
        Field(
            description="Enabled: all connections between nodes, and of the operator, have TLS with certificates of"
            " both sides; listeners for clients have TLS unless they say otherwise"
        ),
    ] = "Enabled"
    authorization: Annotated[
        Literal["Acls", "Everything"],
        Field(description="Acls: clients may do what ACLs allow. Everything: each client may do everything"),
    ] = "Acls"
    super_users: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=249, pattern=r"^[^;:\s]+$")]],
        Field(
            max_length=64,
            description="users that may do everything, as the operator and the nodes may",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = []
    cluster_authority: Annotated[CertificateAuthority, Field(description="it issues the certificates of the nodes")] = (
        CertificateAuthority()
    )
    clients_authority: Annotated[
        CertificateAuthority, Field(description="listeners with authentication MutualTls trust its certificates")
    ] = CertificateAuthority()
    open_listeners: Annotated[
        list[Name],
        Field(
            max_length=8,
            description="listeners outside of Kubernetes that may serve clients without authentication",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = []
