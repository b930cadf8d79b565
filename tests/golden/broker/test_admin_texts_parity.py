"""Administration: texts that are kept as they were sent, lists with empty entries, and rows that name nothing."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
)
from tests.golden.broker.pair import Pair, Side, uuid
from tests.golden.broker.test_admin_parity import (
    APPEND,
    BROKER,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    describe,
    without_messages,
)

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    made = Pair(*servers)
    for name in ("at.lists", "at.named", "at.twice"):
        made.create(name)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", " delete , compact "),
        ("segment.bytes", " 2097152 "),
        ("preallocate", "TRUE"),
        ("min.cleanable.dirty.ratio", "1e-1d"),
        ("retention.ms", "+5"),
        ("retention.ms", "5"),
    ],
)
def test_a_created_topic_shows_the_texts_of_its_configs(pair: Pair, key: str, text: str) -> None:
    config = CreateTopicsRequest.CreatableTopicConfig(key, text)
    topic = CreateTopicsRequest.CreatableTopic("at.new", 1, 1, configs=[config])
    pair.same(CreateTopicsRequest([topic], timeout_ms=30_000, validate_only=True), (5, 7))


@pytest.mark.parametrize(
    "operand", [",", ",,", "delete,", ",delete", "delete,,compact", "", " delete", "delete, compact"]
)
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_empty_entries_of_lists_get_the_same_answers(pair: Pair, operation: int, operand: str) -> None:
    def asked(kind: int, name: str, key: str) -> IncrementalAlterConfigsRequest:
        made: IncrementalAlterConfigsRequest = alter((kind, name, [(key, operation, operand)]), validate_only=True)
        return made

    pair.same(asked(TOPIC, "at.lists", "cleanup.policy"), 1, mask=without_messages)
    pair.same(asked(BROKER, "", "log.cleanup.policy"), 1, mask=without_messages)


@pytest.mark.parametrize(
    "pattern",
    ["client_id=", "client_id= ", "client_id==", "client_id=a=", "client_id==a", "=a", "client_id", "a="],
)
def test_patterns_without_a_value_get_the_same_answers(pair: Pair, pattern: str) -> None:
    pair.same(alter((METRICS, "m", [("match", SET, pattern)]), validate_only=True), 1, mask=without_messages)


def test_deletions_of_nothing_and_of_names_with_ids_are_answered_one_by_one(pair: Pair) -> None:
    state = DeleteTopicsRequest.DeleteTopicState
    pair.same(DeleteTopicsRequest(topics=[state(None, ZERO_UUID)] * 2, timeout_ms=5000), 6)
    pair.same(DeleteTopicsRequest(topics=[state("at.named", uuid(5))] * 2, timeout_ms=5000), 6)
    pair.same(
        DeleteTopicsRequest(topics=[state("at.named", ZERO_UUID), state("at.named", uuid(5))], timeout_ms=5000), 6
    )
    pair.same(
        lambda side: DeleteTopicsRequest(
            topics=[state(None, side.ids["at.twice"]), state("at.twice", side.ids["at.twice"])], timeout_ms=5000
        ),
        6,
    )
    pair.same(DeleteTopicsRequest(topic_names=["at.named", "at.twice"], timeout_ms=5000), 5, label="afterwards")


@pytest.mark.parametrize("fields", [{}, {"include_synonyms": True}, {"include_documentation": True}], ids=str)
def test_loggers_are_described_alike(pair: Pair, fields: dict[str, bool]) -> None:
    """Apart from the levels: loggers have neither types, synonyms nor documentation."""

    def without_levels(answer: Any) -> Any:
        for config in answer["results"][0]["configs"]:
            config["value"] = config["value"] in {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
        return answer

    pair.same(describe((LOGGER, "1"), keys=["root"], **fields), mask=without_levels)
    pair.same(describe((LOGGER, "1"), keys=["no.such.logger"], **fields), mask=without_levels)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_requests_without_time_get_their_result(pair: Pair, timeout_ms: int) -> None:
    grow = CreatePartitionsRequest(
        [CreatePartitionsRequest.CreatePartitionsTopic("at.lists", 3, None)], timeout_ms, True
    )
    pair.differs(
        "no-time", grow, 3, kafka=lambda a: a.results[0].error_code == 7, ours=lambda a: a.results[0].error_code == 0
    )
    move = AlterPartitionReassignmentsRequest
    rows = [move.ReassignableTopic("at.lists", [move.ReassignablePartition(0, [1])])]
    pair.differs(
        "no-time", move(timeout_ms, topics=rows), 0, kafka=lambda a: a.error_code == 7, ours=lambda a: a.error_code == 0
    )
