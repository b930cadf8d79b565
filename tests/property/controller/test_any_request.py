"""No request is a defect: an exception in a step ends the node, so no request of a peer may cause one.

Messages are random, with numbers, names and ids near valid ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from kraft_node.server.faults import FaultHandler
from kraft_protocol.ids import METADATA_TOPIC_ID, METADATA_TOPIC_NAME, Uuid
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.errors import EncodeError
from tests.tiers import seeds
from tests.unit.controller.harness import CLUSTER_ID, directory, uuid
from tests.unit.controller.harness import Quorum as One
from tests.unit.server.quorum.joined import Context, Quorum
from tests.wire_values import random_message

RAFT: Final = (
    ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER,
)  # fmt: skip
WORDS: Final = ["foo", "baz.x", "baz_x", "", "retention.ms", "min.insync.replicas", "kraft.version", "User:a", "1", "5"]
SMALL: Final = (-1, 0, 0, 1, 1, 2, 3, 4, 30)

Choose = Callable[[str, Any], Any]
"""From a field's name and random value to the value that it gets."""


def near(message: Any, choose: Choose) -> None:
    """Replace every scalar in the message."""
    if isinstance(message, list | tuple):
        for item in message:
            near(item, choose)
        return
    for name in [slot for cls in type(message).__mro__ for slot in getattr(cls, "__slots__", ())]:
        value = getattr(message, name, None)
        if isinstance(value, list) and value and isinstance(value[0], int | str | bytes):
            setattr(message, name, [choose(name, item) for item in value])
        elif isinstance(value, int | str | bytes) and not isinstance(value, bool):
            setattr(message, name, choose(name, value))
        elif value is not None:
            near(value, choose)


def any_request(key: ApiKey, rng: random.Random, choose: Choose) -> tuple[Any, int]:
    """A request that can be encoded, as it arrives."""
    spec = API[key]
    while True:
        version = rng.randint(spec.min_version, spec.max_version)
        message = random_message(spec.request, version, rng)
        near(message, choose)
        try:
            return codec.decode(spec.request, codec.encode(message, version), version), version
        except EncodeError:
            continue


@pytest.mark.parametrize("seed", seeds(range(6), everyday=3))
def test_no_request_to_the_quorum_ends_a_voter(seed: int) -> None:
    rng = random.Random(seed)
    quorum = Quorum()
    for member in quorum.members.values():
        member.dynamic = bool(seed % 2)
        member.first_voters = (1, 2, 3) if member.dynamic else ()
    quorum.start()
    reasons: list[str] = []
    drivers = [member.driver for member in quorum.members.values() if member.driver is not None]
    for driver in drivers:
        driver.faults = FaultHandler(reasons.append)
    for _ in range(80):
        driver = rng.choice(drivers)

        def choose(name: str, value: Any, at: Any = driver) -> Any:
            if isinstance(value, str):
                return {"cluster_id": "cluster"}.get(name, METADATA_TOPIC_NAME)
            if isinstance(value, bytes):
                return (
                    rng.choice([METADATA_TOPIC_ID, Uuid(bytes([rng.randrange(4)]) * 16)]) if len(value) == 16 else b""
                )
            if "epoch" in name:
                return max(-1, at.epoch + rng.choice((-1, 0, 0, 0, 1)))
            if "offset" in name or "position" in name:
                return rng.choice((-1, 0, 1, at.next_offset - 1, at.next_offset, at.next_offset + 1))
            return rng.choice(SMALL) if rng.random() < 0.9 else value

        key = rng.choice(RAFT)
        message, version = any_request(key, rng, choose)
        context: Any = Context(int(key), version, lambda _: None)
        driver._handle(context, message)
        quorum.world.run(rng.choice((0, 5, 50)))
        assert reasons == [], f"{message}"


@pytest.mark.parametrize("seed", seeds(range(6), everyday=3))
def test_no_request_to_the_controller_is_a_defect(seed: int) -> None:
    rng = random.Random(seed)
    quorum = One(authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    quorum.start(1, 2, 3)
    quorum.create("foo", [[1, 2], [2, 3], [3, 1]])
    defects: list[tuple[str, BaseException]] = []
    quorum.controller.on_defect = lambda where, error: defects.append((where, error))
    keys = [key for key in quorum.controller.handlers if key is not ApiKey.ENVELOPE]

    def choose(name: str, value: Any) -> Any:
        if isinstance(value, str):
            return CLUSTER_ID if name == "cluster_id" else rng.choice(WORDS)
        if isinstance(value, bytes):
            ids = [topic.id for topic in quorum.image.topics]
            return rng.choice([*ids, directory(1), directory(2), uuid(1001)]) if len(value) == 16 else value
        brokers = list(quorum.image.brokers.values())
        if name in {"broker_epoch", "previous_broker_epoch"} and brokers:
            return rng.choice(brokers).epoch
        return rng.choice(SMALL) if rng.random() < 0.9 else value

    for _ in range(100):
        message, version = any_request(rng.choice(keys), rng, choose)
        answer = quorum.ask(message, version, commit=rng.random() < 0.7)
        assert defects == [], f"{message}"
        for response in answer.responses:
            codec.encode(response, version)
        if rng.random() < 0.05:
            quorum.pass_time(rng.choice((100, 3_000, 20_000)))
