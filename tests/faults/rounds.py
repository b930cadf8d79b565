"""One round: a cluster under load, consecutive faults, healing, and the judgement."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kraft_node.cli.client import NodeClient
from kraft_node.cli.common import ToolError
from kraft_node.testing.histories.linearizability import topic_model, violations
from kraft_node.testing.histories.logs import Verdict, judge
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import DescribeQuorumRequest
from tests.faults import nemesis
from tests.faults.copying import Copying, copies_wrong
from tests.faults.epochs import Forgiveness, batches_of
from tests.faults.members import Cluster, wait_until
from tests.faults.workload import QUIET, Administering, Clients, Consuming, Producing, read_all

TOPIC = "histories"
COPIES = "copies"
PARTITIONS = 6
START_S = 60.0
HEAL_S = 60.0
FAULT_S = (2.0, 14.0)
"""Some shorter than a lease (broker.session.timeout.ms, 9 s), some longer."""
NOTICE_S = 2.0
"""Metadata is out of date for a moment: a returning member leaves the in-sync replicas before it joins them again."""
NEARLY = 20
"""Records that a voter may lack and be called caught up: some are always on their way."""
CALM_S = (0.5, 2.0)
ALONE = {"disk wiped"}
"""Faults that are not paired: two at once may lose what is on two of three disks, which is more than is promised."""


@dataclass
class Round:
    """The events and the findings of a round."""

    seed: int
    faults: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    violations: list[str] = field(default_factory=list)
    operations: int = 0
    transactions: int = 0
    """Committed transactions of the applications that copy the topic."""
    unexpected: Counter[str] = field(default_factory=Counter)
    """Answers to administrators that leave the outcome open."""
    refusals: list[str] = field(default_factory=list)
    """Batches that were refused as out of order behind a stored batch: the first place to look, if records repeat."""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.verdict.good and not self.violations

    def text(self) -> str:
        """A report for people: figures, then findings."""
        v = self.verdict
        lines = [
            f"seed {self.seed}: {len(self.faults)} faults in {self.seconds:.0f} s; {v.acknowledged} acknowledged, "
            f"{v.unknown} unknown, {v.read} read; lost {v.count('lost')}, phantom {v.count('phantom')}, duplicates "
            f"{v.count('duplicate')}, repeated by their client {v.repeated_by_client}; "
            f"{self.transactions} transactions; {self.operations} metadata operations, open: {dict(self.unexpected)}"
        ]
        lines += [f"  {finding}" for finding in v.findings[:50]]
        return "\n".join([*lines, *self.violations, *self.refusals])


def play(
    folder: Path,
    seed: int,
    seconds: float,
    names: list[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
    apache: Sequence[str] = (),
) -> Round:
    """Run one round with about `seconds` of faults. Raises AssertionError if the cluster does not start or heal.

    `apache` names the members that are Apache Kafka. The seed decides which faults hit which members; it does not
    decide what runs at that moment.
    """
    rng = random.Random(seed)
    faults = nemesis.available() if names is None else {name: nemesis.FAULTS[name] for name in names}
    result = Round(seed)
    begun = time.monotonic()
    cluster = Cluster(folder, apache=apache)
    try:
        cluster.start()
        admin = AdminClient({**QUIET, "bootstrap.servers": cluster.bootstrap})
        for topic in (TOPIC, COPIES):
            wait_until("a topic with three replicas", partial(_create, admin, topic), START_S)
        clients = Clients()
        producers = [Producing(clients, f"p{n}", cluster.bootstrap, TOPIC, PARTITIONS, rate=75) for n in range(2)]
        consumers = [Consuming(clients, f"g{n}", cluster.bootstrap, TOPIC, PARTITIONS) for n in range(2)]
        protocol = rng.choice(("classic", "consumer"))
        copiers = [Copying(clients, f"t{n}", cluster.bootstrap, TOPIC, COPIES, protocol) for n in range(2)]
        ports = [m.known_port for m in cluster.controllers]
        admins = [Administering(clients, f"a{n}", ports, ["x", "y", "z"], 0.2) for n in range(3)]
        wait_until("first acknowledged record", lambda: producers[0].acknowledged > 0, START_S)
        wait_until("all voters remember", lambda: _all_remember(cluster), START_S)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            _strike(cluster, rng, faults, result, say)
            time.sleep(NOTICE_S)
            took = NOTICE_S + wait_until("all replicas in sync again", lambda: _healed(cluster, admin), HEAL_S)
            say(f"healed after {took:.1f} s")
            time.sleep(rng.uniform(*CALM_S))
        clients.stop(90)
        log = read_all(cluster.bootstrap, TOPIC, PARTITIONS, 60)
        logs = {name: each for p in producers for name, each in p.logs.items()}
        result.refusals = [text for each in logs.values() for text in each.unfounded]
        result.verdict = judge(
            [record for p in producers for record in p.sent],
            [read for c in consumers for read in c.reads],
            log,
            Forgiveness(logs, batches_of(cluster.brokers[0].data, TOPIC, PARTITIONS)),
        )
        result.transactions = sum(copier.transactions for copier in copiers)
        history = [operation for a in admins for operation in a.history]
        result.operations = len(history)
        result.unexpected = sum((a.unexpected for a in admins), Counter())
        result.violations = violations(history, topic_model) + copies_wrong(cluster.bootstrap, COPIES, log)
        _write(folder, result)
    finally:
        cluster.close()
    result.seconds = time.monotonic() - begun
    return result


def _strike(
    cluster: Cluster, rng: random.Random, faults: dict[str, nemesis.Fault], result: Round, say: Callable[[str], None]
) -> None:
    """Apply one fault, or two on different members."""
    names = [rng.choice(list(faults))]
    if names[0] not in ALONE and rng.random() < 0.4:
        names.append(rng.choice([name for name in faults if name not in ALONE]))
    members = rng.sample(list(cluster.members.values()), len(names))
    text = " and ".join(f"{member.name} {name}" for name, member in zip(names, members, strict=True))
    result.faults.append(text)
    say(text)
    with contextlib.ExitStack() as stack:
        for name, member in zip(names, members, strict=True):
            stack.enter_context(faults[name](cluster, member, rng))
        time.sleep(rng.uniform(*FAULT_S))


def _create(admin: AdminClient, topic: str) -> bool:
    future = admin.create_topics([NewTopic(topic, PARTITIONS, 3)], request_timeout=5)[topic]
    try:
        future.result(10)
    except KafkaException as e:
        return bool(e.args[0].name() == "TOPIC_ALREADY_EXISTS")
    return True


def _healed(cluster: Cluster, admin: AdminClient) -> bool:
    cluster.check_running()
    try:
        topics = admin.list_topics(timeout=5).topics
    except KafkaException:
        return False
    partitions = [p for name in (TOPIC, COPIES) if name in topics for p in topics[name].partitions.values()]
    if not _quorum_is_whole(cluster):
        return False
    return len(partitions) == 2 * PARTITIONS and all(p.leader >= 0 and len(p.isrs) == 3 for p in partitions)


def _all_remember(cluster: Cluster) -> bool:
    """Whether each voter of the new quorum knows that it has not voted before; until then no voter may be lost."""
    return all((m.data / "__cluster_metadata-0" / "quorum-state").exists() for m in cluster.controllers)


def _quorum_is_whole(cluster: Cluster) -> bool:
    """Whether the active controller counts every voter as (nearly) caught up.

    Until then a voter with a replaced disk does not help the quorum, and a fault on another voter would stop it.
    """
    asked = DescribeQuorumRequest.TopicData("__cluster_metadata", [DescribeQuorumRequest.PartitionData(0)])
    for member in cluster.controllers:
        try:
            with NodeClient("127.0.0.1", member.port, 5) as client:
                answer = client.request(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest([asked]))
        except ToolError:
            return False
        if answer.error_code == 0 and answer.topics and answer.topics[0].partitions[0].error_code == 0:
            partition = answer.topics[0].partitions[0]
            behind = partition.high_watermark - NEARLY
            return all(voter.log_end_offset >= behind for voter in partition.current_voters)
    return False


def _write(folder: Path, result: Round) -> None:
    (folder / "round.json").write_text(
        json.dumps({"seed": result.seed, "faults": result.faults, "findings": list(map(str, result.verdict.findings))})
    )
