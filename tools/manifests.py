"""Renders the plain manifests of `deploy/` from the operator's chart: `python -m tools.manifests [FOLDER]`. Needs Helm.

They install without Helm: `kubectl apply --server-side -f deploy/operator.yaml`. The chart is the source; Helm's labels
are removed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "charts" / "kraftcluster-operator"
FOLDER: Final = ROOT / "deploy"
FILES: Final = {
    "operator.yaml": ("clusters in its own namespace", ()),
    "operator-all-namespaces.yaml": ("clusters in all namespaces", ("--set", "watch.allNamespaces=true")),
}
"""File -> the operator's scope, and the Helm arguments for it."""
NAMESPACE: Final = "kraft-operator"
RELEASE: Final = "kraftcluster-operator"
LAB: Final = Path(os.environ.get("K8S_LAB", "~/.cache/k8s-lab")).expanduser() / "bin" / "helm"
HEADER: Final = f"""\
# The operator in the namespace {NAMESPACE}, for {{what}}: kubectl apply --server-side -f deploy/{{name}}
# Written by `python -m tools.manifests` from charts/kraftcluster-operator; do not edit. Deleting these objects also
# deletes the CustomResourceDefinitions, and with them all clusters; their volumes stay.
"""


EXECUTORS: Final = "executors.yaml"
EXECUTORS_HEADER: Final = f"""\
# The rights that drivers of pipelines need for `engine.mode: kubernetes` in the namespace {NAMESPACE}. For another
# namespace: sed s/{NAMESPACE}/OTHER/. Apply: kubectl apply -f deploy/{EXECUTORS}
# Users that may write a KafkaTable in this namespace can then create pods in it, too.
# Written by `python -m tools.manifests` from charts/kraftcluster-operator; do not edit.
"""


def helm() -> str | None:
    """The path of Helm, from the PATH or from the lab."""
    return shutil.which("helm") or (str(LAB) if LAB.exists() else None)


def rendered(*words: str, chart: Path = CHART, release: str = RELEASE, namespace: str = NAMESPACE) -> list[Any]:
    """The documents that `helm template` renders from a chart. Raises CalledProcessError with Helm's message."""
    program = helm()
    if program is None:
        raise FileNotFoundError("helm is neither on the PATH nor in the lab")
    command = [program, "template", release, str(chart), "--namespace", namespace, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def plain(name: str) -> str:
    """The text of a file: namespace, definitions, and the rendered chart."""
    what, words = FILES[name]
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    documents = [space, *rendered("--include-crds", "--skip-tests", *words)]
    for document in documents:
        forget_helm(document)
    return HEADER.format(what=what, name=name) + yaml.safe_dump_all(documents, sort_keys=False, width=118)


def executors() -> str:
    """The text of the file with the rights to create executors."""
    words = ("--set", f"pipelineExecutors.namespaces={{{NAMESPACE}}}", "--show-only", f"templates/{EXECUTORS}")
    documents = rendered(*words)
    for document in documents:
        forget_helm(document)
    return EXECUTORS_HEADER + yaml.safe_dump_all(documents, sort_keys=False, width=118)


def forget_helm(node: Any) -> None:
    """Remove Helm's labels, in place."""
    if isinstance(node, dict):
        node.pop("helm.sh/chart", None)
        if node.get("app.kubernetes.io/managed-by") == "Helm":
            del node["app.kubernetes.io/managed-by"]
        for value in node.values():
            forget_helm(value)
    elif isinstance(node, list):
        for value in node:
            forget_helm(value)


def main(words: list[str]) -> None:
    """Write the plain manifests to `deploy` or to the folder in the arguments."""
    folder = Path(words[0]) if words else FOLDER
    for name in FILES:
        (folder / name).write_text(plain(name))
    (folder / EXECUTORS).write_text(executors())


if __name__ == "__main__":
    main(sys.argv[1:])
