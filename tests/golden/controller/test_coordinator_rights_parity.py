"""Every API of transactions and groups of KIP-848, in every version, by clients that each have a few rights.

All clients are User:ANONYMOUS; a client is an address, and every right is an ACL for its address.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from kraft_node.security.names import Permission
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.compat.targets import Apache, Ours, all_running
from tests.golden.broker.pair import Pair, Side, warm_coordinator
from tests.golden.controller import authorization as who
from tests.golden.controller import coordinating as requests

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("coordinator-rights")]

HOSTS: Final = {name: f"127.0.0.{number}" for number, name in enumerate(requests.RIGHTS, 10)}


def _acls() -> list[m.CreateAclsRequest]:
    rows = [row for row in who.ACLS if row[3] == who.EVERYTHING]
    for name, rights in requests.RIGHTS.items():
        rows += [(kind, what, how, HOSTS[name], op, Permission.ALLOW) for kind, what, how, op in rights]
    return [who.create_acls(tuple(rows[:4])), who.create_acls(tuple(rows[4:]))]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both servers with an id that has an open transaction, one without, and a consumer group with a member."""
    folder = tmp_path_factory.mktemp("rights")
    settings = {**who.SETTINGS, **requests.SETTINGS}
    targets = (Apache("apache", folder / "apache", settings), Ours("kraftcluster", folder / "ours", settings))
    with all_running(targets):
        made = Pair(*(who.Client(name, t, t.port) for name, t in zip(("Kafka", "ours"), targets, strict=True)))
        for topic in requests.TOPICS:
            made.create(topic)
        warm_coordinator(made)
        for request in _acls():
            made.same(request, 3)
        for side in made.sides:
            requests.prepare(side)
            _wait_for_acls(side)
        made.verdict()
        yield made
        for side in made.sides:
            side.close()


def _wait_for_acls(side: Side) -> None:
    """The last of the entries has come to the broker."""
    come_from(side, HOSTS["see the cluster"])
    deadline = time.monotonic() + requests.WAIT_S
    while side.ask(m.DescribeQuorumRequest(), 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        assert time.monotonic() < deadline, side
        time.sleep(0.05)
    come_from(side, who.EVERYTHING)


def come_from(side: Side, host: str) -> None:
    assert isinstance(side, who.Client)
    side.come_from(host)


@pytest.mark.parametrize("name", requests.RIGHTS)
@pytest.mark.parametrize("story", requests.STORIES)
def test_every_right_permits_what_kafka_permits(pair: Pair, story: str, name: str) -> None:
    for side in pair.sides:
        come_from(side, who.EVERYTHING)
        requests.keep_member(side)
        come_from(side, HOSTS[name])
    for (theirs, versions), (mine, _) in zip(*(requests.STORIES[story](side) for side in pair.sides), strict=True):
        asked = partial(requests.for_each, theirs=theirs, mine=mine)
        pair.same(asked, versions, label=name, mask=requests.without_words)
    pair.verdict()


def test_a_pattern_resolves_to_topics_that_its_member_may_see(pair: Pair) -> None:
    host = HOSTS["reads of group and topic"]
    for side in pair.sides:
        come_from(side, host)
        answer = side.ask(requests.beat("g-pattern", "m", 0, subscribed_topic_regex="mine|other"), 1)
        assert answer.error_code == ErrorCode.NONE, (side, answer)
        deadline = time.monotonic() + requests.WAIT_S
        while not (answer.assignment and answer.assignment.topic_partitions):
            assert time.monotonic() < deadline, (side, answer)
            time.sleep(0.2)
            answer = side.ask(requests.beat("g-pattern", "m", answer.member_epoch), 1)
        assert [row.topic_id for row in answer.assignment.topic_partitions] == [side.ids["mine"]], side
    pair.same(m.ConsumerGroupDescribeRequest(["g-pattern"]), 1, mask=requests.without_words)
    pair.verdict()
