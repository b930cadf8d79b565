"""Every API, requested from Apache Kafka and ours by users who log in: SCRAM, PLAIN, certificates with mapped names.

Both servers have the same users, ACLs (prefixed, denying, for everybody), super users and quotas. The answers to each
user are compared as in `tests.golden.broker`, so they have the same codes and name the same topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire import messages as m
from tests.certificates import Authority
from tests.compat.targets import all_running
from tests.golden.broker.batches import batch, record
from tests.golden.broker.pair import Pair, warm_coordinator
from tests.golden.controller import authorization as requests
from tests.golden.controller import principals as who
from tests.golden.controller.test_authorization_parity import DENIED, STORIES, without_ids, without_words

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("principals")]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both servers with their topics, users and ACLs."""
    folder = tmp_path_factory.mktemp("principals")
    authority = Authority(folder / "certificates")
    clients = {name: authority.issue(subject).stores() for name, subject in who.SUBJECTS.items()}
    made = [who.server(kind, folder / kind, authority) for kind in ("apache", "kraftcluster")]
    targets = [secured.target for secured, _ in made]
    with all_running(targets):
        sides = [
            who.User(
                name,
                secured,
                {"sasl": secured.sasl_port, "secure": port, "controller": secured.target.controller_port},
                clients,
            )
            for name, (secured, port) in zip(("Kafka", "ours"), made, strict=True)
        ]
        both = Pair(*sides)
        for topic in requests.TOPICS:
            both.create(topic)
        warm_coordinator(both)
        both.same(who.create_acls(who.ACLS), 3)
        both.verdict()
        _wait_until_heard(both)
        yield both
        for side in sides:
            side.close()


def _wait_until_heard(pair: Pair) -> None:
    """Wait until both brokers know the last entry for a user and the first one."""
    request = m.MetadataRequest([m.MetadataRequest.MetadataRequestTopic(ZERO_UUID, "shared-a")])
    for user in (who.SOME, who.STRANGER):
        become(pair, user)
        for side in pair.sides:
            who.until(f"{user} at {side}", lambda side=side: side.ask(request, 12).topics[0].error_code != DENIED)


def become(pair: Pair, user: str, *, at_controller: bool = False) -> None:
    for side in pair.sides:
        assert isinstance(side, who.User)
        side.become(user, at_controller=at_controller)


@pytest.mark.parametrize("user", who.USERS)
@pytest.mark.parametrize("story", STORIES)
def test_every_user_gets_kafkas_answers(pair: Pair, story: str, user: str) -> None:
    become(pair, user)
    for (theirs, versions), (mine, _) in zip(*(STORIES[story](side.ids) for side in pair.sides), strict=True):

        def asked(side: Any, theirs: Any = theirs, mine: Any = mine) -> Any:
            return theirs if side.name == "Kafka" else mine

        settles = isinstance(mine, m.InitProducerIdRequest)  # the first block of ids is still being assigned
        pair.same(asked, versions, label=user, mask=without_words, settles=settles)
    pair.verdict()


@pytest.mark.parametrize("user", who.USERS)
def test_permitted_users_create_and_delete_topics(pair: Pair, user: str) -> None:
    become(pair, user)
    for version in (2, 5, 7):
        for request, versions in requests.changes(version, f"{user}.{who.USERS.index(user)}"):
            pair.same(request, versions, label=user, mask=without_ids)
    pair.verdict()


@pytest.mark.parametrize("user", who.USERS[1:])
def test_controllers_refuse_users_without_cluster_action(pair: Pair, user: str) -> None:
    become(pair, user, at_controller=True)
    for request in requests.of_controllers():
        pair.same(request, label=user, mask=without_words)
    pair.verdict()


def test_all_users_see_the_same_topics_as_with_kafka(pair: Pair) -> None:
    """What the matrix compares, in words: the list of topics that each user sees without naming one."""
    seen: dict[str, list[str]] = {}
    for user in who.USERS:
        become(pair, user)
        theirs, mine = pair.same(m.MetadataRequest(None, False), label=user)
        for answer in (theirs, mine):
            names = sorted(topic.name for topic in answer.topics if topic.name in requests.TOPICS)
            assert seen.setdefault(user, names) == names
    pair.verdict()
    assert seen == {
        who.SUPER: sorted(requests.TOPICS),
        who.NOTHING: [],
        who.SOME: ["mine", "shared-a"],
        who.IMPLIED: ["mine", "other"],
        who.LOOKS: sorted(requests.TOPICS),
        who.STRANGER: ["shared-a", "shared-secret"],  # who may not read it, but see it
    }


def test_quotas_act_on_users_who_logged_in(pair: Pair) -> None:
    """Quotas of a user, of a user with a client id, and of users without one of their own."""
    become(pair, who.SUPER)
    q = m.AlterClientQuotasRequest

    def limit(value: float, *entities: tuple[str, str | None]) -> Any:
        parts = [q.EntityData(kind, name) for kind, name in entities]
        return q.EntryData(parts, [q.OpData("producer_byte_rate", value, False)])

    everything = 1e9
    name = who.PRINCIPALS[who.STRANGER].removeprefix("User:")
    entries = [
        limit(1.0, ("user", who.SUPER)),
        limit(everything, ("user", who.SUPER), ("client-id", "batch")),
        limit(1.0, ("user", who.IMPLIED), ("client-id", "batch")),
        limit(1.0, ("user", name)),
        limit(everything, ("user", who.SOME)),
        limit(1.0, ("user", None)),
    ]
    pair.same(q(entries, False), 1)
    p = m.ProduceRequest
    rows = [p.TopicProduceData("mine", ZERO_UUID, [p.PartitionProduceData(0, batch(record(b"x" * 10_000)))])]
    request = p(None, -1, 5000, rows)

    def throttled(side: Any, client_id: str) -> bool:
        side.close()  # servers do not read from throttled connections
        answer = side.ask(request, 9, client_id)
        side.close()
        return bool(answer.throttle_time_ms)

    become(pair, who.SUPER)
    for side in pair.sides:
        who.until(f"{side} has the quotas", lambda side=side: throttled(side, "app"))
    expected = {
        (who.SUPER, "app"): True,
        (who.SUPER, "batch"): False,
        (who.SOME, "app"): False,
        (who.IMPLIED, "batch"): True,
        (who.IMPLIED, "app"): True,
        (who.LOOKS, "app"): True,  # even though it may not write
    }
    for (user, client_id), is_throttled in expected.items():
        become(pair, user)
        found = [throttled(side, client_id) for side in pair.sides]
        assert found == [is_throttled] * 2, (user, client_id)
    become(pair, who.SUPER)
    removal = [q.EntryData(entry.entity, [q.OpData("producer_byte_rate", 0.0, True)]) for entry in entries]
    pair.same(q(removal, False), 1)
    pair.verdict()
