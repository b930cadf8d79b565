"""etcd and kube-apiserver as processes, for tests that need the real programs. Without them tests are skipped.

They come from the lab (`K8S_LAB`) or the PATH. Fault model: none; the processes end with the test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

LAB = Path(os.environ.get("K8S_LAB", "~/.cache/k8s-lab")).expanduser() / "bin"
TOKEN = "test-token"
START_S = 120.0


def program(name: str) -> str | None:
    there = LAB / name
    return str(there) if there.exists() else shutil.which(name)


MISSING = [name for name in ("etcd", "kube-apiserver", "kubectl", "openssl") if program(name) is None]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
    return port


@contextlib.contextmanager
def control_plane(folder: Path) -> Iterator[Path]:
    """The kubeconfig of an administrator."""
    etcd, peer, secure = free_port(), free_port(), free_port()
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,1,system:masters\n")
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    store = f"http://127.0.0.1:{etcd}"
    commands = [
        [
            "etcd", f"--data-dir={folder / 'etcd'}", f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", "--unsafe-no-fsync", "--log-level=error",
        ],
        [
            "kube-apiserver", f"--etcd-servers={store}", f"--secure-port={secure}", "--bind-address=127.0.0.1",
            f"--cert-dir={folder / 'certs'}", f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount", "--advertise-address=127.0.0.1",
        ],
    ]  # fmt: skip
    config = folder / "kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{secure}", "insecure-skip-tls-verify": True}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "t", "cluster": cluster}],
        "users": [{"name": "t", "user": {"token": TOKEN}}],
        "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        "current-context": "t",
    }
    config.write_text(yaml.safe_dump(document))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with contextlib.ExitStack() as stack:
            for words in commands:
                log = stack.enter_context((folder / f"{words[0]}.log").open("wb"))
                path = program(words[0])
                assert path is not None
                processes.append(subprocess.Popen([path, *words[1:]], stdout=log, stderr=log))
            _wait(config, folder)
            yield config
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in reversed(processes):
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:  # it waits for the end of watches
                process.kill()
                process.wait(20)


def _wait(config: Path, folder: Path) -> None:
    kubectl = program("kubectl")
    assert kubectl is not None
    end = time.monotonic() + START_S
    words = [kubectl, f"--kubeconfig={config}", "get", "--raw", "/readyz"]
    while subprocess.run(words, capture_output=True, check=False).returncode:
        assert time.monotonic() < end, (folder / "kube-apiserver.log").read_text()[-2000:]
        time.sleep(0.5)
