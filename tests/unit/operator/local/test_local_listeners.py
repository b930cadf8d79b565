"""Certificates of listeners on one machine: folders in the place of Secrets, and no cert-manager."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from kraft_local.folder import Folder, Memory
from kraft_local.mode import without_issuers
from kraft_local.security import LocalSecurity
from kraft_local.users import LocalUsers
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.plan.model.record import Node, Record
from kraft_operator.plan.users import DesiredUser
from kraft_operator.security.names import listener_file
from kraft_operator.specs.cluster import NamedCluster
from tests.unit.operator.reconciling import new_resource
from tests.unit.operator.security.listener_files import certificate, public_authority

FILE = listener_file("tls")
AUTHORITY = public_authority()
NODES = (Node(1, "controllers", True, False), Node(101, "brokers", False, True))


def cluster(**own: Any) -> NamedCluster:
    listener = {"name": "tls", "port": 9093, "authentication": "ScramSha512", **({"certificate": own} if own else {})}
    spec = KRaftClusterSpec.model_validate({**new_resource()["spec"], "security": {}, "listeners": [listener]})
    return NamedCluster("sample", "default", "u", without_issuers(spec))


def kept(folder: Folder, memory: Memory, one: NamedCluster, running: tuple[int, ...] = ()) -> list[str]:
    """Run the keeper. Returns the reasons of problems."""
    secure = LocalSecurity(folder, memory, lambda _: None)
    asyncio.run(secure.keep(one, {}, running))
    return [reason for reason, _ in secure.kept.problems]


def put(folder: Folder, data: dict[str, str]) -> None:
    folder.security("company").mkdir(parents=True, exist_ok=True)
    for name, text in data.items():
        (folder.security("company") / name).write_text(text)


def test_a_folder_gives_a_listener_its_certificate_and_clients_follow(tmp_path: Path) -> None:
    folder, memory = Folder(tmp_path), Memory(record=Record(cluster_id="id", nodes=NODES, security="Tls"))
    own = cluster(secretName="company")
    assert kept(folder, memory, own) == ["ListenerCertificateMissing"]
    node = folder.tls(101)
    assert (node / FILE).read_text() == (node / "node.pem").read_text()
    for trusted in (AUTHORITY.certificate, ""):
        put(folder, {"ca.crt": "", **(data := certificate(AUTHORITY, ["localhost"], trusted=trusted))})
        assert kept(folder, memory, own) == []
        assert data["tls.crt"] in (node / FILE).read_text()
        assert not (folder.tls(1) / FILE).exists(), "a controller has no use for the key"
        spec = {"cluster": "sample", "authentication": {"type": "ScramSha512"}}
        users = LocalUsers(
            folder, replace(memory, users={"ann": {"spec": spec, "annotations": {}}}), print, lambda _: "h:1"
        )
        users._cluster = own
        asyncio.run(users.credentials([DesiredUser("ann", "ann", "SCRAM-SHA-512")]))
        assert (folder.user("ann") / "ca.crt").exists() == bool(trusted)
        assert "security.protocol=SASL_SSL" in (folder.user("ann") / "client.properties").read_text()
    put(folder, {"tls.key": "damaged"})
    assert kept(folder, memory, own) == ["ListenerCertificateNotValid"]
    assert data["tls.crt"] in (node / FILE).read_text()


def test_the_file_stays_while_its_node_runs(tmp_path: Path) -> None:
    folder, memory = Folder(tmp_path), Memory(record=Record(cluster_id="id", nodes=NODES, security="Tls"))
    put(folder, certificate(AUTHORITY, ["localhost"]))
    kept(folder, memory, cluster(secretName="company"))
    kept(folder, memory, cluster(), running=(101,))
    assert (folder.tls(101) / FILE).exists()
    kept(folder, memory, cluster())
    assert not (folder.tls(101) / FILE).exists()


def test_a_listener_with_an_issuer_has_the_certificates_of_the_nodes(tmp_path: Path) -> None:
    folder, memory = Folder(tmp_path), Memory(record=Record(cluster_id="id", nodes=NODES, security="Tls"))
    assert kept(folder, memory, cluster(issuerRef={"name": "company"})) == []
    assert not (folder.tls(101) / FILE).exists()
