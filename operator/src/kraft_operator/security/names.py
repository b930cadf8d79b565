"""Names that certificates have in common: of stored objects, of files, and of the nodes and the operator themselves."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = "cluster"
CLIENTS: Final = "clients"
"""The two authorities."""
KEYS: Final = "node.pem"
"""Key and certificate of a node."""
CLUSTER_TRUST: Final = "cluster-ca.pem"
CLIENTS_TRUST: Final = "clients-ca.pem"
TRUST: Final = "trust"
"""The public object with the certificates that clients of the cluster trust."""
TRUSTED: Final = "ca.crt"
NODE: Final = "node"
OPERATOR: Final = "operator"
USER: Final = "kraftuser"


def authority_name(name: str) -> str:
    """The stored name of an authority."""
    return f"{name}-ca"


def node_name(node_id: int) -> str:
    """The stored name of a node's files."""
    return f"{node_id}-tls"


def listener_file(listener: str) -> str:
    """The file of a node with the key and the certificate of a listener that has its own."""
    return f"listener-{listener}.pem"


def listener_of(file: str) -> str | None:
    """Inverse of `listener_file`. Returns None for any other file."""
    found = file.removeprefix("listener-").removesuffix(".pem")
    return found if file == listener_file(found) else None


def trusted_by_clients_of(listener: str) -> str:
    """The entry of the public object with what clients of such a listener trust."""
    return f"{listener}.{TRUSTED}"


def listener_secret(listener: str) -> str:
    """The stored name of a listener's certificate that cert-manager issues."""
    return f"{listener}-listener-tls"


def subject(role: str, cluster: str, namespace: str) -> dict[str, str]:
    """The subject of a node's or the operator's certificate.

    All nodes have the same, so a new node is a super user without a change of the others.
    """
    return {"CN": role, "OU": cluster, "O": namespace}


def user_subject(user: str, cluster: str, namespace: str) -> dict[str, str]:
    """The subject of a user's certificate for the controllers. No node has it: names of clusters have no dots."""
    return {"CN": user, "OU": f"{USER}.{cluster}", "O": namespace}


def principal(role: str, cluster: str, namespace: str) -> str:
    """The principal of such a certificate."""
    return "User:" + ",".join(f"{key}={value}" for key, value in subject(role, cluster, namespace).items())
