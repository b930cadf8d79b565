"""The operator's settings, all from its environment.

KRAFT_NAMESPACES       namespaces to watch, separated by commas; empty for all
KRAFT_LEASE            name of the Lease through which replicas elect a leader; empty for a single replica
KRAFT_LEASE_SECONDS    duration of the Lease, after which another replica takes over
KRAFT_RESYNC_SECONDS   seconds between two passes over a cluster without events
KRAFT_NODE_IMAGE       default image of clusters
KRAFT_PIPELINE_IMAGE   default image of pipelines' drivers
KRAFT_READS_MACHINES   whether the operator may read Node objects (racks)
KRAFT_METRICS_PORT     port of /metrics
KRAFT_HEALTH_PORT      port of /healthz
KRAFT_WEBHOOK_PORT     port of the admission webhook; 0 for no webhook
KRAFT_WEBHOOK_CERTS    folder with tls.crt and tls.key of the webhook
KRAFT_LOG_LEVEL, KRAFT_LOG_JSON
POD_NAME, POD_NAMESPACE, POD_IP
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed environment."""

    namespaces: tuple[str, ...] = ()
    lease: str = ""
    lease_s: float = 15.0
    resync_s: float = 30.0
    machines: bool = False
    node_image: str = ""
    pipeline_image: str = ""
    metrics_port: int = 8080
    health_port: int = 8081
    webhook_port: int = 0
    webhook_certs: str = ""
    level: str = "INFO"
    as_json: bool = False
    me: str = "operator"
    home: str | None = None
    host: str = "0.0.0.0"  # noqa: S104  (a pod's probes and Prometheus come from outside)
    """The address to listen at."""

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Settings:
        """Parse the environment. Raises ValueError with the name of the variable."""
        if _number(env, "KRAFT_WEBHOOK_PORT", 0) and not env.get("KRAFT_WEBHOOK_CERTS"):
            raise ValueError("KRAFT_WEBHOOK_PORT needs KRAFT_WEBHOOK_CERTS: a folder with tls.crt and tls.key")
        return cls(
            namespaces=tuple(name for word in env.get("KRAFT_NAMESPACES", "").split(",") if (name := word.strip())),
            lease=env.get("KRAFT_LEASE", ""),
            lease_s=_number(env, "KRAFT_LEASE_SECONDS", 15.0),
            resync_s=_number(env, "KRAFT_RESYNC_SECONDS", 30.0),
            machines=env.get("KRAFT_READS_MACHINES", "false").lower() == "true",
            node_image=env.get("KRAFT_NODE_IMAGE", ""),
            pipeline_image=env.get("KRAFT_PIPELINE_IMAGE", ""),
            metrics_port=int(_number(env, "KRAFT_METRICS_PORT", 8080)),
            health_port=int(_number(env, "KRAFT_HEALTH_PORT", 8081)),
            webhook_port=int(_number(env, "KRAFT_WEBHOOK_PORT", 0)),
            webhook_certs=env.get("KRAFT_WEBHOOK_CERTS", ""),
            level=_level(env.get("KRAFT_LOG_LEVEL") or "INFO"),
            as_json=env.get("KRAFT_LOG_JSON", "false").lower() == "true",
            me=f"{env.get('POD_NAME') or socket.gethostname()}-{os.getpid()}",
            home=env.get("POD_NAMESPACE") or None,
            host="::" if ":" in env.get("POD_IP", "") else "0.0.0.0",  # noqa: S104
        )

    @property
    def health_endpoint(self) -> str:
        """The URL of the liveness probe, as kopf expects it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.health_port}/healthz"


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if value < 0:
        raise ValueError(f"{name} is not a number of at least 0: {text!r}")
    return value


def _level(name: str) -> str:
    if name.upper() not in logging.getLevelNamesMapping():
        raise ValueError(f"KRAFT_LOG_LEVEL is not a level such as INFO: {name!r}")
    return name.upper()
