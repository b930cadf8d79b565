"""Which KRaftTopics and KRaftUsers count as desired, malformed or existing: this decides what may be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from kraft_operator.api.topic import KRaftTopicSpec
from kraft_operator.api.user import KRaftUserSpec
from kraft_operator.apply.declared import MESSAGE_CHARS_MAX, declarations, ready_status

DEFAULTS: dict[type[BaseModel], dict[str, Any]] = {
    KRaftTopicSpec: {"partitions": 1, "config": {}, "deletionPolicy": "Keep"},
    KRaftUserSpec: {"authentication": {}, "acls": [], "quotas": {}},
}
"""As the API server fills them in."""
KINDS = pytest.mark.parametrize("model", list(DEFAULTS))
MINE = ("x", "u")


def _resource(model: type[BaseModel], cluster: Any, **metadata: str) -> dict[str, Any]:
    spec = {**DEFAULTS[model], **({} if cluster is None else {"cluster": cluster})}
    return {"metadata": {"name": "x", "uid": "u", **metadata}, "spec": spec}


def _sorted(model: type[BaseModel], resource: dict[str, Any], *claimants: tuple[str, str]) -> tuple[int, int]:
    found = declarations([resource], model, "c", claimants)
    assert found.there == {(resource["metadata"]["name"], resource["metadata"].get("uid", ""))}, "always kept"
    return len(found.desired), len(found.malformed)


@KINDS
def test_a_valid_resource_of_the_cluster_is_desired(model: type[BaseModel]) -> None:
    assert _sorted(model, _resource(model, "c")) == (1, 0)
    assert _sorted(model, _resource(model, "c"), MINE) == (1, 0)


@KINDS
def test_a_resource_of_another_cluster_only_exists(model: type[BaseModel]) -> None:
    assert _sorted(model, _resource(model, "other")) == (0, 0)
    assert _sorted(model, _resource(model, "other"), MINE) == (0, 0)


@KINDS
@pytest.mark.parametrize("cluster", [None, 5, ["c"], {}])
def test_a_resource_whose_cluster_is_illegible_is_malformed(model: type[BaseModel], cluster: Any) -> None:
    assert _sorted(model, _resource(model, cluster)) == (0, 1)
    assert _sorted(model, _resource(model, cluster), MINE) == (0, 1)


@KINDS
def test_a_pruned_resource_of_another_cluster_is_malformed_only_if_it_made_something(model: type[BaseModel]) -> None:
    resource = _resource(model, "other")
    del resource["spec"][next(iter(DEFAULTS[model]))]
    assert _sorted(model, resource) == (0, 0)
    assert _sorted(model, resource, MINE) == (0, 1)
    assert _sorted(model, resource, ("x", "a predecessor of the same name")) == (0, 0)


@KINDS
@pytest.mark.parametrize("spec", [None, {}])
def test_a_resource_without_a_specification_is_malformed(model: type[BaseModel], spec: Any) -> None:
    assert _sorted(model, {"metadata": {"name": "x"}, "spec": spec}) == (0, 1)


@KINDS
def test_a_resource_that_is_being_deleted_only_exists(model: type[BaseModel]) -> None:
    leaving = _resource(model, "c", deletionTimestamp="2026-01-01T00:00:00Z")
    assert _sorted(model, leaving, MINE) == (0, 0)


@KINDS
def test_resources_are_read_once(model: type[BaseModel]) -> None:
    def from_a_generator() -> Iterator[dict[str, Any]]:
        yield _resource(model, "c")
        yield _resource(model, "c", name="y", uid="v")

    found = declarations(from_a_generator(), model, "c", ())
    assert (len(found.desired), found.there) == (2, {MINE, ("y", "v")})


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    resource: dict[str, Any] = {"metadata": {"generation": 3}}
    first = ready_status(False, "Refused", "x" * 5000, resource, "1")
    (condition,) = first["conditions"]
    assert (first["observedGeneration"], condition["observedGeneration"]) == (3, 3)
    assert (condition["status"], condition["lastTransitionTime"]) == ("False", "1")
    assert len(condition["message"]) == MESSAGE_CHARS_MAX
    resource["status"] = first
    assert ready_status(False, "Waiting", "", resource, "2")["conditions"][0]["lastTransitionTime"] == "1"
    assert ready_status(True, "Ready", "", resource, "2")["conditions"][0]["lastTransitionTime"] == "2"
