"""Random patterns in the syntax that RE2 and Python's `re` share, against `re`; and hostile patterns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_node.broker.coordinators.regex.program import Pattern
from kraft_node.broker.coordinators.regex.syntax import PatternError

ATOMS = st.sampled_from(
    [
        *("a", "b", "A", "0", r"\.", ".", r"\d", r"\w", r"\W", r"\D", r"\s", "-", "_", "[ab]", "[^a]", "[a-c0-9]"),
        *(r"[\d_.]", r"[^\w]", r"\b", r"\B", "^", "$", r"\A", r"\x61", "[-a]", "[a-]", "[]a]", "[^]a]"),
    ]
)


def combined(children):
    repeat = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{1,2}?"])
    return st.one_of(
        st.lists(children, min_size=1, max_size=4).map("".join),
        st.lists(children, min_size=2, max_size=3).map("|".join).map(lambda p: f"(?:{p})"),
        children.map(lambda p: f"({p})"),
        st.tuples(children, repeat).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        children.map(lambda p: f"(?i:{p})"),
    )


PATTERNS = st.recursive(ATOMS, combined, max_leaves=8)
NAMES = st.text("abcAB01._-", min_size=1, max_size=8)
"""Not empty, like names of topics: Python before 3.14 has no match of `\\B` in an empty text, RE2 has."""


@given(PATTERNS, st.lists(NAMES, max_size=12))
def test_whole_names_match_as_with_re(pattern, names):
    compiled, twin = Pattern(pattern), re.compile(pattern)
    for name in names:
        assert compiled.matches(name) == (twin.fullmatch(name) is not None), (pattern, name)


PUNCTUATED = st.text(r"ab()[]{}*+?|^$\.-:,012<>PiEdDwxp", max_size=12)


def compiled(text):
    """The pattern; None if it is refused, with a reason."""
    try:
        return Pattern(text)
    except PatternError as error:
        assert str(error)
        return None


@given(PUNCTUATED, st.lists(NAMES, max_size=6))
def test_any_text_is_refused_or_compiled_alone_as_well_as_in_a_larger_pattern(text, names):
    alone, grouped, chosen = compiled(text), compiled(f"(?:{text})"), compiled(f"(?:{text})|zz")
    if alone is None:
        return  # a group may still complete it: "a)(?:b"
    assert grouped is not None, text
    assert chosen is not None, text
    for name in names:
        matches = alone.matches(name)
        assert matches is grouped.matches(name), (text, name)
        assert matches is chosen.matches(name), (text, name)
        assert matches is Pattern(text).matches(name), (text, name, "the states of other names have no effect")
    assert chosen.matches("zz")


class Counting(Pattern):
    """Counts the instructions that the automaton looks at."""

    def __init__(self, text):
        super().__init__(text)
        self.steps = 0

    def _reached(self, state, next_is_word):
        reached = super()._reached(state, next_is_word)
        self.steps += len(reached)
        return reached


SHORT, LONG = 120, 240
HOSTILE = [
    (r"(a+)+b", lambda name: name.rstrip("b") + "b" == name and name.count("b") == 1 and len(name) > 1),
    (r"(a|a)*b", lambda name: name.strip("a") == "b" and name.endswith("b")),
    (r"(a*)*b", lambda name: name.strip("a") == "b" and name.endswith("b")),
    (r"(.*)(.*)(.*)(.*)x", lambda name: name.endswith("x")),
    (r"(a?){100}a{100}", lambda name: set(name) == {"a"} and 100 <= len(name) <= 200),
    (r".*a.{15}", lambda name: name[-16] == "a"),
]


@pytest.mark.parametrize(("pattern", "expected"), HOSTILE, ids=[pattern for pattern, _ in HOSTILE])
@pytest.mark.parametrize("make", [lambda n: "a" * n, lambda n: "a" * (n - 1) + "b", lambda n: "ab" * (n // 2)])
def test_hostile_patterns_need_steps_in_proportion_to_the_name(pattern, expected, make):
    steps = []
    for length in (SHORT, LONG):
        name, one = make(length), Counting(pattern)
        assert one.matches(name) is expected(name), (pattern, name)
        assert one.steps <= (length + 1) * len(one._program)
        steps.append(one.steps)
    short, long = steps
    assert long <= short * LONG / SHORT + len(Counting(pattern)._program), steps
