"""`KRaftCluster`: its specification, and the rules over all of it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import UUID, Free, Model, Name, NodeId, Properties, Quantity, Rule, marked
from kraft_operator.api.listeners import LISTENERS_MAX, Listener
from kraft_operator.api.migration import MIGRATION_RULES, Migration
from kraft_operator.api.pools import NodePool
from kraft_operator.api.security import SECURITY_RULES, Security
from kraft_operator.api.windows import WINDOWS_MAX, MaintenanceWindow

CONTROLLER_PORT: Final = 9090
POOLS_MAX: Final = 10
REPLACEMENTS_MAX: Final = 32
VOTERS: Final = (1, 3, 5, 7, 9)
"""Allowed numbers of controllers, unless the number is changing."""
OWN_KEYS: Final = (
    "advertised.listeners",
    "broker.id",
    "broker.rack",
    "config.revision",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "http.listener",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
)
"""Kafka's keys that the operator derives from the rest of the resource."""

_VOTERS: Final = "filter(p, 'controller' in p.roles).map(p, has(p.replicas) ? p.replicas : 0).sum()"
_SAME_VOTERS_CEL: Final = (
    "{0}.nodePools.all(p, !('controller' in p.roles) || !has(p.replicas) || p.replicas == 0"
    " || {1}.nodePools.exists(q, q.name == p.name && 'controller' in q.roles && has(q.replicas)"
    " && q.replicas == p.replicas))"
)
"""The same pools with the same numbers: another pool with the same number means other voters."""
_INTERNAL_CEL: Final = "n.name == {0}.listeners.filter(l, l.type == 'Internal')[0].name"
"""Compares by a name of limited length: comparing two filtered lists is too expensive for the API server."""
_OWN_KEYS_CEL: Final = "[" + ",".join(f"'{key}'" for key in OWN_KEYS) + "]"


class QuorumSpec(Model):
    """The controllers' Raft quorum."""

    RULES: ClassVar = (
        Rule(
            "self.mode == oldSelf.mode || (oldSelf.mode == 'Static' && self.mode == 'Dynamic')",
            "a dynamic quorum (kraft.version 1) cannot become static again: make a new cluster and copy the topics",
        ),
    )
    mode: Annotated[
        Literal["Static", "Dynamic"],
        Field(description="Static: controller.quorum.voters (kraft.version 0). Dynamic: voters in the log (KIP-853)"),
    ] = "Static"
    allow_voter_changes: Annotated[
        bool,
        Field(description="allows an edit to change the number of controllers; one voter changes at a time"),
    ] = False
    give_up: Annotated[
        list[NodeId],
        Field(
            max_length=9,
            description="voters that are lost for good: the operator removes them from the quorum",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = []


class Replacement(Model):
    """A request to replace a node's disk or machine. It is done once; status.replacements shows its progress."""

    RULES: ClassVar = (
        Rule(
            "self.node == oldSelf.node && self.by == oldSelf.by",
            "a replacement is carried out once under its name: add another with a new name, and do not edit this entry",
        ),
    )
    name: Name
    node: NodeId
    by: Annotated[
        Literal["EmptyDisk", "NewId"],
        Field(
            description="EmptyDisk: same id, new volume. NewId: a node with a new id takes over, and this id retires"
        ),
    ]
    accept: Annotated[
        list[Literal["MetadataPause", "DataLoss"]],
        Field(
            max_length=2,
            description="risks taken knowingly. MetadataPause: the replaced voter is down, so metadata cannot change"
            " while another voter restarts. DataLoss: give up partitions that have their only in-sync copy on this"
            " node",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = []


class UpdateStrategy(Model):
    """How pods are restarted for changes."""

    parallelism: Annotated[
        Literal["One", "Rack"],
        Field(description="restart one broker at a time, or the brokers of a rack together if every ISR allows it"),
    ] = "One"
    racks_at_once: Annotated[
        int,
        Field(
            ge=1,
            le=10,
            description="with parallelism Rack: number of racks that restart together, if every ISR allows it",
        ),
    ] = 1
    paused: Annotated[bool, Field(description="no restarts for changes; all other work continues")] = False
    maintenance_windows: Annotated[
        list[MaintenanceWindow],
        Field(
            max_length=WINDOWS_MAX,
            description="restarts for changes wait for a window; if empty, they may happen at any time",
        ),
    ] = []
    supervised: Annotated[
        bool, Field(description="restarts wait for `kubectl kraft approve`: the annotation kraftcluster.io/approve")
    ] = False
    unavailable_topics: Annotated[
        list[Annotated[str, Field(max_length=249)]],
        Field(
            max_length=64,
            description="topics that may fall below min.insync.replicas while a broker restarts, such as topics with"
            " one replica",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = []


class Rack(Model):
    """The label of the machine that becomes `broker.rack`."""

    node_label: Annotated[str, Field(min_length=1, max_length=317)] = "topology.kubernetes.io/zone"


class DisruptionBudget(Model):
    """A PodDisruptionBudget for each role; one for all nodes if some nodes have both roles.

    It allows one pod at a time.
    """

    enabled: bool = True


class NetworkPolicies(Model):
    """NetworkPolicies of the nodes: only nodes and the operator can connect to controllers."""

    enabled: bool = True
    clients: Annotated[
        list[Free],
        Field(max_length=32, description="allowed clients of brokers, as NetworkPolicyPeers; all if empty"),
    ] = []


class MetricsEndpoint(Model):
    """The endpoint `/metrics` of every node."""

    enabled: bool = True
    port: Annotated[int, Field(ge=1024, le=65535)] = 9404


class Rebalance(Model):
    """When replicas are balanced among brokers, by count and racks.

    The annotation kraftcluster.io/rebalance requests it.
    """

    after_scaling: Annotated[bool, Field(description="move replicas to new brokers")] = True
    by_load: Annotated[
        Literal["Off", "Preview", "Move"],
        Field(
            description="balance bytes and leaders of brokers. Preview: status.balance lists the moves. Move: the"
            " operator moves a few partitions at a time, with the throttle of drain"
        ),
    ] = "Off"
    threshold_percent: Annotated[
        int,
        Field(ge=5, le=1000, description="for byLoad: a broker may be this far above the mean before anything moves"),
    ] = 20
    minimum_difference: Annotated[
        Quantity,
        Field(
            description="for byLoad: a broker may always have this many bytes above the mean, even beyond"
            " thresholdPercent"
        ),
    ] = "1Gi"


class Drain(Model):
    """How replicas move: off brokers that are removed, and for balancing."""

    partitions_at_once: Annotated[int, Field(ge=1, le=1000)] = 50
    bytes_per_second: Annotated[int, Field(ge=0, description="throttle of each broker; 0: no throttle")] = 0


class KRaftClusterSpec(Model):
    """The desired state of the cluster."""

    RULES: ClassVar = (
        Rule(
            "!has(oldSelf.clusterId) || (has(self.clusterId) && self.clusterId == oldSelf.clusterId)",
            "the cluster id is written on every volume and cannot change: make another KRaftCluster instead",
        ),
        Rule(
            f"self.nodePools.{_VOTERS} >= 1",
            "a cluster needs controllers: give one pool the role controller and replicas of 1, 3 or 5",
        ),
        Rule(
            f"self.quorum.allowVoterChanges || self.nodePools.{_VOTERS} in {list(VOTERS)}",
            "an even number of controllers survives no more failures than one less: give the pools with the role"
            " controller 1, 3 or 5 replicas",
        ),
        Rule(
            f"self.quorum.allowVoterChanges || ({_SAME_VOTERS_CEL.format('oldSelf', 'self')}"
            f" && {_SAME_VOTERS_CEL.format('self', 'oldSelf')})",
            "this changes the voters of a running quorum: set quorum.allowVoterChanges to true in the same edit; to"
            " replace a host, add an entry to spec.replacements",
        ),
        Rule(
            "self.nodePools.filter(p, !has(p.replicas)).size() <= 1",
            "only one pool of brokers can follow spec.replicas: set replicas in the other pools",
        ),
        Rule(
            "self.nodePools.all(p, self.nodePools.exists_one(q, q.firstNodeId == p.firstNodeId))",
            "two pools cannot use the same node ids: give each its own firstNodeId, 100 apart or more",
        ),
        Rule(
            "self.nodePools.all(p, self.nodePools.all(q, p.name == q.name || p.firstNodeId < q.firstNodeId"
            " || p.firstNodeId - q.firstNodeId >= 100))",
            "pools need room for their node ids: keep their firstNodeId 100 apart or more",
        ),
        Rule(
            "self.listeners.exists(l, l.type == 'Internal')",
            "brokers need a listener for each other: keep one of type Internal",
        ),
        Rule(
            "(self.hibernated && oldSelf.hibernated) || !self.listeners.exists(l, l.type == 'Internal')"
            f" || self.listeners.exists(n, {_INTERNAL_CEL.format('self')} && {_INTERNAL_CEL.format('oldSelf')})",
            "all brokers reach each other by the first listener of type Internal: keep it, and add others behind it."
            " Or set hibernated to true, and change it then",
        ),
        Rule(
            "self.listeners.all(l, self.listeners.exists_one(m, m.port == l.port))",
            "two listeners cannot have the same port: give each its own",
        ),
        Rule(
            f"self.listeners.all(l, l.port != {CONTROLLER_PORT} && l.port != self.metrics.port)"
            f" && self.metrics.port != {CONTROLLER_PORT}",
            f"port {CONTROLLER_PORT} is the controllers', metrics.port is the metrics': choose others for listeners",
        ),
        Rule(
            "self.listeners.all(l, l.name != 'controller'"
            " && (l.type == 'Internal' || !(l.name in ['bootstrap', 'nodes'])))",
            "a listener cannot be named controller, nor one for outside bootstrap or nodes, as services of these names"
            " are there: choose another name",
        ),
        Rule(
            f"self.config.all(k, !(k in {_OWN_KEYS_CEL}))",
            "spec.config has a key that follows from the rest of the resource (" + ", ".join(OWN_KEYS) + "): use"
            " nodePools, listeners, quorum, rack, metrics",
        ),
        Rule(
            f"self.nodePools.all(p, p.config.all(k, !(k in {_OWN_KEYS_CEL})))",
            "a pool's config has a key that follows from the rest of the resource: use nodePools, listeners, quorum,"
            " rack, metrics",
        ),
        Rule(
            "!has(self.security) || self.security.tls == 'Enabled'"
            " || self.listeners.all(l, !(l.type in ['Ingress', 'Route']))",
            "an Ingress or Route finds a broker by the name in the TLS handshake: set security.tls to Enabled, or"
            " choose another type",
        ),
        *SECURITY_RULES,
        *MIGRATION_RULES,
    )
    image: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=512,
                description="full reference of the nodes' image; default: the operator's setting",
            ),
        ]
        | None
    ) = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=8)] = []
    cluster_id: (
        Annotated[str, Field(pattern=UUID, description="generated if left out, see status.clusterId")] | None
    ) = None
    replicas: Annotated[
        int,
        Field(
            ge=0, le=100, description="replicas of the pool of brokers without its own number; kubectl scale sets it"
        ),
    ] = 3
    node_pools: Annotated[
        list[NodePool], Field(min_length=1, max_length=POOLS_MAX, json_schema_extra=marked(keys=("name",)))
    ]
    config: Annotated[Properties, Field(description="Kafka's keys for all nodes")] = {}
    unknown_config: Annotated[
        Literal["Refuse", "Allow"],
        Field(
            description="how to treat keys that this operator does not know; a later version of the node may know them"
        ),
    ] = "Refuse"
    listeners: Annotated[
        list[Listener], Field(min_length=1, max_length=LISTENERS_MAX, json_schema_extra=marked(keys=("name",)))
    ] = [Listener(name="plain", port=9092)]
    security: (
        Annotated[
            Security,
            Field(
                description="without it, a new cluster has TLS and authenticates clients, as with {}. A cluster that"
                " began without TLS stays so (status.security)"
            ),
        ]
        | None
    ) = None
    quorum: QuorumSpec = QuorumSpec()
    migration: (
        Annotated[
            Migration,
            Field(description="the cluster takes over a cluster with ZooKeeper; remove it once it is finalized"),
        ]
        | None
    ) = None
    metadata_version: (
        Annotated[
            str,
            Field(
                pattern=r"^[0-9]+\.[0-9]+(-IV[0-9]+)?$",
                description="finalized once all nodes run; default for a new cluster: the image's latest version",
            ),
        ]
        | None
    ) = None
    metadata_version_policy: Annotated[
        Literal["Keep", "Latest"],
        Field(
            description="if metadataVersion is not set. Keep: a new image keeps the finalized version, so the former"
            " image can return. Latest: after the roll, finalize the latest version that all nodes support"
        ),
    ] = "Keep"
    rack: Rack | None = None
    pod_disruption_budget: DisruptionBudget = DisruptionBudget()
    network_policies: NetworkPolicies = NetworkPolicies()
    update_strategy: UpdateStrategy = UpdateStrategy()
    drain: Drain = Drain()
    rebalance: Rebalance = Rebalance()
    metrics: MetricsEndpoint = MetricsEndpoint()
    replacements: Annotated[
        list[Replacement], Field(max_length=REPLACEMENTS_MAX, json_schema_extra=marked(keys=("name",)))
    ] = []
    paused: Annotated[bool, Field(description="the operator observes and changes nothing")] = False
    hibernated: Annotated[bool, Field(description="all pods are stopped, brokers first; volumes are kept")] = False
