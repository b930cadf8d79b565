"""Mistakes in `spec.config` are reported before anything is changed, and a valid value is never reported."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_node.base.config.definitions import BROKER, BROKER_DYNAMIC_ONLY, TOPIC
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.node import NodeConfig
from kraft_operator.specs import config_check
from kraft_operator.specs.config_check import (
    cluster_config_problems,
    config_problems,
    topic_config_problems,
)
from kraft_operator.specs.properties import dynamic_values
from tests.unit.operator.reconciling import KEY, condition, new_api, new_operator, pods_of, settle
from tests.unit.operator.sample import sample

TEXTS = ["", " ", "-1", "0", "1", " 7 ", "9", "10", "-2", "true", "TRUE", "x", "a,b", "a,,b", "compact,delete"]
TEXTS += ["delete", "1.5", "1e3", "NaN", "2147483648", "9223372036854775808", "zstd", "ZSTD", "CreateTime", "upgrade"]
TEXTS += ["classic, consumer", "1_000", "+5", "0.5f", "1048576", "a , a", "required", "PLAINTEXT", "*", "0:1"]
REQUIRED = {"node.id": "1", "process.roles": "broker", "controller.listener.names": "CONTROLLER"}
EXOTIC = {"voters", "bootstrap-servers", "throttled-replicas", "offset-reset"}
"""Constraints that are left to the node."""


def _node_takes(table: object, name: str, text: str) -> bool:
    try:
        table[name].parse(text)  # type: ignore[index]
    except ConfigError:
        return False
    return True


def test_every_key_that_the_node_knows_is_known() -> None:
    known = {line.split(" ")[0] for line in config_check.BROKER.splitlines()}
    others = {name: "" for name in (*known, "no.such.key") if name not in BROKER and name not in BROKER_DYNAMIC_ONLY}
    assert NodeConfig({**REQUIRED, **others}).unknown == ["no.such.key"]
    assert known >= set(BROKER)


@pytest.mark.parametrize(
    ("table", "keys"), [(BROKER, config_check.BROKER), (TOPIC, config_check.TOPIC)], ids=["broker", "topic"]
)
def test_a_value_is_wrong_exactly_if_the_node_refuses_it(table: object, keys: str) -> None:
    seen = set()
    for line in keys.splitlines():
        name, kind, _, constraint, _ = line.split(" ")
        if (kind, constraint) in seen or name not in table:  # type: ignore[operator]
            continue
        seen.add((kind, constraint))
        for text in TEXTS:
            wrong = bool(list(config_problems("x", {name: text}, keys, True)))
            takes = _node_takes(table, name, text)
            assert not (wrong and takes), f"{name}={text!r}: a node takes it"
            assert wrong or takes or constraint in EXOTIC, f"{name}={text!r}: a node refuses it"


@given(st.sampled_from(config_check.BROKER.splitlines()), st.text(max_size=12))
def test_a_value_that_a_node_accepts_is_not_wrong(line: str, text: str) -> None:
    name = line.split(" ", maxsplit=1)[0]
    if name in BROKER and _node_takes(BROKER, name, text):
        assert list(config_problems("x", {name: text}, config_check.BROKER, True)) == []


def test_a_mistake_is_named_with_its_field_and_the_nearest_key() -> None:
    document = sample().spec.model_dump(by_alias=True, exclude_none=True)
    document["nodePools"][1]["config"] = {"num.io.threads": "many"}
    wrong = sample(config={"min.insync.replica": "2", "listener.name.plain.x": "1"}, nodePools=document["nodePools"])
    assert cluster_config_problems(wrong.spec) == [
        "spec.config min.insync.replica: nodes do not know this key; did you mean min.insync.replicas?",
        "spec.nodePools brokers config num.io.threads: 'many' is not valid: a whole number (int) is expected",
    ]
    assert cluster_config_problems(sample(config={"my.own": "2"}, unknownConfig="Allow").spec) == []
    assert cluster_config_problems(sample().spec) == []
    assert topic_config_problems({"cleanup.polcy": "compact", "retention.ms": "1"}) == [
        "spec.config cleanup.polcy: nodes do not know this key; did you mean cleanup.policy?"
    ]


PROVIDERS = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


def test_values_of_variables_are_left_to_the_nodes() -> None:
    """Brokers that change a key at run time would take the variable for its value."""
    config = {**PROVIDERS, "log.retention.ms": "${env:KEPT_MS}", "num.network.threads": "3"}
    found = sample(config=config)
    assert cluster_config_problems(found.spec) == []
    assert dynamic_values(found.spec) == {"num.network.threads": "3"}
    assert topic_config_problems({"retention.ms": "${env:KEPT_MS}"})
    (problem,) = cluster_config_problems(sample(config={**PROVIDERS, "super.users": "User:a;${env:MORE}"}).spec)
    assert problem.startswith("spec.config super.users: the operator must know these users")


def test_an_invalid_configuration_changes_nothing() -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        resource = api.objects["KRaftCluster", *KEY]
        resource["spec"]["config"]["log.retention.m"] = "1"
        resource["metadata"]["generation"] = 2
        writes = [one for one in api.writes if one[1] not in {"KRaftCluster", "Event"}]
        for _ in range(3):
            await operator.reconcile(KEY)
        assert writes == [one for one in api.writes if one[1] not in {"KRaftCluster", "Event"}]
        degraded = condition(api, "Degraded")
        assert degraded["reason"] == "ConfigNotValid"
        assert "log.retention.m: nodes do not know this key; did you mean log.retention.ms?" in degraded["message"]
        assert len(pods_of(api)) == 6
        del resource["spec"]["config"]["log.retention.m"]
        resource["metadata"]["generation"] = 3
        await operator.reconcile(KEY)
        assert condition(api, "Degraded")["reason"] != "ConfigNotValid"
        operator.close()

    asyncio.run(main())
