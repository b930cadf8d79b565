"""Our assignors and expressions beside those of Apache Kafka 4.3.1, on random groups and patterns."""

from __future__ import annotations

import random

import pytest

from kraft_node.broker.coordinators.group.consumer.assignors import ASSIGNORS
from kraft_node.broker.coordinators.group.consumer.assignors.spec import Subscriber
from kraft_node.broker.coordinators.regex.alphabet import CHARACTERS
from kraft_node.broker.coordinators.regex.program import TOO_LARGE, Pattern
from kraft_node.broker.coordinators.regex.syntax import PatternError
from tests.peer import run_java

pytestmark = pytest.mark.peer

Parts = frozenset[tuple[int, int]]
Group = tuple[list[int], dict[str, tuple[str | None, frozenset[int], Parts]]]
"""Partitions of each topic; members with instance id, topics and earlier partitions."""


def theirs(assignor: str, groups: list[Group]) -> list[dict[str, Parts]]:
    lines = []
    for counts, members in groups:
        words = [assignor, ",".join(map(str, counts))]
        for name, (instance, topics, earlier) in members.items():
            held = ",".join(f"{t}:{p}" for t, p in sorted(earlier))
            words.append(f"{name}/{instance or '-'}/{','.join(map(str, sorted(topics)))}/{held}")
        lines.append(" ".join(words))
    done = run_java("tests/java/AssignorOracle.java", stdin="\n".join(lines).encode())
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(groups), done.stderr.decode()
    return [dict(map(_member, line.split(" "))) for line in answers]


def _member(text: str) -> tuple[str, Parts]:
    name, _, parts = text.partition("=")
    pairs = (part.split(":") for part in parts.split(",") if part)
    return name, frozenset((int(t), int(p)) for t, p in pairs)


def ours(assignor: str, group: Group) -> dict[str, Parts]:
    counts, members = group
    topics = [i.to_bytes(16, "big") for i in range(len(counts))]
    subscribers = []
    for name, (instance, subscribed, earlier) in members.items():
        held: dict[bytes, set[int]] = {}
        for t, p in earlier:
            held.setdefault(topics[t], set()).add(p)
        subscribers.append(Subscriber(name, instance, frozenset(topics[t] for t in subscribed), held))  # type: ignore
    used = {topics[t]: counts[t] for t in range(len(counts)) if any(t in m[1] for m in members.values())}
    found = ASSIGNORS[assignor](subscribers, used)  # type: ignore[arg-type]
    return {
        name: frozenset((int.from_bytes(t, "big"), p) for t, numbers in target.items() for p in numbers)
        for name, target in found.items()
    }


def history(
    rng: random.Random, *, homogeneous: bool
) -> list[tuple[list[int], dict[str, tuple[str | None, frozenset[int]]]]]:
    """Members and topics, changing step by step."""
    size = rng.choice([3, 8, 30])
    counts = [rng.randint(1, 30) for _ in range(rng.randint(1, 8))]
    everything = frozenset(range(len(counts)))
    members: dict[str, tuple[str | None, frozenset[int]]] = {}
    steps = []
    for step in range(6):
        for _ in range(rng.randint(1, 3) if step else size):
            if members and rng.random() < 0.4 and step:
                del members[rng.choice(sorted(members))]
            else:
                some = everything if homogeneous else frozenset(t for t in everything if rng.random() < 0.6)
                name = f"m{rng.getrandbits(30)}"
                members[name] = (f"i{rng.getrandbits(20)}" if rng.random() < 0.2 else None, some)
        if rng.random() < 0.3:
            counts = [count + rng.randint(0, 3) for count in counts]
        if members:
            steps.append((list(counts), dict(members)))
    return steps


def imbalance(found: dict[str, Parts]) -> int:
    """Less is better. Members with different subscriptions cannot always have equally many."""
    return sum(len(parts) ** 2 for parts in found.values())


def spread(found: dict[str, Parts]) -> int:
    sizes = [len(parts) for parts in found.values()]
    return max(sizes) - min(sizes)


def moved(group: Group, found: dict[str, Parts]) -> int:
    return sum(len(earlier - found[name]) for name, (_, _, earlier) in group[1].items())


def test_range_gives_what_kafka_gives():
    rng = random.Random(1)
    groups: list[Group] = []
    for i in range(100):
        for counts, members in history(rng, homogeneous=i % 2 == 0):
            groups.append((counts, {name: (*rest, frozenset()) for name, rest in members.items()}))
    for group, answer in zip(groups, theirs("range", groups), strict=True):
        assert ours("range", group) == answer, group


@pytest.mark.parametrize("seed", [2, 3, 4])
@pytest.mark.parametrize("homogeneous", [True, False])
def test_uniform_is_as_balanced_as_kafkas_and_moves_no_more(homogeneous, seed):
    """The histories run with our assignments as the earlier ones of both."""
    rng = random.Random(seed)
    groups: list[Group] = []
    results = []
    for _ in range(60):
        before: dict[str, Parts] = {}
        for counts, members in history(rng, homogeneous=homogeneous):
            group = counts, {name: (*rest, before.get(name, frozenset())) for name, rest in members.items()}
            before = ours("uniform", group)
            groups.append(group)
            results.append(before)
    total_ours = total_theirs = 0
    for group, mine, answer in zip(groups, results, theirs("uniform", groups), strict=True):
        assert sorted(p for parts in mine.values() for p in parts) == sorted(p for s in answer.values() for p in s)
        if homogeneous:
            assert spread(mine) == spread(answer), group
            assert moved(group, mine) <= moved(group, answer), group
        assert imbalance(mine) <= imbalance(answer), group
        total_ours += moved(group, mine)
        total_theirs += moved(group, answer)
    assert total_ours <= total_theirs, (total_ours, total_theirs)


ALPHABET = [
    *(
        "a",
        "b",
        "foo",
        "A",
        "0",
        "-",
        "_",
        ".",
        "\\.",
        "\\d",
        "\\D",
        "\\w",
        "\\W",
        "\\s",
        "\\S",
        "\\b",
        "\\B",
        "^",
        "$",
    ),
    *(
        "\\A",
        "\\z",
        "[ab]",
        "[^a]",
        "[a-c]",
        "[[:alpha:]]",
        "[[:^digit:]]",
        "\\pL",
        "\\p{Lu}",
        "\\P{N}",
        "\\x41",
        "\\x{62}",
    ),
    *(
        "\\101",
        "\\Qa.b\\E",
        "(?i)",
        "(?i:a)",
        "(?-i)",
        "(?s)",
        "(?U)",
        "(",
        ")",
        "(?:",
        "(?P<n>",
        "(?<m>",
        "|",
        "*",
        "+",
        "?",
    ),
    *(
        "{2}",
        "{0,1}",
        "{1,}",
        "{,2}",
        "{",
        "}",
        "*?",
        "[",
        "]",
        "[]a]",
        "[a",
        "-z]",
        "\\",
        "\\1",
        "\\Z",
        "\\C",
        "(?=",
        "\u212a",
    ),
    *(
        "\u017f",
        "{1001}",
        "{2,1}",
        "a{3}",
        "[[:no:]]",
        "\\p{No",
        "\\pX",
        "[z-a]",
        "\\a",
        "\\8",
        "\\0",
        "\\x",
        "\\x{}",
        "(?z)",
    ),
    *(
        "[\\d-z]",
        "[a-\\d]",
        "[-a]",
        "[a-]",
        "[\\Qa]\\E]",
        "\\Q",
        "\\E",
        "(?i)K",
        "[[:word:]-]",
        "\\p{Greek}",
        "\\p{^L}",
    ),
]


def test_expressions_are_those_of_re2j():
    rng = random.Random(3)
    patterns = list(ALPHABET)
    patterns += ["".join(rng.choices(ALPHABET, k=rng.randint(1, 6))) for _ in range(20_000)]
    names = [["".join(rng.choices("abcABkKsS01._-", k=rng.randint(0, 5))) for _ in range(8)] for _ in patterns]
    names[0] = [c for c in CHARACTERS if c.isalnum() or c in "._-"]  # those of topics: the oracle splits at spaces
    lines = [
        " ".join([pattern.encode().hex(), *(name or "-" for name in some)])
        for pattern, some in zip(patterns, names, strict=True)
    ]
    done = run_java("tests/java/TopicRegexOracle.java", stdin="\n".join(lines).encode())
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(patterns), done.stderr.decode()
    different: dict[str, str] = {}
    for pattern, some, answer in zip(patterns, names, answers, strict=True):
        try:
            compiled = Pattern(pattern)
            mine = "matches " + "".join(str(int(compiled.matches("" if n == "-" else n))) for n in some)
        except PatternError as error:
            mine = f"error {error}"
        if mine != answer and TOO_LARGE not in mine:
            different[pattern] = f"RE2/J {answer!r}, ours {mine!r}"
    shortest = sorted(different.items(), key=lambda pair: len(pair[0]))[:25]
    assert not different, f"{len(different)} of {len(patterns)}\n" + "\n".join(f"{p!r}: {t}" for p, t in shortest)
