"""Our records of `__consumer_offsets` against Apache Kafka's own classes: the same bytes, and read the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kraft_node.broker.coordinators.group import records
from kraft_node.broker.coordinators.group.classic import ClassicGroup, ClassicState
from kraft_node.broker.coordinators.group.member import ClassicGroupMember
from kraft_node.broker.coordinators.group.offsets import CommittedOffset
from kraft_protocol.ids import ZERO_UUID, Uuid, uuid_text
from kraft_protocol.records.batch import iter_records
from tests.peer import run_java
from tests.unit.coordinators.harness import Node, subscription

pytestmark = pytest.mark.peer


def ask(lines: list[str]) -> list[dict[str, Any]]:
    done = run_java("tests/java/GroupRecordOracle.java", stdin="\n".join(lines).encode())
    answers = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert len(answers) == len(lines), done.stderr.decode()
    for line, answer in zip(lines, answers, strict=True):
        assert "error" not in answer, f"{line}: {answer['error']}"
    return answers


def assert_same(record: tuple[bytes, bytes | None], answer: dict[str, Any]) -> None:
    key, value = record
    assert key.hex() == answer["keyHex"]
    assert (None if value is None else value.hex()) == answer.get("valueHex"), answer


def test_records_equal_those_of_kafka():
    rng = random.Random(1)
    lines, ours = [], []
    for _ in range(300):
        value = CommittedOffset(
            rng.choice([0, 1, rng.getrandbits(62)]),
            rng.choice([-1, 0, rng.getrandbits(30)]),
            rng.choice(["", "note", "größe", "x" * 300]),
            rng.getrandbits(41),
            rng.choice([None, None, rng.getrandbits(41)]),
            rng.choice([ZERO_UUID, Uuid(rng.randbytes(16))]),
        )
        group, topic, partition = (
            f"group-{rng.getrandbits(20)}",
            rng.choice(["t", "a.long_topic-name"]),
            rng.getrandbits(9),
        )
        ours.append(records.encode_change(records.OffsetChange(group, topic, partition, value)))
        expire = -1 if value.expire_ms is None else value.expire_ms
        lines.append(
            f"offset {group} {topic} {partition} {value.offset} {value.leader_epoch} {value.metadata} "
            f"{value.commit_ms} {expire} {uuid_text(value.topic_id)}"
        )
    for instance in (None, "static-1"):
        group_object = ClassicGroup("g", 1_700_000_000_000, state=ClassicState.EMPTY, generation=7)
        group_object.add(
            ClassicGroupMember(
                "member-1",
                instance_id=instance,
                client_id="client",
                client_host="/10.0.0.1",
                rebalance_timeout_ms=20_000,
                session_timeout_ms=10_000,
                protocol_type="consumer",
                protocols={"range": subscription("t", "u")},
            )
        )
        group_object.protocol = "range"
        ours.append(records.encode_change(records.group_snapshot(group_object, {"member-1": b"\x01\x02"})))
        meta = subscription("t", "u").hex()
        lines.append(f"group g 7 range {instance or '-'} member-1 {meta} 0102 1700000000000")
    ours.append(records.encode_change(records.new_group(ClassicGroup("new", 1_700_000_000_000))))
    lines.append("empty new 1700000000000")
    for record, answer in zip(ours, ask(lines), strict=True):
        assert_same(record, answer)


def test_kafka_reads_all_that_a_busy_coordinator_writes():
    node = Node()
    ids, generation = node.stable_group(3)
    node.commit({("t", 0): 1, ("u", 3): 9}, member=ids[0], generation=generation, metadata="m")
    node.commit({("t", 1): 2}, group="simple", version=3, retention=60_000)
    node.join(instance="i", group="static")
    node.time.advance()
    node.leave(*[(m, None) for m in ids])
    node.delete("g")
    written = [record for _, batch in node.logs.batches[0] for record in stored(batch)]
    assert len(written) >= 10
    answers = ask([f"read {k.hex()} {'-' if v is None else v.hex()}" for k, v in written])
    for record, answer in zip(written, answers, strict=True):
        assert_same(record, answer)
    assert {a["version"] for a in answers if "version" in a} == {1, 3, 4}
    stable = next(a["value"] for a in answers if a.get("value", {}).get("members"))
    assert {m["memberId"] for m in stable["members"]} == set(ids)


def stored(batch: bytes) -> list[tuple[bytes, bytes | None]]:
    return [(r.key, r.value) for r in iter_records(batch)]
