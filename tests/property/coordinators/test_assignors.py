"""Random groups against the rules of the assignors: valid, balanced, sticky, co-located."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_node.broker.coordinators.group.consumer.assignors import ASSIGNORS, range_, uniform
from kraft_node.broker.coordinators.group.consumer.assignors.spec import Subscriber
from tests.tiers import examples

TOPICS = [bytes([i]) * 16 for i in range(6)]
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 12) for topic in TOPICS})


def group(names, topics_of, earlier, static=()):
    return [
        Subscriber(name, f"i{name}" if name in static else None, topics_of(name), earlier.get(name, {}))
        for name in names
    ]


def flat(target):
    return {(topic, number) for topic, numbers in target.items() for number in numbers}


def moves(before, after):
    """The partitions that a member of both assignments has lost."""
    return sum(len(flat(before[name]) - flat(after[name])) for name in before if name in after)


def check_valid(members, counts, result):
    assert set(result) == {member.member_id for member in members}
    owners = Counter(p for target in result.values() for p in flat(target))
    wanted = {topic for member in members for topic in member.topics if topic in counts}
    assert set(owners) == {(topic, number) for topic in wanted for number in range(counts[topic])}
    assert set(owners.values()) <= {1}
    for member in members:
        assert set(result[member.member_id]) <= member.topics
        assert all(result[member.member_id].values()), "no empty topics"


@st.composite
def histories(draw, *, homogeneous):
    """Members with subscriptions, several times in a row."""
    rounds = []
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True))
        shared = draw(st.frozensets(st.sampled_from(TOPICS)))
        topics = {
            name: shared if homogeneous else draw(st.frozensets(st.sampled_from(TOPICS), max_size=5)) for name in names
        }
        rounds.append((names, topics, draw(COUNTS)))
    return rounds


def play(assign, rounds):
    """Run the rounds; yields members, partition counts, the assignment before and after."""
    before = {}
    for names, topics, counts in rounds:
        members = group(names, topics.__getitem__, before)
        subscribed = {topic for chosen in topics.values() for topic in chosen}
        after = assign(members, {topic: count for topic, count in counts.items() if topic in subscribed})
        yield members, counts, before, after
        before = after


@given(histories(homogeneous=True))
def test_uniform_is_balanced_and_moves_no_more_than_it_must(rounds):
    for members, counts, before, after in play(uniform.assign, rounds):
        check_valid(members, counts, after)
        sizes = [len(flat(target)) for target in after.values()]
        assert max(sizes) - min(sizes) <= 1
        exists = {(t, n) for t in members[0].topics for n in range(counts[t])}
        held = sorted((len(flat(before.get(m.member_id, {})) & exists) for m in members), reverse=True)
        quota, extra = divmod(len(exists), len(members))
        least = sum(max(0, have - quota - (i < extra)) for i, have in enumerate(held))
        gone = sum(len(flat(before.get(m.member_id, {})) & exists - flat(after[m.member_id])) for m in members)
        assert gone == least


@given(histories(homogeneous=False))
def test_uniform_with_different_subscriptions_is_valid_and_level_within_each_topic(rounds):
    for members, counts, _, after in play(uniform.assign, rounds):
        check_valid(members, counts, after)
        size = {name: len(flat(target)) for name, target in after.items()}
        for topic in TOPICS:
            subscribers = [m.member_id for m in members if topic in m.topics]
            owners = [name for name in subscribers if topic in after[name]]
            if owners:
                assert max(size[o] for o in owners) - min(size[s] for s in subscribers) <= 1


def most_even(members, counts):
    """The least possible sum of squared loads: partitions are given out one by one, with every chain of exchanges.

    A twin of the assignor that knows nothing about classes: it looks for shortest paths between single members.
    """
    owned = {member.member_id: set() for member in members}
    topics = {member.member_id: member.topics for member in members}
    for topic in sorted({topic for member in members for topic in member.topics}):
        for number in range(counts[topic]):
            came = {name: None for name in owned if topic in topics[name]}
            queue = list(came)
            for name in queue:
                for part in owned[name]:
                    for other in owned:
                        if part[0] in topics[other] and other not in came:
                            came[other] = name, part
                            queue.append(other)
            name = min(queue, key=lambda one: len(owned[one]))
            while came[name] is not None:
                donor, part = came[name]
                owned[donor].discard(part)
                owned[name].add(part)
                name = donor
            owned[name].add((topic, number))
    return sum(len(parts) ** 2 for parts in owned.values())


@settings(max_examples=examples(60))
@given(histories(homogeneous=False))
def test_no_assignment_is_more_even_than_that_of_uniform(rounds):
    for members, counts, _, after in play(uniform.assign, rounds):
        assert sum(len(flat(target)) ** 2 for target in after.values()) == most_even(members, counts)


@given(histories(homogeneous=False))
def test_an_assignment_without_changes_is_kept(rounds):
    for members, counts, _, after in play(uniform.assign, rounds):
        again = uniform.assign(
            [m._replace(earlier=after[m.member_id]) for m in members],
            {t: c for t, c in counts.items() if any(t in m.topics for m in members)},
        )
        assert again == after


@given(histories(homogeneous=False), st.sets(st.sampled_from("abcdefgh")))
def test_range_gives_contiguous_ranges_in_member_order(rounds, static):
    for names, topics, counts in rounds:
        members = group(names, topics.__getitem__, {}, static)
        after = range_.assign(members, counts)
        check_valid(members, counts, after)
        order = sorted((n for n in names if n in static), key=lambda n: f"i{n}") + sorted(set(names) - static)
        for topic in TOPICS:
            subscribers = [name for name in order if topic in topics[name]]
            parts = [sorted(after[name].get(topic, ())) for name in subscribers]
            assert [n for part in parts for n in part] == (list(range(counts[topic])) if subscribers else [])
            sizes = [len(part) for part in parts]
            assert sizes == sorted(sizes, reverse=True)
            assert not sizes or sizes[0] - sizes[-1] <= 1


@given(st.integers(1, 9), st.integers(1, 20))
def test_range_puts_equal_numbers_of_equal_topics_on_one_member(size, count):
    names = "abcdefghi"[:size]
    after = range_.assign(group(names, lambda _: frozenset(TOPICS), {}), dict.fromkeys(TOPICS, count))
    for target in after.values():
        assert len(set(map(frozenset, target.values()))) <= 1
        assert set(target) in (set(), set(TOPICS))


@settings(max_examples=examples(20))
@given(st.integers(2, 40), st.integers(0, 200))
def test_one_member_leaving_moves_only_its_partitions(size, count):
    names = [f"m{i}" for i in range(size)]
    topics = frozenset(TOPICS[:1])
    before = uniform.assign(group(names, lambda _: topics, {}), {TOPICS[0]: count})
    after = uniform.assign(group(names[1:], lambda _: topics, before), {TOPICS[0]: count})
    assert moves(before, after) == 0


def test_nobody_gets_anything_without_members_or_topics():
    for assign in ASSIGNORS.values():
        assert assign([], {}) == {}
        assert assign(group("a", lambda _: frozenset(), {}), {}) == {"a": {}}
