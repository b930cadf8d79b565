"""The gates against simple slow twins that list every failure."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_operator.plan.gates import isr_without, quorum_without
from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.model.record import Node, Record
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.wanted import Wanted

IDS = range(1, 6)
voter_sets = st.sets(st.sampled_from(IDS), min_size=1, max_size=5).map(lambda ids: tuple(sorted(ids)))


def _pod(voters: tuple[int, ...]) -> seen.Pod:
    return seen.Pod(True, True, {"roles": "controller", "voters": ",".join(map(str, voters))})


@settings(deadline=None)
@given(
    present=voter_sets,
    coming=voter_sets,
    late=st.sets(st.sampled_from(IDS)),
    behind=st.sets(st.sampled_from(IDS)),
    gone=st.sampled_from(IDS),
)
def test_a_permitted_stop_leaves_every_voter_set_a_working_majority(
    present: tuple[int, ...], coming: tuple[int, ...], late: set[int], behind: set[int], gone: int
) -> None:
    """`late` nodes run with the present voters, all others with the coming ones."""
    everybody = {*present, *coming}
    pods = {i: _pod(present if i in late else coming) for i in everybody}
    replicas = {i: seen.Replica(0, 60_000 if i in behind else 0) for i in everybody}
    quorum = seen.Quorum(min(everybody), 1, replicas)
    record = Record("c", tuple(Node(i, "p", True, False) for i in sorted(everybody)), voters=coming)
    s = Situation(record, Wanted(pools=()), seen.Kube(pods), quorum, None)

    alive = {i for i in everybody if i == quorum.leader or i not in behind} - {gone}
    used = {coming} | {present for i in everybody if i != gone and i in late}
    if gone == quorum.leader and gone not in coming:
        used = {coming}  # a node with the coming voters does not follow it anyway
    able = all(
        any(set(some) <= alive for some in itertools.combinations(voters, len(voters) // 2 + 1)) for voters in used
    )
    small = all(
        (len(voters) <= 2 and set(voters) - {gone} <= alive)
        or any(set(some) <= alive for some in itertools.combinations(voters, len(voters) // 2 + 1))
        for voters in used
    )
    assert (quorum_without(s, gone) is None) == (able or small)


partitions = st.lists(
    st.builds(
        lambda replicas, isr, need: seen.Partition(
            "t", 0, tuple(sorted(replicas)), frozenset(isr & replicas) or frozenset(replicas), need
        ),
        st.sets(st.sampled_from(IDS), min_size=1),
        st.sets(st.sampled_from(IDS)),
        st.integers(1, 3),
    ),
    max_size=4,
)


@settings(deadline=None)
@given(
    found=partitions,
    gone=st.sets(st.sampled_from(IDS), min_size=1),
    down=st.sets(st.sampled_from(IDS)),
    fenced=st.sets(st.sampled_from(IDS)),
    tolerated=st.booleans(),
    with_disks=st.booleans(),
)
def test_a_permitted_stop_leaves_every_partition_its_in_sync_replicas(
    found: list[seen.Partition], gone: set[int], down: set[int], fenced: set[int], tolerated: bool, with_disks: bool
) -> None:
    """`down` nodes have no ready pod, but may not be fenced yet."""
    wanted = Wanted(pools=(), unavailable_topics=frozenset({"t"} if tolerated else ()))
    metadata = seen.Metadata({i: seen.Broker(i in fenced) for i in IDS}, tuple(found))
    pods = {i: seen.Pod(True, True, {"roles": "broker"}) for i in IDS if i not in down}
    s = Situation(Record("c"), wanted, seen.Kube(pods), None, metadata)

    harmed = lost = 0
    for partition in found:
        after = {i for i in partition.isr if i not in gone and i not in down and i not in fenced}
        in_sync = any(i in partition.isr for i in gone)
        harmed += in_sync and len(after) < partition.min_isr and len(after) < len(partition.replicas)
        lost += with_disks and not after and any(i in partition.replicas for i in gone)
    assert (isr_without(s, gone, with_disks=with_disks) is None) == ((tolerated or harmed == 0) and lost == 0)


def test_unknown_views_permit_no_stop() -> None:
    s = Situation(Record("c", voters=(1, 2, 3)), Wanted(pools=()), seen.Kube(), None, None)
    assert quorum_without(s, 1) is not None
    assert isr_without(s, (101,)) is not None
