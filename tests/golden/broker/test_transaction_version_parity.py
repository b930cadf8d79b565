"""Transactions at `transaction.version` 0 and 1, and while the level changes below open transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import ApiVersionsRequest, InitProducerIdRequest, UpdateFeaturesRequest
from tests.compat.targets import Apache, Ours
from tests.golden.broker import test_transaction_coordinator_parity as at_version_2
from tests.golden.broker.conftest import SETTINGS
from tests.golden.broker.pair import Pair, Side, warm_coordinator
from tests.golden.broker.test_transaction_coordinator_parity import (
    add,
    add_for,
    begin,
    described,
    end,
    open_transaction,
    settle,
)

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("transaction-version")]

FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2
WAIT_S = 60.0
STORIES = (
    at_version_2.test_init_of_every_version_gets_the_same_answers,
    at_version_2.test_init_of_a_producer_that_continues_gets_the_same_answers,
    at_version_2.test_partitions_added_in_versions_of_clients_get_the_same_answers,
    at_version_2.test_added_offsets_get_the_same_answers,
    at_version_2.test_ends_of_unknown_ids_get_the_same_errors,
    at_version_2.test_a_second_producer_aborts_the_transaction_of_the_first,
)


def level_of(side: Side) -> int:
    found = side.ask(ApiVersionsRequest("parity", "1"), 3).finalized_features
    return next((feature.max_version_level for feature in found if feature.name == FEATURE), 0)


def set_level(pair: Pair, level: int) -> None:
    for side in pair.sides:
        kind = UPGRADE if level > level_of(side) else SAFE_DOWNGRADE
        update = UpdateFeaturesRequest.FeatureUpdateKey(FEATURE, level, upgrade_type=kind)
        answer = side.ask(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update]), 1)
        assert answer.error_code == 0, (side, answer)
        deadline = time.monotonic() + WAIT_S
        while level_of(side) != level:
            assert time.monotonic() < deadline, side
            time.sleep(0.05)


@pytest.fixture(params=[0, pytest.param(1, marks=pytest.mark.slow)])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """New servers at the level; the stories have fixed transactional ids."""
    folder = tmp_path_factory.mktemp("transaction-version")
    settings = {**SETTINGS, "transaction.state.log.num.partitions": "4"}
    targets = Apache("apache", folder / "apache", settings), Ours("kraftcluster", folder / "ours", settings)
    try:
        made = Pair(Side("Kafka", targets[0].start()), Side("ours", targets[1].start()))
        set_level(made, request.param)
        made.create("tx-a", 3)
        made.create("tx-b", 1)
        warm_coordinator(made)
        for side in made.sides:
            while side.ask(InitProducerIdRequest(None, at_version_2.TIMEOUT_MS), 5).error_code:
                time.sleep(0.05)
            side.ask(at_version_2.coordinator("warm"), 4)  # creates the topic
            for number in range(64):  # enough names to hit each of the four partitions
                at_version_2.initialized(side, f"warm-{number}")
        yield made
        made.verdict()
        for side in made.sides:
            side.close()
    finally:
        for target in targets:
            target.kill()


def test_older_levels_answer_alike(pair: Pair) -> None:
    for story in STORIES:
        tell: Callable[[Pair], None] = story
        tell(pair)
    if level_of(pair.ours) > 0:
        at_version_2.test_partitions_added_or_verified_in_versions_of_brokers_get_the_same_answers(pair)
    else:
        brokers_add_partitions(pair)
    for commit in (True, False):
        for version in at_version_2.KEEPS_EPOCH:
            at_version_2.test_ends_by_a_client_that_keeps_its_epoch_get_the_same_answers(pair, commit, version)


def brokers_add_partitions(pair: Pair) -> None:
    """At level 0 brokers only verify. If one adds partitions, Kafka blocks the id."""
    begin(pair, "blocked")
    blocked = partial(code_of, ErrorCode.CONCURRENT_TRANSACTIONS)
    added = partial(code_of, ErrorCode.NONE)
    adds = add_for(("blocked", ("tx-a", 0), False, 0, 0))
    pair.same(add_for(("blocked", ("tx-a", 0), True, 0, 0)), at_version_2.OF_BROKERS)
    pair.differs("brokers-add-partitions", adds, 4, kafka=partial(code_of, ErrorCode.UNSUPPORTED_VERSION), ours=added)
    pair.differs("brokers-add-partitions", adds, 5, kafka=blocked, ours=added)
    pair.differs("brokers-add-partitions", add("blocked", ("tx-a", 1)), 3, kafka=blocked, ours=added)


def code_of(code: ErrorCode, answer: Any) -> bool:
    """Whether AddPartitionsToTxn has this code: of the request, or of its only partition."""
    topics = [topic for row in answer.results_by_transaction for topic in row.topic_results]
    topics += answer.results_by_topic_v3_and_below
    codes = [row.partition_error_code for topic in topics for row in topic.results_by_partition]
    return [answer.error_code or codes[0]] == [code]


def test_transactions_that_are_open_while_the_level_changes_end_alike(pair: Pair) -> None:
    low = level_of(pair.ours)
    for commit in (True, False):
        for before, after in ((low, 2), (2, low)):
            set_level(pair, before)
            name = f"{before}-{after}-{commit}"
            open_transaction(pair, name, ("tx-a", 0), ("tx-b", 0))
            set_level(pair, after)
            described(pair, name)
            pair.same(add(name, ("tx-a", 1)), 3)
            pair.same(end(name, commit=commit), 4)
            settle(pair, name)
            described(pair, name)
            pair.same(end(name, commit=commit), 4, label="again")
            begin(pair, name)
            described(pair, name)
