"""Every API, requested from Apache Kafka and ours by clients with all, no, or some permissions.

Both have the same authorizer and ACLs. The answers to each client are compared as in `tests.golden.broker`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraft_node.security.rewriting import changed
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire.messages import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    InitProducerIdRequest,
    MetadataRequest,
)
from tests.compat.targets import Apache, Ours, all_running
from tests.golden.broker.pair import Pair, warm_coordinator
from tests.golden.controller import authorization as who
from tests.unit.controller.test_envelope import WRONG

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("authorization")]

DENIED = 29
CLUSTER_DENIED = 31
INVALID_REQUEST = 42
UNKNOWN_SERVER_ERROR = -1
UNSUPPORTED_VERSION = 35
NOT_COORDINATOR = 16
NO_SUCH_TRANSACTION = 105
NO_PRODUCER = -1
HEARD_IN_S = 60


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Pair]]:
    """Both servers with their topics and ACLs, asked on the brokers' listeners and on the controllers'."""
    folder = tmp_path_factory.mktemp("authorization")
    kafka = Apache("apache", folder / "apache", dict(who.SETTINGS))
    ours = Ours("kraftcluster", folder / "ours", dict(who.SETTINGS))
    with all_running([kafka, ours]):
        broker = Pair(who.Client("Kafka", kafka, kafka.port), who.Client("ours", ours, ours.port))
        controller = Pair(
            who.Client("Kafka", kafka, kafka.controller_port), who.Client("ours", ours, ours.controller_port)
        )
        for topic in who.TOPICS:
            broker.create(topic)
        warm_coordinator(broker)
        broker.same(who.create_acls(who.ACLS[:4]), 3)
        broker.same(who.create_acls(who.ACLS[4:]), 3)
        broker.verdict()
        _wait_until_heard(broker)
        yield broker, controller
        for side in (*broker.sides, *controller.sides):
            side.close()


def _wait_until_heard(pair: Pair) -> None:
    """Wait until both brokers know all ACLs: the first request's ACLs deny, the second request's ACLs permit again."""
    request = MetadataRequest([MetadataRequest.MetadataRequestTopic(ZERO_UUID, "mine")])
    deadline = time.monotonic() + HEARD_IN_S
    for host, is_denied in ((who.NOTHING, True), (who.SOME, False)):
        come_from(pair, host)
        for side in pair.sides:
            while (side.ask(request, 12).topics[0].error_code == DENIED) is not is_denied:
                assert time.monotonic() < deadline, side
                time.sleep(0.05)


def come_from(pair: Pair, host: str) -> None:
    for side in pair.sides:
        assert isinstance(side, who.Client)
        side.come_from(host)


def without_words(plain: Any) -> Any:
    """Compare only the code if Kafka refuses for lack of a permission on the cluster, because it quotes the request.

    The same applies to changes of the voters. A transaction coordinator does not exist.
    """
    if isinstance(plain, dict):
        plain = {name: without_words(value) for name, value in plain.items()}
        worded = plain.get("error_code") in (CLUSTER_DENIED, UNSUPPORTED_VERSION) and "error_message" in plain
        if worded or (plain.keys() == {"error_code", "error_message"} and plain["error_code"]):
            plain["error_message"] = "…"
        if "transactional_id" in plain and plain["error_code"] in (NOT_COORDINATOR, NO_SUCH_TRANSACTION):
            plain["error_code"] = "unknown"
        if "producer_id" in plain and plain["producer_id"] != NO_PRODUCER:
            plain["producer_id"] = "set"
    elif isinstance(plain, list):
        plain = [without_words(item) for item in plain]
    return plain


def without_ids(plain: Any) -> Any:
    """Topics created here have different ids on the servers."""
    if isinstance(plain, dict):
        return without_words({n: "id" if n == "topic_id" and v != "none" else without_ids(v) for n, v in plain.items()})
    return [without_ids(item) for item in plain] if isinstance(plain, list) else plain


STORIES: dict[str, Callable[[dict[str, Any]], Iterator[tuple[Any, Any]]]] = {
    "topics": who.of_topics,
    "groups": who.of_groups,
    "cluster": who.of_the_cluster,
}


@pytest.mark.parametrize("host", who.HOSTS)
@pytest.mark.parametrize("story", STORIES)
def test_every_principal_gets_kafkas_answers(pairs: tuple[Pair, Pair], story: str, host: str) -> None:
    pair, _ = pairs
    come_from(pair, host)
    for (theirs, versions), (mine, _) in zip(*(STORIES[story](side.ids) for side in pair.sides), strict=True):

        def asked(side: Any, theirs: Any = theirs, mine: Any = mine) -> Any:
            return theirs if side.name == "Kafka" else mine

        settles = isinstance(mine, InitProducerIdRequest)  # the first block of ids is still being assigned
        pair.same(asked, versions, label=host, mask=without_words, settles=settles)
    pair.verdict()


@pytest.mark.parametrize("host", who.HOSTS)
def test_permitted_principals_create_and_delete_topics(pairs: tuple[Pair, Pair], host: str) -> None:
    pair, _ = pairs
    come_from(pair, host)
    for version in (2, 5, 7):
        for request, versions in who.changes(version, host):
            pair.same(request, versions, label=host, mask=without_ids)
    pair.verdict()


@pytest.mark.parametrize("host", (who.NOTHING, who.SOME, who.IMPLIED, who.LOOKS))
def test_controllers_refuse_clients_without_cluster_action(pairs: tuple[Pair, Pair], host: str) -> None:
    _, pair = pairs
    come_from(pair, host)
    for request in who.of_controllers():
        pair.same(request, label=host, mask=without_words)
    pair.verdict()


@pytest.mark.parametrize("what", [*WRONG, "right", "something behind"])
def test_envelopes_are_opened_like_by_kafka(pairs: tuple[Pair, Pair], what: str) -> None:
    _, pair = pairs
    come_from(pair, who.EVERYTHING)
    right = who.enveloped("mine")
    wrong = {"right": right, "something behind": changed(right, request_data=right.request_data + b"more")}
    request = wrong[what] if what in wrong else WRONG[what][0]
    pair.same(request, label=what, mask=lambda plain: plain["error_code"])
    pair.verdict()


@pytest.mark.parametrize("client", ["User:nobody", "User:ANONYMOUS"])
@pytest.mark.parametrize("host", who.HOSTS)
def test_an_enveloped_request_is_authorized_by_its_own_principal_and_address(
    pairs: tuple[Pair, Pair], client: str, host: str
) -> None:
    _, pair = pairs
    come_from(pair, who.EVERYTHING)
    pair.same(who.enveloped("mine", client, host), label=f"{client} {host}")
    pair.verdict()


def test_acls_are_created_found_and_removed_like_by_kafka(pairs: tuple[Pair, Pair]) -> None:
    pair, _ = pairs
    come_from(pair, who.EVERYTHING)
    for request in who.of_acls():
        pair.same(request, 3, label="acls", mask=without_words, settles=isinstance(request, DescribeAclsRequest))
    pair.verdict()


def test_invalid_kinds_in_acls_are_refused_and_the_connection_stays(pairs: tuple[Pair, Pair]) -> None:
    """See docs/differences.md, between nodes."""
    pair, _ = pairs
    come_from(pair, who.EVERYTHING)
    for row in who.ODD_ENTRIES:
        request: Any = CreateAclsRequest([CreateAclsRequest.AclCreation(*row)])
        theirs, mine = (side.ask(request, 3) for side in pair.sides)
        assert mine.results[0].error_code == INVALID_REQUEST
        assert isinstance(theirs, str) or theirs.results[0].error_code == UNKNOWN_SERVER_ERROR
    for row in who.ODD_FILTERS:
        theirs, mine = (side.ask(DescribeAclsRequest(*row), 3) for side in pair.sides)
        assert (type(theirs), mine.error_code) == (str, INVALID_REQUEST)
        request = DeleteAclsRequest([DeleteAclsRequest.DeleteAclsFilter(*row)])
        theirs, mine = (side.ask(request, 3) for side in pair.sides)
        assert (type(theirs), mine.filter_results[0].error_code) == (str, INVALID_REQUEST)
