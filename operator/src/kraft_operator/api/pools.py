"""Node pools: nodes with equal roles, volumes and pods."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Amount, Model, Name, NodeId, Properties, Quantity, Rule, marked
from kraft_operator.api.template import PodTemplate

VOLUMES_MAX: Final = 8
"""Maximum of a node's log directories; Kafka has no limit of its own."""
POOL_REPLICAS_MAX: Final = 100


class VolumeSpec(Model):
    """One persistent volume of a node: one of its log directories."""

    RULES: ClassVar = (
        Rule(
            "has(self.storageClass) == has(oldSelf.storageClass)"
            " && (!has(self.storageClass) || self.storageClass == oldSelf.storageClass)",
            "the storage class of a volume cannot change: add a pool with the other class, then remove this pool",
        ),
        Rule(
            "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
            "a volume cannot shrink: keep the size, or move to a pool with smaller volumes",
        ),
    )
    name: Name = "data"
    size: Quantity = "10Gi"
    storage_class: Annotated[str, Field(max_length=253, description="the default class if left out")] | None = None


class Storage(Model):
    """The volumes of each node of a pool."""

    volumes: Annotated[
        list[VolumeSpec],
        Field(
            min_length=1,
            max_length=VOLUMES_MAX,
            json_schema_extra=marked(
                keys=("name",),
                rules=(
                    Rule(
                        "self[0].name == oldSelf[0].name",
                        "the first volume has the metadata log and stays first: keep it. To remove it, add a pool"
                        " without it and remove this pool",
                    ),
                ),
            ),
        ),
    ] = [VolumeSpec()]
    deletion_policy: Annotated[
        Literal["Keep", "Delete"],
        Field(description="what happens to volumes when their node is removed for good, or the resource is deleted"),
    ] = "Keep"


class Resources(Model):
    """Resources of the node's container, as in Kubernetes."""

    requests: Annotated[dict[str, Amount], Field(max_length=16)] = {"cpu": "100m", "memory": "128Mi"}
    limits: Annotated[dict[str, Amount], Field(max_length=16)] = {}


class NodePool(Model):
    """Nodes of the same kind."""

    RULES: ClassVar = (
        Rule(
            "self.firstNodeId == oldSelf.firstNodeId",
            "a node keeps its id forever, and no id is used twice: add a pool with another firstNodeId instead",
        ),
        Rule(
            "self.roles.all(r, r in oldSelf.roles) || oldSelf.roles.all(r, r in self.roles)",
            "roles of a pool can be added or removed, not exchanged: add a pool with the other role",
        ),
        Rule(
            "'controller' in self.roles ? has(self.replicas) : true",
            "a pool with controllers needs a number: set replicas (only brokers follow kubectl scale)",
        ),
        Rule(
            "!('controller' in self.roles) || !has(self.replicas) || self.replicas <= 9",
            "a pool has at most 9 controllers: every commit waits for a majority of them",
        ),
    )
    name: Name
    roles: Annotated[
        list[Literal["controller", "broker"]],
        Field(min_length=1, max_length=2, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    replicas: (
        Annotated[
            int,
            Field(
                ge=0,
                le=POOL_REPLICAS_MAX,
                description="default: spec.replicas; only one pool of brokers may omit it",
            ),
        ]
        | None
    ) = None
    first_node_id: Annotated[NodeId, Field(description="ids are assigned upwards from here; no id is used twice")]
    storage: Storage = Storage()
    resources: Resources = Resources()
    pod: PodTemplate = PodTemplate()
    config: Annotated[Properties, Field(description="Kafka's keys for this pool; they override spec.config")] = {}

    def model_post_init(self, context: Any, /) -> None:
        """Sort the roles, so that their order in the file does not matter."""
        del context
        self.roles = sorted(set(self.roles), reverse=True)
