"""kafka-transactions.sh: shows transactions and producers, and ends a hanging transaction.

A hanging transaction is open in a partition, while its coordinator does not know it: before KIP-890 a late batch could
begin one. Here the broker does not verify transactions, and the test sends such a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from confluent_kafka import Producer

from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire.messages import InitProducerIdRequest, ListOffsetsRequest, ProduceRequest
from tests.compat.targets import Target
from tests.compat.tools import run_tool
from tests.golden.broker.pair import Side

CLIENT = "kafka-transactions.sh"
TOOL = "org.apache.kafka.tools.TransactionsCommand"
LONG_AGO_MS = 1_600_000_000_000


def tool(target: Target, *args: str) -> list[list[str]]:
    """The rows of the tool's table, without its heading."""
    done = run_tool(TOOL, "--bootstrap-server", target.bootstrap, *args)
    return [line.split() for line in done.out.splitlines()[1:] if line.strip()]


def stable_offset(side: Side, topic: str) -> int:
    row = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsRequest.ListOffsetsTopic(topic, [row])]
    answer = side.ask(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics), 7)
    return int(answer.topics[0].partitions[0].offset)


def test_transactions_are_listed_and_described(make_target: Callable[..., Target], server_name: str) -> None:
    target = make_target(server_name).start()
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": "shown"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("t", b"v", partition=0)
    producer.flush(60)
    ((transactional_id, coordinator, producer_id, state),) = tool(target, "list")
    assert (transactional_id, coordinator, state) == ("shown", "1", "Ongoing")
    (described,) = tool(target, "describe", "--transactional-id", "shown")
    assert described[:5] == ["1", "shown", producer_id, "0", "Ongoing"]
    assert described[-1] == "t-0"
    (open_producer,) = tool(target, "describe-producers", "--topic", "t", "--partition", "0")
    assert (open_producer[0], open_producer[-1]) == (producer_id, "0")
    producer.abort_transaction(60)


def test_hanging_transaction_is_found_and_aborted(make_target: Callable[..., Target], server_name: str) -> None:
    target = make_target(server_name, **{"transaction.partition.verification.enable": "false"}).start()
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": "other"})
    producer.init_transactions(60)  # the tool asks the coordinators about the producer
    plain = Producer({"bootstrap.servers": target.bootstrap})
    plain.produce("t", b"v", partition=0)
    plain.flush(60)
    with closing(Side("server", target)) as side:  # also if the tool is missing
        producer_id = -1
        while producer_id < 0:  # the broker may still wait for its first block of ids
            producer_id = side.ask(InitProducerIdRequest(None, 1000), 4).producer_id
        late = build_batch(
            [(b"k", b"late")],
            timestamp=LONG_AGO_MS,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        rows = [ProduceRequest.PartitionProduceData(index=0, records=late)]
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=rows)
        answer = side.ask(ProduceRequest("gone", acks=-1, timeout_ms=10_000, topic_data=[topic]), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert stable_offset(side, "t") == 1
        (found,) = tool(target, "find-hanging", "--broker-id", "1")
        assert found[:4] == ["t", "0", str(producer_id), "0"]
        tool(target, "abort", "--topic", "t", "--partition", "0", "--start-offset", "1")
        assert stable_offset(side, "t") == 3
        assert tool(target, "find-hanging", "--broker-id", "1") == []
