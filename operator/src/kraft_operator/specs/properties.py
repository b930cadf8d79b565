"""A node's `server.properties`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kraft_operator.api.cluster import CONTROLLER_PORT, KRaftClusterSpec
from kraft_operator.api.listeners import Listener
from kraft_operator.api.pools import NodePool
from kraft_operator.api.template import without_later
from kraft_operator.plan.model.situation import MIGRATES
from kraft_operator.plan.model.wanted import STARTS_WITH
from kraft_operator.specs import migration, security
from kraft_operator.specs.cluster import NamedCluster, digest, listener_name
from kraft_operator.specs.config_check import VARIABLE
from kraft_protocol.configs import kafka
from kraft_protocol.configs.providers import PROVIDERS_KEY
from kraft_protocol.configs.rows import rows

DYNAMIC: Final = frozenset(row.name for row in rows(kafka.BROKER, kafka.BROKER_DYNAMIC_ONLY) if row.is_cluster_wide) - {
    PROVIDERS_KEY
}
"""Keys that all brokers change at run time, without a restart."""
DATA: Final = "/var/lib/kraft"
CONTROLLER_LISTENER: Final = "CONTROLLER"
MANIFESTS: Final = "manifests"
"""Aspect with the revision of the operator's own parts of pods: probes, security contexts, mounts, command."""
FIRST_REVISION: Final = "1"
"""Revision of pods without this aspect."""
REVISION: str = FIRST_REVISION
"""Current revision. Raise it with each change of `specs.pods` that running pods must get: every node restarts for it.
`kubectl kraft preview` of the new version shows these restarts before the operator is upgraded."""

OUTSIDE: Final = ("host_template", "advertised_port", "bootstrap", "brokers", "ingress_class")
"""Fields of listeners that only change addresses and objects outside of Kubernetes."""

External = Mapping[str, tuple[str, int]]
"""Host and port outside Kubernetes, by listener. A host may be `$(HOST_IP)`, which is replaced when the pod starts."""


def log_dir(volume: str) -> str:
    """The log directory on a volume."""
    return f"{DATA}/{volume}/log"


def volume_of(path: str) -> str:
    """Inverse of `log_dir`. Any other path is returned unchanged."""
    return path.removeprefix(f"{DATA}/").removesuffix("/log")


def properties(
    cluster: NamedCluster,
    pool: NodePool,
    node_id: int,
    roles: Collection[str],
    voters: Collection[int],
    bootstrap: Collection[int] = (),
    rack: str = "",
    *,
    migrates: bool = False,
) -> dict[str, str]:
    """A node's properties, without `advertised.listeners`, which need the addresses of its pod.

    `voters` is for a static quorum, `bootstrap` (controllers that know the leader) for a dynamic quorum.
    `migrates`: the node is a controller of a migration from ZooKeeper.
    """
    spec = cluster.spec
    found = {**security.defaults(cluster, roles), **spec.config, **pool.config}
    broker, controller = "broker" in roles, "controller" in roles
    served = cluster.listeners if broker else []
    listeners = [f"{listener_name(one)}://:{one.port}" for one in served]
    if controller:
        listeners.append(f"{CONTROLLER_LISTENER}://:{CONTROLLER_PORT}")
    found |= {
        "process.roles": ",".join(role for role in ("broker", "controller") if role in roles),
        "node.id": str(node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": CONTROLLER_LISTENER,
        "log.dirs": ",".join(log_dir(volume.name) for volume in pool.storage.volumes),
    }
    hosts = {i: f"{cluster.host(i)}:{CONTROLLER_PORT}" for i in sorted({*voters, *bootstrap})}
    if voters:
        found["controller.quorum.voters"] = ",".join(f"{i}@{hosts[i]}" for i in sorted(voters))
    else:
        found["controller.quorum.bootstrap.servers"] = ",".join(hosts.values())
    if rack and broker:
        found["broker.rack"] = rack
    if broker or migrates:  # a controller that migrates connects to brokers
        found["inter.broker.listener.name"] = listener_name(cluster.internal)
        served = served or [cluster.internal]
    if migrates:
        found |= migration.properties(cluster)
    found["listener.security.protocol.map"] = security.protocol_map(cluster, served, CONTROLLER_LISTENER)
    found |= security.properties(cluster, security.FOLDER, roles)
    found["http.listener"] = f":{spec.metrics.port}"  # probes need it, even without other users
    return dict(sorted(found.items()))


def advertised(cluster: NamedCluster, node_id: int, external: External) -> str:
    """`advertised.listeners` of a broker."""
    found = []
    for listener in cluster.listeners:
        host, port = external.get(listener.name, (cluster.host(node_id), listener.port))
        found.append(f"{listener_name(listener)}://{f'[{host}]' if ':' in host else host}:{port}")
    return ",".join(found)


def text(values: Mapping[str, str]) -> str:
    """Format a properties file. Java reads the same values from it."""
    return "".join(f"{_escaped(key, ' =:#!')}={_escaped(value)}\n" for key, value in values.items())


def _escaped(word: str, signs: str = "") -> str:
    """Escape a word.

    `signs`, a leading blank and backslashes get a backslash; non-printable characters become their number.
    """
    found = "".join(f"\\{c}" if c in f"\\{signs}" else c if " " <= c <= "~" else _numbered(c) for c in word)
    return f"\\{found}" if found.startswith(" ") else found


def _numbered(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def dynamic_values(spec: KRaftClusterSpec) -> dict[str, str]:
    """The keys of `spec.config` that brokers change at run time.

    Keys in the `config` of a pool are left out: a cluster-wide dynamic value would override the pool's file. So are
    values with variables, which nodes replace in their files alone.
    """
    own = {key for pool in spec.node_pools for key in pool.config}
    return {
        key: value for key, value in spec.config.items() if key in DYNAMIC and key not in own and VARIABLE not in value
    }


def aspects(cluster: NamedCluster, pool: NodePool, *, broker: bool) -> dict[str, str]:
    """Aspects that a broker or a controller of this pool must have. The planner adds the keys of roles and voters.

    Digests leave out fields with their default value, so a later operator with more fields computes equal digests and
    restarts no node for them.
    """
    dynamic = dynamic_values(cluster.spec)
    return {
        **_digests(cluster, pool, broker=broker),
        STARTS_WITH: ",".join(f"{key}={digest(value)}" for key, value in sorted(dynamic.items())),
        "image": cluster.image,
        MANIFESTS: REVISION,
    }


def aspects_of_before(cluster: NamedCluster, pool: NodePool, *, broker: bool) -> dict[str, frozenset[str]]:
    """The same aspects as earlier operators wrote them: every value that means the same.

    The first operators included fields with their default value. Later ones included the listeners of brokers in the
    digests of controllers.
    """
    older = [_digests(cluster, pool, broker=broker, defaults=form, all_listeners=True) for form in (True, False)]
    found = {key: frozenset(digests[key] for digests in older) for key in older[0]}
    if REVISION == FIRST_REVISION:
        found[MANIFESTS] = frozenset({""})
    if cluster.spec.migration is not None:
        found[MIGRATES] = frozenset({migration.zookeeper_digest_of_before(cluster.spec.migration)})
    return found


def _digests(
    cluster: NamedCluster, pool: NodePool, *, broker: bool, defaults: bool = False, all_listeners: bool = False
) -> dict[str, str]:
    """Digests of everything that a broker or a controller of this pool must restart for.

    `defaults` and `all_listeners` are the forms of earlier operators.
    """
    spec = cluster.spec
    dynamic = dynamic_values(spec)
    static: dict[str, Any] = {key: value for key, value in spec.config.items() if key not in dynamic}
    static |= {f"pool:{key}": value for key, value in pool.config.items()}
    if broker or all_listeners:
        # Where a certificate comes from restarts no node: only whether a broker reads a file of its own for it.
        others = {"host", "first_node_port", "certificate", *OUTSIDE, *(security.LATER if defaults else ())}
        static["listeners"] = [one.model_dump(exclude=others, exclude_defaults=not defaults) for one in spec.listeners]
    addresses = {one.name: found for one in spec.listeners if (found := _services(cluster, one, pool))}
    if addresses and broker:
        static["addresses"] = addresses
    if broker and (own := security.own_certificates(cluster)):
        static["certificates"] = [one.name for one in own]
    if cluster.secure:
        assert spec.security is not None
        static["security"] = [spec.security.authorization, sorted(spec.security.super_users)]
    static["volumes"] = sorted(volume.name for volume in pool.storage.volumes)
    static["http"] = spec.metrics.port
    template = without_later(pool.pod) if defaults else pool.pod.model_dump(exclude_defaults=True)
    return {
        "config": digest(static),
        "resources": digest(pool.resources.model_dump(exclude_defaults=not defaults)),
        "template": digest([template, spec.image_pull_secrets, spec.image_pull_policy]),
    }


def _services(cluster: NamedCluster, listener: Listener, pool: NodePool) -> list[Any]:
    """What the objects before a pool's brokers depend on, besides names and ports that clients see.

    These objects change while their broker restarts. A broker whose name or port changes restarts alone.
    """
    found: list[Any] = [listener.host, listener.first_node_port] if listener.host or listener.first_node_port else []
    own = [
        one.model_dump(exclude={"host", "advertised_port"}, exclude_defaults=True)
        for one in listener.brokers
        if cluster.pool_of_id(one.node) is pool
    ]
    more = [one for one in own if len(one) > len(("node",))]
    if more or listener.ingress_class is not None:
        found += [listener.ingress_class, more]
    return found
