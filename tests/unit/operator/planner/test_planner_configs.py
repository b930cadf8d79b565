"""Whole stories of configurations: lost ones, dynamic values, metadata.version, racks, addresses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.values import same
from kraft_operator.plan.model.wanted import STARTS_WITH
from tests.unit.operator.outcomes import blocked, restarts
from tests.unit.operator.world import World, made, wanted

# Lost configurations


@pytest.mark.parametrize("lost", [1, 103])
def test_a_node_without_its_configuration_restarts_alone(lost: int) -> None:
    """A person had to restart it, and until then the cluster was not ready."""
    world = made()
    world.pods[lost].missing = "ConfigMap gone"
    world.wanted = replace(world.wanted, rolls_paused=True)
    assert {"ConfigLost", "RollPaused"} <= set(blocked(world, passes=5))
    assert not restarts(world)
    world.wanted = replace(world.wanted, rolls_paused=False)
    world.settle()
    assert restarts(world) == [lost]


def test_a_node_without_its_configuration_waits_until_its_restart_is_safe() -> None:
    world = made()
    world.pods[103].missing = "ConfigMap gone"
    for partition in world.partitions.values():
        partition.min_isr = len(partition.replicas)
    assert {"ConfigLost", "PartitionAtRisk"} <= set(blocked(world, passes=20))
    assert not restarts(world)


@pytest.mark.parametrize("lost", [1, 103])
def test_a_roll_starts_with_the_node_without_its_configuration(lost: int) -> None:
    """The roll waited for that node, and the node for the roll: for ever."""
    world = made()
    world.pods[lost].missing = "ConfigMap gone"
    pools = tuple(replace(pool, aspects={**pool.aspects, "config": "new"}) for pool in world.wanted.pools)
    world.wanted = replace(world.wanted, pools=pools)
    world.settle()
    assert restarts(world)[0] == lost
    assert sorted(restarts(world)) == [1, 2, 3, 101, 102, 103]


def test_a_node_without_its_configuration_restarts_with_the_next_restart() -> None:
    world = made()
    world.pods[103].missing = "ConfigMap gone"
    world.wanted = replace(world.wanted, rolls={101: "now"})
    world.settle()
    assert restarts(world) == [103, 101]


# Dynamic values


def test_dynamic_values_restart_no_node_but_apply_to_one_that_cannot_start() -> None:
    world = made()
    pools = tuple(replace(pool, aspects={**pool.aspects, STARTS_WITH: "new"}) for pool in world.wanted.pools)
    world.wanted = replace(world.wanted, pools=pools)
    world.settle()
    assert not restarts(world)
    world.pods[103].broken = True
    world.settle()
    assert world.actions(do.Recreate) == [do.Recreate((103,), f"they do not run, and lack {STARTS_WITH}")]
    assert world.pods[103].aspects[STARTS_WITH] == "new"
    assert not restarts(world)


def test_a_start_value_is_withdrawn_after_nodes_restarted_without_it() -> None:
    """If it were withdrawn at once, the value in their files would apply again."""
    world = made()

    def asks(**values: str) -> None:
        aspect = ",".join(f"{key}={value}" for key, value in sorted(values.items()))
        pools = tuple(replace(pool, aspects={**pool.aspects, STARTS_WITH: aspect}) for pool in world.wanted.pools)
        world.wanted = replace(world.wanted, pools=pools, dynamic_config=values)

    asks(a="1")
    world.settle()
    world.wanted = replace(world.wanted, rolls={101: "now"})
    world.settle()
    assert restarts(world) == [101]
    asks(a="2", b="1")
    world.settle()
    asks(b="1")
    world.settle()
    assert restarts(world) == [101, 101], "the only one whose file has a value"
    assert world.dynamic == {"b": "1"}
    last = [step for step in world.done if isinstance(step, do.Restart | do.SetConfig)][-2:]
    assert last == [do.Restart((101,), STARTS_WITH), do.SetConfig({}, ("a",))]


@pytest.mark.parametrize(
    ("reported", "wanted_value"),
    [("compact,delete", "compact, delete"), ("true", "True"), ("100", "0100"), ("0.5", "0.50"), ("1.0E-5", "0.00001")],
)
def test_a_value_in_other_notation_is_not_set_again(reported: str, wanted_value: str) -> None:
    """It was set again in each pass, for ever."""
    world = made()
    world.dynamic["a"] = reported
    world.wanted = wanted(dynamic_config={"a": wanted_value})
    world.settle()
    assert not world.actions(do.SetConfig)


@pytest.mark.parametrize(
    ("reported", "wanted_value"), [("compact", "compact,delete"), ("A", "a"), ("1", "true"), (None, "")]
)
def test_different_values_are_set(reported: str | None, wanted_value: str) -> None:
    assert not same(reported, wanted_value)


# metadata.version


def test_a_level_is_finalized_after_all_nodes_run_the_image() -> None:
    world = made()
    world.wanted = wanted(image="b", metadata_version=30)
    world.settle()
    assert world.features["metadata.version"] == 30
    steps = [type(step) for step in world.done if isinstance(step, do.Restart | do.SetFeature)]
    assert steps == [do.Restart] * 6 + [do.SetFeature]


def test_the_level_stays_unless_requested() -> None:
    world = made()
    world.wanted = wanted(image="b")
    world.settle()
    assert world.features["metadata.version"] == 29
    world.wanted = wanted(image="b", metadata_latest=True)
    world.settle()
    assert world.features["metadata.version"] == 30


@pytest.mark.parametrize(
    ("level", "reason", "said"),
    [
        (28, "MetadataVersionBehind", "finalized at 4.2-IV1 and cannot go back to 4.2-IV0"),
        (31, "MetadataVersionUnsupported", "the image supports metadata.version up to 4.3-IV0"),
        (0, "MetadataVersionUnknown", "3.3-IV3 to 4.3-IV0"),
    ],
)
def test_an_impossible_level_is_refused_with_the_alternatives(level: int, reason: str, said: str) -> None:
    world = made()
    world.wanted = wanted(metadata_version=level)
    assert said in blocked(world)[reason]
    assert world.features["metadata.version"] == 29


# Racks


def test_a_broker_has_the_rack_of_its_volumes_machine() -> None:
    world = World(wanted(racks=True), volume_racks={101: "x", 102: "y", 103: "z"}, racks={101: "x", 102: "y", 103: "z"})
    world.settle()
    assert world.registered == {101: "x", 102: "y", 103: "z"}
    assert not world.actions(do.Restart)
    assert all("rack" not in world.pods[i].aspects for i in (1, 2, 3))


def test_a_broker_in_another_rack_restarts_to_register_it() -> None:
    world = World(wanted(racks=True), volume_racks={101: "x"}, racks={101: "y"})
    world.settle()
    assert world.registered[101] == "y"
    assert restarts(world) == [101]


# Addresses outside


def test_a_broker_with_a_changed_external_addressrestarts() -> None:
    """It kept sending clients the former address, of a load balancer that had been replaced."""
    world = World(wanted(), addresses={101: "external=a:1", 102: "external=b:1", 103: "external=c:1"})
    world.settle()
    del world.addresses[102]
    world.addresses[103] = "external=d:1"
    world.settle()
    assert restarts(world) == [103], "102's is not known, so it stays as it is"
    assert world.pods[103].aspects["addresses"] == "external=d:1"


def test_a_broker_without_recorded_addresses_is_not_restarted() -> None:
    world = World(wanted())
    world.settle()
    world.addresses = {101: "external=a:1"}
    world.settle()
    assert not restarts(world)
