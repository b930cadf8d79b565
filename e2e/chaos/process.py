"""The operator as a process of this machine, behind the proxy: killed, stopped, and restarted each time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.kube import NAMESPACE, NODE_IMAGE, kubectl

PAUSE_S: Final = 0.5
"""Between an end and the next start: a kubelet waits longer, and hides faults that a quick restart shows."""


class Process:
    """Runs until the `with` ends. A process that ends earlier is restarted."""

    def __init__(self, url: str, folder: Path) -> None:
        self._folder, self._url = folder, url
        self.log = folder / "operator.log"
        self.ends: list[int] = []
        """Exit codes; negative for a signal."""
        self._process: subprocess.Popen[bytes] | None = None
        self._writes_left: int | None = None
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Process:
        token = kubectl("create", "token", "kraftcluster-operator", "-n", NAMESPACE, "--duration=6h", check=True)
        config = {
            "current-context": "chaos",
            "contexts": [{"name": "chaos", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
            "clusters": [{"name": "c", "cluster": {"server": self._url}}],
            "users": [{"name": "u", "user": {"token": token.stdout.strip()}}],
        }
        (self._folder / "config").write_text(yaml.safe_dump(config))
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.end(signal.SIGTERM)
        self._keeper.join(40)

    def end(self, number: int) -> None:
        """Send it a signal."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(number)

    def kill_after(self, writes: int) -> None:
        """Kill it right after that many more writes."""
        self._writes_left = writes

    def wrote(self) -> None:
        """Called by the proxy after each write."""
        if self._writes_left is None:
            return
        self._writes_left -= 1
        if self._writes_left <= 0:
            self._writes_left = None
            self.end(signal.SIGKILL)

    def _keep(self) -> None:
        while not self._over.is_set():
            with self.log.open("ab") as output:
                command = [sys.executable, "-m", "kraft_operator"]
                self._process = subprocess.Popen(command, env=self._env(), stdout=output, stderr=output)
                self.ends.append(self._process.wait())
            time.sleep(PAUSE_S)

    def _env(self) -> dict[str, Any]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KRAFT_", "POD_"))}
        return {
            **kept,
            "KUBECONFIG": str(self._folder / "config"),
            "KRAFT_NAMESPACES": NAMESPACE,
            "KRAFT_NODE_IMAGE": NODE_IMAGE,
            "KRAFT_LEASE": "kraftcluster-operator",
            "KRAFT_METRICS_PORT": str(_port()),
            "KRAFT_HEALTH_PORT": str(_port()),
            "POD_NAMESPACE": NAMESPACE,
            "POD_NAME": "chaos",
        }


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
