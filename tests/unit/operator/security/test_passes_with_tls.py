"""Whole passes over a cluster with TLS: authorities are made once, and unknown is never absent."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft_operator.kube.client import ApiError
from kraft_operator.security.certificates import is_issued_by, key_of, names_in
from kraft_operator.security.nodes import chain_of
from tests.unit.operator.fake_kubernetes import FakeApi, Watching
from tests.unit.operator.reconciling import KEY, SIX, condition, new_api, new_operator, settle

AUTHORITIES = ("sample-cluster-ca", "sample-clients-ca")


def secure_api(**security: Any) -> FakeApi:
    api = new_api()
    api.objects["KRaftCluster", *KEY]["spec"] |= {"security": {"tls": "Enabled", **security}}
    return api


def secret(api: FakeApi, name: str) -> dict[str, str]:
    found = api.objects["Secret", "demo", name]["data"]
    return {key: base64.b64decode(text).decode() for key, text in found.items()}


def settled(then: Callable[[FakeApi, Watching], Awaitable[None]], api: FakeApi | None = None) -> None:
    async def main() -> None:
        there = api or secure_api()
        operator = new_operator(there)
        await settle(there, operator)
        try:
            await then(there, operator)
        finally:
            operator.close()

    asyncio.run(main())


def degraded(api: FakeApi) -> str:
    found = condition(api, "Degraded")
    return found["reason"] if found["status"] == "True" else ""


async def again(api: FakeApi, operator: Watching) -> None:
    operator.touched(KEY)
    await operator.reconcile(KEY)


def test_every_node_gets_a_certificate_before_its_pod() -> None:
    async def then(api: FakeApi, _: Watching) -> None:
        authority = secret(api, "sample-cluster-ca")["ca.crt"]
        for name in SIX:
            files = secret(api, f"{name}-tls")
            chain = chain_of(files["node.pem"])
            assert is_issued_by(chain, authority)
            assert {f"{name}.sample-nodes.demo.svc", f"{name}.sample-nodes"} <= names_in(chain)
            assert files["cluster-ca.pem"] == authority
            assert files["clients-ca.pem"] == secret(api, "sample-clients-ca")["ca.crt"]
        trust = api.objects["ConfigMap", "demo", "sample-trust"]
        assert trust["data"] == {"ca.crt": authority}, "no key in what everybody may read"
        record = json.loads(api.objects["ConfigMap", "demo", "sample-record"]["data"]["record"])
        assert {one["name"]: one["key"] for one in record["authorities"]}["cluster"] == key_of(authority)

    settled(then)


def test_a_settled_cluster_keeps_its_certificates() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        for _ in range(3):
            await again(api, operator)
        api.writes.clear()
        await again(api, operator)
        assert [one for one in api.writes if one[1] == "Secret"] == []

    settled(then)


@pytest.mark.parametrize("name", AUTHORITIES)
def test_a_deleted_authority_is_reported_and_not_made_again(name: str) -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        del api.objects["Secret", "demo", name]
        api.writes.clear()
        await again(api, operator)
        assert degraded(api) == "AuthorityMissing"
        assert name.removeprefix("sample-").removesuffix("-ca") in condition(api, "Degraded")["message"]
        assert ("Secret", "demo", name) not in api.objects
        assert [one for one in api.writes if one[1] == "Secret"] == []

    settled(then)


@pytest.mark.parametrize("name", AUTHORITIES)
def test_an_exchanged_authority_is_reported_and_issues_nothing(name: str) -> None:
    other = secure_api()
    settled(lambda *_: asyncio.sleep(0), other)

    async def then(api: FakeApi, operator: Watching) -> None:
        before = secret(api, "sample-101-tls")
        api.objects["Secret", "demo", name]["data"] = other.objects["Secret", "demo", name]["data"]
        await again(api, operator)
        assert degraded(api) == "AuthorityChanged"
        assert secret(api, "sample-101-tls") == before

    settled(then)


def test_a_damaged_authority_is_not_replaced() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        api.objects["Secret", "demo", "sample-cluster-ca"]["data"].pop("ca.key")
        await again(api, operator)
        assert degraded(api) == "AuthorityNotValid"
        assert "ca.key" not in api.objects["Secret", "demo", "sample-cluster-ca"]["data"]

    settled(then)


@pytest.mark.parametrize("verb", ["list", "get"])
def test_secrets_that_cannot_be_read_end_the_pass_and_change_nothing(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        read = getattr(api, verb)

        async def refused(kind: str, *rest: Any, **more: Any) -> Any:
            if kind == "Secret":
                raise ApiError(403, "Forbidden", "secrets is forbidden")
            return await read(kind, *rest, **more)

        if verb == "get":  # the labels are gone, so it is looked up by its name
            api.objects["Secret", "demo", "sample-cluster-ca"]["metadata"]["labels"].clear()
        monkeypatch.setattr(api, verb, refused)
        api.writes.clear()
        with pytest.raises(ApiError, match="forbidden"):
            await again(api, operator)
        assert [one for one in api.writes if one[1] == "Secret"] == []

    settled(then)


def test_an_authority_of_somebody_else_is_left_alone() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        labels = api.objects["Secret", "demo", "sample-cluster-ca"]["metadata"]["labels"]
        labels["app.kubernetes.io/managed-by"] = "cert-manager"
        await again(api, operator)
        assert degraded(api) == "InTheWay"

    settled(then)


def test_keys_are_nowhere_but_in_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def then(api: FakeApi, operator: Watching) -> None:
        await again(api, operator)
        keys = [secret(api, name)["ca.key"] for name in AUTHORITIES]
        keys += [secret(api, f"{name}-tls")["node.pem"] for name in SIX]
        words = [key.splitlines()[1][:40] for key in keys] + ["PRIVATE KEY"]
        public = json.dumps([one for (kind, *_), one in sorted(api.objects.items()) if kind != "Secret"]) + caplog.text
        assert [word for word in words if word in public] == []

    settled(then)


def test_a_user_secret_needs_the_grant_of_an_administrator() -> None:
    other = secure_api()
    settled(lambda *_: asyncio.sleep(0), other)
    given = other.objects["Secret", "demo", "sample-cluster-ca"]

    async def main() -> None:
        api = secure_api(clusterAuthority={"secretName": "corporate"})
        api.objects["Secret", "demo", "corporate"] = {
            **given,
            "metadata": {"name": "corporate", "resourceVersion": "1"},
        }
        operator = new_operator(api)
        await operator.reconcile(KEY)
        assert degraded(api) == "AuthorityNotValid"
        assert "kraftcluster.io/authority=allowed" in condition(api, "Degraded")["message"]
        api.objects["Secret", "demo", "corporate"]["metadata"]["labels"] = {"kraftcluster.io/authority": "allowed"}
        await settle(api, operator)
        assert secret(api, "sample-cluster-ca")["ca.crt"] == secret(api, "corporate")["ca.crt"]
        operator.close()

    asyncio.run(main())


def test_a_request_to_replace_a_given_authority_is_refused_once() -> None:
    """It was ignored silently, and began a replacement once secretName was removed."""
    other = secure_api()
    settled(lambda *_: asyncio.sleep(0), other)
    given = other.objects["Secret", "demo", "sample-cluster-ca"]
    api = secure_api(clusterAuthority={"secretName": "corporate"})
    granted = {"name": "corporate", "resourceVersion": "1", "labels": {"kraftcluster.io/authority": "allowed"}}
    api.objects["Secret", "demo", "corporate"] = {**given, "metadata": granted}

    def refusals() -> list[str]:
        events = [one for (kind, *_), one in api.objects.items() if kind == "Event"]
        return [one["message"] for one in events if one["reason"] == "RequestRefused" and one.get("count", 1) == 1]

    async def then(api: FakeApi, operator: Watching) -> None:
        resource = api.objects["KRaftCluster", *KEY]
        resource["metadata"].setdefault("annotations", {})["kraftcluster.io/replace-authority"] = "cluster=one"
        for _ in range(3):
            await again(api, operator)
        (text,) = refusals()
        assert "replace-authority cluster=one has no effect" in text
        assert "next.crt" not in secret(api, "sample-cluster-ca")
        api.objects["KRaftCluster", *KEY]["spec"]["security"]["clusterAuthority"] = {}
        for _ in range(3):
            await again(api, operator)
        assert "next.crt" not in secret(api, "sample-cluster-ca"), "a refused request never takes effect"
        api.objects["KRaftCluster", *KEY]["metadata"]["annotations"]["kraftcluster.io/replace-authority"] = (
            "cluster=two"
        )
        await again(api, operator)
        assert "next.crt" in secret(api, "sample-cluster-ca")

    settled(then, api)


def test_a_paused_cluster_warns_before_its_certificates_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_operator.security.nodes.LEAF_DAYS", 30)

    async def then(api: FakeApi, operator: Watching) -> None:
        await again(api, operator)
        assert degraded(api) == ""
        api.objects["KRaftCluster", *KEY]["spec"]["paused"] = True
        before = secret(api, "sample-101-tls")
        await again(api, operator)
        assert degraded(api) == "CertificatesEnd"
        assert "6 certificate(s)" in condition(api, "Degraded")["message"]
        assert condition(api, "Paused")["status"] == "True"
        assert secret(api, "sample-101-tls") == before, "paused: the operator changes nothing"

    settled(then)


def test_the_certificate_of_a_removed_node_is_deleted() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        from kraft_operator.security.cluster_security import SecretStore
        from tests.unit.operator.sample import sample

        cluster = sample(security={})
        store = SecretStore(api, type(cluster)("sample", "demo", "u", cluster.spec))  # type: ignore[arg-type]
        await store.load()
        await store.drop({"101-tls", "102-tls"})
        left = [name for kind, _, name in sorted(api.objects) if kind == "Secret"]
        assert left == ["sample-101-tls", "sample-102-tls", "sample-clients-ca", "sample-cluster-ca"]

    settled(then)


def test_an_annotation_begins_the_replacement_of_an_authority() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        resource = api.objects["KRaftCluster", *KEY]
        resource["metadata"].setdefault("annotations", {})["kraftcluster.io/replace-authority"] = "cluster=one"
        await again(api, operator)
        stored = secret(api, "sample-cluster-ca")
        assert {"next.crt", "next.key"} <= stored.keys()
        assert secret(api, "sample-101-tls")["cluster-ca.pem"].count("BEGIN") == 2

    settled(then)
