"""The grammar of JAAS entries, as Kafka's JaasConfig reads it."""

from __future__ import annotations

import pytest

from kraft_protocol.sasl.jaas import JaasError, parse_jaas, written

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("M required;", {}),
        ("M REQUIRED a=b;", {"a": "b"}),
        ("M requisite a='b c' d=\"e=f;g\";", {"a": "b c", "d": "e=f;g"}),
        ("M optional // a comment\n a=b /* another; */ c=d; / to the end", {"a": "b", "c": "d"}),
        ("M sufficient user_bob=-_$x1.2;", None),
        ("M required user_bob=x-_$1.2;", {"user_bob": "x-_$1.2"}),
        ("M required p='it\\'s \\\"\\\\ \\101\\n';", {"p": "it's \"\\ A\n"}),
        ('M required p="";', {"p": ""}),
        ("M required p=pässword;", {"p": "pässword"}),
        ("M required a=b a=c;", {"a": "c"}),
    ],
)
def test_entries_of_kafkas_grammar_are_read(text: str, options: dict[str, str] | None) -> None:
    if options is None:
        with pytest.raises(JaasError):
            parse_jaas(text)
    else:
        assert parse_jaas(text) == ("M", options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "login module not specified"),
        ("M", "one of required, requisite, sufficient, optional expected"),
        ("M a=b;", "one of required"),
        ("M required a=secret", "not terminated by a semicolon"),
        ("M required a=12secret;", "value not specified for option 'a', at character 13; numbers need quotes"),
        ("M required a secret;", "'=' expected after option 'a'"),
        ("M required a=;", "value not specified for option 'a'"),
        ("M required a='secret;\n';", "does not end on its line"),
        ("M required a=secret; N required;", "a second entry begins at character 21"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "is not allowed"),
    ],
)
def test_an_error_names_the_place_and_never_a_value(text: str, reason: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_jaas(text)
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_is_written_is_read_again() -> None:
    options = {"username": "a\"b\\c'd", "password": "x\ny;=/*"}
    assert parse_jaas(written(PLAIN, options)) == (PLAIN, options)


def test_an_entry_prints_without_its_values() -> None:
    assert "secret" not in repr(parse_jaas("M required password=secret;"))
