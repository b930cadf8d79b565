"""The judge of logs convicts every kind of bad history and no good one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kraft_node.testing.histories.logs import Read, RecordOutcome, Sent, Verdict, judge

P = ("t", 0)
ACK, REFUSED, UNKNOWN = RecordOutcome.ACKNOWLEDGED, RecordOutcome.REFUSED, RecordOutcome.UNKNOWN


def _sent(values: str, outcome: RecordOutcome = ACK, producer: str = "p", idempotent: bool = True) -> list[Sent]:
    return [Sent(producer, P, i, v, outcome, i if outcome is ACK else -1, idempotent) for i, v in enumerate(values)]


def _log(values: str) -> dict[tuple[str, int], list[tuple[int, str]]]:
    return {P: list(enumerate(values))}


def _laws(verdict: Verdict) -> list[str]:
    return [finding.law for finding in verdict.findings]


def test_a_good_history_is_acquitted_and_counted() -> None:
    reads = [Read("c", P, [(0, "a"), (1, "b")]), Read("d", P, [(1, "b"), (2, "c")])]
    verdict = judge([*_sent("abc"), Sent("q", P, 0, "x", UNKNOWN), Sent("q", P, 1, "y", REFUSED)], reads, _log("abc"))
    assert verdict.good
    assert (verdict.acknowledged, verdict.unknown, verdict.refused, verdict.read) == (3, 1, 1, 4)


def test_records_of_unknown_outcome_may_be_missing() -> None:
    assert judge(_sent("ab", UNKNOWN), [], _log("ab")).good
    assert judge(_sent("ab", UNKNOWN), [], _log("b")).good
    assert judge(_sent("ab", UNKNOWN), [], {}).good


def test_a_missing_acknowledged_record_is_a_loss() -> None:
    verdict = judge(_sent("abc"), [], _log("ab"))
    assert _laws(verdict) == ["lost"]
    assert str(verdict.findings[0]) == "lost: t-0: 'c' of p was acknowledged at offset 2"


def test_a_missing_partition_is_a_loss() -> None:
    assert _laws(judge(_sent("ab"), [], {})) == ["lost", "lost"]


def test_a_record_at_another_offset_than_acknowledged_is_found() -> None:
    assert _laws(judge(_sent("a"), [], {P: [(7, "a")]})) == ["moved"]


@pytest.mark.parametrize("outcome", [ACK, UNKNOWN])
def test_a_record_without_a_sender_is_a_phantom(outcome: RecordOutcome) -> None:
    assert _laws(judge(_sent("a", outcome), [], _log("az"))) == ["phantom"]


def test_a_stored_record_that_was_refused_is_found() -> None:
    assert _laws(judge(_sent("a", REFUSED), [], _log("a"))) == ["phantom"]


def test_a_record_that_was_read_but_never_sent_is_found() -> None:
    assert _laws(judge(_sent("a"), [Read("c", P, [(0, "a"), (1, "z")])], _log("a"))) == ["phantom"]


def test_a_duplicate_record_is_found() -> None:
    assert _laws(judge(_sent("ab"), [], _log("aba"))) == ["duplicate"]
    assert judge(_sent("ab", idempotent=False), [], _log("aba")).good


def test_a_repetition_by_its_client_is_counted_and_not_a_duplicate() -> None:
    asked = []

    def has_repeated(record: Sent, offsets: Sequence[int]) -> bool:
        asked.append((record.value, offsets))
        return record.value == "a"

    verdict = judge(_sent("ab"), [], _log("abab"), has_repeated)
    assert _laws(verdict) == ["duplicate"]
    assert verdict.repeated_by_client == 1
    assert asked == [("a", [0, 2]), ("b", [1, 3])]


def test_records_out_of_order_are_found() -> None:
    assert _laws(judge(_sent("abc", UNKNOWN), [], _log("acb"))) == ["reordered"]
    two = [*_sent("ac", UNKNOWN), *_sent("bd", UNKNOWN, "q")]
    assert judge(two, [], _log("abcd")).good
    assert judge(_sent("abc", UNKNOWN, idempotent=False), [], _log("acb")).good


def test_a_changed_value_at_an_offset_is_found() -> None:
    assert _laws(judge(_sent("ab", UNKNOWN), [Read("c", P, [(0, "b")])], _log("ab"))) == ["unstable"]
    reads = [Read("c", P, [(0, "a")]), Read("d", P, [(0, "b")])]
    assert _laws(judge(_sent("ab", UNKNOWN), reads, {})) == ["unstable"]


def test_a_consumer_that_skips_a_record_is_found() -> None:
    assert _laws(judge(_sent("abc"), [Read("c", P, [(0, "a"), (2, "c")])], _log("abc"))) == ["skipped"]
    # Offsets without data (control batches, compaction) may be skipped.
    assert judge(_sent("ac", UNKNOWN), [Read("c", P, [(0, "a"), (2, "c")])], {P: [(0, "a"), (2, "c")]}).good


def test_a_consumer_that_reads_backwards_is_found() -> None:
    assert _laws(judge(_sent("ab"), [Read("c", P, [(1, "b"), (0, "a")])], _log("ab"))) == ["backwards"]


def test_records_with_equal_values_are_refused() -> None:
    with pytest.raises(ValueError, match="t-0 are not unique"):
        judge([Sent("p", P, 0, "a", ACK), Sent("q", P, 0, "a", ACK)], [], {})


@pytest.mark.parametrize("seed", range(200))
def test_a_single_fault_in_a_random_history_is_found(seed: int) -> None:
    rng = random.Random(seed)
    producers = {f"p{n}": 0 for n in range(3)}
    sent: list[Sent] = []
    log: list[str] = []
    for n in range(60):
        producer = rng.choice(list(producers))
        outcome = rng.choice([ACK, ACK, UNKNOWN, REFUSED])
        there = outcome is ACK or (outcome is UNKNOWN and rng.random() < 0.5)
        sent.append(Sent(producer, P, producers[producer], f"v{n}", outcome, len(log) if outcome is ACK else -1))
        producers[producer] += 1
        if there:
            log.append(f"v{n}")
    final = list(enumerate(log))
    reads = [Read(f"c{n}", P, final[(at := rng.randrange(len(final))) : at + 9]) for n in range(4)]
    assert judge(sent, reads, {P: final}).good

    acknowledged = [record for record in sent if record.outcome is ACK]
    victim = rng.choice(acknowledged)
    harm = rng.choice(["lose", "twice", "swap", "invent", "serve another"])
    if harm == "lose":
        final = [(o, v) for o, v in final if v != victim.value]
        expected = {"lost"}
    elif harm == "twice":
        final = [*final, (len(final), victim.value)]
        expected = {"duplicate"}
    elif harm == "swap":
        other = rng.choice([r for r in acknowledged if r is not victim])
        swapped = {victim.value: other.value, other.value: victim.value}
        final = [(o, swapped.get(v, v)) for o, v in final]
        expected = {"moved"}
    elif harm == "invent":
        final = [*final, (len(final), "never sent")]
        expected = {"phantom"}
    else:
        reads.append(Read("liar", P, [(victim.offset, "v60")]))
        expected = {"unstable", "phantom"}
    assert expected <= set(_laws(judge(sent, reads, {P: final})))
