"""Random requests from small pools of names and numbers, the same to both: `PARITY_SEED`, `PARITY_REQUESTS`."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.classes import Message
from kraft_protocol.wire.errors import EncodeError
from kraft_protocol.wire.schema import Field, Struct
from tests.golden.broker.pair import Pair, Side, frame, uuid, warm_coordinator

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.xdist_group("broker-parity")]

SEED = int(os.environ.get("PARITY_SEED", "1"))
REQUESTS = int(os.environ.get("PARITY_REQUESTS", "3000"))
KEYS = (
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_DELETE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.HEARTBEAT,
    ApiKey.SYNC_GROUP,
    ApiKey.LEAVE_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_CONFIG_RESOURCES,
)
TEXTS = ("r", "r", "r", "nope", "bad/name", "group", "other", "user", "1", "x")
NUMBERS = (0, 0, 0, 1, 1, 2, 3, 4, 5, -1, -1, -2, 7, 100)
FIXED = {
    "replica_id": -1,
    "isolation_level": 0,
    "include_documentation": False,
    "key_type": 0,
    "allow_auto_topic_creation": False,
}
"""Fields whose other values are rows of docs/differences.md, or change what later requests see."""


def some(cls: type[Message], version: int, rng: random.Random, topic_id: Any) -> Any:
    """A message of `version` with values from the pools."""

    def filled(item: Any, struct: Struct) -> Any:
        for field in struct.fields:
            if version in field.versions:
                setattr(item, field.name, FIXED.get(field.name, value(field)))
        return item

    def value(field: Field) -> Any:
        if version in field.nullable and rng.random() < 0.15:
            return None
        if field.array:
            items = [single(field) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
            # Repeated names may be answered together or separately: real clients do not repeat names.
            return list({getattr(i, "name", getattr(i, "topic", n)): i for n, i in enumerate(items)}.values())
        return single(field)

    def single(field: Field) -> Any:
        if field.struct is not None:
            return filled(getattr(cls, field.struct.name)(), field.struct)
        if field.type == "string":
            return rng.choice(TEXTS)
        if field.type == "uuid":
            return topic_id if rng.random() < 0.7 else uuid(5)
        if field.type in {"bytes", "records"}:
            return b"bytes"
        if field.type == "bool":
            return rng.random() < 0.5
        return float(rng.choice(NUMBERS)) if field.type == "float64" else rng.choice(NUMBERS)

    return filled(cls(), cls.SCHEMA.top)


def known(answer: Any) -> Any:
    """The answer without leftovers of other tests."""
    if isinstance(answer, dict):
        if "groups" in answer and all("protocol_type" in g and "group_state" in g for g in answer["groups"]):
            answer["groups"] = [g for g in answer["groups"] if g.get("group_id") in TEXTS]
        if "topics" in answer:
            answer["topics"] = [t for t in answer["topics"] if t.get("name", t.get("topic")) in {*TEXTS, "", None}]
        if "config_resources" in answer:
            answer["config_resources"] = []
    return answer


def test_random_requests_get_the_same_answers(pair: Pair) -> None:
    pair.create("r", 3)
    warm_coordinator(pair)
    rng = random.Random(SEED)
    sent = 0
    while sent < REQUESTS and len(pair.differences) < 20:
        key = rng.choice(KEYS)
        version = rng.randrange(API[key].min_version, API[key].max_version + 1)
        if key == ApiKey.METADATA and version < 4:  # these create topics
            continue
        seed = rng.random()

        def asked(side: Side, key: ApiKey = key, version: int = version, seed: float = seed) -> Any:
            return some(API[key].request, version, random.Random(seed), side.ids["r"])

        try:
            frame(asked(pair.kafka), version)
        except EncodeError:
            continue
        pair.same(asked, version, mask=known, label=f"seed {SEED}, request {sent}")
        sent += 1
