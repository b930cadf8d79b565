"""One migration of three real brokers under faults that a seed chooses, in each of its states.

The parties: three brokers of Apache Kafka 3.9.2 that become ours, three controllers of ours, ZooKeeper. A party is
killed (SIGKILL) and started again, or stopped (SIGSTOP) for longer or shorter than its session. Clients write, read,
commit, open transactions, and change delegation tokens all the time. At the end each acknowledged record exists once,
aborted records do not, no acknowledged commit of an offset is lost, each broker knows exactly the acknowledged tokens,
and Kafka's own tools describe the same as before the migration. A run is
finished, or reverted to ZooKeeper: while some of the brokers are ours, or while the controllers read ZooKeeper.
"""

from __future__ import annotations

import random
import re
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

from kraft_node.metadata.kinds.zk_migration import MIGRATION
from kraft_node.metadata.log_batches import decode_batches
from kraft_protocol.records.batch import whole_batches
from kraft_protocol.wire.stored import ZkMigrationStateRecord
from tests.compat.members import wait_for
from tests.compat.targets import Target
from tests.compat.zookeeper_cluster import OldCluster, OldNode, OurController
from tests.faults.migration.reverting import Revert
from tests.faults.migration.tokens import Bearer
from tests.faults.migration.workload import (
    CLIENT,
    PARTITIONS,
    Follower,
    IdempotentWriter,
    TransactionalWriter,
    committed_offsets,
    read_all,
)
from tests.golden.migration.content import OVERRIDES, Admin, fill
from tests.golden.migration.test_whole_migration import described, topics_at

SESSION_MS: Final = 6_000
PAUSE_S: Final = (1.0, 10.0)
STATE_S: Final = 300.0
READS: Final = ("BECOME_CONTROLLER", "ZK_MIGRATION")
"""States of the driver."""
READING_S: Final = 1.5
"""About as long as a controller reads ZooKeeper."""
DUAL: Final = "made-in-both-worlds"
"""A topic that is made while changes go to both worlds."""
ANY: Final = "any"
READING: Final = "reading"
REVERTS: Final = (ANY, READING, "0", "1", "2", "3")
"""When a run is reverted: while the controllers read ZooKeeper, or once that many brokers are ours."""
FAILED_LOAD: Final = b"Uncaught exception in scheduled task 'load-txns"
QUICK: Final = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class Migration:
    """A run. `play` raises AssertionError if something was lost, or does not go on."""

    def __init__(self, folder: Path, seed: int, faults: int, *, reverts: str | None = None) -> None:
        """`reverts`: one of REVERTS, to go back to ZooKeeper before the end. ANY: the seed chooses how many brokers
        are ours then.
        """
        self.rng = random.Random(seed)
        self._seed = seed
        self._faults = faults
        self._reads_before_revert = reverts == READING
        self._replaced_before_revert: int | None = None
        """How many brokers are ours when the migration is reverted; None: it is finished."""
        if reverts == ANY:
            self._replaced_before_revert = random.Random(f"revert {seed}").randrange(4)
        elif reverts not in (None, READING):
            self._replaced_before_revert = int(reverts)
        self.done: Counter[str] = Counter()
        """Fault -> how often."""
        self.cluster = OldCluster(folder, brokers=3, controllers=3, overrides={**OVERRIDES, **QUICK})
        self._failed_loads: Counter[str] = Counter()
        self._clients: list[Any] = []

    def summary(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.done.items()))

    def play(self) -> None:
        cluster = self.cluster
        cluster.start()
        with Admin(cluster.bootstrap) as admin:
            for topic in (IdempotentWriter.topic, TransactionalWriter.topic):
                admin.topic(topic, PARTITIONS, 3)
            quotas = {"producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "request_percentage": 1e6}
            admin.quota({"user": "ANONYMOUS", "client-id": CLIENT}, **quotas)
        fill(cluster)
        writer = IdempotentWriter(cluster.bootstrap)
        mover = TransactionalWriter(cluster.bootstrap)
        follower = Follower(cluster.bootstrap)
        self._bearer = Bearer(cluster.bootstrap, cluster.sasl_ports, self._seed)
        self._clients = [writer, mover, follower, self._bearer]
        for client in self._clients:
            client.start()
        self._clients_go_on()  # so that the internal topics exist
        before = described(cluster)
        self._state("brokers with ZooKeeper", ("broker", "zookeeper"))
        cluster.start_our_controllers()
        if self._reads_before_revert:
            self._revert_from_reading()
        else:
            self._migrate()
        for client in self._clients:
            client.stop()
        self._judge(before, writer, mover, follower)

    def _migrate(self) -> None:
        """To the end, or to the revert."""
        cluster = self.cluster
        self._state("reading", ("controller", "zookeeper"), wait=False)
        wait_for("the migration", self._is_dual, timeout_s=STATE_S)
        with Admin(cluster.bootstrap) as admin:
            admin.topic(DUAL, 1, 3)
        self._state("dual write", ("controller", "broker", "zookeeper"))
        order = [1, 2, 3]
        self.rng.shuffle(order)
        for broker in order[: self._replaced_before_revert]:
            cluster.restart_in_kraft(broker, ours=True)
            wait_for("replicas in sync", self._in_sync, timeout_s=STATE_S)
            self._state(f"broker {broker} is ours", ("controller", "broker", "zookeeper"))
        if self._replaced_before_revert is None:
            wait_for("no broker with ZooKeeper", self._is_ready_to_end, timeout_s=STATE_S)
            cluster.finalise()
            self._state("finished", ("controller", "broker"))
        else:
            self._reverting().play()
            self.done[f"reverted with {self._replaced_before_revert} replaced"] += 1
            self._state("reverted", ("broker", "zookeeper"))

    def _revert_from_reading(self) -> None:
        """Kill the controllers while they read ZooKeeper, and go back."""

        is_late = random.Random(f"reading {self._seed}").random() < 0.5
        """Whether the controllers are killed once records are in the transaction, or at any time while they read."""

        def reader() -> OurController | None:
            nodes = [one for one in self.cluster.nodes.values() if isinstance(one, OurController)]
            return next((one for one in nodes if _migration(one).get("driver") in READS), None)

        node = wait_for("a controller reads ZooKeeper", reader, timeout_s=STATE_S)
        if is_late:
            while _migration(node).get("driver") in READS and not _migration(node).get("readRecords"):
                pass  # all is read within a tenth of a second
        else:
            time.sleep(self.rng.uniform(0, READING_S))
        node.kill()
        revert = self._reverting()
        active_id = next(number for number, one in self.cluster.nodes.items() if one is node)
        log = revert.stop_controllers(killed=True, active_id=active_id)
        data = b"".join(path.read_bytes() for path in sorted(log.glob("*.log")))
        records = [record for batch in decode_batches(whole_batches(data)) for _, record in batch.records]
        marks = [type(one).__name__ for one in records if type(one).__name__.endswith("TransactionRecord")]
        step = "in its transaction" if marks[-1:] == ["BeginTransactionRecord"] else "before its transaction"
        states = {one.zk_migration_state for one in records if isinstance(one, ZkMigrationStateRecord)}
        if MIGRATION in states:
            step = "after its transaction"
        self.done[f"reverted while reading, {step}"] += 1
        revert.play()
        self._state("reverted", ("broker", "zookeeper"))

    def _reverting(self) -> Revert:
        def fault(name: str, parties: tuple[str, ...], *, wait: bool = True) -> None:
            self._state(name, parties, wait=wait, count=1)

        return Revert(self.cluster, self._rest, fault, lambda: self.rng.random() < 0.5)

    def _judge(self, before: Any, writer: IdempotentWriter, mover: TransactionalWriter, follower: Follower) -> None:
        bootstrap = self.cluster.bootstrap
        found = read_all(bootstrap, writer.topic)
        lost = [value for value in writer.acknowledged if not found[value]]
        assert not lost, f"{len(lost)} acknowledged records are lost: {lost[:5]}"
        twice = [value for value, count in found.items() if count > 1]
        assert not twice, f"{len(twice)} records exist twice: {twice[:5]}"
        moved = read_all(bootstrap, mover.topic)
        assert not (mover.committed - moved.keys()), "committed transactions are lost"
        assert not (mover.aborted & moved.keys()), "aborted transactions are visible"
        assert set(moved.values()) <= {1}, "a transaction is visible twice"
        numbers = Counter(value.partition(b"-")[0] for value in moved)
        assert len(set(numbers.values())) == 1, f"half a transaction is visible: {numbers}"
        offsets = committed_offsets(bootstrap)
        assert all(offsets[number] >= offset for number, offset in follower.offsets.items()), (
            offsets,
            follower.offsets,
        )
        self._bearer.judge()
        if not self._reads_before_revert:
            dual = topics_at(self.cluster, 3).get(DUAL)
            assert dual is not None and len(dual.partitions[0].isr_nodes) == 3, f"{DUAL} is lost: {dual}"
        now = _without_elections(described(self.cluster))
        changed = {name: (lines, now[name]) for name, lines in _without_elections(before).items() if lines != now[name]}
        assert not changed, f"Kafka's tools describe other things than before the migration: {changed}"

    # States

    def _is_dual(self) -> bool:
        found = self.cluster.migration()
        return found.get("driver") == "DUAL_WRITE" and not found["waitingBrokers"] and not found["lagRecords"]

    def _is_ready_to_end(self) -> bool:
        return self._is_dual() and self.cluster.migration().get("state") == "MIGRATION_FINISHED"

    def _in_sync(self) -> bool:
        from kraft_node.cli.client import NodeClient
        from kraft_node.cli.common import ToolError
        from kraft_protocol.wire.api import ApiKey
        from kraft_protocol.wire.messages import MetadataRequest

        try:
            with NodeClient("127.0.0.1", self.cluster.nodes[3].port) as client:
                topics = client.request(ApiKey.METADATA, MetadataRequest(topics=None)).topics
        except ToolError:
            return False
        return all(len(one.isr_nodes) == len(one.replica_nodes) for topic in topics for one in topic.partitions)

    def _state(self, name: str, parties: tuple[str, ...], *, wait: bool = True, count: int | None = None) -> None:
        """Faults in this state; then the clients go on."""
        for _ in range(self._faults if count is None else count):
            party, fault = self.rng.choice(parties), self.rng.choice(("killed", "stopped"))
            print(f"  {name}: {party} {fault}", flush=True)
            self._do(party, fault)
            self.done[f"{party} {fault}"] += 1
            if wait:
                self._clients_go_on()
                wait_for("replicas in sync", self._in_sync, timeout_s=STATE_S)

    def _rest(self) -> None:
        self._restart_stuck()
        wait_for("replicas in sync", self._in_sync, timeout_s=STATE_S)

    def _clients_go_on(self) -> None:
        for client in self._clients:
            client.goes_on(self._restart_stuck)

    def _restart_stuck(self) -> None:
        """Restart brokers of Apache Kafka 3.9.2 that failed to load transactions: they do not try again.

        Their load asks ZooKeeper for the number of partitions, and ends with an exception if the session has expired.
        """
        for node in self.cluster.nodes.values():
            failed = node.log.read_bytes().count(FAILED_LOAD) if isinstance(node, OldNode) else 0
            if failed > self._failed_loads[node.name]:
                self._failed_loads[node.name] = failed
                print(f"  {node.name} has failed to load transactions: restarted", flush=True)
                self.done["stuck broker restarted"] += 1
                node.kill()
                time.sleep(SESSION_MS / 1000 + 1)
                node.launch()
                node.wait_ready()

    def _do(self, party: str, fault: str) -> None:
        pause_s = self.rng.uniform(*PAUSE_S)
        if party == "zookeeper":
            server = self.cluster.zookeeper
            assert server.process is not None
            if fault == "stopped":
                _stopped(server.process, pause_s)
                return
            server.stop()
            time.sleep(pause_s)
            server.start()
            return
        ids = (1, 2, 3) if party == "broker" else tuple(self.cluster.controller_ports)
        node = self._chosen(ids)
        assert node.process is not None
        if fault == "stopped":
            _stopped(node.process, pause_s)
            return
        node.kill()
        # A broker that returns within its session ends itself, because its node in ZooKeeper exists still.
        uses_zookeeper = isinstance(node, OldNode)
        time.sleep(SESSION_MS / 1000 + pause_s if uses_zookeeper else pause_s / 3)
        node.launch()
        if party == "broker":
            node.wait_ready()
        else:
            wait_for("the controller answers", partial(_answers, node), timeout_s=STATE_S)

    def _chosen(self, ids: tuple[int, ...]) -> Target:
        """One of these nodes; of the controllers, every second time the active one."""
        nodes = [self.cluster.nodes[number] for number in ids]
        active = [one for one in nodes if isinstance(one, OurController) and _is_active(one)]
        return active[0] if active and self.rng.random() < 0.5 else self.rng.choice(nodes)

    def stop(self) -> None:
        """End all processes."""
        self.cluster.stop()


def _without_elections(described: dict[str, list[str]]) -> dict[str, list[str]]:
    """Without the leaders and the order of the ISRs, which faults change."""

    def ordered(match: re.Match[str]) -> str:
        return f"Isr: {','.join(sorted(match[1].split(',')))}"

    return {
        name: [
            re.sub(r"Isr: ([\d,]+)", ordered, re.sub(r"Leader: \d+ ", "", line)) for line in lines if DUAL not in line
        ]
        for name, lines in described.items()
    }


def _stopped(process: Any, pause_s: float) -> None:
    process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(pause_s)
    finally:
        process.send_signal(signal.SIGCONT)


def _answers(node: Target) -> bool:
    return isinstance(node, OurController) and bool(node.status())


def _is_active(node: OurController) -> bool:
    return "kafka_controller_kafkacontroller_activecontrollercount 1.0" in node.page("metrics")


def _migration(node: OurController) -> dict[str, Any]:
    """What a controller says about the migration; empty if it does not answer."""
    return dict(node.status().get("migration", {}))
