"""The address of the API server and our login: loaded by the `kubernetes` package, never by us.

KUBECONFIG comes first (several files are merged), then the pod's service account, then `~/.kube/config`. The package
handles tokens, client certificates, exec plugins, OIDC, `proxy-url`, `tls-server-name`, HTTPS_PROXY and NO_PROXY.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoAccessError(Exception):
    """No usable login was found."""


@dataclass(frozen=True, slots=True)
class Access:
    """A login to one API server."""

    configuration: Any
    """A `kubernetes.aio.client.Configuration`."""
    namespace: str = "default"
    """The namespace of the service account, or of the kubeconfig's context."""


async def access() -> Access:
    """Load the login of this process. An exec plugin runs now. Raises NoAccessError, which names the file."""
    path = os.environ.get("KUBECONFIG", "")
    if not path and (ACCOUNT / "token").exists():
        return _of_account()
    return await _of_kubeconfig(path or str(Path.home() / ".kube" / "config"))


def _of_account() -> Access:
    found = Configuration()
    try:
        InClusterConfigLoader(str(ACCOUNT / "token"), str(ACCOUNT / "ca.crt")).load_and_set(found)
        return Access(found, (ACCOUNT / "namespace").read_text().strip())
    except (config.ConfigException, OSError) as error:
        raise NoAccessError(f"{ACCOUNT}: {error}") from error


async def _of_kubeconfig(path: str) -> Access:
    if not any(Path(one).expanduser().exists() for one in path.split(os.pathsep) if one):
        raise NoAccessError(f"{path} does not exist: set KUBECONFIG, or run in a pod that has a service account")
    found = Configuration()
    try:
        loader = await config.load_kube_config(path, client_configuration=found, persist_config=False)
        context = loader.current_context["context"]
    except (config.ConfigException, yaml.YAMLError, OSError, TypeError, ValueError, KeyError) as error:
        raise NoAccessError(f"{path}: {error}") from error
    return Access(found, context.get("namespace") or "default")
