"""The ledger of transactions knows which producer of a transactional id is newer, and reports what a fenced one did.

Seed 60051 of the scenario `whole` with rare paths broke the law `zombie`. A paused producer read its producer id after
the coordinator had removed the unused transactional id and a successor had got another producer id. The ledger took
the paused producer for the newer one.
"""

from __future__ import annotations

import pytest

from kraft_node.testing.checker import Checker
from kraft_node.testing.transactions.ledger import Ledger
from kraft_node.testing.world import World

P = ("u", 0)
OLD, NEW = 1008, 2002
"""Producer ids. The transactional id has OLD, is removed when it is unused, and gets NEW."""


class Play:
    """A ledger, and the producers a.1, a.2 and a.3 of one transactional id."""

    def __init__(self) -> None:
        self.checker = Checker(World(1))
        self.ledger = Ledger(self.checker)

    def begins(self, who: str, producer: tuple[int, int], *, requested: int, received: int, first: bool = True) -> None:
        """A producer gets its id and epoch."""
        self.checker.world.events = received
        self.ledger.begun(who, "id", *producer, requested=requested, first=first)

    def appends(self, who: str, producer: tuple[int, int], *, sent: int) -> list[str]:
        """A batch that was first sent at `sent` is acknowledged; returns the broken laws."""
        self.checker.world.events = sent
        transaction = self.ledger.transaction(f"{who}:{sent}", "id", *producer)
        batch = self.ledger.batch(transaction, P, [f"{who}:{sent}:0"], b"", b"k")
        self.ledger.sending(batch)
        self.checker.world.events += 10
        self.ledger.acknowledged(batch, 7)
        return [finding.law for finding in self.checker.findings]


@pytest.fixture
def play() -> Play:
    return Play()


def test_a_producer_that_reads_an_old_answer_late_is_not_newer(play: Play) -> None:
    play.begins("a.1", (OLD, 22), requested=1, received=2)
    play.begins("a.3", (NEW, 0), requested=30, received=40)
    play.begins("a.2", (OLD, 23), requested=10, received=50)
    assert play.appends("a.3", (NEW, 0), sent=60) == []


def test_a_late_reader_of_an_old_answer_is_the_zombie(play: Play) -> None:
    play.begins("a.1", (OLD, 22), requested=1, received=2)
    play.begins("a.3", (NEW, 0), requested=30, received=40)
    play.begins("a.2", (OLD, 23), requested=10, received=50)
    assert play.appends("a.2", (OLD, 23), sent=60) == ["zombie"]


def test_overlapping_requests_prove_no_order_of_producer_ids(play: Play) -> None:
    play.begins("a.3", (NEW, 0), requested=30, received=40)
    play.begins("a.2", (OLD, 23), requested=10, received=50)
    assert play.appends("a.3", (NEW, 0), sent=60) == []
    assert play.appends("a.2", (OLD, 23), sent=70) == []


def test_a_producer_id_requested_after_another_was_received_is_newer(play: Play) -> None:
    play.begins("a.1", (NEW, 5), requested=1, received=10)
    play.begins("a.2", (OLD, 0), requested=10, received=20)  # another broker allocates smaller producer ids
    assert play.appends("a.1", (NEW, 5), sent=21) == ["zombie"]


def test_a_batch_sent_before_the_successor_had_its_id_is_allowed(play: Play) -> None:
    play.begins("a.1", (OLD, 5), requested=1, received=10)
    play.begins("a.2", (NEW, 0), requested=11, received=20)
    assert play.appends("a.1", (OLD, 5), sent=20) == []


def test_a_producer_id_from_the_end_of_a_transaction_follows_the_former_one(play: Play) -> None:
    play.begins("a.1", (OLD, 5), requested=1, received=2)
    play.begins("a.1", (NEW, 0), requested=3, received=4, first=False)
    assert play.appends("a.1", (NEW, 0), sent=5) == []
    play.begins("a.2", (NEW, 1), requested=6, received=7)
    assert play.appends("a.1", (OLD, 5), sent=8) == ["zombie"]


def test_the_greater_epoch_of_a_producer_id_is_newer_whenever_it_was_received(play: Play) -> None:
    play.begins("a.2", (OLD, 2), requested=20, received=30)
    play.begins("a.1", (OLD, 1), requested=10, received=40)
    assert play.appends("a.2", (OLD, 2), sent=50) == []
    assert play.appends("a.1", (OLD, 1), sent=60) == ["zombie"]
