"""A bundle of the operator for the Operator Lifecycle Manager: `python -m tools.olm [FOLDER]`. Needs Helm.

Everything comes from the operator's chart and its definitions: rights, Deployment, images, version, samples. The bundle
is not kept in the repository. Its layout is operator-framework's format `registry+v1`.

Two parts of the chart are left out: the webhook, because OLM issues certificates in its own way, and the
NetworkPolicy. OLM versions before 0.32 refuse a NetworkPolicy in a bundle.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from kraft_operator.api.base import VERSION
from kraft_operator.api.crd import crds
from tools.manifests import CHART, RELEASE, ROOT, forget_helm, rendered

FOLDER: Final = ROOT / "build" / "olm-bundle"
CHANNEL: Final = "alpha"
PREFIX: Final = "operators.operatorframework.io.bundle"
PLAIN: Final = ("Service", "PodDisruptionBudget")
"""Kinds that a bundle contains unchanged."""
DROPPED: Final = frozenset({"NetworkPolicy", "Lease", "ServiceAccount", "RoleBinding", "ClusterRoleBinding"})
"""Kinds that OLM or the operator creates, or that OLM does not accept."""
TARGETS: Final = "metadata.annotations['olm.targetNamespaces']"
"""The annotation in which OLM writes the namespaces of its OperatorGroup; empty for all."""
SAMPLES: Final = ("kraftcluster.yaml", "topic.yaml", "user.yaml", "pipelines.yaml")
MODES: Final = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
TEXTS: Final = {
    "KRaftCluster": "A Kafka-compatible cluster: node pools, listeners, configuration",
    "KRaftTopic": "A topic of a KRaftCluster",
    "KRaftUser": "A user of a KRaftCluster: credentials, ACLs, quotas",
    "KafkaTable": "Topics as a table in Delta, Iceberg or Parquet",
    "KafkaMetadataArchive": "The metadata log of a cluster as tables",
    "KafkaScrub": "A check of every byte of the replicas",
}

Object = dict[str, Any]


def files() -> dict[str, str]:
    """Path inside the bundle -> text."""
    documents = rendered("--skip-tests")
    for document in documents:
        forget_helm(document)
    unknown = {one["kind"] for one in documents} - DROPPED - {*PLAIN, "Deployment", "Role", "ClusterRole"}
    if unknown:
        raise ValueError(f"the chart has kinds that a bundle has no place for yet: {sorted(unknown)}")
    found = {f"manifests/{RELEASE}.clusterserviceversion.yaml": _text(service_version(documents))}
    for crd in crds():
        found[f"manifests/{crd['metadata']['name']}.crd.yaml"] = _text(crd)
    for one in documents:
        if one["kind"] in PLAIN:
            one["metadata"].pop("namespace", None)
            found[f"manifests/{one['metadata']['name']}.{one['kind'].lower()}.yaml"] = _text(one)
    labels = registry_annotations()
    found["metadata/annotations.yaml"] = _text({"annotations": labels})
    lines = ["FROM scratch", *(f"LABEL {key}={value}" for key, value in labels.items())]
    lines += [f"COPY {folder} /{folder}/" for folder in ("manifests", "metadata")]
    found["bundle.Dockerfile"] = "\n".join(lines) + "\n"
    return found


def registry_annotations() -> dict[str, str]:
    """The metadata that a bundle registry reads first."""
    return {
        f"{PREFIX}.mediatype.v1": "registry+v1",
        f"{PREFIX}.manifests.v1": "manifests/",
        f"{PREFIX}.metadata.v1": "metadata/",
        f"{PREFIX}.package.v1": RELEASE,
        f"{PREFIX}.channels.v1": CHANNEL,
        f"{PREFIX}.channel.default.v1": CHANNEL,
    }


def service_version(documents: Iterable[Mapping[str, Any]]) -> Object:
    """The ClusterServiceVersion for the rendered chart."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    documents = list(documents)
    (deployment,) = (one for one in documents if one["kind"] == "Deployment")
    spec = _with_targets(deployment["spec"])
    account = spec["template"]["spec"]["serviceAccountName"]
    container = spec["template"]["spec"]["containers"][0]
    values = {one["name"]: one.get("value", "") for one in container["env"]}
    images = {"operator": container["image"], "node": values["KRAFT_NODE_IMAGE"]}
    images["pipeline"] = values["KRAFT_PIPELINE_IMAGE"]

    def rights(kind: str) -> list[Object]:
        rules = [rule for one in documents if one["kind"] == kind for rule in one["rules"]]
        return [{"serviceAccountName": account, "rules": rules}] if rules else []

    install = {
        "permissions": rights("Role"),
        "clusterPermissions": rights("ClusterRole"),
        "deployments": [
            {"name": deployment["metadata"]["name"], "label": deployment["metadata"]["labels"], "spec": spec}
        ],
    }
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{RELEASE}.v{chart['version']}",
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": json.dumps(samples(), indent=1),
                "capabilities": "Full Lifecycle",
                "categories": "Streaming & Messaging",
                "containerImage": images["operator"],
                "description": chart["description"],
            },
        },
        "spec": {
            "displayName": "kraftcluster",
            "description": chart["description"],
            "version": chart["version"],
            "maturity": CHANNEL,
            "minKubeVersion": chart["kubeVersion"].removeprefix(">=").removesuffix("-0"),
            "keywords": chart["keywords"],
            "provider": {"name": "kraftcluster"},
            "installModes": [{"type": mode, "supported": True} for mode in MODES],
            "install": {"strategy": "deployment", "spec": install},
            "customresourcedefinitions": {"owned": [_owned(crd) for crd in crds()]},
            "relatedImages": [{"name": name, "image": image} for name, image in images.items() if image],
        },
    }


def samples() -> list[Object]:
    """One sample per kind, for consoles."""
    found: dict[str, Object] = {}
    for name in SAMPLES:
        for one in yaml.safe_load_all((ROOT / "deploy" / "samples" / name).read_text()):
            if one and one["apiVersion"].endswith(VERSION):
                found.setdefault(one["kind"], one)
    return list(found.values())


def _with_targets(spec: Mapping[str, Any]) -> Object:
    """The Deployment's specification, with the namespaces of OLM's OperatorGroup as the operator's scope."""
    found: Object = json.loads(json.dumps(spec))
    for variable in found["template"]["spec"]["containers"][0]["env"]:
        if variable["name"] == "KRAFT_NAMESPACES":
            variable.pop("value")
            variable["valueFrom"] = {"fieldRef": {"fieldPath": TARGETS}}
    return found


def _owned(crd: Mapping[str, Any]) -> Object:
    spec = crd["spec"]
    kind = spec["names"]["kind"]
    return {
        "name": crd["metadata"]["name"],
        "kind": kind,
        "version": spec["versions"][0]["name"],
        "displayName": kind,
        "description": TEXTS[kind],
    }


def _text(document: Object) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=118)


def main(words: list[str]) -> None:
    """Write the bundle."""
    folder = Path(words[0]) if words else FOLDER
    for part in ("manifests", "metadata"):
        shutil.rmtree(folder / part, ignore_errors=True)
    for name, text in files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    print(f"{folder}: docker build -f bundle.Dockerfile .")


if __name__ == "__main__":
    main(sys.argv[1:])
