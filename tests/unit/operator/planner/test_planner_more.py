"""More whole stories: levels, racks, volumes that are added later, dynamic voters, lost voters, balance, throttles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Broker, Metadata, Partition
from kraft_operator.plan.model.steps import Blocked
from kraft_operator.plan.model.values import same
from kraft_operator.plan.model.wanted import STARTS_WITH, Pool, ReplacementRequest
from kraft_operator.plan.replicas.balance import loads
from kraft_operator.plan.replicas.moves import RATES
from kraft_operator.plan.replicas.resize import _replicas
from tests.unit.operator.world import World, made, wanted


def _blocked(world: World, passes: int = 30) -> dict[str, str]:
    """The blocked steps after some passes."""
    for _ in range(passes):
        world.step()
    return {one.reason: one.message for one in world.last.blocked}


def _restarts(world: World) -> list[int]:
    return [node for step in world.done if isinstance(step, do.Restart) for node in step.nodes]


# Lost configurations


@pytest.mark.parametrize("lost", [1, 103])
def test_a_roll_starts_with_the_node_without_its_configuration(lost: int) -> None:
    """The roll waited for that node, and the node for the roll: for ever."""
    world = made()
    world.pods[lost].missing = "ConfigMap gone"
    assert "ConfigLost" in _blocked(world, passes=5)
    assert not _restarts(world), "it is only named as long as nothing else is to be restarted"
    pools = tuple(replace(pool, aspects={**pool.aspects, "config": "new"}) for pool in world.wanted.pools)
    world.wanted = replace(world.wanted, pools=pools)
    world.settle()
    assert _restarts(world)[0] == lost
    assert sorted(_restarts(world)) == [1, 2, 3, 101, 102, 103]


def test_a_node_without_its_configuration_restarts_with_the_next_restart() -> None:
    world = made()
    world.pods[103].missing = "ConfigMap gone"
    world.wanted = replace(world.wanted, rolls={101: "now"})
    world.settle()
    assert _restarts(world) == [103, 101]


# Dynamic values


def test_dynamic_values_restart_no_node_but_apply_to_one_that_cannot_start() -> None:
    world = made()
    pools = tuple(replace(pool, aspects={**pool.aspects, STARTS_WITH: "new"}) for pool in world.wanted.pools)
    world.wanted = replace(world.wanted, pools=pools)
    world.settle()
    assert not _restarts(world)
    world.pods[103].broken = True
    world.settle()
    assert world.actions(do.Recreate) == [do.Recreate((103,), f"they do not run, and lack {STARTS_WITH}")]
    assert world.pods[103].aspects[STARTS_WITH] == "new"
    assert not _restarts(world)


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
    assert _restarts(world) == [101]
    asks(a="2", b="1")
    world.settle()
    asks(b="1")
    world.settle()
    assert _restarts(world) == [101, 101], "the only one whose file has a value"
    assert world.dynamic == {"b": "1"}
    last = [step for step in world.done if isinstance(step, do.Restart | do.SetConfig)][-2:]
    assert last == [do.Restart((101,), STARTS_WITH), do.SetConfig({}, ("a",))]


@pytest.mark.parametrize(
    ("told", "wanted_value"),
    [("compact,delete", "compact, delete"), ("true", "True"), ("100", "0100"), ("0.5", "0.50"), ("1.0E-5", "0.00001")],
)
def test_a_value_in_other_notation_is_not_set_again(told: str, wanted_value: str) -> None:
    """It was set again in each pass, for ever."""
    world = made()
    world.dynamic["a"] = told
    world.wanted = wanted(dynamic_config={"a": wanted_value})
    world.settle()
    assert not world.actions(do.SetConfig)


@pytest.mark.parametrize(
    ("told", "wanted_value"), [("compact", "compact,delete"), ("A", "a"), ("1", "true"), (None, "")]
)
def test_different_values_are_set(told: str | None, wanted_value: str) -> None:
    assert not same(told, wanted_value)


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
    assert said in _blocked(world)[reason]
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
    assert _restarts(world) == [101]


# Addresses outside


def test_a_broker_with_a_changed_external_address_restarts() -> None:
    """It kept sending clients the former address, of a load balancer that had been replaced."""
    world = World(wanted(), addresses={101: "external=a:1", 102: "external=b:1", 103: "external=c:1"})
    world.settle()
    del world.addresses[102]
    world.addresses[103] = "external=d:1"
    world.settle()
    assert _restarts(world) == [103], "102's is not known, so it stays as it is"
    assert world.pods[103].aspects["addresses"] == "external=d:1"


def test_a_broker_without_recorded_addresses_is_not_restarted() -> None:
    world = World(wanted())
    world.settle()
    world.addresses = {101: "external=a:1"}
    world.settle()
    assert not _restarts(world)


# Volumes that are added later


def test_a_node_whose_claim_is_being_deleted_is_not_restarted() -> None:
    world = made()
    del world.volumes[102, 0]
    world.wanted = wanted(image="b")
    assert "the volume of broker 102 (disk 0) is missing" in _blocked(world, 60)["VolumeLost"]
    assert _restarts(world) == [2, 3, 1, 101, 103], "all others have been"
    assert world.pods[102].aspects["image"] == "a"


def _with_volumes(world_wanted: object, *names: str) -> object:
    pools = tuple(
        replace(pool, size_bytes=dict.fromkeys(names, 10), aspects={**pool.aspects, "volumes": ",".join(names)})
        for pool in world_wanted.pools  # type: ignore[attr-defined]
    )
    return replace(world_wanted, pools=pools)  # type: ignore[type-var]


def _made_with_volumes(*names: str) -> World:
    world = World(_with_volumes(wanted(), *names))  # type: ignore[arg-type]
    world.settle()
    world.make_topics()
    world.settle()
    world.done.clear()
    return world


def test_an_added_volume_is_formatted_during_the_restart_of_its_node() -> None:
    world = _made_with_volumes("data")
    world.wanted = _with_volumes(wanted(), "data", "more")  # type: ignore[assignment]
    world.settle()
    assert sorted(_restarts(world)) == [1, 2, 3, 101, 102, 103]
    assert all(disk == {"data": True, "more": True} for disk in world.disks.values())
    assert all(node.volumes == ("data", "more") for node in world.record.nodes)
    assert len(world.actions(do.Format)) == 6


def test_one_lost_volume_of_several_is_named_and_not_recreated() -> None:
    world = _made_with_volumes("data", "more")
    world.kill(102)
    for table in (world.disks, world.sizes):
        del table[102, 0]["more"]  # type: ignore[attr-defined]
    assert "volume more of broker 102 (disk 0) is missing" in _blocked(world)["VolumeLost"]
    assert 102 not in world.pods
    world.wanted = replace(world.wanted, replacements=(ReplacementRequest("r", 102, "EmptyDisk"),))
    world.settle()
    assert world.pods[102].disk == 1


# Dynamic quorums


def _dynamic(**changes: object) -> World:
    world = World(wanted(static_quorum=False, **changes))
    world.settle()
    world.make_topics()
    world.settle()
    world.done.clear()
    return world


def test_a_dynamic_quorum_starts_with_the_first_voters() -> None:
    world = _dynamic()
    assert world.log_voters == {1: 0, 2: 0, 3: 0}
    assert world.pods[1].aspects["bootstrap"] == "1,2,3"


@pytest.mark.parametrize("passes", range(1, 12))
def test_the_first_format_decides_the_initial_voters(passes: int) -> None:
    """If a dynamic quorum was requested between the first job and its end, it had no voters, or wrong ones."""
    world = World(wanted())
    for _ in range(passes):
        world.step()
    world.wanted = wanted(static_quorum=False, controllers=5)
    world.settle()
    assert world.log_voters is not None
    assert world.log_voters.keys() == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 5), (5, 3), (3, 1), (1, 5)])
def test_dynamic_voters_are_added_and_removed_one_at_a_time(before: int, after: int) -> None:
    world = _dynamic(controllers=before)
    world.wanted = wanted(controllers=after, static_quorum=False)
    world.settle()
    assert world.log_voters == dict.fromkeys(range(1, after + 1), 0)
    assert len(world.actions(do.AddVoter)) == max(0, after - before)
    assert len(world.actions(do.RemoveVoter)) == max(0, before - after)


def test_a_dynamic_voter_gets_an_empty_disk() -> None:
    world = _dynamic()
    world.lose_host(3)
    world.wanted = wanted(static_quorum=False, replacements=(ReplacementRequest("r", 3, "EmptyDisk"),))
    world.settle()
    assert world.log_voters == {1: 0, 2: 0, 3: 1}
    assert world.record.replacements[0].done


def test_a_dead_dynamic_voter_gets_another_id_without_a_pause() -> None:
    world = _dynamic()
    world.lose_host(3)
    world.wanted = wanted(static_quorum=False, replacements=(ReplacementRequest("r", 3, "NewId"),))
    world.settle()
    assert world.log_voters == {1: 0, 2: 0, 4: 0}
    assert world.record.retired == (3,)
    assert _restarts(world) == []


def test_static_voters_become_dynamic_and_are_restarted_once() -> None:
    world = made()
    world.wanted = wanted(static_quorum=False)
    world.settle()
    assert world.record.dynamic
    assert world.log_voters == {1: 0, 2: 0, 3: 0}
    assert sorted(_restarts(world)) == [1, 2, 3, 101, 102, 103]
    assert all("voters" not in pod.aspects for pod in world.pods.values())
    world.wanted = wanted(controllers=5, static_quorum=False)
    world.settle()
    assert world.log_voters == dict.fromkeys((1, 2, 3, 4, 5), 0)


def test_static_voters_do_not_become_dynamic_while_one_is_down() -> None:
    world = made()
    world.lose_host(2)
    world.wanted = wanted(static_quorum=False)
    assert "voter 2 is behind or down" in _blocked(world)["VoterDown"]
    assert not world.record.dynamic


# Lost voters


def test_a_voter_that_is_down_blocks_the_change_and_is_named() -> None:
    world = made()
    world.lose_host(2)
    world.wanted = wanted(controllers=5)
    said = _blocked(world)["VoterDown"]
    assert "voter 2 is behind or down" in said
    assert "spec.replacements" in said
    assert world.record.voters == (1, 2, 3)
    world.wanted = wanted(controllers=5, replacements=(ReplacementRequest("r", 2, "EmptyDisk"),))
    world.settle()
    assert world.record.voters == (1, 2, 3, 4, 5)


def test_a_lost_voter_that_leaves_is_removed_if_it_is_named() -> None:
    world = made(controllers=5)
    world.lose_host(5)
    world.wanted = wanted(controllers=3)
    assert "quorum.giveUp" in _blocked(world)["VoterDown"]
    world.wanted = wanted(controllers=3, given_up=frozenset({5}))
    world.settle()
    assert world.record.voters == (1, 2, 3)
    assert world.record.retired == (4, 5)


def test_one_lost_voter_of_three_is_not_removed() -> None:
    world = made()
    world.lose_host(3)
    world.wanted = wanted(controllers=1, given_up=frozenset({3}))
    assert "replace its disk first" in _blocked(world)["VoterDown"]
    assert world.record.voters == (1, 2, 3)


# Balance


def _loads(world: World) -> dict[int, int]:
    found = dict.fromkeys(sorted(world.registered), 0)
    for partition in world.partitions.values():
        for node_id in partition.replicas:
            found[node_id] += 1
    return found


def test_a_new_broker_gets_replicas_with_as_few_moves_as_possible() -> None:
    world = made(balance_new=True)
    world.make_topics(count=12)
    world.done.clear()
    world.wanted = wanted(brokers=4, balance_new=True)
    world.settle()
    assert _loads(world) == {101: 9, 102: 9, 103: 9, 104: 9}
    moved = sum(len(step.moves) for step in world.done if isinstance(step, do.Reassign))
    assert moved == 9
    world.done.clear()
    world.settle()
    assert not world.actions(do.Reassign)


def test_replicas_move_to_a_new_broker_only_on_request() -> None:
    world = made()
    world.make_topics(count=12)
    world.wanted = wanted(brokers=4)
    world.settle()
    assert _loads(world)[104] == 0
    world.wanted = wanted(brokers=4, balance="please")
    world.settle()
    assert max(_loads(world).values()) - min(_loads(world).values()) <= 1
    assert world.record.balanced_for == "please"


def test_balance_keeps_the_racks_of_a_partition_apart() -> None:
    racks = {101: "x", 102: "y", 103: "x", 104: "y"}
    world = World(wanted(brokers=2, racks=True, balance_new=True), racks=racks, volume_racks=racks)
    world.settle()
    world.make_topics(rf=2, count=10)
    world.wanted = wanted(brokers=4, racks=True, balance_new=True)
    world.settle()
    assert _loads(world) == {101: 5, 102: 5, 103: 5, 104: 5}
    for partition in world.partitions.values():
        assert {racks[i] for i in partition.replicas} == {"x", "y"}


def test_moves_wait_for_a_broker_that_is_down() -> None:
    world = made(balance_new=True)
    world.make_topics(count=12)
    world.wanted = wanted(brokers=4, balance_new=True, skip=frozenset({102}))
    world.kill(102)
    for _ in range(30):
        world.step()
    assert not world.actions(do.Reassign)
    assert "replicas are balanced once all brokers serve" in world.last.waits


# More or fewer replicas


def _counts(world: World) -> set[int]:
    return {len(partition.replicas) for partition in world.partitions.values()}


def test_replicas_of_topics_change_a_few_partitions_at_a_time() -> None:
    world = made(brokers=4)
    world.make_topics(rf=2, count=12)
    topics = sorted({topic for topic, _ in world.partitions})
    world.done.clear()
    world.wanted = wanted(brokers=4, drain_at_once=5, topic_replicas=dict.fromkeys(topics, 3))
    world.settle()
    assert _counts(world) == {3}
    assert max(len(step.moves) for step in world.done if isinstance(step, do.Reassign)) <= 5
    firsts = {key: (partition.replicas[0],) for key, partition in world.partitions.items()}
    world.wanted = wanted(brokers=4, topic_replicas=dict.fromkeys(topics, 1))
    world.settle()
    assert {key: partition.replicas for key, partition in world.partitions.items()} == firsts


def test_replicas_without_enough_brokers_are_reported() -> None:
    world = made()
    world.make_topics(rf=2, count=4)
    topics = sorted({topic for topic, _ in world.partitions})
    world.wanted = wanted(topic_replicas=dict.fromkeys(topics, 4))
    assert "only brokers [101, 102, 103]" in _blocked(world)["TooFewBrokers"]
    assert not world.actions(do.Reassign)


def test_fewer_replicas_permit_a_broker_to_leave() -> None:
    world = made()
    world.make_topics(rf=3, count=4)
    topics = sorted({topic for topic, _ in world.partitions})
    world.wanted = wanted(brokers=2)
    assert "CannotDrain" in _blocked(world)
    world.wanted = wanted(brokers=2, topic_replicas=dict.fromkeys(topics, 2))
    world.settle()
    assert set(_loads(world)) == {101, 102}


def test_replicas_out_of_sync_are_removed_first() -> None:
    partition = Partition("t", 0, (1, 2, 3), frozenset({1, 2}), 2)
    metadata = Metadata(dict.fromkeys((1, 2, 3), Broker()), (partition,))
    load = loads(metadata, [1, 2, 3])
    assert _replicas(metadata, partition, 2, load) == (1, 2)
    assert _replicas(metadata, replace(partition, isr=frozenset({2})), 2, load) == (1, 2)
    found = _replicas(metadata, replace(partition, isr=frozenset({2, 3})), 1, load)
    assert isinstance(found, Blocked)
    assert "t-0 would have 0 in-sync replicas of at least 1" in found.message


# Throttle


@pytest.mark.parametrize("what", ["drain", "balance"])
def test_a_throttle_is_set_before_moves_and_removed_after_them(what: str) -> None:
    world = made(brokers=4)
    world.make_topics(count=12)
    world.done.clear()
    if what == "drain":
        world.wanted = wanted(brokers=3, drain_bytes=1000, drain_at_once=5)
    else:
        world.wanted = wanted(brokers=5, drain_bytes=1000, drain_at_once=5, balance="now")
    applied = world.apply

    def held(step: do.Step) -> None:
        if isinstance(step, do.Reassign):
            assert {topic for topic, _ in step.moves} <= world.throttled
            assert {world.dynamic[key] for key in RATES} == {"1000"}
            assert len(step.moves) <= 5
        applied(step)

    world.apply = held  # type: ignore[method-assign]
    world.settle()
    assert len(world.actions(do.Reassign)) > 1
    assert not world.throttled
    assert not world.dynamic


# Roles


def test_a_combined_pool_gives_its_controllers_up_under_a_dynamic_quorum() -> None:
    aspects = {"image": "a", "config": "c"}
    both = Pool("both", True, True, 3, 1, aspects)
    world = World(replace(wanted(static_quorum=False), pools=(both,)))
    world.settle()
    world.make_topics()
    world.settle()
    pools = (replace(both, controller=False), Pool("ctl", True, False, 3, 201, aspects))
    world.wanted = replace(wanted(static_quorum=False), pools=pools)
    world.settle()
    assert set(world.log_voters or ()) == {201, 202, 203}
    assert {world.pods[i].aspects["roles"] for i in (1, 2, 3)} == {"broker"}


def test_a_second_voter_counts_only_after_it_has_caught_up() -> None:
    world = made(controllers=1)
    world.wanted = wanted(controllers=3)
    while world.record.joining is None:
        world.step()
    while 2 not in world.pods:
        world.step()
    assert world.record.voters == (1,)
    world.kill(1)
    world.step()
    assert world.pods[1].voters == (1,), "it would need the vote of one that has nothing"
    assert world.pods[2].voters == (1, 2)
    world.settle()
    assert world.record.voters == (1, 2, 3)
