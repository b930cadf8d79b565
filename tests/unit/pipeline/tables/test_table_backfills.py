"""The range of a backfill after the topic has changed: no record is read that the stream has read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.engines.plans import Backfill, Sizes
from kraft_pipeline.tables.losses import Losses
from kraft_pipeline.tables.stores.committer import State
from kraft_pipeline.tables.stores.opening import options_of
from kraft_pipeline.tables.stores.storage import Folder
from kraft_protocol.client.errors import DataLossError
from kraft_protocol.client.requests import OffsetAnswer, PartitionInfo, TopicInfo
from tests.unit.pipeline.tables.test_table_changes import parsed

KEY: Final = ("t", 0)
OLD, NEW = "01" * 16, "02" * 16


class Brokers:
    """Brokers with one partition, whose log begins at offset 0. `topic` is the id of its topic, "" without it."""

    cluster_id = "c"

    def __init__(self, topic: str) -> None:
        found = TopicInfo(0, "t", bytes.fromhex(topic), False, {0: PartitionInfo(0, 1, 3)})
        self._topics = {"t": found} if topic else {}

    def topics(self, _: Any = None) -> dict[str, TopicInfo]:
        return self._topics

    def topic(self, name: str) -> TopicInfo:
        return self._topics[name]

    def topic_ids(self, names: Any) -> dict[str, set[bytes]]:
        return {name: {self._topics[name].id} if name in self._topics else set() for name in names}

    def offsets_with_epochs(self, wanted: Any, **_: Any) -> dict[tuple[str, int], OffsetAnswer]:
        return dict.fromkeys(wanted, OffsetAnswer(0, 500, 3))

    def offsets(self, wanted: Any) -> dict[tuple[str, int], int]:
        assert not wanted or self._topics
        return dict.fromkeys(wanted, 0)

    def find_truncations(self, read: Any) -> dict[tuple[str, int], int]:
        assert not read
        return {}


def stream(begun: int, topic: str) -> Position:
    return Position({KEY: 500}, "c", {"t": topic}, begun={KEY: begun})


def filled(offset: int, begun: int, until: int) -> Position:
    """The position of a backfill of the first topic."""
    return Position({KEY: offset}, "c", {"t": OLD}, begun={KEY: begun}, until={KEY: until})


def planned(path: Path, live: Position, then: Position | None) -> tuple[int, int] | None:
    """The first and the end offset of the next batch."""
    given = parsed(path=str(path))
    sizes = Sizes(given, options_of(given))
    sizes.learn(10, 1000)
    backfill = Backfill(given, sizes, lambda: State(3, live), Losses(Folder(path), given.app_id))
    brokers: Any = Brokers(live.topics["t"])
    state = State() if then is None else State(2, then)
    plan = backfill.plan(brokers, state, State())
    if plan is None:
        return None
    assert backfill.plan(brokers, State(3, plan.end), State()) is None
    # If the writer dies after the dead letters of the batch, the next one repeats the batch.
    again = backfill.plan(brokers, state, State(3, plan.end))
    assert again is not None
    assert (again.again, again.start, again.end.offsets) == (True, plan.start, plan.end.offsets)
    return plan.start[KEY], plan.end.offsets[KEY]


@pytest.mark.parametrize(
    ("live", "then", "expected"),
    [
        (stream(100, OLD), None, (0, 100)),
        (stream(100, OLD), filled(100, 40, 100), (0, 40)),
        (stream(100, OLD), filled(60, 40, 100), (60, 100)),
        (stream(20, OLD), filled(100, 40, 100), (0, 20)),
        (stream(80, OLD), filled(60, 40, 100), (60, 80)),
        (stream(20, OLD), filled(60, 40, 100), (0, 20)),
        (stream(0, NEW), filled(50, 30, 50), None),
        (stream(5, NEW), filled(50, 30, 50), (0, 5)),
    ],
    ids=[
        "first",
        "further back",
        "unfinished",
        "truncated",
        "truncated, unfinished",
        "truncated below, unfinished",
        "made anew",
        "made anew, the stream began later",
    ],
)
def test_a_backfill_ends_where_the_stream_began(
    tmp_path: Path, live: Position, then: Position | None, expected: tuple[int, int] | None
) -> None:
    """Before, it ended where the last backfill began, though the stream had read other records with these offsets."""
    assert planned(tmp_path, live, then) == expected


def test_an_unfinished_backfill_of_a_former_topic_is_a_loss(tmp_path: Path) -> None:
    """Before, each run failed at the first fetch, and no loss was there to acknowledge."""
    live, then = stream(5, NEW), filled(60, 40, 100)
    with pytest.raises(DataLossError, match=r"t-0: from offset 60 on may have been lost: the topic has been deleted"):
        planned(tmp_path, live, then)
    assert Losses(Folder(tmp_path), parsed(path=str(tmp_path)).app_id).acknowledge() == 1
    assert planned(tmp_path, live, then) == (0, 5)
