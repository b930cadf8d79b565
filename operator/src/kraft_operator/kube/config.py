"""Where the API server is and how it knows us: a service account, or a kubeconfig with certificates or a token."""

from __future__ import annotations

import base64
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(slots=True)
class Access:
    """Of one API server."""

    server: str
    tls: ssl.SSLContext | bool
    token_file: Path | None = None
    token: str | None = None
    namespace: str = "default"

    def headers(self) -> dict[str, str]:
        """Tokens of service accounts are renewed in their file every hour: read anew each time."""
        token = self.token_file.read_text().strip() if self.token_file is not None else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def access() -> Access:
    """Of this process: KUBECONFIG goes before the pod's service account. Raises FileNotFoundError without either."""
    path = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if path:
        return from_kubeconfig(Path(path))
    if (ACCOUNT / "token").exists():
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        name = (ACCOUNT / "namespace").read_text().strip()
        return Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", tls, ACCOUNT / "token", namespace=name)
    return from_kubeconfig(Path.home() / ".kube" / "config")


def from_kubeconfig(path: Path) -> Access:
    """Of its current context. Raises KeyError when something that it names is missing."""
    document = yaml.safe_load(path.read_text())

    def named(kind: str, name: str) -> dict[str, Any]:
        return next((dict(one[kind]) for one in document[f"{kind}s"] if one["name"] == name), {})

    context = named("context", document["current-context"])
    cluster, user = named("cluster", context["cluster"]), named("user", context["user"])
    tls: ssl.SSLContext | bool = True
    if cluster["server"].startswith("https:"):
        data = _data(cluster, "certificate-authority", path)
        tls = ssl.create_default_context(cadata=data.decode() if data else None)
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        _own_certificate(tls, user, path)
    return Access(cluster["server"], tls, token=user.get("token"), namespace=context.get("namespace", "default"))


def _data(section: dict[str, Any], key: str, path: Path) -> bytes | None:
    if f"{key}-data" in section:
        return base64.b64decode(section[f"{key}-data"])
    return (path.parent / section[key]).read_bytes() if key in section else None


def _own_certificate(tls: ssl.SSLContext, user: dict[str, Any], path: Path) -> None:
    certificate, key = _data(user, "client-certificate", path), _data(user, "client-key", path)
    if certificate is None or key is None:
        return
    # OpenSSL takes files only; in memory, so that no key is left on a disk.
    handle = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        os.write(handle, certificate + b"\n" + key)
        tls.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
