"""The bundle for OLM follows from the chart, and has the layout that operator-framework's `registry+v1` requires."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
import yaml

from kraft_operator.api.crd import crds
from kraft_operator.settings import Settings
from tests.peer import IS_MISSING
from tools.manifests import helm, rendered
from tools.olm import PREFIX, files

pytestmark = pytest.mark.skipif(helm() is None, reason=f"helm{IS_MISSING}install it from https://helm.sh")
ALLOWED = {"ClusterServiceVersion", "CustomResourceDefinition", "Service", "PodDisruptionBudget"}
"""Of the kinds that a bundle may have."""


@cache
def _bundle() -> dict[str, Any]:
    return {name: yaml.safe_load(text) for name, text in files().items() if name.endswith(".yaml")}


def _version() -> dict[str, Any]:
    (found,) = (one for name, one in _bundle().items() if name.endswith(".clusterserviceversion.yaml"))
    return dict(found)


def test_the_layout_is_that_of_an_olm_bundle() -> None:
    assert {name.partition("/")[0] for name in files()} == {"manifests", "metadata", "bundle.Dockerfile"}
    labels = _bundle()["metadata/annotations.yaml"]["annotations"]
    assert labels[f"{PREFIX}.mediatype.v1"] == "registry+v1"
    assert labels[f"{PREFIX}.channel.default.v1"] in labels[f"{PREFIX}.channels.v1"].split(",")
    docker = files()["bundle.Dockerfile"]
    assert docker.startswith("FROM scratch\n")
    for key, value in labels.items():
        assert f"LABEL {key}={value}\n" in docker
        if value.endswith("/"):
            assert f"COPY {value[:-1]} /{value}\n" in docker
    manifests = [one for name, one in _bundle().items() if name.startswith("manifests/")]
    assert {one["kind"] for one in manifests} <= ALLOWED
    assert not any("namespace" in one["metadata"] for one in manifests if one["kind"] != "ClusterServiceVersion")


def test_the_definitions_are_owned_and_match_the_models() -> None:
    there = {
        one["metadata"]["name"]: one for one in _bundle().values() if one.get("kind") == "CustomResourceDefinition"
    }
    assert there == {crd["metadata"]["name"]: crd for crd in crds()}
    owned = {one["name"]: one for one in _version()["spec"]["customresourcedefinitions"]["owned"]}
    assert owned.keys() == there.keys()
    for name, one in owned.items():
        assert one["kind"] == there[name]["spec"]["names"]["kind"]
        assert one["version"] in [version["name"] for version in there[name]["spec"]["versions"] if version["served"]]


def test_rights_and_deployment_match_the_chart() -> None:
    chart = rendered("--skip-tests")
    install = _version()["spec"]["install"]["spec"]
    for key, kind in (("permissions", "Role"), ("clusterPermissions", "ClusterRole")):
        (one,) = install[key]
        assert one["rules"] == [rule for document in chart if document["kind"] == kind for rule in document["rules"]]
        assert one["serviceAccountName"] == "kraftcluster-operator"
    (made,) = (document for document in chart if document["kind"] == "Deployment")
    (deployment,) = install["deployments"]
    assert deployment["spec"]["selector"] == made["spec"]["selector"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= deployment["label"].items()
    (theirs,), (ours,) = (one["spec"]["template"]["spec"]["containers"] for one in (made, deployment))
    assert {**ours, "env": []} == {**theirs, "env": []}
    variables = {one["name"]: one for one in ours["env"]}
    where = variables.pop("KRAFT_NAMESPACES")["valueFrom"]["fieldRef"]["fieldPath"]
    assert where == "metadata.annotations['olm.targetNamespaces']"
    assert list(variables.values()) == [one for one in theirs["env"] if one["name"] != "KRAFT_NAMESPACES"]
    assert Settings.of({"KRAFT_NAMESPACES": ""}).namespaces == (), "OLM's text for all namespaces"


def test_the_version_has_the_fields_for_consoles_and_upgrades() -> None:
    version = _version()
    assert re.fullmatch(r"kraftcluster-operator\.v\d+\.\d+\.\d+", version["metadata"]["name"])
    assert version["metadata"]["name"].endswith(f".v{version['spec']['version']}")
    assert re.fullmatch(r"\d+\.\d+\.\d+", version["spec"]["minKubeVersion"])
    kinds = {one["kind"] for one in version["spec"]["customresourcedefinitions"]["owned"]}
    examples = json.loads(version["metadata"]["annotations"]["alm-examples"])
    # `operator-sdk bundle validate` warns of every kind without an example.
    assert {one["kind"] for one in examples} == kinds
    assert {one["type"] for one in version["spec"]["installModes"]} == {
        "OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces",
    }  # fmt: skip
    images = {one["image"] for one in version["spec"]["relatedImages"]}
    assert version["metadata"]["annotations"]["containerImage"] in images
    assert version["spec"]["install"]["strategy"] == "deployment"
