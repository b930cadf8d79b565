"""The index against a simple one: after any event of a cluster, both name the same partitions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kraft_node.controller.partitions.leaders import PARTITIONS_A_TURN
from kraft_node.controller.state import blocks
from kraft_node.controller.state import partition_index as index_module
from kraft_node.controller.state.indexes import Indexes
from kraft_node.controller.state.partition_index import numbers
from kraft_node.metadata.features import ELR_VERSION, METADATA_VERSION
from kraft_node.metadata.image import MetadataImage
from kraft_protocol.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kraft_protocol.wire.stored import FeatureLevelRecord
from tests.property.controller.standby import Following
from tests.tiers import seeds
from tests.unit.controller.harness import Quorum, flat

BROKERS = range(1, 6)
NAMES = ["t.0", "t_0", "t1", "t2", "t-3", "u.1"]


@pytest.fixture(params=[2, blocks.BLOCK_PARTITIONS], autouse=True)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics of many blocks, and of one block."""
    for module in (blocks, index_module):
        monkeypatch.setattr(module, "BLOCK_PARTITIONS", request.param)


def scan(quorum: Quorum, holds: Callable[[Any], bool]) -> set[tuple[bytes, int]]:
    topics = quorum.controller.cluster.view.topics
    return {(topic.id, number) for topic in topics for number, state in topic.partitions() if holds(state)}


def check(quorum: Quorum) -> None:
    index = quorum.controller.cluster.index
    topics = quorum.controller.cluster.view.topics
    for broker in BROKERS:
        in_sync = list(flat(index.in_sync_on(broker, topics)))
        assert len(in_sync) == len(set(in_sync))
        assert set(in_sync) == scan(quorum, lambda s, b=broker: b in s.isr)
        assert set(flat(index.eligible_on(broker))) == scan(quorum, lambda s, b=broker: b in s.elr)
        assert index.leads_any(broker, topics, 99) == bool(scan(quorum, lambda s, b=broker: s.leader == b))
    assert set(flat(index.leaderless())) == scan(quorum, lambda s: s.leader == -1)
    assert set(flat(index.led_by_others())) == scan(quorum, lambda s: s.leader != s.replicas[0])
    assert {(topic, n) for topic, mask in index.reassigning.items() for n in numbers(mask)} == scan(
        quorum, lambda s: s.is_reassigning
    )
    if quorum.controller.cluster.view.is_empty:
        rebuilt = Indexes()
        rebuilt.begin(quorum.image)
        rebuilt.finish(quorum.image)
        assert contents(rebuilt, quorum.image) == contents(quorum.controller.cluster.indexes, quorum.image)


def contents(derived: Indexes, image: MetadataImage) -> list[Any]:
    """All results, and the blocks searched: after a search no block is a false positive."""
    index = derived.index
    sets = [set(flat(index.in_sync_on(broker, image.topics))) for broker in BROKERS]
    blocks = [set(index._in_sync.of(broker)) for broker in BROKERS]
    elr = {b: p for b, p in index._elr.sets.items() if p}
    names = {key: sorted(names) for key, names in derived.names._by_unified.items()}
    return [*sets, *blocks, elr, set(flat(index.leaderless())), index.imbalanced, index.reassigning, names]


def laws(quorum: Quorum) -> None:
    """Properties of every partition at all times."""
    for topic in quorum.controller.cluster.view.topics:
        for number, state in topic.partitions():
            where = f"{topic.name}-{number}: {state}"
            assert set(state.isr) <= set(state.replicas), where
            assert len(set(state.replicas)) == len(state.replicas), where
            assert not set(state.isr) & set(state.elr), where
            assert state.leader == -1 or state.leader in state.isr, where
            if state.leader != -1:
                leader = quorum.controller.cluster.broker(state.leader)
                assert leader is not None, where
                assert not leader.fenced, where
            for broker in quorum.controller.cluster.view.brokers.values():
                assert not broker.fenced or broker.id not in state.isr or state.isr == (broker.id,), where
    assert all(count >= 0 for count in quorum.controller.cluster.leaving.values())


def only_active_brokers_lead(quorum: Quorum) -> None:
    """Only for whole plans: partitions wait for their leaders between the turns of a controlled shutdown."""
    cluster = quorum.controller.cluster
    assert not scan(quorum, lambda s: s.leader != -1 and not cluster.is_active(s.leader))


def leads_nothing(quorum: Quorum, broker: int) -> bool:
    return not scan(quorum, lambda s: s.leader == broker)


def step(quorum: Quorum, rng: random.Random) -> None:
    broker, name = rng.choice(BROKERS), rng.choice(NAMES)
    topic = quorum.image.topics.by_name(name)
    what = rng.randrange(9)
    registration = quorum.image.brokers.get(broker)
    if what in range(1, 5) and registration is not None and registration.in_controlled_shutdown:
        # A process that shuts down does not change its mind: it keeps asking, and returns as another incarnation.
        what = 4
        if quorum.heartbeat(broker, want_shut_down=True).should_shut_down:
            assert leads_nothing(quorum, broker), f"broker {broker} may stop"
            what = 5
    if what == 0:
        quorum.create(name, partitions=rng.randint(1, 9), factor=rng.randint(1, 3))
    elif what == 1:
        quorum.heartbeat(broker, want_fence=True)
    elif what in (2, 3):
        quorum.heartbeat(broker)
    elif what == 4:
        if quorum.heartbeat(broker, want_shut_down=True).should_shut_down:
            assert leads_nothing(quorum, broker), f"broker {broker} may stop"
    elif what == 5:
        previous = quorum.epoch_of(broker) if rng.random() < 0.5 else -1
        quorum.register(broker, incarnation=rng.randrange(1_000_000), previous_epoch=previous)
    elif topic is None:
        quorum.pass_time(1_000)
    elif what == 6:
        quorum.ask(
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=len(topic) + 1, assignments=None)
                ]
            )
        )
        if rng.random() < 0.3:
            quorum.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)]))
    elif what == 7:
        Request = AlterPartitionReassignmentsRequest  # noqa: N806
        target = rng.choice([None, rng.sample(BROKERS, rng.randint(1, 3))])
        partition = Request.ReassignablePartition(partition_index=rng.randrange(len(topic)), replicas=target)
        quorum.ask(Request(topics=[Request.ReassignableTopic(name=name, partitions=[partition])]))
    else:
        number = rng.randrange(len(topic))
        state = topic.partition(number)
        assert state is not None
        if state.leader >= 0:
            isr = [b for b in state.replicas if b == state.leader or rng.random() < 0.7]
            alter_isr(quorum, topic.id, number, state, isr)


def alter_isr(quorum: Quorum, topic_id: bytes, number: int, state: Any, isr: list[int]) -> None:
    Request = AlterPartitionRequest  # noqa: N806
    members_ = [Request.BrokerState(broker_id=b, broker_epoch=-1) for b in isr]
    partition = Request.PartitionData(
        partition_index=number,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr_with_epochs=members_,
    )
    topic = Request.TopicData(topic_id=topic_id, partitions=[partition])  # type: ignore[arg-type]
    quorum.ask(Request(broker_id=state.leader, broker_epoch=quorum.epoch_of(state.leader), topics=[topic]))


@pytest.mark.parametrize("elr", [0, 1])
@pytest.mark.parametrize("seed", seeds(range(6), everyday=2))
def test_the_index_matches_the_image_in_a_random_life(seed: int, elr: int) -> None:
    random_life(seed, elr, PARTITIONS_A_TURN)


@pytest.mark.parametrize("elr", [0, 1])
@pytest.mark.parametrize("seed", seeds(range(12), everyday=4))
def test_the_index_matches_the_image_during_long_plans(seed: int, elr: int) -> None:
    random_life(seed, elr, 1)


def random_life(seed: int, elr: int, partitions_a_turn: int) -> None:
    """`partitions_a_turn` 1: other requests come between the turns of long plans."""
    rng = random.Random(seed)
    bootstrap = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)]
    if elr:
        bootstrap.append(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
    quorum = Quorum(bootstrap=bootstrap, min_insync_replicas="2")
    quorum.start(*BROKERS)
    quorum.controller.leaders.partitions_a_turn = partitions_a_turn
    for _ in range(150):
        step(quorum, rng)
        if rng.random() < 0.5:
            quorum.pass_time(0)
        check(quorum)
        laws(quorum)
        if partitions_a_turn > 1:
            only_active_brokers_lead(quorum)
        if rng.random() < 0.1:
            lose_uncommitted(quorum, rng)
            quorum.lose()
            quorum.lead()
            check(quorum)
    quorum.pass_time(1)
    assert not quorum.controller.in_turns.under_way, "they end"
    laws(quorum)
    assert not any(quorum.controller.cluster.leaving.values())


def lose_uncommitted(quorum: Quorum, rng: random.Random) -> None:
    """Plan some changes whose records will never be committed."""
    for _ in range(rng.randrange(5)):
        name = rng.choice(NAMES)
        what = rng.randrange(3)
        if what == 0:
            topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=3, replication_factor=1)
            quorum.ask(CreateTopicsRequest(topics=[topic]), commit=False)
        elif what == 1:
            quorum.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)]), commit=False)
        else:
            broker = rng.choice(BROKERS)
            request = BrokerHeartbeatRequest(
                broker_id=broker, broker_epoch=quorum.epoch_of(broker), current_metadata_offset=0, want_fence=True
            )
            quorum.ask(request, commit=False)


@pytest.mark.parametrize("seed", seeds(range(6), everyday=2))
def test_a_standby_has_a_complete_index_when_it_becomes_active(seed: int) -> None:
    rng = random.Random(seed)
    active = Quorum(min_insync_replicas="2")
    active.start(*BROKERS)
    standby = Quorum(active=False)
    derived = standby.controller.cluster.indexes
    following = Following(active, standby, rng)
    for _ in range(120):
        step(active, rng)
        following.step()
    following.lead()
    check(standby)
    assert contents(derived, standby.image) == contents(active.controller.cluster.indexes, active.image)
