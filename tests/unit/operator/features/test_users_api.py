"""KRaftUsers on a real API server: rules of the definition, Secrets, statuses, and the proof of a deletion."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.user import ROTATE
from kraft_operator.apply import users as by_users
from kraft_operator.apply.record import UserRecord
from kraft_operator.apply.user_objects import UserObjects
from kraft_operator.events import Events
from kraft_operator.kube.client import Api
from kraft_operator.observe.source import MetadataSource
from kraft_operator.specs.cluster import NamedCluster
from kraft_protocol.client.aio import Address
from tests.unit.operator.features.control_plane import MISSING, control_plane, program
from tests.unit.operator.passes.test_reconcile_users import Users
from tests.unit.operator.sample import ROOT

XDIST_GROUP = "control-plane"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if MISSING:
        pytest.skip(f"without {', '.join(MISSING)}: see docs/how-to/develop-the-operator.md")
    with control_plane(tmp_path_factory.mktemp("plane")) as made:
        for words in (
            ("apply", "--server-side", "-f", str(ROOT / "deploy/crds")),
            ("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"),
        ):
            assert kubectl(made, *words)[0] == 0
        yield made


def kubectl(config: Path, *words: str, stdin: object = None) -> tuple[int, str]:
    path = program("kubectl")
    assert path is not None
    text = None if stdin is None else json.dumps(stdin)
    command = [path, f"--kubeconfig={config}", "-n", "default", *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def user(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kraftcluster.io/v1alpha1",
        "kind": "KRaftUser",
        "metadata": {"name": name},
        "spec": {"cluster": "c", **spec},
    }


def rule(kind: str, *operations: str, **resource: str) -> dict[str, Any]:
    return {"resource": {"type": kind, **resource}, "operations": list(operations)}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"acls": [rule("Group", "Write", name="g")]}, "Kafka knows for Group only the operations All, Read"),
        ({"acls": [rule("Topic", "Read")]}, "name is required"),
        ({"acls": [rule("Cluster", "Create", name="c")]}, "name is required, but for the type Cluster"),
        ({"acls": [rule("Cluster", "Create", pattern="Prefixed")]}, "leave out pattern"),
        ({"userName": "a,b"}, "userName"),
        (
            {"authentication": {"type": "MutualTls", "passwordFrom": {"secret": "s"}}},
            "a user of MutualTls has a certificate and no password",
        ),
        (
            {"authentication": {"rotateAfterDays": 1, "passwordFrom": {"secret": "s"}}},
            "the operator does not change a given password",
        ),
        ({"quotas": {"producerByteRate": 0}}, "producerByteRate"),
    ],
)
def test_the_api_server_refuses_what_cannot_work(config: Path, spec: dict[str, Any], message: str) -> None:
    code, text = kubectl(config, "apply", "-f", "-", stdin=user("bad", **spec))
    assert code != 0
    assert message in text


@pytest.mark.parametrize("change", [{"cluster": "other"}, {"userName": "other"}])
def test_the_api_server_refuses_to_move_or_rename_a_user(config: Path, change: dict[str, str]) -> None:
    assert kubectl(config, "apply", "-f", "-", stdin=user("fixed"))[0] == 0
    code, text = kubectl(config, "apply", "-f", "-", stdin=user("fixed", **change))
    assert code != 0
    assert "create another KRaftUser" in text


def test_a_user_is_made_rotated_and_deleted(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(config))
    cluster_users = Users(monkeypatch)
    listeners = [{"name": "scram", "port": 9292, "authentication": "ScramSha512"}]
    pool = {"name": "p", "firstNodeId": 1, "replicas": 1, "roles": ["controller", "broker"]}
    pool["storage"] = {"volumes": [{"name": "data", "size": "1Gi"}]}
    spec = {"security": {}, "listeners": listeners, "nodePools": [pool]}
    cluster = NamedCluster("c", "default", "u", KRaftClusterSpec.model_validate(spec))
    resource = {"kind": "KRaftCluster", "metadata": {"name": "c", "namespace": "default", "uid": "u"}}
    trust = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c-trust"}, "data": {"ca.crt": "PEM"}}
    assert kubectl(config, "apply", "-f", "-", stdin=trust)[0] == 0
    made = user("shop", acls=[rule("Topic", "Read", name="t"), rule("Cluster", "Describe")])
    assert kubectl(config, "apply", "-f", "-", stdin=made)[0] == 0

    async def passes(count: int) -> None:
        async with Api() as api:
            for _ in range(count):
                found = await api.list("KRaftUser", "default")
                kept = UserRecord(api, cluster, await api.get("ConfigMap", "default", "c-users"))
                claims = kept.read()
                declared, states = by_users.declared(found, "c", claims.values())
                assert not states
                keeper = UserObjects(api, Events(api, "test"), cluster, found, resource, kept.keep)
                client: Any = None
                await by_users.UserPass(MetadataSource(client, {1: Address("b", 1)}), keeper).run(declared, claims)

    asyncio.run(passes(3))
    _, text = kubectl(config, "get", "kraftuser", "shop", "-o", "json")
    status: Mapping[str, Any] = json.loads(text)["status"]
    assert status["conditions"][0]["reason"] == "InForce", status
    assert (status["acls"], status["secret"]) == (2, "shop")
    _, table = kubectl(config, "get", "ku", "shop")
    assert table.split()[:5] == ["NAME", "CLUSTER", "AUTHENTICATION", "ACLS", "READY"]
    secret = json.loads(kubectl(config, "get", "secret", "shop", "-o", "json")[1])
    assert base64.b64decode(secret["data"]["password"]).decode() == cluster_users.passwords["shop"]
    assert secret["metadata"]["ownerReferences"][0]["kind"] == "KRaftUser"
    before = cluster_users.passwords["shop"]
    assert kubectl(config, "annotate", "kraftuser", "shop", f"{ROTATE}=now")[0] == 0
    asyncio.run(passes(2))
    assert cluster_users.passwords["shop"] != before
    assert kubectl(config, "delete", "kraftuser", "shop", "fixed", "--ignore-not-found")[0] == 0
    asyncio.run(passes(2))
    assert not cluster_users.seen.credentials and not cluster_users.seen.acls
    claims = json.loads(json.loads(kubectl(config, "get", "configmap", "c-users", "-o", "json")[1])["data"]["users"])
    assert claims == []


@pytest.mark.parametrize("sample", ["user.yaml", "application.yaml"])
def test_the_api_server_accepts_the_samples(config: Path, sample: str) -> None:
    words = ("apply", "--dry-run=server", "--validate=strict", "-f", str(ROOT / "deploy/samples" / sample))
    assert kubectl(config, *words)[0] == 0
