"""The pod of a pipeline's driver, and its volumes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Amount, Free, Model, Name, Quantity, Rule, marked
from kraft_operator.api.template import CONSTRAINTS_MAX, ENV_MAX

VOLUMES_MAX: Final = 8


class DriverVolume(Model):
    """A volume of the driver: an existing claim with the label kraftcluster.io/pipelines=allowed, or a claim that the
    operator makes and never deletes."""

    RULES: ClassVar = (
        Rule(
            "has(self.claimName) != has(self.size)",
            "a volume is either an existing claim or a new claim: give claimName or size",
        ),
    )
    name: Name
    mount_path: Annotated[str, Field(pattern=r"^/[^:]*[^:/]$", max_length=512)]
    claim_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    size: Quantity | None = None
    storage_class: Annotated[str, Field(max_length=253, description="the default class if left out")] | None = None
    access_mode: Annotated[
        Literal["ReadWriteOnce", "ReadWriteMany"],
        Field(description="access mode of a new claim; executors need ReadWriteMany"),
    ] = "ReadWriteOnce"


class DriverResources(Model):
    """Resources of the driver's container, as in Kubernetes."""

    requests: Annotated[dict[str, Amount], Field(max_length=16)] = {"cpu": "500m", "memory": "1Gi"}
    limits: Annotated[dict[str, Amount], Field(max_length=16)] = {"memory": "2Gi"}


class Driver(Model):
    """How a pipeline runs as a pod."""

    image: Annotated[str, Field(min_length=1, max_length=512, description="default: the operator's setting")] | None = (
        None
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=8)] = []
    resources: DriverResources = DriverResources()
    env: Annotated[
        list[Free],
        Field(
            max_length=ENV_MAX,
            description="environment variables; Secrets must be listed in the service account kraft-pipeline",
        ),
    ] = []
    volumes: Annotated[list[DriverVolume], Field(max_length=VOLUMES_MAX, json_schema_extra=marked(keys=("name",)))] = []
    scratch: Annotated[Quantity, Field(description="maximum size of temporary files")] = "4Gi"
    labels: Annotated[dict[str, str], Field(max_length=32)] = {}
    annotations: Annotated[dict[str, str], Field(max_length=32)] = {}
    node_selector: Annotated[dict[str, str], Field(max_length=32)] = {}
    tolerations: Annotated[list[Free], Field(max_length=CONSTRAINTS_MAX)] = []
    affinity: Free | None = None
    priority_class_name: Annotated[str, Field(max_length=253)] | None = None
