"""A file must pass the API server's checks of a resource: the same cases as e2e sends to a real one."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e import test_rules as server
from kraft_local.cel import CelError, compiled
from kraft_local.resource_file import API_VERSION, BadResourceError, broken_rules, parsed, values
from kraft_operator.api.cluster import KRaftClusterSpec

ROOT = Path(__file__).parents[4]
SAMPLE = (ROOT / "deploy/samples/kraftcluster.yaml").read_text()


def _take(document: dict[str, Any]) -> dict[str, Any]:
    """Change the sample to the document. Returns the accepted specification."""
    before = values(parsed(yaml.safe_dump(server.sample()), "f").spec)
    return values(parsed(yaml.safe_dump(document), "kraftcluster.yaml", before).spec)


@pytest.mark.parametrize("case", server.REFUSED)
def test_local_rules_refuse_like_the_api_server(case: str) -> None:
    change, said = server.REFUSED[case]
    document = copy.deepcopy(server.sample())
    change(document["spec"])
    with pytest.raises(BadResourceError) as refused:
        _take(document)
    assert said in str(refused.value)
    assert str(refused.value).startswith("kraftcluster.yaml: spec")


@pytest.mark.parametrize("case", server.GRANTED)
def test_local_rules_grant_like_the_api_server(case: str) -> None:
    document = copy.deepcopy(server.sample())
    server.GRANTED[case](document["spec"])
    assert (_take(document) == _take(server.sample())) is (case == "nothing")


@pytest.mark.parametrize("name", server.NAMES)
def test_local_names_are_refused_like_by_the_api_server(name: str) -> None:
    document = copy.deepcopy(server.sample())
    document["metadata"]["name"] = name
    document["spec"]["listeners"].append({"name": "l" * 20, "port": 9093, "type": "NodePort"})
    with pytest.raises(BadResourceError) as refused:
        parsed(yaml.safe_dump(document), "kraftcluster.yaml")
    assert server.NAMES[name] in str(refused.value)


BAD: dict[str, tuple[str, str]] = {
    "syntax": ("a: [1\nb: 2\n", "f.yaml: expected ',' or ']', but got ':', in line 2, column 2"),
    "date": ("a: 2026-02-30\n", "f.yaml: day is out of range for month"),
    "depth": ("[" * 5000, "f.yaml: the document is nested too deep"),
    "annotations": (
        SAMPLE.replace("name: sample", "name: sample\n  annotations: [a]"),
        "metadata.annotations: a mapping",
    ),
    "nothing": ("", "f.yaml: one KRaftCluster is expected, 0 found (there is: nothing)"),
    "other kind": ("kind: Pod\n", "one KRaftCluster is expected, 0 found (there is: Pod)"),
    "two": (SAMPLE + "\n---\n" + SAMPLE, "one KRaftCluster is expected, 2 found"),
    "no resource": ("- 1\n", "a mapping with apiVersion, kind, metadata and spec is expected"),
    "version": (SAMPLE.replace("v1alpha1", "v2"), "apiVersion: kraftcluster.io/v1alpha1 is expected, not"),
    "name": (SAMPLE.replace("name: sample", "name: Sample"), "metadata.name: lower-case letters"),
    "no name": (SAMPLE.replace("name: sample", "labels: {}"), "metadata.name: lower-case letters"),
    "fields": (SAMPLE + "7: 1\nstats: 1\n", "7: unknown field"),
    "field": (SAMPLE + "stats: 1\n", "stats: unknown field"),
    "key": (SAMPLE.replace("replicas: 3\n  listeners", "replicaz: 3\n  listeners"), "spec.replicaz: unknown field"),
    "type": (
        SAMPLE.replace("port: 9092", "port: many"),
        'spec.listeners[0].port: "many" is not valid: a whole number is expected',
    ),
    "range": (
        SAMPLE.replace("port: 9092", "port: 80"),
        "spec.listeners[0].port: 80 is not valid: at least 1024 is expected",
    ),
    "role": (
        SAMPLE.replace("[broker]", "[brokr]"),
        "roles[0]: \"brokr\" is not valid: 'controller' or",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_place_and_reason(case: str) -> None:
    text, said = BAD[case]
    with pytest.raises(BadResourceError) as refused:
        parsed(text, "f.yaml")
    assert said in str(refused.value)


def test_other_kinds_in_the_file_are_named() -> None:
    table = "apiVersion: kraftcluster.io/v1alpha1\nkind: KafkaTable\nmetadata: {name: t}\nspec: {}\n"
    assert parsed(SAMPLE + "---\n" + table, "f").other_kinds == ("KafkaTable",)


def topic(**spec: Any) -> str:
    resource = {"apiVersion": API_VERSION, "kind": "KRaftTopic", "metadata": {"name": "t"}, "spec": spec}
    return SAMPLE + "---\n" + yaml.safe_dump(resource)


def test_names_of_topics_may_contain_dots() -> None:
    text = topic(cluster="sample").replace("name: t\n", "name: orders.v1\n")
    assert list(parsed(text, "f").topics) == ["orders.v1"]


def test_a_cluster_id_cannot_be_changed() -> None:
    mine = "MkU3OEVBNTcwNTJENDM2Qk"
    text = yaml.safe_dump(server.sample())
    assert parsed(text, "f", cluster_id=mine).spec.cluster_id == mine
    with pytest.raises(BadResourceError, match="f: sample: the cluster has an id already"):
        parsed(text, "f", cluster_id="AAAAAAAAAAAAAAAAAAAAAA")


def test_topics_of_the_file_are_validated() -> None:
    name = parsed(SAMPLE, "f").name
    found = parsed(topic(cluster=name, partitions=3, config={"retention.ms": "5"}), "f")
    assert found.topics["t"]["partitions"] == 3
    assert found.topics["t"]["config"] == {"retention.ms": "5"}
    for text, said in (
        (topic(cluster="other"), "KRaftTopic t: spec.cluster: the cluster of this file is"),
        (topic(cluster=name, partitions=0), "KRaftTopic t: spec.partitions: "),
        (topic(cluster=name, partitions=2), "partitions cannot be removed"),
        (
            topic(cluster=name, partitions=3) + "---" + topic(cluster=name, partitions=3).rpartition("---")[2],
            "two KRaftTop",
        ),
    ):
        with pytest.raises(BadResourceError) as refused:
            parsed(text, "f", None, found.topics)
        assert said in str(refused.value)


def test_the_internal_listener_changes_only_while_all_brokers_are_stopped() -> None:
    """Restarted one by one, brokers with the old listener and brokers with the new one could not fetch."""
    before = values(parsed(SAMPLE, "f").spec)
    other = {**before, "listeners": [{"name": "inner", "port": 9093}, *before["listeners"]]}
    behind = {**before, "listeners": [*before["listeners"], {"name": "inner", "port": 9093}]}

    def refused(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        return broken_rules(values(KRaftClusterSpec.model_validate(new)), old)

    assert refused(before, behind) == []
    (said,) = refused(before, other)
    assert said.startswith("spec: all brokers reach each other by the first listener of type Internal")
    assert refused(before, {**other, "hibernated": True}) == [said], "it may run still"
    assert refused({**before, "hibernated": True}, {**other, "hibernated": True}) == []


CEL: dict[str, object] = {
    "1 + 2 == 3 && !(2 > 3)": True,
    "'a' in ['a', 'b'] ? 1 : 2": 1,
    "self.items.filter(i, i.n > 1).map(i, i.n).sum()": 5,
    "self.items.exists_one(i, i.n == 2)": True,
    "self.items.exists(i, i.n == 9) || self.items.all(i, i.n > 0)": True,
    "has(self.none) || self.items.size() == 3": True,
    "size(self.items) == 3 && has(self.items)": True,
    "quantity('1Gi').compareTo(quantity('1024Mi'))": 0,
    "self.items[1].n": 2,
    "true || self.none": True,
    "self.none || true": True,
    "false && self.none": False,
}


@pytest.mark.parametrize("rule", CEL)
def test_rules_are_evaluated_like_by_the_api_server(rule: str) -> None:
    assert compiled(rule)({"self": {"items": [{"n": 1}, {"n": 2}, {"n": 3}]}}) == CEL[rule]


@pytest.mark.parametrize("rule", ["self.none", "self.none || false", "1 +", "1 2", "self.x(1)", "a ~ b"])
def test_an_undecidable_or_unreadable_rule_is_an_error(rule: str) -> None:
    with pytest.raises(CelError):
        compiled(rule)({"self": {}})
