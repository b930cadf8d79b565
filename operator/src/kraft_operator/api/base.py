"""The base class of all models, and the marks of Kubernetes' schemas (`x-kubernetes-*`) as arguments of fields.

A model's CEL rules are its class attribute `RULES`; a field's are given with `marked(rules=…)`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

GROUP: Final = "kraftcluster.io"
VERSION: Final = "v1alpha1"

NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label: names of pools, listeners and volumes become parts of pods' and services' names."""
NAME_CHARS_MAX: Final = 30
CLUSTER_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""Names of services begin with the cluster's name: no dots, and a letter first."""
CLUSTER_NAME_CHARS_MAX: Final = 40
"""Limit of the resource's name: a pod is named `NAME-ID`, its format job `NAME-ID-format-DISK`, in at most 63
characters.
"""
UUID: Final = r"^[A-Za-z0-9_-]{22}$"
"""Kafka's form of an id: 16 bytes in URL-safe base64 without padding."""
QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?(m|[kMGTPE]|[KMGTPE]i)?$"
QUANTITY_CHARS_MAX: Final = 32


class Rule(NamedTuple):
    """One CEL rule (`x-kubernetes-validations`). With `oldSelf` it is a rule about changes."""

    rule: str
    message: str


class Model(BaseModel):
    """A model with camel case in YAML. Unknown keys are refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")
    RULES: ClassVar[tuple[Rule, ...]] = ()


def rules_of(rules: tuple[Rule, ...]) -> dict[str, Any]:
    """The schema's form of rules."""
    return {"x-kubernetes-validations": [rule._asdict() for rule in rules]} if rules else {}


def marked(*, keys: tuple[str, ...] = (), rules: tuple[Rule, ...] = (), free: bool = False) -> dict[str, Any]:
    """Marks for `Field(json_schema_extra=…)`.

    `keys` make a list a map by these keys: two writers can own different items, and changes apply to items. `free`
    accepts any content, for parts that Kubernetes defines and checks.
    """
    marks: dict[str, Any] = rules_of(rules)
    if keys:
        marks |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    if free:
        marks |= {"x-kubernetes-preserve-unknown-fields": True}
    return marks


Name = Annotated[str, Field(pattern=NAME, max_length=NAME_CHARS_MAX)]
SecretName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
NodeId = Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra={"format": "int32"})]
Quantity = Annotated[str, Field(pattern=QUANTITY, max_length=QUANTITY_CHARS_MAX)]
Amount = Annotated[
    Quantity,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    WithJsonSchema(
        {"pattern": QUANTITY, "maxLength": QUANTITY_CHARS_MAX, "minimum": 0, "x-kubernetes-int-or-string": True}
    ),
]
"""A quantity that may also be a number, as in pods: `cpu: 1`."""
Free = Annotated[dict[str, Any], Field(json_schema_extra=marked(free=True))]
"""A part of a pod's specification, as in Kubernetes."""
Properties = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=256)]
"""Kafka's configuration: keys and values, every value a string."""
