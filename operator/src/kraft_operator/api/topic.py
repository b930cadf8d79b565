"""`KRaftTopic`: a topic as a resource."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Model, Properties, Rule, marked
from kraft_operator.api.status import Condition
from kraft_operator.plan.topics import INTERNAL

_INTERNAL_CEL: Final = "[" + ",".join(f"'{name}'" for name in sorted(INTERNAL)) + "]"


class KRaftTopicSpec(Model):
    """The desired state of the topic."""

    RULES: ClassVar = (
        Rule(
            "!has(oldSelf.cluster) || self.cluster == oldSelf.cluster",
            "a topic cannot move to another cluster: create another KRaftTopic there and copy the records",
        ),
        Rule(
            "has(self.topicName) == has(oldSelf.topicName)"
            " && (!has(self.topicName) || self.topicName == oldSelf.topicName)",
            "a topic cannot be renamed: create another KRaftTopic and copy the records",
        ),
        Rule(
            "self.partitions >= oldSelf.partitions",
            "partitions cannot be removed: create another topic with fewer and copy the records",
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
                            "message": "not a valid topic name: choose another",
                        },
                        {
                            "rule": f"!(self in {_INTERNAL_CEL})",
                            "message": "the topic is internal: choose another name",
                        },
                    ]
                },
            ),
        ]
        | None
    ) = None
    partitions: Annotated[int, Field(ge=1, le=100_000)] = 1
    replicas: Annotated[int, Field(ge=1, le=100, description="the cluster's default if left out")] | None = None
    config: Annotated[
        Properties,
        Field(
            description="these keys are set on the topic, and removed when they leave this list; other keys "
            "are unchanged"
        ),
    ] = {}
    adopt: (
        Annotated[bool, Field(description="take over an existing topic; by default an existing topic is left alone")]
        | None
    ) = None
    deletion_policy: Annotated[
        Literal["Keep", "Delete"], Field(description="what happens to the topic when the resource is deleted")
    ] = "Keep"


class KRaftTopicStatus(Model):
    """The state of the topic."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(json_schema_extra=marked(keys=("type",)))] = []
    topic_id: Annotated[str, Field(description="id of this resource's topic")] | None = None
    partitions: int | None = None
    replicas: int | None = None
    managed_config: Annotated[
        list[Annotated[str, Field(max_length=249)]],
        Field(
            max_length=1024, description="keys that this resource has set; they are removed when they leave spec.config"
        ),
    ] = []
    creating: Annotated[bool, Field(description="the topic was requested, and has not been seen yet")] = False
