"""Produce: accepted, refused and stored batches, in every version."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import lz4.frame
import pytest

from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.records.batch import HEADER_SIZE, iter_headers, iter_records
from kraft_protocol.records.compression import Compression
from kraft_protocol.wire.messages import InitProducerIdRequest, ProduceRequest
from tests.golden.broker.batches import WHEN, altered, batch, produce, raw_record, record, sealed, stored, with_payload
from tests.golden.broker.pair import SILENT, Pair, Side, frame, uuid

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
DAY = 24 * 3600 * 1000


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    made = Pair(*servers)
    made.create("p", 2)
    made.create("p.compact", cleanup_policy="compact")
    made.create("p.append.time", message_timestamp_type="LogAppendTime")
    made.create("p.recent", message_timestamp_before_max_ms=str(DAY), message_timestamp_after_max_ms=str(DAY))
    made.create("p.small", max_message_bytes="300", segment_bytes="1048576")
    made.create("p.sequences")
    made.create("p.lz4.blocks")
    made.create("p.codecs.append.time", message_timestamp_type="LogAppendTime")
    for name in ("malformed", "records", "unlike", "late", "garbage", "twice", "txn", "times"):
        made.create(f"p.{name}")
    for side in made.sides:  # Kafka's first answers may give -1 as the log's start
        for _ in range(6):
            side.ask(produce("p", (0, batch()))(side), 9)
    for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        made.create(f"p.{codec}", compression_type=codec)
        made.create(f"p.{codec}.time", compression_type=codec, message_timestamp_type="LogAppendTime")


def test_accepted_batches_are_stored_alike(pair: Pair) -> None:
    pair.same(produce("p", (0, batch())))
    pair.same(produce("p", (0, batch()), (1, batch(record(), record(at=WHEN + 5)))))
    pair.same(produce("p", (1, batch(record(None), record(b"", None), record(headers=[("h", b"x"), ("", None)])))))
    for codec in CODECS[1:4]:
        pair.same(produce("p", (0, batch(record(b"v" * 200), record(), compression=codec))))
    pair.same(produce("p", (0, batch(record(b"v" * 200), compression=Compression.ZSTD))))
    pair.same(produce("p", (0, batch()), acks=1))
    for partition in (0, 1):
        pair.check(f"p-{partition}.log", lambda side, partition=partition: stored(side, "p", partition).hex())  # type: ignore[misc]


def test_acks_0_gets_no_answer_from_either(pair: Pair) -> None:
    pair.unanswered(produce("p", (0, batch()), acks=0), 9)
    pair.unanswered(produce("p", (77, batch()), acks=0), 9)
    pair.unanswered(produce("p", (0, b""), acks=0), 9)
    pair.unanswered(produce("p.nope", (0, batch()), acks=0), 9)
    pair.unanswered(produce("p", acks=0), 9)


def test_refused_requests_get_the_same_error(pair: Pair) -> None:
    for acks in (2, -2, 32767, -32768):
        pair.same(produce("p", (0, batch()), acks=acks))
    pair.same(produce("p"))
    pair.same(ProduceRequest(acks=-1, timeout_ms=1000))
    pair.same(produce("p.nope", (0, batch())))
    pair.same(produce("bad/name", (0, batch())))
    pair.same(produce("", (0, batch())))
    for index in (2, -1, 2**31 - 1):
        pair.same(produce("p", (index, batch())))
    pair.same(produce("p", (0, batch()), (9, batch())))
    pair.same(produce("__consumer_offsets", (0, batch())))
    topic = ProduceRequest.TopicProduceData
    row = ProduceRequest.PartitionProduceData(index=0, records=batch())
    for topic_id in (ZERO_UUID, uuid(5)):
        for name in ("", "p"):
            pair.same(
                ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic(name, topic_id, [row])]), (3, 9, 12, 13)
            )


def rows(answer: Any) -> int:
    return len(answer.responses[0].partition_responses)


def test_a_repeated_partition_gets_the_same_answer(pair: Pair) -> None:
    asked = produce("p.twice", (0, batch()), (0, batch(record(b"second"))))
    pair.differs("partition-twice", asked, (9, 13), kafka=lambda a: rows(a) == 1, ours=lambda a: rows(a) == 2)
    stored_values = [
        [r.value for h in iter_headers(stored(side, "p.twice")) for r in iter_records(stored(side, "p.twice"), h)]
        for side in pair.sides
    ]
    assert stored_values == [[b"second"] * 2, [b"value", b"second"] * 2]


def test_refused_batches_get_the_same_error(pair: Pair) -> None:
    good = batch(record(), record())
    cases = {
        "empty": b"",
        "one byte": b"\0",
        "less than a header": good[:30],
        "cut off": good[:-1],
        "two batches": good + good,
        "bytes behind": good + b"\0" * 5,
        "a header behind": good + b"\0" * 70,
        "a batch of magic 1 behind": good + good[:16] + b"\1" + good[17:],
        "wrong CRC": good[:-1] + b"\xff",
        "CRC of zero": good[:17] + bytes(4) + good[21:],
        "length of zero": good[:8] + bytes(4) + good[12:],
        "length too small": good[:8] + struct.pack(">i", 20) + good[12:],
        "length a little small": good[:8] + struct.pack(">i", len(good) - 13) + good[12:],
        "length too large": good[:8] + struct.pack(">i", len(good)) + good[12:],
        "negative length": good[:8] + struct.pack(">i", -5) + good[12:],
        "length of 2 GiB": good[:8] + struct.pack(">i", 2**31 - 1) + good[12:],
        **{f"magic {m}": good[:16] + bytes([m]) + good[17:] for m in (0, 1, 3, 127, 255)},
        "base offset 5": struct.pack(">q", 5) + good[8:],
        "base offset -1": struct.pack(">q", -1) + good[8:],
        "leader epoch 9": good[:12] + struct.pack(">i", 9) + good[16:],
        "control": altered(good, attributes=0x20),
        "transactional": altered(good, attributes=0x10),
        "transactional of a producer": altered(good, attributes=0x10, producer_id=1, producer_epoch=0, sequence=0),
        "codec 5": altered(good, attributes=5),
        "codec 7": altered(good, attributes=7),
        "unknown attribute": altered(good, attributes=0x100),
        "delete horizon": altered(good, attributes=0x40),
        "no records": altered(good, count=0, last_delta=-1),
        "no records, a range": altered(good, count=0),
        "negative count": altered(good, count=-1),
        "more than there are": altered(good, count=3, last_delta=2),
        "fewer than there are": altered(good, count=1, last_delta=0),
        "range larger than the count": altered(good, last_delta=5),
        "range smaller than the count": altered(good, last_delta=0),
        "negative range": altered(good, last_delta=-2),
        "epoch without id": altered(good, producer_epoch=3),
        "sequence without id": altered(good, sequence=3),
    }
    for label, data in cases.items():
        pair.same(produce("p.malformed", (0, data)), (3, 8, 13), label=label)
    pair.check("p.malformed-0.log", lambda side: stored(side, "p.malformed").hex())


def test_null_records_get_the_same_answer(pair: Pair) -> None:
    """Kafka fails on them and sends no answer, nor any later answer on that connection."""
    for side, expected in ((pair.kafka, SILENT), (pair.ours, "answers")):
        side.close()
        answer = side.exchange(frame(produce("p", (0, None))(side), 9), 1.0)
        assert (answer if answer == SILENT else "answers") == expected
        side.close()
    pair.deviations.add("records-of-null")


def test_transactional_requests_get_the_same_answers(pair: Pair) -> None:
    txn = batch(record(), transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    pair.same(produce("p.txn", (0, txn)), (3, 10, 11, 12, 13))
    for side in (pair.kafka, pair.ours):
        for version in (3, 10, 11, 12, 13):
            # The coordinator's topic may exist by now: a metadata request creates it.
            answer = side.ask(produce("p.txn", (0, txn), transactional_id="t")(side), version)
            assert refused(19, 49)(answer), (side, version)
    for transactional_id in (None, "t"):
        pair.same(produce("p.txn", (0, batch()), transactional_id=transactional_id), (3, 11, 13))


MALFORMED = {
    "good": with_payload(raw_record(0) + raw_record(1), 2),
    "size too small": with_payload(raw_record(size=5) + raw_record(1), 2),
    "size too large": with_payload(raw_record(size=500)),
    "size one more": with_payload(raw_record(size=16) + raw_record(1), 2),
    "size of zero": with_payload(raw_record(size=0)),
    "negative size": with_payload(raw_record(size=-1)),
    "key beyond the record": with_payload(raw_record(key=300)),
    "value beyond the record": with_payload(raw_record(value=300)),
    "key of -2": with_payload(raw_record(key=-2)),
    "negative header count": with_payload(raw_record(headers=b"\1")),
    "headers that are not there": with_payload(raw_record(headers=b"\4")),
    "header without a key": with_payload(raw_record(headers=b"\2\1\1")),
    "header key that is no UTF-8": with_payload(raw_record(headers=b"\2\2\xff\1")),
    "bytes behind the headers": with_payload(raw_record(tail=b"xyz")),
    "bytes behind the last record": with_payload(raw_record() + b"xyz"),
    "one record more": with_payload(raw_record() + raw_record(1)),
    "no bytes": with_payload(b""),
    "zeros": with_payload(bytes(20), 20),
    "noise": with_payload(bytes(range(100, 200))),
    "endless varint": with_payload(b"\xff" * 20),
    "offset deltas from 5": with_payload(raw_record(5) + raw_record(6), 2),
    "offset deltas that repeat": with_payload(raw_record(0) + raw_record(0), 2),
    "offset deltas that fall": with_payload(raw_record(1) + raw_record(0), 2),
    "attributes of a record": with_payload(raw_record(attributes=7)),
}


WRONG_SIZES = {"size too small", "size too large", "size one more", "size of zero", "negative size"}


def answered(answer: Any) -> int:
    """The error code of the first partition."""
    return int(answer.responses[0].partition_responses[0].error_code)


def taken(answer: Any) -> bool:
    return answered(answer) == 0


def refused(*codes: int) -> Callable[[Any], bool]:
    return lambda answer: answered(answer) in codes


def test_malformed_records_deep_inside_a_batch_are_stored_alike(pair: Pair) -> None:
    """Kafka and ours check only the first lengths of many records."""
    good = [raw_record(n) for n in range(12)]
    for label, payload in {
        "a value beyond its record": b"".join([*good[:10], raw_record(10, value=300), good[11]]),
        "a length beyond the batch": b"".join([*good[:11], raw_record(11, size=100)]),
        "bytes behind": b"".join(good) + b"abc",
    }.items():
        data = with_payload(payload, 12)
        pair.differs("records-not-read", produce("p.unlike", (0, data)), 9, kafka=refused(87), ours=taken)
        assert label
    for at in (0, 3, 7):
        data = with_payload(b"".join([*good[:at], raw_record(at, size=1000), *good[at + 1 :]]), 12)
        pair.same(produce("p.records", (0, data)), 9, label=f"length of record {at}")
    late = batch(*[record(at=WHEN + n) for n in range(12)])
    for side in pair.sides:
        side.ask(produce("p.late", (0, altered(late, max_timestamp=WHEN + 5000)))(side), 9)
        assert side.ask(produce("p.late", (0, altered(late, max_timestamp=WHEN - 1)))(side), 9)
    found = [[h.max_timestamp - WHEN for h in iter_headers(stored(side, "p.late"))] for side in pair.sides]
    assert found == [[11, 11], [5000, 11]]
    pair.deviations.add("records-not-read")


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_malformed_records_get_the_same_error(pair: Pair, codec: Compression) -> None:
    for label, data in MALFORMED.items():
        made = data
        if codec:
            count = struct.unpack_from(">i", data, 57)[0]
            made = with_payload(data[HEADER_SIZE:], count, codec)
        if codec and label in WRONG_SIZES:
            pair.differs(
                "sizes-of-compressed-records", produce("p.unlike", (0, made)), 9, kafka=taken, ours=refused(87)
            )
        elif codec and label == "zeros":
            pair.differs("records-not-read", produce("p.unlike", (0, made)), 9, kafka=refused(87), ours=taken)
        else:
            pair.same(produce("p.records", (0, made)), 9, label=f"{label} {codec.name}")
    pair.check(f"{codec.name}: log", lambda side: stored(side, "p.records").hex())


def test_garbage_inside_a_codec_gets_the_same_error(pair: Pair) -> None:
    good = batch(record(b"v" * 100), record(), compression=Compression.GZIP)
    for codec in CODECS[1:]:
        good = batch(record(b"v" * 100), record(), compression=codec)
        cases = {
            "garbage": with_payload(b"garbage" * 5),
            "nothing": with_payload(b""),
            "cut off": sealed(good[:8] + struct.pack(">i", len(good) - 22) + good[12:-10]),
            "damaged": sealed(good[:70] + bytes([good[70] ^ 0x55]) + good[71:]),
        }
        for label, data in cases.items():
            made = altered(data, attributes=int(codec))
            pair.same(produce("p.garbage", (0, made)), 9, label=f"{label} {codec.name}")
    pair.check("p.garbage-0.log", lambda side: stored(side, "p.garbage").hex())


@pytest.mark.parametrize("size", [100, 200_000])
def test_lz4_with_linked_blocks_is_refused_alike(pair: Pair, size: int) -> None:
    """Java's consumers cannot read it, so a stored batch would stop them."""
    payload = batch(record(b"v" * size))[HEADER_SIZE:]
    for linked in (False, True):
        compressed = lz4.frame.compress(payload, block_linked=linked, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
        made = altered(with_payload(compressed), attributes=int(Compression.LZ4))
        pair.same(produce("p.lz4.blocks", (0, made)), 9, label=f"linked={linked}")
    pair.check("p.lz4.blocks-0.log", lambda side: stored(side, "p.lz4.blocks").hex())


def test_wrong_max_timestamps_get_the_same_answers(pair: Pair) -> None:
    good = batch(record(at=WHEN), record(at=WHEN + 10), record(at=WHEN + 5))
    for label, fields in {
        "too large": {"max_timestamp": WHEN + 1000},
        "too small": {"max_timestamp": WHEN},
        "none": {"max_timestamp": -1},
        "LogAppendTime": {"attributes": 8},
        "LogAppendTime without a time": {"attributes": 8, "max_timestamp": -1},
    }.items():
        for topic in ("p.times", "p.append.time"):
            pair.same(produce(topic, (0, altered(good, **fields))), 9, label=label)
    pair.check("p.times-0.log", lambda side: stored(side, "p.times").hex())


def test_timestamps_get_the_same_answers(pair: Pair) -> None:
    now = int(time.time() * 1000)
    for at in (-1, 0, -5, now, now - 2 * DAY, now + 2 * DAY, now + DAY // 2, 2**62, 2**63 - 1):
        for topic in ("p.times", "p.recent", "p.append.time"):
            pair.same(produce(topic, (0, batch(record(at=at)))), (3, 9), label=f"at {at}")
            pair.same(produce(topic, (0, batch(record(at=at), record(at=now)))), 9, label=f"at {at}, now")
    for topic in ("p.times", "p.recent"):
        pair.check(f"{topic}-0.log", lambda side, topic=topic: stored(side, topic).hex())  # type: ignore[misc]


def test_missing_keys_on_compacted_topics_get_the_same_error(pair: Pair) -> None:
    for codec in (Compression.NONE, Compression.GZIP):
        pair.same(produce("p.compact", (0, batch(record(), record(b"v", None), compression=codec))), (3, 8, 13))
        pair.same(produce("p.compact", (0, batch(*[record(b"v", None)] * 5, compression=codec))), (3, 8, 13))
        pair.same(produce("p.compact", (0, batch(record(b"v", b""), compression=codec))), (3, 8, 13))
    pair.check("p.compact-0.log", lambda side: stored(side, "p.compact").hex())


def test_batch_sizes_get_the_same_answers(pair: Pair) -> None:
    for size in (100, 220, 230, 231, 232, 240, 400):
        pair.same(produce("p.small", (0, batch(record(b"v" * size)))), (3, 13), label=f"value of {size}")
    pair.same(produce("p.small", (0, batch(record(b"v" * 9000), compression=Compression.GZIP))), (3, 13))
    pair.same(produce("p", (0, batch(record(b"v" * 250_000)))), (3, 13))
    pair.check("p.small-0.log", lambda side: stored(side, "p.small").hex())


def test_sequences_get_the_same_answers(pair: Pair) -> None:
    def sent(sequence: int, epoch: int = 0, count: int = 1, **fields: Any) -> Any:
        def made(side: Side) -> ProduceRequest:
            data = batch(
                *[record(b"%d" % sequence)] * count,
                producer_id=fields.get("producer_id", side.memory["producer"]),
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            return produce("p.sequences", (0, data))(side)

        return made

    for side in pair.sides:
        side.memory["producer"] = side.ask(InitProducerIdRequest(transaction_timeout_ms=1000), 4).producer_id
    pair.same(sent(7), (9, 13))
    for sequence in (0, 1, 1, 0, 2, 4, 3, 9, 10, 3, 4, 5, 6, 7, 8, 3, 2, 1, 0, -1, -2, 2**31 - 1):
        pair.same(sent(sequence), (8, 13), label=f"sequence {sequence}")
    pair.same(sent(9, count=3), 13, label="longer duplicate")
    pair.same(sent(5, epoch=1), (8, 13), label="new epoch, sequence 5")
    pair.same(sent(0, epoch=1), (8, 13), label="new epoch")
    pair.same(sent(10, epoch=0), (8, 13), label="old epoch")
    pair.same(sent(0, epoch=-1), (8, 13), label="no epoch")
    pair.same(sent(0, epoch=32767), (8, 13), label="last epoch")
    pair.same(sent(2**31 - 1, epoch=32767), (8, 13), label="last sequence")
    pair.same(sent(0, producer_id=999_999), (8, 13), label="somebody else's id")
    pair.same(sent(3, producer_id=999_998), (8, 13), label="unknown id within its sequence")
    pair.check("number of bytes", lambda side: len(stored(side, "p.sequences")))


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_batches_are_stored_under_the_same_codec(pair: Pair, codec: Compression) -> None:
    """A topic's codec and timestamp type turn a batch into the same records in the same frame."""
    records = [record(b"v%d" % n * 30, headers=[("a", b"b")], at=WHEN + n * 7 % 5) for n in range(20)]
    data = batch(*records, compression=codec)
    for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        for topic in (f"p.{name}", f"p.{name}.time"):
            pair.same(produce(topic, (0, data)), (6, 7, 13))
            pair.check(f"{topic} after {codec.name}", lambda side, topic=topic: decoded(side, topic))  # type: ignore[misc]
    pair.same(produce("p.codecs.append.time", (0, data)), (7, 13))
    pair.check("p.append.time", lambda side: decoded(side, "p.codecs.append.time"))


def decoded(side: Side, topic: str) -> list[Any]:
    """A log's batches: header fields and records, without lengths and CRCs, which depend on the compressor."""
    data = stored(side, topic)
    made: list[Any] = []
    for header in iter_headers(data):
        fields = [
            header.base_offset, header.partition_leader_epoch, header.attributes, header.last_offset_delta,
            header.base_timestamp, side.plain(header.max_timestamp, "timestamp"), header.count,
        ]  # fmt: skip
        records = [
            (r.offset, side.plain(r.timestamp, "timestamp"), r.key, r.value, r.headers)
            for r in iter_records(data, header)
        ]
        made.append((fields, records))
    return made
