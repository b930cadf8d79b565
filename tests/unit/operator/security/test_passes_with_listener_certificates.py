"""Whole passes over clusters whose listeners have certificates of their own, from Secrets and from cert-manager."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kraft_operator.kube.client import ApiError
from kraft_operator.security.certificates import Authority
from kraft_operator.security.names import listener_file
from kraft_operator.specs.client_config import trust_at
from tests.unit.operator.fake_kubernetes import FakeApi, Watching
from tests.unit.operator.reconciling import KEY, SIX, condition
from tests.unit.operator.security.listener_files import NOW, certificate, public_authority
from tests.unit.operator.security.listener_files import secret as new_secret
from tests.unit.operator.security.test_passes_with_tls import again, degraded, secret, secure_api, settled

AUTHORITY = public_authority()
BROKERS = [name for name in SIX if name.startswith("sample-10")]
NAMES = ["*.kafka.example.com", "kafka.example.com"]
OUTSIDE = {
    "name": "outside",
    "port": 9094,
    "type": "Ingress",
    "hostTemplate": "broker-{node.id}.kafka.example.com",
    "bootstrap": {"host": "kafka.example.com"},
}
FILE = listener_file("outside")
CERTIFICATE = "sample-outside-listener-tls"


def new_api(**certificate_: Any) -> FakeApi:
    api = secure_api()
    api.objects["KRaftCluster", *KEY]["spec"]["listeners"].append({**OUTSIDE, "certificate": certificate_})
    return api


def given(data: dict[str, str] | None = None, **more: Any) -> FakeApi:
    api = new_api(secretName="corporate")
    if data is not None:
        put(api, data, **more)
    return api


def put(api: FakeApi, data: dict[str, str], name: str = "corporate", **more: Any) -> None:
    api.objects["Secret", "demo", name] = new_secret(name, data, **more)


def presented(api: FakeApi) -> set[str]:
    """The certificates that brokers have for the listener."""
    found = {secret(api, f"{name}-tls")[FILE] for name in BROKERS}
    return {text[text.index("-----BEGIN CERTIFICATE") :] for text in found}


def trust(api: FakeApi) -> dict[str, str]:
    found: dict[str, str] = api.objects["ConfigMap", "demo", "sample-trust"]["data"]
    return found


def pods(api: FakeApi) -> dict[str, str]:
    return {name: one["metadata"]["uid"] for (kind, _, name), one in sorted(api.objects.items()) if kind == "Pod"}


def test_brokers_get_the_certificate_of_a_listener_and_controllers_do_not() -> None:
    data = certificate(AUTHORITY, NAMES)

    async def then(api: FakeApi, operator: Watching) -> None:
        assert presented(api) == {data["tls.crt"]}
        for name in SIX:
            text = secret(api, f"{name}-tls")
            assert (FILE in text) == (name in BROKERS), "a controller has no use for the key"
            config = next(v for (k, _, n), v in api.objects.items() if k == "ConfigMap" and n.startswith(f"{name}-"))
            line = "listener.name.outside.ssl.keystore.location=/etc/kraft-tls/listener-outside.pem"
            assert (line in config["data"]["server.properties"]) == (name in BROKERS)
        assert trust(api)["outside.ca.crt"] == AUTHORITY.certificate
        assert degraded(api) == ""
        assert "PRIVATE" not in str(trust(api))

    settled(then, given(data))


def test_a_renewed_certificate_reaches_brokers_without_a_restart() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        before, renewed = pods(api), certificate(AUTHORITY, NAMES)
        put(api, renewed)
        for _ in range(3):
            await again(api, operator)
            api.work()
        assert presented(api) == {renewed["tls.crt"]}
        assert pods(api) == before
        api.objects["KRaftCluster", *KEY]["spec"]["listeners"][-1]["certificate"] = {"secretName": "other"}
        put(api, other := certificate(AUTHORITY, NAMES), "other")
        for _ in range(3):
            await again(api, operator)
            api.work()
        assert presented(api) == {other["tls.crt"]}
        assert pods(api) == before, "another Secret restarts no node"

    settled(then, given(certificate(AUTHORITY, NAMES)))


def test_a_secret_that_cannot_be_used_is_reported_and_the_cluster_begins_nevertheless() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        async def reason() -> str:
            await again(api, operator)
            return degraded(api)

        own = {secret(api, f"{name}-tls")["node.pem"] for name in BROKERS}
        assert {secret(api, f"{name}-tls")[FILE] for name in BROKERS} == own, (
            "listeners serve by the nodes' certificates"
        )
        assert "outside.ca.crt" not in trust(api)
        assert await reason() == "ListenerCertificateMissing"
        assert "Secret corporate" in condition(api, "Degraded")["message"]
        put(api, certificate(AUTHORITY, NAMES), allowed=False)
        assert await reason() == "ListenerCertificateNotAllowed"
        assert "kraftcluster.io/certificate=allowed" in condition(api, "Degraded")["message"]
        put(api, {**certificate(AUTHORITY, NAMES), "tls.key": "damaged"})
        assert await reason() == "ListenerCertificateNotValid"
        put(api, certificate(AUTHORITY, NAMES, begins=NOW - timedelta(days=30), days=2))
        assert await reason() == "ListenerCertificateExpired"
        put(api, poor := certificate(AUTHORITY, ["kafka.example.com"], trusted=""))
        assert await reason() == "ListenerCertificateNames"
        assert "broker-101.kafka.example.com" in condition(api, "Degraded")["message"]
        assert presented(api) == {poor["tls.crt"]}
        assert trust(api)["outside.ca.crt"] == "", "clients trust what their system trusts"
        put(api, good := certificate(AUTHORITY, NAMES))
        assert await reason() == ""
        assert presented(api) == {good["tls.crt"]}
        events = [one for (kind, *_), one in api.objects.items() if kind == "Event" and one["type"] == "Warning"]
        assert {"ListenerCertificateMissing", "ListenerCertificateNames"} <= {one["reason"] for one in events}

    settled(then, given())


def test_a_lost_secret_leaves_the_last_certificate_with_the_brokers() -> None:
    data = certificate(AUTHORITY, NAMES)

    async def then(api: FakeApi, operator: Watching) -> None:
        del api.objects["Secret", "demo", "corporate"]
        await again(api, operator)
        assert degraded(api) == "ListenerCertificateMissing"
        assert presented(api) == {data["tls.crt"]}
        assert trust(api)["outside.ca.crt"] == AUTHORITY.certificate
        put(api, certificate(AUTHORITY, NAMES[1:]))
        await again(api, operator)
        assert degraded(api) == "ListenerCertificateNames"
        assert presented(api) == {data["tls.crt"]}, "the former one has all names"

    settled(then, given(data))


def test_the_file_of_a_removed_certificate_stays_until_each_pod_has_the_new_configuration() -> None:
    """The node of a pod that restarts in place would not start without the file."""
    data = certificate(AUTHORITY, NAMES)

    async def then(api: FakeApi, operator: Watching) -> None:
        del api.objects["KRaftCluster", *KEY]["spec"]["listeners"][-1]["certificate"]
        await again(api, operator)
        assert presented(api) == {data["tls.crt"]}
        assert trust(api)["outside.ca.crt"] == AUTHORITY.certificate
        # Views of Kafka are unknown in this world, so no restart is planned: a person deletes a pod.
        api.objects["Pod", "demo", "sample-101"]["metadata"]["deletionTimestamp"] = "now"
        for _ in range(6):
            api.work()
            await again(api, operator)
        assert ("Pod", "demo", "sample-101") in api.objects
        assert FILE not in secret(api, "sample-101-tls")
        assert FILE in secret(api, "sample-102-tls")
        for name in BROKERS[1:]:
            api.objects["Pod", "demo", name]["metadata"]["deletionTimestamp"] = "now"
        for _ in range(6):
            api.work()
            await again(api, operator)
        assert all(FILE not in secret(api, f"{name}-tls") for name in BROKERS)
        assert "outside.ca.crt" not in trust(api)

    settled(then, given(data))


def test_a_paused_cluster_warns_before_the_certificate_of_a_listener_ends() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        api.objects["KRaftCluster", *KEY]["spec"]["paused"] = True
        await again(api, operator)
        assert degraded(api) == "CertificatesEnd"
        assert "listener outside of node 101" in condition(api, "Degraded")["message"]

    settled(then, given(certificate(AUTHORITY, NAMES, days=10)))


# Issuers of cert-manager


def issued(**more: Any) -> FakeApi:
    return new_api(issuerRef={"name": "corporate", "kind": "ClusterIssuer", "group": "cert-manager.io"} | more)


def request(api: FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = api.objects["Certificate", "demo", CERTIFICATE]
    return found


def sign(api: FakeApi, authority: Authority = AUTHORITY) -> dict[str, str]:
    """What cert-manager does with a Certificate."""
    spec = request(api)["spec"]
    names = [*spec.get("dnsNames", ()), *spec.get("ipAddresses", ())]
    data = certificate(authority, names)
    annotations = {"cert-manager.io/certificate-name": CERTIFICATE}
    labels = spec["secretTemplate"]["labels"]
    put(api, data, spec["secretName"], allowed=False, annotations=annotations, labels=labels)
    return data


def test_a_certificate_is_requested_for_all_names_and_used() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        spec = request(api)["spec"]
        brokers = [f"broker-{i}.kafka.example.com" for i in (101, 102, 103)]
        assert spec["dnsNames"] == [*brokers, "kafka.example.com"]
        assert spec["usages"] == ["digital signature", "key encipherment", "server auth"]
        assert spec["issuerRef"] == {"name": "corporate", "kind": "ClusterIssuer", "group": "cert-manager.io"}
        assert request(api)["metadata"]["ownerReferences"][0]["uid"] == "u"
        await again(api, operator)
        assert degraded(api) == "", "a new request may wait for its issuer"
        data = sign(api)
        await again(api, operator)
        assert presented(api) == {data["tls.crt"]}
        assert degraded(api) == ""
        api.writes.clear()
        for _ in range(3):
            await again(api, operator)
        assert [one for one in api.writes if one[1] in {"Certificate", "Secret"}] == []

    settled(then, issued())


def test_a_certificate_that_is_not_issued_is_reported_with_the_words_of_its_issuer() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        there = request(api)
        there["metadata"]["creationTimestamp"] = f"{NOW - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
        there["status"] = {"conditions": [{"type": "Ready", "status": "False", "message": "issuer not found"}]}
        await again(api, operator)
        assert degraded(api) == "ListenerCertificateMissing"
        assert "issuer not found" in condition(api, "Degraded")["message"]

    settled(then, issued())


def test_objects_of_others_are_neither_overwritten_nor_read() -> None:
    for kind in ("Certificate", "Secret"):

        async def then(api: FakeApi, operator: Watching, kind: str = kind) -> None:
            before = dict(api.objects[kind, "demo", CERTIFICATE])
            await again(api, operator)
            assert degraded(api) == "InTheWay"
            assert CERTIFICATE in condition(api, "Degraded")["message"]
            assert api.objects[kind, "demo", CERTIFICATE] == before
            assert presented(api) != {before["data"].get("tls.crt")}
            if kind == "Secret":
                assert ("Certificate", "demo", CERTIFICATE) not in api.objects

        api = issued()
        api.objects[kind, "demo", CERTIFICATE] = new_secret(CERTIFICATE, certificate(AUTHORITY, NAMES)) | {"kind": kind}
        settled(then, api)


def test_a_request_is_withdrawn_with_its_field_and_the_file_stays() -> None:
    async def then(api: FakeApi, operator: Watching) -> None:
        data = sign(api)
        await again(api, operator)
        del api.objects["KRaftCluster", *KEY]["spec"]["listeners"][-1]["certificate"]
        await again(api, operator)
        assert ("Certificate", "demo", CERTIFICATE) not in api.objects
        assert presented(api) == {data["tls.crt"]}

    settled(then, issued())


@pytest.mark.parametrize(("status", "words"), [(404, "install cert-manager"), (403, "rbac.certificates=true")])
def test_a_missing_cert_manager_is_reported_and_delays_nothing(status: int, words: str) -> None:
    class WithoutCertificates(FakeApi):
        async def list(self, kind: str, *rest: Any, **more: Any) -> list[dict[str, Any]]:
            if kind == "Certificate":
                raise ApiError(status, "Refused", "certificates")
            return await super().list(kind, *rest, **more)

    api = WithoutCertificates()
    api.objects |= issued().objects

    async def then(api: FakeApi, operator: Watching) -> None:
        await again(api, operator)
        assert degraded(api) == "IssuerNotUsable"
        assert words in condition(api, "Degraded")["message"]
        del api.objects["KRaftCluster", *KEY]["spec"]["listeners"][-1]["certificate"]
        await again(api, operator)
        assert degraded(api) != "IssuerNotUsable"

    settled(then, api)


def test_a_user_gets_the_authority_of_each_listener() -> None:
    for trusted in (AUTHORITY.certificate, ""):
        api = given(certificate(AUTHORITY, NAMES, trusted=trusted))

        async def then(api: FakeApi, operator: Watching, trusted: str = trusted) -> None:
            public = trust(api)
            assert trust_at(public, "outside").trusted == trusted
            assert trust_at(public, "outside").trusts_system == (not trusted)
            assert trust_at(public, "plain").trusted == secret(api, "sample-cluster-ca")["ca.crt"]

        settled(then, api)
