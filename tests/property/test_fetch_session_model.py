"""An incremental fetch session against the simple method, which reads every partition each time.

Whatever happens to partitions and offsets, a reader that follows its session must know the high watermark and the log
start of each of its partitions. It must get records of every partition that has some for it.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_protocol.wire import stored
from kraft_protocol.wire.messages import FetchRequest
from tests.tiers import examples
from tests.unit.broker.fetching.test_fetching import Rig, rows
from tests.unit.broker.world import topic_id, topic_records

PARTITIONS = 5

actions = st.one_of(
    st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("fetch"), st.booleans()),
    st.tuples(st.just("trim"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("seek"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("forget"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("want"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("elect"), st.integers(0, PARTITIONS - 1)),
)


class Reader:
    """A client that keeps the partitions of a session, as Kafka's FetchSessionHandler does."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)
        self.reported: dict[int, tuple[int, int]] = {}
        self.news: set[int] = set()
        self.forgotten: set[int] = set()
        self.id = 0
        self.epoch = 0

    def fetch(self, *, moves_on: bool) -> set[int]:
        """One incremental fetch with room for all records; returns the partitions that gave some."""
        wanted = [("a", index, self.offsets[index]) for index in (sorted(self.news) if self.epoch else self.offsets)]
        forgotten = [FetchRequest.ForgottenTopic(topic="a", partitions=sorted(self.forgotten))]
        answer = self.rig.fetch(
            *wanted,
            session_id=self.id,
            session_epoch=self.epoch,
            max_wait_ms=0,
            forgotten_topics_data=forgotten if self.forgotten else [],
        )
        assert answer.error_code == 0
        self.id, self.epoch = answer.session_id, self.epoch + 1
        self.news.clear()
        self.forgotten.clear()
        given_records = set()
        for (_, index), row in rows(answer).items():
            assert index in self.offsets
            if row.error_code:  # its offset is now before the log's start
                self.offsets[index] = self.rig.logs["a", index].start_offset
                self.news.add(index)
                continue
            self.reported[index] = (row.high_watermark, row.log_start_offset)
            if row.records:
                given_records.add(index)
                if moves_on:
                    self.offsets[index] = row.high_watermark
                    self.news.add(index)
        return given_records


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(actions, max_size=60))
def test_a_session_misses_no_change(steps: list[tuple[str, Any]]) -> None:
    rig = Rig()
    rig.commit(topic_records("a", 1, PARTITIONS))
    reader = Reader(rig)
    reader.fetch(moves_on=True)
    for action, argument in [*steps, ("fetch", True), ("fetch", True)]:
        if action == "append":
            rig.append("a", argument)
        elif action == "trim":
            rig.replicas.leader("a", argument).delete_records(-1)
        elif action == "elect":
            rig.commit([stored.PartitionChangeRecord(partition_id=argument, topic_id=topic_id(1), leader=1)])
        elif action == "seek" and argument in reader.offsets:
            reader.offsets[argument] = rig.logs["a", argument].start_offset
            reader.news.add(argument)
        elif action == "forget" and len(reader.offsets) > 1 and argument in reader.offsets:
            del reader.offsets[argument]
            reader.reported.pop(argument, None)
            reader.news.discard(argument)
            reader.forgotten.add(argument)
        elif action == "want" and argument not in reader.offsets and argument not in reader.forgotten:
            reader.offsets[argument] = rig.logs["a", argument].start_offset
            reader.news.add(argument)
        elif action == "fetch":
            expected = {
                index
                for index, offset in reader.offsets.items()
                if rig.logs["a", index].start_offset <= offset < rig.logs["a", index].high_watermark
            }
            before = dict(reader.offsets)
            assert reader.fetch(moves_on=argument) == expected
            for index, reported in reader.reported.items():
                log = rig.logs["a", index]
                if before[index] >= log.start_offset:
                    assert reported == (log.high_watermark, log.start_offset), index
