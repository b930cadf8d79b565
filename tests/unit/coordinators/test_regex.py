"""RE2's syntax for topic names: what matches, and what is refused with which words."""

import pytest

from kraft_node.broker.coordinators.regex.program import MAX_INSTRUCTIONS, TOO_LARGE, Pattern
from kraft_node.broker.coordinators.regex.syntax import MAX_DEPTH, MAX_PATTERN_CHARS, PatternError

MATCHES = [
    ("", ["", "!a"]),
    ("foo", ["foo", "!foobar", "!xfoo", "!Foo"]),
    ("foo.*", ["foo", "foo-1", "!bar"]),
    ("foo|bar", ["foo", "bar", "!foobar"]),
    ("(?i)FOO", ["foo", "Foo"]),
    ("(?i)k\u212a", ["kK"]),
    ("(?i)[\u017f]", ["s", "S"]),
    ("a(?i)b|c", ["aB", "C", "!Ab"]),
    ("(?:(?i)a)b", ["Ab", "!aB"]),
    ("(?-i:a)", ["a", "!A"]),
    ("(?i-s)a", ["A"]),
    (r"\Qa.b\E.", ["a.bx", "!axbx"]),
    (r"\Qa+", ["!aa"]),
    (r"\QA\E+", ["AA"]),
    (r"\QAB\E+", ["ABB", "!ABAB"]),
    (r"\101\x42\x{43}", ["ABC"]),
    (r"[[:alpha:]_]+", ["ab_", "!a1"]),
    (r"[[:^alpha:]]", ["1", "!a"]),
    (r"\pL\p{Lu}\PL", ["aB1", "!ab1"]),
    (r"\p{^L}", ["1", "!a"]),
    (r"\p{Latin}\p{Greek}?", ["a"]),
    (r"(?P<x>a)(?P<y>b)", ["ab"]),
    ("a{,2}", ["!a", "!aa"]),
    ("a{2", ["!aa"]),
    ("a{02}", ["!aa"]),
    ("a{0}", ["", "!a"]),
    ("^*a", ["a"]),
    ("[^-]", ["a", "!-"]),
    ("[a\\]b]", ["a", "b"]),
    ("(|a)+", ["", "aaa"]),
    ("ü", ["!a"]),
    ("^^a$$", ["a"]),
    ("a(?s)+", ["aa"]),
    ("\\\u212a", ["!K"]),
]


@pytest.mark.parametrize(("pattern", "names"), MATCHES)
def test_a_pattern_matches_whole_names(pattern, names):
    compiled = Pattern(pattern)
    for name in names:
        assert compiled.matches(name.removeprefix("!")) is not name.startswith("!"), name


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("[", "missing closing ]"),
        ("[a", "missing closing ]"),
        ("[]", "missing closing ]"),
        ("(", "missing closing )"),
        (")", "regexp/syntax: internal error"),
        ("(?i", "invalid or unsupported Perl syntax"),
        ("*", "missing argument to repetition operator"),
        ("(*a)", "missing argument to repetition operator"),
        ("a|+", "missing argument to repetition operator"),
        ("{*", "invalid nested repetition operator"),
        ("(?", "invalid or unsupported Perl syntax"),
        ("(?i)*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a*+", "invalid nested repetition operator"),
        ("a{2}{3}", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("a{2,1}", "invalid repeat count"),
        ("a{99999999999999}", "invalid repeat count"),
        ("[b-a]", "invalid character class range"),
        (r"\pX", "invalid character class range"),
        (r"\p{Nothing}", "invalid character class range"),
        ("[[:nothing:]]", "invalid character class range"),
        ("\\", "trailing backslash at end of expression"),
        (r"\1", "invalid escape sequence"),
        (r"\Z", "invalid escape sequence"),
        (r"\y", "invalid escape sequence"),
        (r"\xg0", "invalid escape sequence"),
        (r"\x{110000}", "invalid escape sequence"),
        (r"[a-\d]", "invalid escape sequence"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?!a)", "invalid or unsupported Perl syntax"),
        ("(?i--s)", "invalid or unsupported Perl syntax"),
        ("(?P<>a)", "invalid named capture"),
        ("(?P<a b>a)", "invalid named capture"),
        ("(?P<a>a)(?P<a>b)", "duplicate capture group name"),
        ("a" * (MAX_PATTERN_CHARS + 1), f"expression is longer than {MAX_PATTERN_CHARS} characters"),
        ("(" * (MAX_DEPTH + 2), f"expression nests more than {MAX_DEPTH} groups"),
        ("(a{1000}){1000}", TOO_LARGE),
    ],
)
def test_a_pattern_outside_the_language_is_refused(pattern, words):
    with pytest.raises(PatternError) as caught:
        Pattern(pattern)
    assert str(caught.value) == words


def test_the_automaton_forgets_states_and_goes_on():
    compiled = Pattern("(.*a.{9}|b*)")
    names = [f"{number:b}".replace("0", "a").replace("1", "b") for number in range(1, 3000)]
    for name in names:
        assert compiled.matches(name) == ((len(name) >= 10 and name[-10] == "a") or set(name) == {"b"})


def test_a_large_pattern_within_the_limit_is_compiled():
    assert Pattern(f"[a-z]{{{1000}}}x?").matches("a" * 1000)
    assert MAX_INSTRUCTIONS > 1000
