"""Short names of Kerberos principals (`sasl.kerberos.principal.to.local.rules`)."""

from __future__ import annotations

import pytest

from kraft_node.security.sasl.exchange import InvalidCredentials
from kraft_node.security.sasl.kerberos import PrincipalRules

RULES = [
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g/L",
    "RULE:[2:$1@$0](kafka@OTHER)s/@.*//U",
    "DEFAULT",
]


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name@REALM", "service-name"),
        ("App.Service/host@REALM", "service"),
        ("user@REALM", "user"),
        ("user/host@REALM", "user"),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(principal: str, name: str) -> None:
    assert PrincipalRules(RULES, "REALM").short(principal) == name


@pytest.mark.parametrize("principal", ["user@OTHER", "user", "a/b/c@REALM"])
def test_a_principal_without_a_rule_is_refused(principal: str) -> None:
    with pytest.raises(InvalidCredentials):
        PrincipalRules(["DEFAULT"], "REALM").short(principal)


@pytest.mark.parametrize("rule", ["", "RULE:", "RULE:[x:$1]", "RULE:[1:$1](", "RULE:[1:$1]([)s/a/b/"])
def test_a_malformed_rule_is_named(rule: str) -> None:
    with pytest.raises(ValueError, match=r"RULE|DEFAULT|expression"):
        PrincipalRules([rule])
