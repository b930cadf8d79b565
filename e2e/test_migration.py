"""`spec.migration`: a cluster of Apache Kafka 3.9.2 with ZooKeeper becomes a KRaftCluster by the commands of the guide.

`docs/how-to/migrate-from-zookeeper-on-kubernetes.md` is followed as it stands there, under a producer with acks=all.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kube import (
    NODE_IMAGE,
    OPERATOR_IMAGE,
    ROOT,
    Cluster,
    Workload,
    get,
    kubectl,
    needs_kubernetes,
    operator_log,
    timed,
    until,
)
from e2e.migration import released
from e2e.migration.guide import Guide
from e2e.migration.released import BOOTSTRAP, BROKERS, IMAGE, RECORDS, TOPIC, ReleasedKafka

pytestmark = [
    needs_kubernetes,
    pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm"),
    pytest.mark.skipif(not IMAGE, reason="needs an image of Apache Kafka 3.9.2: E2E_RELEASED_KAFKA_IMAGE"),
    pytest.mark.timeout(1800),
]

NAMESPACE = "kraft"
NEW_BOOTSTRAP = f"events-bootstrap.{NAMESPACE}.svc:9092"
CONTROLLERS = {3001, 3002, 3003}
NEW_BROKERS = {101, 102, 103}
CREATE, PREPARE, MOVE = "1 Create the cluster", "2 Prepare the brokers", "3 Move the replicas"
STOP, FINISH, AFTERWARDS, GO_BACK = "5 Stop the old brokers", "6 Finish", "7 Afterwards", "Go back"
CHECK, FILE, APPLY = range(3)
KINDS = {
    CREATE: ["", "yaml", "", "yaml"],
    PREPARE: ["properties", ""],
    MOVE: [""],
    STOP: [""],
    FINISH: [""],
    AFTERWARDS: [""],
    GO_BACK: ["", ""],
}
"""The blocks of the guide. All but the one about TLS to ZooKeeper are followed."""
CONNECT = "      connect: zookeeper.kafka.svc:2181\n"
RATE = 50


def _forget() -> None:
    if get("namespace", NAMESPACE, namespace="") is not None:
        kubectl("delete", "namespace", NAMESPACE, "--timeout=150s", check=True)


@pytest.fixture
def old() -> Iterator[ReleasedKafka]:
    """Apache Kafka with ZooKeeper, and its content."""
    cluster = ReleasedKafka()
    with _explained():
        cluster.start()
        cluster.fill()
    yield cluster
    cluster.delete()


@pytest.fixture
def events(operator: None) -> Iterator[Cluster]:
    """The cluster of the guide; an operator waits for it."""
    _forget()
    chart = str(ROOT / "charts/kraftcluster-operator")
    images = [f"--set=image={OPERATOR_IMAGE}", f"--set=nodeImage={NODE_IMAGE}"]
    words = [
        "helm",
        "install",
        "kraft",
        chart,
        "-n",
        NAMESPACE,
        "--create-namespace",
        *images,
        "--wait",
        "--timeout=4m",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    yield Cluster("events", NAMESPACE)
    _forget()


@pytest.fixture
def guide(tmp_path: Path) -> Guide:
    found = Guide(tmp_path)
    assert found.kinds() == KINDS
    return found


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Print what is known of both clusters if the block fails."""
    try:
        yield
    except BaseException:
        found = get("kc", "events", namespace=NAMESPACE) or {}
        print(json.dumps(found.get("status"), indent=1), operator_log(NAMESPACE), sep="\n")
        print(kubectl("get", "pods", "-A", "-o", "wide").stdout)
        for namespace in (released.NAMESPACE, NAMESPACE):
            for pod in kubectl("get", "pods", "-n", namespace, "-o", "name").stdout.split():
                log = kubectl("logs", pod, "-n", namespace, "--all-containers", "--tail=25").stdout
                print(f"--- {pod}\n{log}")
        raise


def _printed(output: str) -> Any:
    """The JSON object in the output of `kubectl run`."""
    (line,) = re.findall(r"^\{.*\}", output, re.MULTILINE)
    return json.loads(line)


def _begin(guide: Guide, events: Cluster, more: str = "") -> None:
    """Step 1: the check, and the cluster, which waits for the brokers. `more`: lines of `migration.zookeeper`."""
    survey = _printed(guide.run(CREATE, CHECK))
    assert [one for one in survey["findings"] if one["kind"] == "blocker"] == []
    document = guide.text(CREATE, FILE).replace("CLUSTER_ID", survey["clusterId"])
    (guide.folder / "events.yaml").write_text(document.replace(CONNECT, CONNECT + more))
    guide.run(CREATE, APPLY)

    def blocked() -> bool:
        found = events.condition("Degraded")
        return found.get("reason") == "MigrationBlocked" and "broker 3 has not registered" in found["message"]

    until("each broker is named", blocked)
    assert events.pods().keys() == CONTROLLERS


def _migrate(guide: Guide, events: Cluster, old: ReleasedKafka) -> None:
    """Step 2: brokers with the keys of the migration, and the metadata in both worlds."""
    old.configure(guide.text(PREPARE, 0))
    said = guide.run(PREPARE, 1)
    assert '"phase":"Migrated"' in said
    assert events.pods().keys() == CONTROLLERS | NEW_BROKERS
    until("all old brokers are named", lambda: events.status["migration"]["brokersOnZookeeper"] == [*BROKERS])
    until("the next step is named", lambda: events.condition("Migrated")["reason"] == "BrokersOnZooKeeper")


def _once(count: int) -> Counter[int]:
    """Each number below `count`, once."""
    return Counter(range(count))


def test_a_cluster_with_zookeeper_becomes_a_kraftcluster(events: Cluster, old: ReleasedKafka, guide: Guide) -> None:
    before = old.described(BOOTSTRAP)
    client = Workload(events, rate=RATE, bootstrap=BOOTSTRAP)
    later = Workload(events, rate=RATE, name="later", bootstrap=NEW_BOOTSTRAP)
    with _explained(), timed("a migration from ZooKeeper", NAMESPACE) as phases:
        with client:
            _begin(guide, events)
            phases.passed("controllers wait for the brokers")
            _migrate(guide, events, old)
            phases.passed("the metadata is migrated")
            guide.run(MOVE)
            assert "has no replicas: stop it" in events.condition("Migrated")["message"]
            phases.passed("all replicas are moved")
            with later:
                for broker in reversed(BROKERS):
                    values = {"kafka-3": f"kafka-{broker}", "--id 3": f"--id {broker}"}
                    guide.run(STOP, values={**values, "--replicas=2": f"--replicas={broker - 1}"})
                until("all is ready for the end", lambda: events.condition("Migrated")["reason"] == "ReadyToFinalize")
                phases.passed("the old brokers are stopped")
                guide.run(FINISH)
                assert events.status["migration"]["phase"] == "Finalized"
                phases.passed("the migration is finalized")
                guide.run(AFTERWARDS)
                kubectl("delete", "pod", "zookeeper", "-n", released.NAMESPACE, check=True)
                until("the version is raised", lambda: events.status["version"].startswith("4.3"))
                events.settle()
                phases.passed("the version is raised")
        for work in (client, later):
            work.assert_nothing_lost()
        assert old.read(NEW_BOOTSTRAP, TOPIC) == _once(RECORDS)
        assert old.described(NEW_BOOTSTRAP) == before


def _grant_encoder() -> None:
    """Make the Secret with the brokers' key of encrypted passwords, and allow it to pods of nodes."""
    key = f"--from-literal=password.encoder.secret={released.ENCODER}"
    kubectl("create", "secret", "generic", "events-encoder", "-n", NAMESPACE, key, check=True)
    kubectl("create", "serviceaccount", "kraft-node", "-n", NAMESPACE, check=True)
    secrets = json.dumps({"secrets": [{"name": "events-encoder"}]})
    kubectl("patch", "serviceaccount", "kraft-node", "-n", NAMESPACE, "-p", secrets, check=True)


def test_a_migration_goes_back_before_its_end(events: Cluster, old: ReleasedKafka, guide: Guide) -> None:
    old.encrypt()
    _grant_encoder()
    before = old.described(BOOTSTRAP)
    client = Workload(events, rate=RATE, bootstrap=BOOTSTRAP)
    with _explained(), timed("a migration that goes back", NAMESPACE) as phases:
        with client:
            _begin(guide, events, "      passwordEncoderSecret: events-encoder\n")
            _migrate(guide, events, old)
            phases.passed("the metadata is migrated")
            old.topic("during", "--replica-assignment", "101:102:103,102:103:101")
            old.write("during", 100)
            old.move_back()
            phases.passed("all replicas are back")
            done = _printed(guide.run(GO_BACK, 0))
            assert done["released"] and done["controller"] in BROKERS
            phases.passed("ZooKeeper is given back")
            old.configure("")
            phases.passed("the brokers have their former properties")
            guide.run(GO_BACK, 1)
            until("no pod is left", lambda: not events.pods())
            old.topic("after", "--partitions", "1", "--replication-factor", "3")
            until("its replicas are in sync", old.in_sync)
        client.assert_nothing_lost()
        assert old.read(BOOTSTRAP, TOPIC) == _once(RECORDS)
        assert old.read(BOOTSTRAP, "during") == _once(100)
        assert old.described(BOOTSTRAP) == before
