"""Simulated clients of transactions know leader epochs like Kafka's clients (KIP-320).

A former leader that hears nothing still names itself in its metadata. Seed 9100278 of the scenario `transactions` broke
a law because an application followed that metadata, though a newer leader's records were committed as read.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from kraft_node.testing.checker import Checker
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.script import Moment
from kraft_node.testing.transactions.ledger import Ledger
from kraft_node.testing.transactions.reading import CommittedFetcher
from kraft_node.testing.workloads.consumer import fetch_committed
from kraft_node.testing.workloads.session import ClusterSession
from kraft_node.testing.world import SimHost, World
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import messages as m

PLACE = ("t", 0)
BROKERS = (1, 2, 3)


class Session(ClusterSession):
    """A session whose requests get the given answers, in order."""

    def __init__(self, *answers: Any) -> None:
        world = World(1)
        host = SimHost(world, "client", SimDisk(world.rng, lambda: 0))
        cluster: Any = SimpleNamespace(
            world=world,
            client_host=lambda _: host,
            network=SimpleNamespace(host=lambda _: None),
            bootstrap=[("n1", 1)],
            security=None,
        )
        super().__init__(cluster, "client")
        self.answers = list(answers)

    def request(self, *_: Any, **__: Any) -> Moment[Any]:
        moment: Moment[Any] = Moment()
        moment.happen(self.answers.pop(0))
        return moment


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def metadata(leader: int, epoch: int) -> Any:
    broker, topic = m.MetadataResponse.MetadataResponseBroker, m.MetadataResponse.MetadataResponseTopic
    row = m.MetadataResponse.MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return m.MetadataResponse(
        brokers=[broker(node_id=node, host=f"n{node}", port=1) for node in BROKERS],
        topics=[topic(name="t", partitions=[row])],
    )


def committed(offset: int, epoch: int) -> Any:
    group, topic = m.OffsetFetchResponse.OffsetFetchResponseGroup, m.OffsetFetchResponse.OffsetFetchResponseTopics
    row = m.OffsetFetchResponse.OffsetFetchResponsePartitions(0, offset, epoch)
    return m.OffsetFetchResponse(groups=[group("g", [topic("t", partitions=[row])])])


def test_a_leader_of_an_older_epoch_is_refused() -> None:
    session = Session(metadata(2, 5), metadata(1, 4), metadata(3, 5))
    session.refuses_older = True
    run(session.refresh())
    assert session.leaders == {PLACE: 2}
    session.forget_leader(*PLACE)
    run(session.refresh())
    assert session.leaders == {}
    run(session.refresh())
    assert session.leaders == {PLACE: 3}


def test_a_committed_offset_of_a_newer_epoch_makes_the_known_leader_out_of_date() -> None:
    session = Session(metadata(1, 4), committed(9, 5), metadata(1, 4), metadata(2, 5))
    session.refuses_older = True
    run(session.refresh())
    assert run(fetch_committed(session, 1, "g", [PLACE])) == {PLACE: 9}
    assert session.leaders == {}
    run(session.refresh())
    assert session.leaders == {}
    run(session.refresh())
    assert session.leaders == {PLACE: 2}


def test_a_reader_of_transactions_knows_the_epoch_of_its_last_record() -> None:
    session = Session(metadata(1, 7))
    session.world.rng.random = lambda: 1.0  # type: ignore[method-assign]  # no request behind the fetch
    fetcher = CommittedFetcher(session, Checker(session.world), sessions=False)
    fetcher.ledger = Ledger(Checker(session.world))
    assert session.refuses_older
    fetcher.assign({PLACE: 0})
    records = build_batch([(b"k", b"v")], timestamp=1, leader_epoch=6)
    data = m.FetchResponse.PartitionData(
        partition_index=0, high_watermark=1, last_stable_offset=1, aborted_transactions=[], records=records
    )
    topic = m.FetchResponse.FetchableTopicResponse("t", partitions=[data])
    session.answers.append(m.FetchResponse(responses=[topic]))
    run(fetcher.fetch(max_wait_ms=0))
    assert fetcher.moved() == {PLACE: 1}
    assert fetcher.epochs == {PLACE: 6}
    fetcher.assign({PLACE: 1})
    assert fetcher.epochs == {}
