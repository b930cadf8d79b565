"""`KRaftTopic`: a topic as a resource."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kraft_operator.api.base import Model, Properties, Rule, marked
from kraft_operator.api.status import Condition


class KRaftTopicSpec(Model):
    """What the topic shall be."""

    RULES: ClassVar = (
        Rule(
            "self.cluster == oldSelf.cluster",
            "a topic cannot move to another cluster: make another KRaftTopic there and copy the records",
        ),
        Rule(
            "has(self.topicName) == has(oldSelf.topicName)"
            " && (!has(self.topicName) || self.topicName == oldSelf.topicName)",
            "a topic cannot be renamed: make another KRaftTopic and copy the records",
        ),
        Rule(
            "self.partitions >= oldSelf.partitions",
            "partitions cannot be taken away: make another topic with fewer and copy the records",
        ),
    )
    cluster: Annotated[str, Field(min_length=1, max_length=63, description="the KRaftCluster in the same namespace")]
    topic_name: (
        Annotated[
            str,
            Field(
                pattern=r"^[a-zA-Z0-9._-]+$",
                max_length=249,
                description="the resource's name if left out",
                json_schema_extra={
                    "x-kubernetes-validations": [
                        {
                            "rule": "self != '.' && self != '..'",
                            "message": "not a topic's name: choose another",
                        }
                    ]
                },
            ),
        ]
        | None
    ) = None
    partitions: Annotated[int, Field(ge=1, le=100_000)] = 1
    replicas: Annotated[int, Field(ge=1, le=100, description="the cluster's default if left out")] | None = None
    config: Annotated[Properties, Field(description="the topic's own; what is not here is the cluster's")] = {}
    deletion_policy: Annotated[
        Literal["Keep", "Delete"], Field(description="what becomes of the topic when the resource is deleted")
    ] = "Keep"


class KRaftTopicStatus(Model):
    """How the topic is."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(json_schema_extra=marked(keys=("type",)))] = []
    topic_id: str | None = None
    partitions: int | None = None
    replicas: int | None = None
