"""The custom resources: models, schemas, the sample, and that the generated files are current."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from kraft_operator.api import crd, generate
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.pools import Resources
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.api.topic import KRaftTopicSpec

ROOT = Path(__file__).parents[4]
SAMPLE = yaml.safe_load((ROOT / "deploy" / "samples" / "kraftcluster.yaml").read_text())


def _nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _nodes(schema[name], f"{path}[{name}]")


def _root(document: dict[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return root


@pytest.mark.parametrize("folder", generate.FOLDERS)
def test_generated_files_are_current(folder: str) -> None:
    there = {path.name: path.read_text() for path in (ROOT / folder).glob("*.yaml")}
    assert there == generate.files(), "run python -m kraft_operator.api.generate"


@pytest.mark.parametrize("document", [crd.cluster_crd(), crd.topic_crd()], ids=["cluster", "topic"])
def test_schemas_are_structural(document: dict[str, Any]) -> None:
    for path, node in _nodes(_root(document)):
        assert ("type" in node) != node.get("x-kubernetes-int-or-string", False), path
        assert not {"$ref", "anyOf", "allOf", "oneOf", "title", "const", "exclusiveMinimum"} & set(node), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert node.get("default", 0) is not None, path


@pytest.mark.parametrize("document", [crd.cluster_crd(), crd.topic_crd()], ids=["cluster", "topic"])
def test_every_rule_names_the_remedy(document: dict[str, Any]) -> None:
    rules = [rule for _, node in _nodes(_root(document)) for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) >= 3
    assert [rule for rule in rules if ": " not in rule["message"]] == []


def test_lists_in_the_specification_are_bounded() -> None:
    spec = _root(crd.cluster_crd())["properties"]["spec"]
    unbounded = [path for path, node in _nodes(spec) if node.get("type") == "array" and "maxItems" not in node]
    assert unbounded == []


def test_the_sample_is_three_controllers_and_three_brokers() -> None:
    spec = KRaftClusterSpec.model_validate(SAMPLE["spec"])
    wanted = {pool.name: (pool.roles, pool.replicas or spec.replicas) for pool in spec.node_pools}
    assert wanted == {"controllers": (["controller"], 3), "brokers": (["broker"], 3)}


def test_every_default_of_the_schema_is_a_value_of_the_model() -> None:
    spec = KRaftClusterSpec.model_validate(SAMPLE["spec"])
    again = KRaftClusterSpec.model_validate(spec.model_dump(by_alias=True, exclude_none=True))
    assert again == spec


def test_resources_may_be_numbers_as_in_any_pod() -> None:
    made = Resources.model_validate({"requests": {"cpu": 1, "memory": "1Gi"}})
    assert made == Resources(requests={"cpu": "1", "memory": "1Gi"})
    for wrong in ("1K", "lots", True, 0.5, -1):
        with pytest.raises(ValidationError):
            Resources.model_validate({"requests": {"cpu": wrong}})


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="replicaz"):
        KRaftClusterSpec.model_validate({**SAMPLE["spec"], "replicaz": 3})


def test_the_paths_of_scale_and_columns_exist() -> None:
    document = crd.cluster_crd()
    version = document["spec"]["versions"][0]
    known = {path for path, _ in _nodes(_root(document))}
    scale = version["subresources"]["scale"].values()
    columns = [c["jsonPath"].partition("[")[0] for c in version["additionalPrinterColumns"]]
    assert [p for p in [*scale, *columns] if p not in known | {".metadata.creationTimestamp"}] == []


def test_status_and_topic_are_camel_case() -> None:
    assert set(KRaftClusterStatus().model_dump(by_alias=True)) >= {"observedGeneration", "clusterId", "retiredIds"}
    assert KRaftTopicSpec(cluster="c").model_dump(by_alias=True)["deletionPolicy"] == "Keep"
