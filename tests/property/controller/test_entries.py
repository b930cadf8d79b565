"""The index of access control entries against a search of all entries, after losses, replays and rebuilds."""

from __future__ import annotations

import random

import pytest

from kraft_node.security.acl_filter import AclFilter
from kraft_node.security.entries import resource_of, rule_of
from kraft_protocol.wire.messages import CreateAclsRequest, DeleteAclsRequest
from tests.property.controller.standby import Following
from tests.tiers import seeds
from tests.unit.controller.harness import Quorum
from tests.unit.controller.test_many_acls import AUTHORIZER, creation, meant

NAMES = ["a", "ab", "abc", "b", "*"]
PRINCIPALS = ["User:x", "User:y"]


def any_filter(rng: random.Random) -> DeleteAclsRequest.DeleteAclsFilter:
    name = rng.choice([*NAMES, "abcd", None]) if rng.random() < 0.9 else None
    return meant(
        name,
        rng.choice([1, 2, 3, 4]),
        resource_type_filter=rng.choice([1, 2, 3]),
        principal_filter=rng.choice([None, *PRINCIPALS]),
        host_filter=rng.choice([None, "*", "h"]),
    )


def step(quorum: Quorum, rng: random.Random, *, commit: bool = True) -> None:
    if rng.random() < 0.6:
        entry = creation(
            rng.choice(NAMES),
            rng.choice([3, 4]),
            resource_type=rng.choice([2, 3]),
            principal=rng.choice(PRINCIPALS),
            host=rng.choice(["*", "h"]),
        )
        quorum.ask(CreateAclsRequest(creations=[entry]), commit=commit)
    else:
        quorum.ask(DeleteAclsRequest(filters=[any_filter(rng)]), commit=commit)


def check(quorum: Quorum, rng: random.Random) -> None:
    view, entries = quorum.controller.cluster.view, quorum.controller.cluster.entries
    assert len(entries) == len(view.acls)
    rules = [(resource_of(entry), rule_of(entry)) for entry in view.acls.values()]
    assert len(set(rules)) == len(rules), "no entry is there twice"
    assert all(entries.has(*rule) for rule in rules)
    for _ in range(5):
        wanted = AclFilter.of(any_filter(rng))
        if wanted.resource_name is not None:
            ids = list(entries.concerning(wanted))
            assert len(set(ids)) == len(ids)
            found = {acl_id for acl_id in ids if wanted.fits(view.acls.get(acl_id))}
            assert found == {acl_id for acl_id, entry in view.acls.items() if wanted.fits(entry)}


@pytest.mark.parametrize("seed", seeds(range(8), everyday=3))
def test_the_index_finds_the_same_entries_as_a_search(seed: int) -> None:
    rng = random.Random(seed)
    quorum = Quorum(authorizer_class_name=AUTHORIZER)
    for _ in range(200):
        step(quorum, rng, commit=rng.random() < 0.7)
        check(quorum, rng)
        if rng.random() < 0.1:
            quorum.lose()
            quorum.lead()
            check(quorum, rng)
        elif rng.random() < 0.5:
            quorum.commit()


@pytest.mark.parametrize("seed", seeds(range(4), everyday=2))
def test_a_standby_knows_the_entries_at_any_commit(seed: int) -> None:
    rng = random.Random(seed)
    active = Quorum(authorizer_class_name=AUTHORIZER)
    standby = Quorum(active=False, authorizer_class_name=AUTHORIZER)
    following = Following(active, standby, rng)
    for _ in range(80):
        step(active, rng)
        following.step()
    following.lead()
    check(standby, rng)
    assert len(standby.controller.cluster.entries) == len(active.controller.cluster.entries)
