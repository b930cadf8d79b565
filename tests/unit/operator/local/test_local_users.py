"""Credentials of a local cluster's users: what cannot be read is named, and nothing takes its place."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from kraft_local.folder import Folder, Memory
from kraft_local.users import CREDENTIALS, LocalUsers
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.observe.source import MetadataSource
from kraft_operator.plan.model.record import Record, UserClaim
from kraft_operator.plan.users import Credential, DesiredUser, UsersSeen
from kraft_operator.security.certificates import key_of, new_authority
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.remembered import remembered_users
from kraft_protocol.client.aio import Address
from tests.unit.operator.reconciling import new_resource

SCRAM = "SCRAM-SHA-512"


def credential(folder: Folder, **authentication: Any) -> Credential:
    """The credential of the user `shop` of a cluster without TLS."""
    document = new_resource()["spec"]
    document["security"] = {"tls": "Disabled"}
    document["listeners"] = [{"name": "scram", "port": 9292, "type": "Internal", "authentication": "ScramSha512"}]
    spec = {"cluster": "sample", "authentication": {"type": "ScramSha512", **authentication}}
    users = LocalUsers(folder, Memory(users={"shop": {"spec": spec, "annotations": {}}}), print, lambda _: "h:1")
    users._cluster = NamedCluster("sample", "default", "", KRaftClusterSpec.model_validate(document))
    return asyncio.run(users.credentials([DesiredUser("shop", "shop", SCRAM)]))["shop"]


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"{}", b'{"data": {"password": "?"}}'])
def test_damaged_credentials_are_named_and_not_replaced(tmp_path: Path, damaged: bytes) -> None:
    folder = Folder(tmp_path)
    path = folder.user("shop") / CREDENTIALS
    path.parent.mkdir(parents=True)
    path.write_bytes(damaged)
    found = credential(folder)
    assert (found.id, found.reason) == ("", "PasswordNotUsable")
    assert str(path) in found.message
    assert "delete it" in found.message
    assert path.read_bytes() == damaged


def test_an_authority_that_the_record_does_not_know_issues_nothing(tmp_path: Path) -> None:
    folder, now = Folder(tmp_path), datetime.now(UTC)
    trusted, other = new_authority("clients CA", now, 1000), new_authority("clients CA", now, 1000)
    for name, files in (("clients-ca", {"ca.crt": other.certificate, "ca.key": other.key}), ("trust", {"ca.crt": ""})):
        folder.security(name).mkdir(parents=True)
        for file, text in files.items():
            (folder.security(name) / file).write_text(text)
    spec = {"cluster": "sample", "authentication": {"type": "MutualTls"}}
    record = Record(cluster_id="id", authorities=(("clients", key_of(trusted.certificate)),), security="Tls")
    memory = Memory(record=record, users={"svc": {"spec": spec, "annotations": {}}})
    users = LocalUsers(folder, memory, print, lambda _: "h:1")
    document = {**new_resource()["spec"], "security": {}}
    users._cluster = NamedCluster("sample", "default", "", KRaftClusterSpec.model_validate(document))
    found = asyncio.run(users.credentials([DesiredUser("svc", "svc")]))["svc"]
    assert (found.id, found.reason) == ("", "AuthorityNotValid")
    assert str(folder.security("clients-ca")) in found.message
    assert not folder.user("svc").exists()


def test_a_user_of_the_controllers_has_files_for_them(tmp_path: Path) -> None:
    folder, now = Folder(tmp_path), datetime.now(UTC)
    made = {name: new_authority(f"{name} CA", now, 1000) for name in ("clients", "cluster")}
    files = {f"{name}-ca": {"ca.crt": one.certificate, "ca.key": one.key} for name, one in made.items()}
    for name, texts in {**files, "trust": {"ca.crt": made["cluster"].certificate}}.items():
        folder.security(name).mkdir(parents=True)
        for file, text in texts.items():
            (folder.security(name) / file).write_text(text)
    record = Record(
        cluster_id="id",
        authorities=tuple((name, key_of(one.certificate)) for name, one in made.items()),
        security="Tls",
    )
    document = {**new_resource()["spec"], "security": {}}
    names = {"controllers.crt", "controllers.key", "controllers.properties"}
    for controllers in (True, True, False):
        spec = {"cluster": "sample", "authentication": {"type": "MutualTls"}, "controllers": controllers}
        memory = Memory(record=record, users={"svc": {"spec": spec, "annotations": {}}})
        users = LocalUsers(folder, memory, print, lambda _: "h:1")
        users._cluster = NamedCluster("sample", "default", "", KRaftClusterSpec.model_validate(document))
        found = asyncio.run(users.credentials([DesiredUser("svc", "svc", controllers=controllers)]))["svc"]
        assert found.id, found
        there = {path.name for path in folder.user("svc").iterdir()} & names
        assert there == (names if controllers else set())


def test_a_given_password_that_is_not_text_is_named_and_not_shown(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    path = folder.security("given") / "password"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"secret\xff")
    found = credential(folder, passwordFrom={"secret": "given", "key": "password"})
    assert found.reason == "PasswordNotUsable"
    assert found.message == f"the password in {path}: it is not UTF-8"


def test_credentials_of_a_new_user_of_the_same_resource_stay(tmp_path: Path) -> None:
    """A resource that was removed and added again with another user name lost its new password."""
    folder = Folder(tmp_path)
    path = folder.user("shop") / CREDENTIALS
    credential(folder)
    spec = {"cluster": "sample", "userName": "other"}
    users = LocalUsers(folder, Memory(users={"shop": {"spec": spec, "annotations": {}}}), print, lambda _: "h:1")
    assert asyncio.run(users.gone([UserClaim("shop", "shop")])) == {"shop"}
    assert path.exists()
    empty = LocalUsers(folder, Memory(), print, lambda _: "h:1")
    asyncio.run(empty.gone([UserClaim("other", "shop")]))
    assert not path.exists()


def test_a_name_that_no_certificate_can_have_is_named(tmp_path: Path) -> None:
    """The reason was PasswordNotUsable."""
    name, spec = "u" * 65, {"cluster": "sample", "authentication": {"type": "MutualTls"}}
    users = LocalUsers(
        Folder(tmp_path), Memory(users={name: {"spec": spec, "annotations": {}}}), print, lambda _: "h:1"
    )
    document = {**new_resource()["spec"], "security": {}}
    users._cluster = NamedCluster("sample", "default", "", KRaftClusterSpec.model_validate(document))
    found = asyncio.run(users.credentials([DesiredUser(name, name)]))[name]
    assert (found.id, found.reason) == ("", "UserNameTooLong")


def test_the_folder_of_a_user_with_nothing_in_the_cluster_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user with a certificate and without ACLs left its key, and `user add` gave the same certificate again."""

    async def look(*_: Any) -> UsersSeen:
        return UsersSeen()

    monkeypatch.setattr("kraft_operator.apply.users.look", look)
    folder, client = Folder(tmp_path), cast(Any, None)
    for name in ("svc", "other"):
        (folder.user(name)).mkdir(parents=True)
        (folder.user(name) / "user.key").write_text("key")
    claims = remembered_users({"svc": UserClaim("svc", "svc", "svc"), "other": UserClaim("other", "other", "other")})
    spec = {"cluster": "sample", "authentication": {"type": "MutualTls"}}
    memory = Memory(users={"other": {"spec": spec, "annotations": {}}}, user_claims=claims)
    users = LocalUsers(folder, memory, print, lambda _: "h:1")
    cluster = NamedCluster("sample", "default", "", KRaftClusterSpec.model_validate(new_resource()["spec"]))
    asyncio.run(users.run(MetadataSource(client, {1: Address("b", 1)}), cluster))
    assert not folder.user("svc").exists()
    assert list(users.claims) == ["other"]
    assert (folder.user("other") / "user.key").exists()
