"""Balance by load: first it reports the moves; then bytes move to the emptier broker, while clients work."""

from __future__ import annotations

import json

from e2e.kube import Cluster, Workload, kubectl, needs_kubernetes, until

pytestmark = needs_kubernetes
BYTES = 48 * 1024 * 1024
FILL = """
import sys
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

admin = AdminClient({"bootstrap.servers": sys.argv[1]})
lists = [[101, 102], [102, 101]] * 4
admin.create_topics([NewTopic("heavy", len(lists), replica_assignment=lists)])["heavy"].result(60)
producer = Producer({"bootstrap.servers": sys.argv[1], "acks": "all", "compression.type": "none"})
for number in range(int(sys.argv[2]) // 65536):
    producer.produce("heavy", bytes(65536), partition=number % len(lists))
    producer.poll(0.002)
assert producer.flush(120) == 0
"""
LISTS = """
import json, sys
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

admin = AdminClient({"bootstrap.servers": sys.argv[1]})  # a client that nobody holds ends before it has the answer
found = admin.describe_topics(TopicCollection(["heavy"]))["heavy"].result(60)
print(json.dumps([[one.id for one in partition.replicas] for partition in found.partitions]))
"""


def _python(work: Workload, script: str, *words: str) -> str:
    command = ["exec", work.name, "-n", work.namespace, "--", "/opt/client/bin/python", "-c", script, *words]
    answer = kubectl(*command, timeout=300)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def _spread(work: Workload, bootstrap: str) -> set[int]:
    """The brokers with a replica of `heavy`."""
    return {broker for replicas in json.loads(_python(work, LISTS, bootstrap)) for broker in replicas}


def test_bytes_move_to_the_broker_that_has_few_while_clients_work(cluster: Cluster) -> None:
    bootstrap, before = f"{cluster.name}-bootstrap:9092", cluster.uids()
    by_load = {"thresholdPercent": 20, "minimumDifference": "4Mi"}
    with Workload(cluster) as work:
        _python(work, FILL, bootstrap, str(BYTES))
        assert _spread(work, bootstrap) == {101, 102}
        cluster.change(rebalance={"byLoad": "Preview", **by_load})
        reported = until("the balance is reported", lambda: cluster.status.get("balance"))
        assert any(line.startswith("heavy-") and line.endswith("for bytes") for line in reported), reported
        assert _spread(work, bootstrap) == {101, 102}, "a preview moves nothing"
        cluster.change(rebalance={"byLoad": "Move", **by_load})
        until("bytes have moved", lambda: 103 in _spread(work, bootstrap), every_s=2)
        cluster.settle()
        assert not cluster.status.get("balance")
    assert cluster.uids() == before
    work.assert_nothing_lost()
