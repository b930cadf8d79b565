"""An unclean election truncates a log from 100 records to 30, and 90 new ones arrive: no reader skips them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraft_pipeline.sources.options import parse
from kraft_pipeline.tables import maintenance, runner
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.client.errors import DataLossError
from tests.compat.members import Members, wait_for
from tests.compat.pipeline.test_pipeline_table import document, rows

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kraft_pipeline.sources.kraft import KraftStreamReader

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("replication"), pytest.mark.timeout(900)]

BEFORE, LEFT, AFTER = 100, 30, 120
TABLES = ("strict", "loose", "during")


class Cut(NamedTuple):
    """The readers of topic `t` had read 100 records when its log was truncated."""

    members: Members
    folder: Path
    during: list[str]
    """What tables that must not lose records said while the log was shorter than what they had read."""
    offset: dict[str, Any]
    """Where a stream was that had read 100 records."""

    def table(self, name: str, **more: Any) -> dict[str, Any]:
        given = document(self.members.nodes[101], "t", self.folder / name, "delta", **more)
        given["metadata"]["name"] = name
        given["spec"]["bootstrapServers"] = self.members.bootstrap
        return given

    def reader(self, *, fail_on_data_loss: bool) -> KraftStreamReader:
        options = {"kafka.bootstrap.servers": self.members.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
        options["failOnDataLoss"] = str(fail_on_data_loss).lower()
        return KraftStreamReader(parse(options, streaming=True), ("value",))

    def run(self, given: dict[str, Any]) -> int:
        return runner.Runner(table_spec.parse(given), InlineEngine()).run(once=True)


def send(members: Members, first: int, end: int, acks: str = "1") -> None:
    from confluent_kafka import Producer

    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": members.bootstrap, "acks": acks, "message.timeout.ms": 60_000})
    for n in range(first, end):
        producer.produce("t", b"%d-%d" % (end, n), partition=0, callback=lambda e, _: e and failed.append(e))
    assert producer.flush(90) == 0
    assert failed == []


def reported(members: Members, asked: int) -> Any:
    from kraft_protocol.wire.api import ApiKey
    from kraft_protocol.wire.messages import MetadataRequest

    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    return members.ask(asked, ApiKey.METADATA, request).topics[0].partitions[0]


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cut]:
    from confluent_kafka.admin import AdminClient, NewTopic

    folder = tmp_path_factory.mktemp("cut")
    members = Members(folder, ("kraftcluster",), ("kraftcluster",) * 2)
    try:
        members.start()
        topic = NewTopic("t", 1, replica_assignment=[[101, 102]], config={"unclean.leader.election.enable": "true"})
        admin = AdminClient({"bootstrap.servers": members.bootstrap})
        admin.create_topics([topic])["t"].result(60)
        wait_for("both in sync", lambda: set(reported(members, 101).isr_nodes) == {101, 102})
        send(members, 0, LEFT, acks="all")
        members.nodes[102].stop()
        wait_for("101 is alone", lambda: reported(members, 101).isr_nodes == [101])
        send(members, LEFT, BEFORE)
        found = Cut(members, folder, [], {})
        for name in TABLES:
            assert found.run(found.table(name)) == BEFORE
        reader = found.reader(fail_on_data_loss=True)
        found.offset.update(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
        reader.stop()
        members.nodes[101].kill()
        members.start(102)
        wait_for("an unclean leader", lambda: reported(members, 102).leader_id == 102)
        try:
            found.run(found.table("during"))
        except DataLossError as e:
            found.during.append(str(e))
        members.start(101)
        send(members, LEFT, AFTER)
        yield found
    finally:
        members.stop()


EVERYTHING = Counter(
    [b"%d-%d" % (LEFT, n) for n in range(LEFT)]
    + [b"%d-%d" % (BEFORE, n) for n in range(LEFT, BEFORE)]
    + [b"%d-%d" % (AFTER, n) for n in range(LEFT, AFTER)]
)


def values(cut: Cut, name: str) -> Counter[bytes]:
    return Counter(row["value"] for row in rows(cut.folder / name, "delta"))


def test_new_records_are_read_where_the_log_was_cut(cut: Cut) -> None:
    """With failOnDataLoss: false. The status shows the loss until an administrator acknowledges it."""
    given = cut.table("loose", failOnDataLoss=False)
    assert cut.run(given) == AFTER - LEFT
    assert values(cut, "loose") == EVERYTHING
    assert cut.run(given) == 0
    (loss,) = maintenance.status(table_spec.parse(given))["losses"]
    assert (loss["topic"], loss["partition"], loss["first"], loss["end"]) == ("t", 0, LEFT, BEFORE)
    assert maintenance.acknowledge(table_spec.parse(given)) == 1
    assert maintenance.status(table_spec.parse(given))["losses"] == []


@pytest.mark.parametrize("name", ["strict", "during"])
def test_a_strict_table_stops_at_a_loss_until_it_is_acknowledged(cut: Cut, name: str) -> None:
    """It also stops if it starts after the log has passed the old end, and at every start."""
    assert len(cut.during) == 1
    given = cut.table(name)
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"t-0: offsets 30 to 99 .* cut off"):
            cut.run(given)
    assert len(maintenance.status(table_spec.parse(given))["losses"]) == 1
    assert maintenance.acknowledge(table_spec.parse(given)) == 1
    assert cut.run(given) == AFTER - LEFT
    assert values(cut, name) == EVERYTHING
    assert maintenance.status(table_spec.parse(given))["losses"] == []


def test_a_stream_stops_or_continues_where_the_log_was_truncated(cut: Cut) -> None:
    """Spark asks for it at each micro-batch, and when it repeats one after a restart."""
    strict, loose = (cut.reader(fail_on_data_loss=fails) for fails in (True, False))
    with pytest.raises(DataLossError, match=r"t-0: offsets 30 to 99 .* cut off"):
        strict.latestOffset(cut.offset, ReadAllAvailable())
    end = loose.latestOffset(cut.offset, ReadAllAvailable())
    for _ in range(2):
        parts = loose.partitions(cut.offset, end)
        found = [value for part in parts for batch in loose.read(part) for value in batch.column("value").to_pylist()]
        assert found == [b"%d-%d" % (AFTER, n) for n in range(LEFT, AFTER)]
    assert loose.latestOffset(end, ReadAllAvailable()) == end
    begin = {"t": {"0": 0}}
    with pytest.raises(DataLossError, match="an unclean election has truncated the log at offset 30"):
        list(strict.read(strict.partitions(begin, cut.offset)[0]))
    for reader in (strict, loose):
        reader.stop()
