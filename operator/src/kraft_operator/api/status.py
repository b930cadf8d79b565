"""`KRaftCluster`'s status: the report of the operator, and the few facts that it must remember.

It remembers facts that cannot be observed: the cluster id, all ids ever assigned, and the disk of each node in force.
It also remembers voters that are being put into force, and replacements under way. All other facts are observed in
every pass.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Model, NodeId, marked
from kraft_operator.plan.topics import CLAIMS_MAX

NODES_MAX: Final = 1000
PARTITIONS_NAMED_MAX: Final = 10
"""Maximum of partitions that the status names; it counts all of them."""


class Condition(Model):
    """A condition, as in Kubernetes: type, status, reason for programs, message for people."""

    type: Literal["Ready", "QuorumHealthy", "Progressing", "Degraded", "Paused", "Secured", "Migrated"]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(max_length=128)]
    message: Annotated[str, Field(max_length=4096)] = ""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    observed_generation: int = 0


class NodeStatus(Model):
    """One node: its stored state (up to `leaving`), and its observed state."""

    id: NodeId
    pool: str
    roles: list[Literal["controller", "broker"]]
    disk: Annotated[int, Field(description="number of empty disks that the node got; part of its volumes' names")] = 0
    formatted: Annotated[bool, Field(description="the current disk is formatted; it is never formatted again")] = False
    leaving: bool = False
    stopped: Annotated[bool, Field(description="stopped for good; the node is never started again")] = False
    volumes: Annotated[
        list[str], Field(description="formatted volumes of the disk; they are never formatted again")
    ] = []
    rack: Annotated[str, Field(description="rack of the machine that it ran on last")] = ""
    pod: str = ""
    volume: str = ""
    state: Annotated[
        str,
        Field(
            description="Ready, Starting, Stopping, Stopped; Fenced: the broker runs, and the controller has fenced it;"
            " Leaving: it runs until its replicas have moved; Formatting: its volumes are being prepared; Waiting: it"
            " has no pod, and the operator cannot or must not start it now; Failing: its pod or format job cannot"
            " start; Unschedulable: no machine takes its pod; MachineLost: its machine does not answer"
        ),
    ] = ""
    quorum: Annotated[str, Field(description="role of a controller: leader, voter or observer")] = ""
    epoch: int | None = None
    lag: (
        Annotated[int, Field(description="metadata records that it lacks compared with the active controller")] | None
    ) = None
    needs_restart: Annotated[list[str], Field(description="changes that its pod does not have yet")] = []


class ReplacementStatus(Model):
    """The progress of a replacement."""

    name: str
    node: NodeId
    by: Literal["EmptyDisk", "NewId"]
    disk: Annotated[int, Field(description="EmptyDisk: the disk that takes over")] = 0
    new_id: NodeId | None = None
    done: bool = False
    accept: Annotated[list[str], Field(description="risks that were accepted when it began")] = []


class PartitionsStatus(Model):
    """The number of partitions, and partitions with problems."""

    total: int = 0
    under_replicated: Annotated[int, Field(description="partitions with a replica that is not in sync")] = 0
    under_min_isr: Annotated[int, Field(description="partitions that refuse acks=all")] = 0
    moving: Annotated[int, Field(description="partitions whose replicas are being reassigned")] = 0
    named: Annotated[
        list[str], Field(max_length=PARTITIONS_NAMED_MAX, description="the first of these, with their in-sync replicas")
    ] = []


class OwnedTopic(Model):
    """A topic that is deleted with its resource."""

    name: Annotated[str, Field(max_length=249)]
    id: Annotated[str, Field(max_length=22)]
    resource: Annotated[
        str, Field(max_length=253, description="name of the KRaftTopic; empty from an older operator")
    ] = ""
    uid: Annotated[str, Field(max_length=64, description="uid of the KRaftTopic")] = ""


class BrokerAddress(Model):
    """The address of a broker for clients outside."""

    node: NodeId
    address: Annotated[str, Field(description="HOST:PORT")]


class ListenerStatus(Model):
    """The addresses of a listener."""

    name: str
    type: str
    bootstrap_servers: Annotated[
        str, Field(description="HOST:PORT for the first connection of clients; empty until it is known")
    ] = ""
    brokers: Annotated[
        list[BrokerAddress],
        Field(
            description="addresses of the brokers, for a listener outside of Kubernetes",
            json_schema_extra=marked(keys=("node",)),
        ),
    ] = []


class AuthorityStatus(Model):
    """A certificate authority of the cluster."""

    name: Annotated[str, Field(max_length=16, description="cluster or clients")]
    key: Annotated[str, Field(max_length=64, description="SHA-256 of its public key")]


class MigrationStatus(Model):
    """The migration from ZooKeeper."""

    phase: Annotated[
        Literal["Preparing", "Migrated", "Finalizing", "Finalized"],
        Field(
            description="Preparing: the metadata is in ZooKeeper. Migrated: changes go to the metadata log and to"
            " ZooKeeper. Finalizing: controllers restart without ZooKeeper"
        ),
    ]
    state: Annotated[
        str, Field(description="state of the migration that the active controller reports; empty if unknown")
    ] = ""
    driver: Annotated[str, Field(description="state of the active controller's driver, such as DUAL_WRITE")] = ""
    lag: Annotated[int, Field(description="metadata records that ZooKeeper lacks")] | None = None
    partitions_outside: (
        Annotated[int, Field(description="partitions with a replica on one of spec.migration.brokers")] | None
    ) = None
    brokers_on_zookeeper: Annotated[list[NodeId], Field(description="brokers that still use ZooKeeper")] = []
    blockers: Annotated[list[str], Field(description="what prevents the migration, with the broker or controller")] = []


class StepStatus(Model):
    """The current step, or the next step that waits for approval."""

    action: str
    nodes: list[NodeId] = []
    why: str = ""
    waits_for: str = ""


class KRaftClusterStatus(Model):
    """The state of the cluster."""

    observed_generation: int = 0
    cluster_id: str | None = None
    conditions: Annotated[list[Condition], Field(json_schema_extra=marked(keys=("type",)))] = []
    nodes: Annotated[list[NodeStatus], Field(max_length=NODES_MAX, json_schema_extra=marked(keys=("id",)))] = []
    retired_ids: Annotated[list[NodeId], Field(description="ids of removed nodes; never used again")] = []
    voters: Annotated[list[NodeId], Field(description="controller.quorum.voters that is being rolled out")] = []
    replacements: Annotated[list[ReplacementStatus], Field(json_schema_extra=marked(keys=("name",)))] = []
    managed_config: Annotated[
        list[str],
        Field(description="dynamic keys that the operator has set; it removes them when they leave spec.config"),
    ] = []
    joining: Annotated[int, Field(description="node that becomes a voter once it has caught up; -1: none")] = -1
    dynamic: Annotated[bool, Field(description="the voters are in the log; this cannot be undone")] = False
    balanced: Annotated[list[NodeId], Field(description="brokers among which replicas have been balanced")] = []
    balanced_for: Annotated[str, Field(description="the last request to balance that was carried out")] = ""
    topics: Annotated[
        list[OwnedTopic],
        Field(
            max_length=CLAIMS_MAX,
            description="topics that are deleted with their KRaftTopic",
            json_schema_extra=marked(keys=("name",)),
        ),
    ] = []
    authorities: Annotated[
        list[AuthorityStatus],
        Field(description="authorities that the nodes trust", json_schema_extra=marked(keys=("name",))),
    ] = []
    listeners: Annotated[
        list[ListenerStatus],
        Field(description="addresses for clients, as last known", json_schema_extra=marked(keys=("name",))),
    ] = []
    security: Annotated[
        Literal["Tls", "Plaintext"] | None,
        Field(description="how nodes connect to each other; it changes only while the cluster is hibernated"),
    ] = None
    migration: MigrationStatus | None = None
    leader: NodeId | None = None
    version: Annotated[str, Field(description="finalized metadata.version")] = ""
    controllers: Annotated[str, Field(description="number of ready controllers / wanted controllers")] = ""
    brokers: Annotated[str, Field(description="number of ready brokers / wanted brokers")] = ""
    partitions: Annotated[PartitionsStatus, Field(description="numbers of partitions, as last known")] | None = None
    replicas: Annotated[int, Field(description="number of brokers in the pool that spec.replicas sets")] = 0
    selector: Annotated[str, Field(description="label selector of these brokers' pods")] = ""
    step: StepStatus | None = None
    plan: Annotated[list[str], Field(description="conditions that a restart waits for, and the steps after it")] = []
    balance: Annotated[
        list[str], Field(description="partitions that would move for rebalance.byLoad, as old and new replicas")
    ] = []
    revision: Annotated[str, Field(description="id of the plan that `kubectl kraft approve` approves")] = ""
    last_reconcile_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
