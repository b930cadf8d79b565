"""A pool's pod template: additions to the pods that the operator makes.

The operator keeps the node container's command, ports and volumes. It also keeps the labels and annotations by which
it finds pods and the settings that they were made with. These have no field here, or a rule refuses and names the
value.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Amount, Free, Model, Name, Rule, marked

CONSTRAINTS_MAX: Final = 32
ENV_MAX: Final = 64
EXTRA_VOLUMES_MAX: Final = 16
SIDECARS_MAX: Final = 4
NODE_CONTAINER: Final = "node"
"""The container that runs the node."""
OWN_VARIABLES: Final = ("HOST_IP",)
"""Variables of the node container that the operator sets."""
OWN_VOLUMES: Final = ("config", "tmp")
"""Volumes of a pod that the operator mounts; volumes of log directories are named `volume-NAME`."""
OWN_LABELS: Final = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "kraftcluster.io/broker",
    "kraftcluster.io/controller",
    "kraftcluster.io/job",
    "kraftcluster.io/node",
    "kraftcluster.io/pool",
)
"""Labels by which the operator, services and budgets find pods."""
_OWN_LABELS_CEL: Final = "[" + ",".join(f"'{key}'" for key in OWN_LABELS) + "]"
_OWN_PATHS: Final = "^/(|etc(/kraft(/.*)?)?|var(/lib(/kraft(/.*)?)?)?|tmp(/.*)?)/?$"
"""Mounts there, or above, would hide the node's configuration, its log directories or its scratch space."""
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]


def _one_of(*fields: str) -> str:
    return " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields) + " == 1"


class KeyRef(Model):
    """A key of a Secret or ConfigMap in the same namespace."""

    name: ObjectName
    key: ObjectName
    optional: Annotated[bool, Field(description="the pod starts without it")] = False


class FieldRef(Model):
    """A field of the pod."""

    field_path: ObjectName


class ResourceFieldRef(Model):
    """A request or limit of a container."""

    resource: ObjectName
    container_name: ObjectName | None = None
    divisor: Amount | None = None


class EnvSource(Model):
    """The source of a variable's value. A Secret must be granted: see docs/how-to/pod-templates.md."""

    RULES: ClassVar = (
        Rule(
            _one_of("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"),
            "a value has one source: give one of secretKeyRef, configMapKeyRef, fieldRef, resourceFieldRef",
        ),
    )
    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None


class EnvVar(Model):
    """An environment variable."""

    RULES: ClassVar = (
        Rule(
            "!has(self.valueFrom) || self.value == ''",
            "a variable has a value or a source: give either value or valueFrom",
        ),
    )
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
    value: Annotated[str, Field(max_length=4096)] = ""
    value_from: EnvSource | None = None


class ExtraVolume(Model):
    """An additional volume. Secrets and claims must be granted: see docs/how-to/pod-templates.md."""

    RULES: ClassVar = (
        Rule(
            f"!(self.name in {list(OWN_VOLUMES)}) && !self.name.matches('^volume-')",
            "the operator mounts volumes named config, tmp and volume-NAME itself: choose another name",
        ),
        Rule(
            _one_of("configMap", "secret", "emptyDir", "persistentVolumeClaim", "projected", "downwardAPI"),
            "a volume has one source: give one of configMap, secret, emptyDir, persistentVolumeClaim, projected,"
            " downwardAPI",
        ),
    )
    name: Name
    config_map: Free | None = None
    secret: Free | None = None
    empty_dir: Free | None = None
    persistent_volume_claim: Free | None = None
    projected: Free | None = None
    downward_api: Free | None = Field(None, alias="downwardAPI")


class Mount(Model):
    """The mount of an extra volume in a container."""

    name: Name
    mount_path: Annotated[str, Field(pattern=r"^/[^:]*$", max_length=512)]
    sub_path: Annotated[str, Field(max_length=512)] | None = None
    read_only: bool = False


class Probe(Model):
    """Interval and time-out of a probe. The operator sets its request."""

    initial_delay_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    period_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    failure_threshold: Annotated[int, Field(ge=1, le=100_000)] | None = None


class Probes(Model):
    """Probes of the node container."""

    startup: Probe = Probe()
    readiness: Probe = Probe()
    liveness: Probe = Probe()


class PodSecurity(Model):
    """The pod's security context; it overrides the operator's. No container runs as root."""

    run_as_user: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    run_as_group: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    fs_group: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    fs_group_change_policy: Literal["Always", "OnRootMismatch"] | None = None
    supplemental_groups: Annotated[list[Annotated[int, Field(ge=1, le=2**31 - 1)]], Field(max_length=16)] = []
    se_linux_options: Free | None = None
    seccomp_profile: Free | None = None
    app_armor_profile: Free | None = None


class ContainerSecurity(Model):
    """A container's security context; it overrides the operator's. No container can gain privileges."""

    run_as_user: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    run_as_group: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    read_only_root_filesystem: bool | None = None
    se_linux_options: Free | None = None
    seccomp_profile: Free | None = None
    app_armor_profile: Free | None = None


class SidecarResources(Model):
    """Resources of a sidecar, as in Kubernetes."""

    requests: Annotated[dict[str, Amount], Field(max_length=16)] = {}
    limits: Annotated[dict[str, Amount], Field(max_length=16)] = {}


class Sidecar(Model):
    """An additional container, for example to ship logs. It can mount extra volumes only."""

    RULES: ClassVar = (
        Rule(f"self.name != '{NODE_CONTAINER}'", f"the container {NODE_CONTAINER} is the node's: choose another name"),
    )
    name: Name
    image: Annotated[str, Field(min_length=1, max_length=512)]
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    command: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=64)] = []
    args: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=64)] = []
    env: Annotated[list[EnvVar], Field(max_length=ENV_MAX, json_schema_extra=marked(keys=("name",)))] = []
    mounts: Annotated[list[Mount], Field(max_length=EXTRA_VOLUMES_MAX)] = []
    ports: Annotated[list[Free], Field(max_length=8)] = []
    resources: SidecarResources = SidecarResources()
    security_context: ContainerSecurity = ContainerSecurity()
    startup_probe: Free | None = None
    readiness_probe: Free | None = None
    liveness_probe: Free | None = None
    lifecycle: Free | None = None


class PodTemplate(Model):
    """Additions to the pods that the operator makes for a pool."""

    RULES: ClassVar = (
        Rule(
            f"self.labels.all(k, !(k in {_OWN_LABELS_CEL}))",
            "pods are found by these labels (" + ", ".join(OWN_LABELS) + "): choose others",
        ),
        Rule(
            "self.annotations.all(k, !k.matches('^aspect[.]kraftcluster[.]io/'))",
            "annotations aspect.kraftcluster.io/… record the settings of a pod: choose others",
        ),
        Rule(
            f"self.env.all(e, !(e.name in {list(OWN_VARIABLES)}))",
            f"the operator sets {', '.join(OWN_VARIABLES)} itself: choose another name for the variable",
        ),
        Rule(
            "self.mounts.all(m, self.volumes.exists(v, v.name == m.name))",
            "a mount names an extra volume: add it to pod.volumes",
        ),
        Rule(
            "self.sidecars.all(c, c.mounts.all(m, self.volumes.exists(v, v.name == m.name)))",
            "a sidecar's mount names an extra volume: add it to pod.volumes",
        ),
        Rule(
            f"self.mounts.all(m, !m.mountPath.matches('{_OWN_PATHS}'))",
            "the node mounts volumes at /etc/kraft, /var/lib/kraft and /tmp: mount the extra volume elsewhere",
        ),
    )
    affinity: Free | None = None
    anti_affinity: Annotated[
        Literal["Preferred", "Required", "None"],
        Field(
            description="machines that already run a node are avoided, forbidden, or treated like others. It "
            "applies among"
            " the brokers of a pool, and among all controllers"
        ),
    ] = "Preferred"
    tolerations: Annotated[list[Free], Field(max_length=CONSTRAINTS_MAX)] = []
    topology_spread_constraints: Annotated[list[Free], Field(max_length=CONSTRAINTS_MAX)] = []
    node_selector: Annotated[dict[str, str], Field(max_length=32)] = {}
    labels: Annotated[dict[str, str], Field(max_length=32)] = {}
    annotations: Annotated[dict[str, str], Field(max_length=32)] = {}
    priority_class_name: Annotated[str, Field(max_length=253)] | None = None
    service_account_name: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=253,
                description="an administrator must label it kraftcluster.io/nodes=allowed; its `secrets` are granted",
            ),
        ]
        | None
    ) = None
    automount_service_account_token: Annotated[
        bool, Field(description="mounts the account's token into the pod's containers; the node does not need it")
    ] = False
    env: Annotated[list[EnvVar], Field(max_length=ENV_MAX, json_schema_extra=marked(keys=("name",)))] = []
    volumes: Annotated[
        list[ExtraVolume], Field(max_length=EXTRA_VOLUMES_MAX, json_schema_extra=marked(keys=("name",)))
    ] = []
    mounts: Annotated[list[Mount], Field(max_length=EXTRA_VOLUMES_MAX, description="mounts in the node container")] = []
    sidecars: Annotated[list[Sidecar], Field(max_length=SIDECARS_MAX, json_schema_extra=marked(keys=("name",)))] = []
    probes: Probes = Probes()
    security_context: PodSecurity = PodSecurity()
    container_security_context: Annotated[
        ContainerSecurity, Field(description="the node container's security context; it overrides the operator's")
    ] = ContainerSecurity()
    termination_grace_seconds: Annotated[
        int, Field(ge=10, le=3600, description="time for controlled shutdown and for flushing logs")
    ] = 60


LATER: Final = frozenset(
    {
        "anti_affinity",
        "automount_service_account_token",
        "container_security_context",
        "mounts",
        "probes",
        "security_context",
        "service_account_name",
        "sidecars",
        "volumes",
    }
)
"""Fields that the first versions of the operator lacked."""


def without_later(template: PodTemplate) -> dict[str, Any]:
    """The template with its defaults in the form of the first operator versions: without unused later fields."""
    dumped = template.model_dump()
    none = PodTemplate()
    found = {
        key: value for key, value in dumped.items() if key not in LATER or getattr(template, key) != getattr(none, key)
    }
    found["env"] = [
        {key: value for key, value in one.items() if key != "value_from" or value is not None} for one in dumped["env"]
    ]
    return found
