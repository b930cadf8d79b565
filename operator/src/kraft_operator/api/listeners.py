"""Listeners of the brokers in `spec.listeners`, and the rules about each of them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Model, Name, NodeId, Rule, SecretName, marked

LISTENERS_MAX: Final = 8
OVERRIDES_MAX: Final = 100
HOST: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
HOST_TEMPLATE: Final = r"^([-a-z0-9.]|[{](node[.]id|cluster[.]name|cluster[.]namespace|listener[.]name)[}])+$"
"""Host names in lower case, as Ingress and Route require, with placeholders."""
BY_SNI: Final = frozenset({"Ingress", "Route"})
"""Types whose router chooses the broker by the name in the TLS handshake (SNI), and does not decrypt."""
SNI_PORT: Final = 443

_BY_SNI_CEL: Final = "self.type in ['Ingress', 'Route']"

Host = Annotated[str, Field(max_length=253, pattern=HOST)]
Template = Annotated[str, Field(max_length=253, pattern=HOST_TEMPLATE)]
Annotations = dict[str, Annotated[str, Field(max_length=4096)]]
Port = Annotated[int, Field(ge=1, le=65535)]
LoadBalancerIp = Annotated[
    Annotated[str, Field(max_length=45, description="address that is requested from the load balancer")] | None,
    Field(alias="loadBalancerIP"),
]


class Bootstrap(Model):
    """The address for the first connection of clients: any ready broker answers there."""

    host: (
        Annotated[
            Template,
            Field(
                description="name by which clients reach the bootstrap address; may contain {cluster.name},"
                " {cluster.namespace} and {listener.name}"
            ),
        ]
        | None
    ) = None
    alternative_names: Annotated[
        list[Host],
        Field(max_length=16, description="further names in the certificates, such as an alias in the DNS"),
    ] = []
    annotations: Annotated[
        Annotations,
        Field(
            max_length=32,
            description="annotations of the bootstrap's objects; they take precedence over the listener's",
        ),
    ] = {}
    node_port: Annotated[Port, Field(description="default: any free port")] | None = None
    load_balancer_ip: LoadBalancerIp = None


class BrokerOverride(Model):
    """What differs for one broker of a listener."""

    node: NodeId
    host: (
        Annotated[Host, Field(description="name by which clients reach this broker, instead of hostTemplate")] | None
    ) = None
    advertised_port: Annotated[Port, Field(description="port by which clients reach this broker")] | None = None
    annotations: Annotated[
        Annotations,
        Field(
            max_length=32,
            description="annotations of the broker's objects; they take precedence over the listener's",
        ),
    ] = {}
    node_port: (
        Annotated[Port, Field(description="node port of this broker, instead of the port by firstNodePort")] | None
    ) = None
    load_balancer_ip: LoadBalancerIp = None


class IssuerRef(Model):
    """An issuer of cert-manager."""

    name: SecretName
    kind: Annotated[
        str,
        Field(min_length=1, max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9]*$", description="Issuer or ClusterIssuer"),
    ] = "Issuer"
    group: Annotated[
        str, Field(max_length=253, pattern=HOST, description="API group of the issuer, if it is not cert-manager's own")
    ] = "cert-manager.io"


class ListenerCertificate(Model):
    """Where the certificate of a listener comes from."""

    RULES: ClassVar = (
        Rule(
            "has(self.secretName) != has(self.issuerRef)",
            "a certificate comes from a Secret or from an issuer: give secretName or issuerRef",
        ),
    )
    secret_name: (
        Annotated[
            SecretName,
            Field(
                description="a Secret with tls.crt (the certificate, then its chain) and tls.key. Clients trust its"
                " ca.crt; without ca.crt they trust what their system trusts. An administrator must label the Secret"
                " kraftcluster.io/certificate=allowed"
            ),
        ]
        | None
    ) = None
    issuer_ref: (
        Annotated[
            IssuerRef, Field(description="the operator requests the certificate from this issuer of cert-manager")
        ]
        | None
    ) = None


class Listener(Model):
    """A listener of the brokers. The brokers use the first listener of type Internal among themselves."""

    RULES: ClassVar = (
        Rule(
            "self.type != 'Ingress' || (has(self.hostTemplate) && has(self.bootstrap.host))",
            "an Ingress finds a broker by its name: set hostTemplate (with {node.id}) and bootstrap.host",
        ),
        Rule(
            f"!({_BY_SNI_CEL}) || !has(self.tls) || self.tls",
            "an Ingress or Route finds a broker by the name in the TLS handshake: leave tls out, or choose"
            " LoadBalancer",
        ),
        Rule(
            "self.type != 'Internal' || (!has(self.hostTemplate) && !has(self.advertisedPort)"
            " && self.brokers.size() == 0 && !has(self.bootstrap.host))",
            "hostTemplate, advertisedPort, bootstrap.host and brokers are of listeners outside of Kubernetes: leave"
            " them out, or change the type",
        ),
        Rule(
            "!has(self.hostTemplate) || !has(self.host)",
            "host is the host of all brokers, and hostTemplate of each: give one of them",
        ),
        Rule(
            "self.type == 'NodePort' || !has(self.hostTemplate) || self.hostTemplate.matches('[{]node[.]id[}]')",
            "each broker needs its own name: put {node.id} into hostTemplate",
        ),
        Rule(
            "!has(self.bootstrap.host) || !self.bootstrap.host.matches('[{]node[.]id[}]')",
            "bootstrap.host cannot contain {node.id}: bootstrap is any broker, so give it one name",
        ),
        Rule(
            "self.type == 'Ingress' || !has(self.ingressClass)",
            "ingressClass is of listeners of type Ingress: leave it out, or change the type",
        ),
        Rule(
            "self.type == 'LoadBalancer' || (!has(self.bootstrap.loadBalancerIP)"
            " && self.brokers.all(b, !has(b.loadBalancerIP)))",
            "loadBalancerIP is of listeners of type LoadBalancer: leave it out, or change the type",
        ),
        Rule(
            "!has(self.certificate) || !has(self.tls) || self.tls",
            "a listener without TLS has no certificate: leave certificate out, or set tls to true",
        ),
        Rule(
            "self.type in ['NodePort', 'LoadBalancer'] || (!has(self.bootstrap.nodePort)"
            " && self.brokers.all(b, !has(b.nodePort)))",
            "nodePort is of listeners of type NodePort or LoadBalancer: leave it out, or change the type",
        ),
    )
    name: Name
    port: Annotated[int, Field(ge=1024, le=65535)]
    type: Annotated[
        Literal["Internal", "NodePort", "LoadBalancer", "Ingress", "Route"],
        Field(
            description="Internal: inside Kubernetes. The other types give every broker an address outside. Ingress and"
            " Route (OpenShift) pass TLS through by the name that clients ask for (SNI)"
        ),
    ] = "Internal"
    host: (
        Annotated[
            str, Field(max_length=253, description="the advertised host of a NodePort; default: the machine's address")
        ]
        | None
    ) = None
    first_node_port: (
        Annotated[
            int,
            Field(
                ge=1,
                le=65535,
                description="port of the first broker; the others follow by node id; default: any free port",
            ),
        ]
        | None
    ) = None
    host_template: (
        Annotated[
            Template,
            Field(
                description="name by which clients reach a broker, such as broker-{node.id}.kafka.example.com; may also"
                " contain {cluster.name}, {cluster.namespace} and {listener.name}. A Route without it has the name that"
                " OpenShift assigns"
            ),
        ]
        | None
    ) = None
    advertised_port: (
        Annotated[
            Port,
            Field(
                description="port by which clients reach brokers and bootstrap; default: 443 for Ingress and Route, the"
                " node port for NodePort, port for LoadBalancer"
            ),
        ]
        | None
    ) = None
    bootstrap: Annotated[Bootstrap, Field(description="the bootstrap address of a listener outside of Kubernetes")] = (
        Bootstrap()
    )
    brokers: Annotated[
        list[BrokerOverride],
        Field(
            max_length=OVERRIDES_MAX,
            description="what differs for single brokers",
            json_schema_extra=marked(keys=("node",)),
        ),
    ] = []
    ingress_class: (
        Annotated[str, Field(min_length=1, max_length=253, description="ingressClassName of an Ingress")] | None
    ) = None
    annotations: Annotated[
        Annotations,
        Field(
            max_length=32,
            description="annotations of the listener's services (for load balancers and DNS), Ingresses or Routes",
        ),
    ] = {}
    source_ranges: Annotated[
        list[Annotated[str, Field(max_length=64, pattern=r"^[0-9a-fA-F:.]+/[0-9]{1,3}$")]],
        Field(max_length=64, description="networks whose clients a LoadBalancer lets in; all if empty"),
    ] = []
    load_balancer_class: (
        Annotated[
            str,
            Field(
                min_length=1, max_length=253, description="loadBalancerClass of a LoadBalancer; it cannot be changed"
            ),
        ]
        | None
    ) = None
    tls: Annotated[bool, Field(description="default: true if security.tls is Enabled")] | None = None
    certificate: (
        Annotated[
            ListenerCertificate, Field(description="default: the certificates of the nodes, by the cluster's authority")
        ]
        | None
    ) = None
    authentication: (
        Annotated[
            Literal["MutualTls", "ScramSha512", "Anonymous"],
            Field(
                description="MutualTls: certificates of the clients' authority; the user is the common name."
                " ScramSha512: passwords. Default: MutualTls with TLS, Anonymous without"
            ),
        ]
        | None
    ) = None

    def override(self, node_id: int) -> BrokerOverride | None:
        """What differs for a broker; None if nothing does."""
        return next((one for one in self.brokers if one.node == node_id), None)
