"""The properties file and the commands of a local node. As on Kubernetes, except for paths and addresses."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from kraft_local.folder import Ports
from kraft_local.ports import CONTROLLER, HOST, HTTP, key
from kraft_operator.api.pools import NodePool
from kraft_operator.plan.model.record import Node
from kraft_operator.plan.model.wanted import STARTS_WITH
from kraft_operator.specs import security
from kraft_operator.specs.cluster import NamedCluster, listener_name
from kraft_operator.specs.properties import CONTROLLER_LISTENER, aspects, properties, text

START: Final = "kraft_node.cli.server_start"
STORAGE: Final = "kraft_node.cli.storage"
"""The node's programs. They are run, never imported."""
QUIET: Final = {"group.initial.rebalance.delay.ms": "0"}
"""Default configuration of local clusters: a consumer does not wait for other members."""


def program_version() -> str:
    """The version of the node that is installed with this program."""
    try:
        return version("kraftcluster")
    except PackageNotFoundError:
        return ""


def local_aspects(cluster: NamedCluster, pool: NodePool, *, broker: bool) -> dict[str, str]:
    """The aspects that a process must have. Image, resources and pod template do not apply."""
    found = aspects(cluster, pool, broker=broker)
    return {"config": found["config"], STARTS_WITH: found[STARTS_WITH], "program": program_version()}


def node_file(
    cluster: NamedCluster,
    pool: NodePool,
    node_id: int,
    roles: Collection[str],
    voters: Collection[int],
    ports: Ports,
    disk: Path,
    *,
    tls: Path,
    static: bool = True,
    migrates: bool = False,
) -> str:
    """The text of `server.properties`. `voters` are the static voters, or the bootstrap servers of a dynamic quorum.

    `tls` is the folder with the node's keys and certificates. `migrates`: a controller of a migration from ZooKeeper.
    """
    listeners = {one.name: listener_name(one) for one in cluster.listeners} if "broker" in roles else {}
    urls = [f"{shown}://{HOST}:{ports[key(node_id, name)]}" for name, shown in listeners.items()]
    own = {}
    if "broker" in roles:
        own["advertised.listeners"] = ",".join(urls)
    if "controller" in roles:
        urls.append(f"{CONTROLLER_LISTENER}://{HOST}:{ports[key(node_id, CONTROLLER)]}")
    known = (voters, ()) if static else ((), voters)
    addresses = [f"{i}@" * static + f"{HOST}:{ports[key(i, CONTROLLER)]}" for i in sorted(voters)]
    own |= {
        "listeners": ",".join(urls),
        f"controller.quorum.{'voters' if static else 'bootstrap.servers'}": ",".join(addresses),
        "log.dirs": ",".join(str(path) for path in log_dirs(pool, disk)),
        "http.listener": f"{HOST}:{ports[key(node_id, HTTP)]}",
    }
    own |= security.properties(cluster, str(tls), roles)
    return text({**QUIET, **properties(cluster, pool, node_id, roles, *known, migrates=migrates), **own})


def log_dirs(pool: NodePool, disk: Path) -> list[Path]:
    """The log directories of a disk, one for each volume of the pool."""
    return [disk / volume.name for volume in pool.storage.volumes]


def environment(pool: NodePool) -> Mapping[str, str]:
    """Additional environment variables of nodes. Variables with `valueFrom` are left out: their sources exist on
    Kubernetes only."""
    return {one.name: one.value for one in pool.pod.env if one.value_from is None}


def format_roles(node: Node) -> list[str]:
    """The roles in the file that formats a disk: all roles of the node, even if it starts with fewer."""
    return ["controller"] * node.controller + ["broker"] * node.broker


def start_command(file: Path) -> list[str]:
    """The command that starts a node."""
    return [sys.executable, "-m", START, str(file)]


def format_command(file: Path, cluster_id: str, release: str | None, dynamic: Sequence[str] = ()) -> list[str]:
    """The command that formats a disk. `-g` completes an interrupted format."""
    command = [sys.executable, "-m", STORAGE, "format", "-c", str(file), "-t", cluster_id, "-g", *dynamic]
    return [*command, "-r", release] if release is not None else command
