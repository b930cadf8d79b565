"""KRaftUsers in whole passes: Secrets, reports, rotation and deletion. Passwords are in Secrets only."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kraft_operator.api.user import ROTATE
from kraft_operator.apply.user_objects import ALLOWED, ISSUED
from kraft_operator.kube.client import ApiError
from kraft_operator.plan.users import UserChange, UsersSeen
from kraft_operator.security.certificates import is_issued_by, issue, new_authority
from kraft_protocol.client.aio import Address, UnreachableError
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.reconciling import KEY, new_api, new_operator, settle

SCRAM = "SCRAM-SHA-512"
PLANTED = "planted-secret-word"
DEFAULTS: dict[str, Any] = {"authentication": {"type": "ScramSha512", "iterations": 4096}, "acls": [], "quotas": {}}
RULE = {"resource": {"type": "Topic", "name": "t"}, "operations": ["Read"]}


class Users:
    """A cluster's users behind `apply.users`, in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = UsersSeen({}, {}, {})
        self.passwords: dict[str, str] = {}
        self.looks = 0
        self.refused: dict[str, str] = {}
        self.before: Any = lambda: None
        """Called before a batch is done."""
        self.complete = True
        """Whether the broker proves that its image is complete."""

        async def look(_client: Any, _broker: Any, names: Any) -> UsersSeen:
            self.looks += bool(names)
            return self.seen

        async def is_complete(_source: Any, _node: int) -> bool:
            return self.complete

        async def carry_out(
            _client: Any, _broker: Any, changes: dict[str, UserChange], passwords: dict[str, str]
        ) -> dict[str, str]:
            self.before()
            for user, change in changes.items():
                if user not in self.refused:
                    self._change(user, change, passwords)
            return self.refused

        async def nothing(*_: Any) -> dict[str, Any]:
            return {}

        monkeypatch.setattr("kraft_operator.observe.kafka.View.look", nothing)
        monkeypatch.setattr("kraft_operator.observe.objects.brokers", lambda *_: {101: Address("b", 1)})
        monkeypatch.setattr("kraft_operator.apply.users.look", look)
        monkeypatch.setattr("kraft_operator.apply.users.carry_out", carry_out)
        monkeypatch.setattr("kraft_operator.observe.source.MetadataSource.is_complete", is_complete)

    def _change(self, user: str, change: UserChange, passwords: dict[str, str]) -> None:
        credentials: Any = dict(self.seen.credentials.get(user, {}))
        credentials |= dict([change.upsert]) if change.upsert else {}
        if change.upsert:
            self.passwords[user] = passwords[user]
        credentials = {key: value for key, value in credentials.items() if key not in change.drop}
        acls = (self.seen.acls.get(user, frozenset()) | change.create) - change.delete
        quotas = {**self.seen.quotas.get(user, {}), **change.put}
        quotas = {key: value for key, value in quotas.items() if key not in change.remove}
        new: Any = (credentials, acls, quotas)
        for view, value in zip((self.seen.credentials, self.seen.acls, self.seen.quotas), new, strict=True):
            view[user] = value  # type: ignore[index]
            if not value:
                del view[user]  # type: ignore[attr-defined]


def secure(api: FakeApi) -> None:
    """Give the cluster TLS and listeners with users."""
    spec = api.objects["KRaftCluster", *KEY]["spec"]
    spec["security"] = {"superUsers": ["admin"]}
    spec["config"]["connections.max.reauth.ms"] = "60000"
    spec["listeners"] = [
        {"name": "mutual", "port": 9192, "type": "Internal"},
        {"name": "scram", "port": 9292, "type": "Internal", "authentication": "ScramSha512"},
    ]


def _encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def _put(api: FakeApi, kind: str, name: str, data: dict[str, str], **labels: str) -> None:
    metadata = {"name": name, "namespace": "demo", "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
    api.objects[kind, "demo", name] = {"kind": kind, "metadata": metadata, "data": data}


def declare(api: FakeApi, name: str, uid: str = "u1", annotations: dict[str, str] | None = None, **spec: Any) -> None:
    metadata = {"name": name, "namespace": "demo", "generation": 1, "uid": uid, "annotations": annotations or {}}
    api.objects["KRaftUser", "demo", name] = {
        "kind": "KRaftUser",
        "metadata": {**metadata, "resourceVersion": "1"},
        "spec": {"cluster": "sample", **DEFAULTS, **spec},
    }


def condition(api: FakeApi, name: str) -> dict[str, Any]:
    (found,) = api.objects["KRaftUser", "demo", name]["status"]["conditions"]
    return dict(found)


def entry(api: FakeApi, name: str, key: str) -> str:
    return base64.b64decode(api.objects["Secret", "demo", name]["data"][key]).decode()


def events(api: FakeApi) -> list[tuple[str, str]]:
    found = [one for (kind, *_), one in api.objects.items() if kind == "Event"]
    return [(one["involvedObject"]["kind"], one["reason"]) for one in found if "User" in str(one)]


async def started(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeApi, Any, Users]:
    api = new_api()
    operator = new_operator(api)
    secure(api)
    await settle(api, operator)
    return api, operator, Users(monkeypatch)


async def passes(operator: Any, count: int = 4) -> None:
    for _ in range(count):
        await operator.reconcile(KEY)


def test_a_user_gets_a_secret_that_clients_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        declare(api, "shop", acls=[RULE], quotas={"producerByteRate": 5})
        claimed: list[str] = []
        users.before = lambda: claimed.append(api.objects["ConfigMap", "demo", "sample-users"]["data"]["users"])
        await passes(operator)
        assert [one["user"] for one in json.loads(claimed[0])] == ["shop"], "claimed before it is made"
        assert condition(api, "shop")["reason"] == "InForce"
        assert users.passwords["shop"] == entry(api, "shop", "password")
        assert len(users.passwords["shop"]) >= 32
        secret = api.objects["Secret", "demo", "shop"]
        assert [one["uid"] for one in secret["metadata"]["ownerReferences"]] == ["u1"]
        assert "sample-bootstrap.demo.svc:9292" in entry(api, "shop", "client.properties")
        assert json.loads(entry(api, "shop", "python.json"))["security.protocol"] == "SASL_SSL"
        status = api.objects["KRaftUser", "demo", "shop"]["status"]
        assert (status["userName"], status["secret"], status["acls"]) == ("shop", "shop", 1)
        operator.close()

    asyncio.run(main())


def test_a_certificate_is_issued_by_the_clients_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        declare(api, "svc", authentication={"type": "MutualTls", "validDays": 30}, acls=[RULE])
        await passes(operator)
        assert condition(api, "svc")["reason"] == "InForce"
        assert not users.seen.credentials
        secret = api.objects["Secret", "demo", "svc"]["data"]
        store = load_pkcs12(base64.b64decode(secret["user.p12"]), entry(api, "svc", "user.password").encode())
        assert store.cert is not None
        assert store.cert.certificate.subject.rfc4514_string() == "CN=svc"
        assert "sample-bootstrap.demo.svc:9192" in entry(api, "svc", "librdkafka.properties")
        writes = len(api.writes)
        await passes(operator)
        assert [one for one in api.writes[writes:] if one[1] == "Secret"] == []
        authority = entry(api, "sample-clients-ca", "ca.crt")
        assert is_issued_by(entry(api, "svc", "user.crt"), authority)
        now = datetime.now(UTC)
        other = issue(new_authority("clients", now, 1000), {"CN": "svc"}, now, 30)
        secret["user.crt"], secret["user.key"] = _encoded(other.chain), _encoded(other.key)
        operator.touched(KEY)
        await passes(operator)
        assert is_issued_by(entry(api, "svc", "user.crt"), authority), "issued again by the authority in force"
        operator.close()

    asyncio.run(main())


def test_an_exchanged_clients_authority_issues_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, _ = await started(monkeypatch)
        declare(api, "svc", authentication={"type": "MutualTls", "validDays": 30}, acls=[RULE])
        await passes(operator)
        before = dict(api.objects["Secret", "demo", "svc"]["data"])
        authority = api.objects["Secret", "demo", "sample-clients-ca"]["data"]
        kept, other = dict(authority), new_authority("clients CA", datetime.now(UTC), 1000)
        authority["ca.crt"], authority["ca.key"] = _encoded(other.certificate), _encoded(other.key)
        operator.touched(KEY)
        await passes(operator)
        assert api.objects["Secret", "demo", "svc"]["data"] == before, "no node trusts the other authority"
        assert condition(api, "svc")["reason"] == "AuthorityChanged"
        assert "sample-clients-ca" in condition(api, "svc")["message"]
        authority.update(kept)
        operator.touched(KEY)
        await passes(operator)
        assert condition(api, "svc")["reason"] == "InForce"
        assert api.objects["Secret", "demo", "svc"]["data"] == before
        operator.close()

    asyncio.run(main())


def test_a_rotation_is_done_once_for_a_request_and_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        declare(api, "shop")
        await passes(operator)
        first = users.passwords["shop"]
        resource = api.objects["KRaftUser", "demo", "shop"]
        resource["metadata"]["annotations"][ROTATE] = "once"
        await passes(operator)
        second = users.passwords["shop"]
        assert second not in ("", first)
        status = api.objects["KRaftUser", "demo", "shop"]["status"]
        assert status["rotation"] == "once"
        ends = datetime.strptime(status["oldEnds"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        assert timedelta(0) < ends - datetime.now(UTC) < timedelta(seconds=61)
        assert ("KRaftUser", "CredentialsRotated") in events(api)
        await passes(operator)
        assert users.passwords["shop"] == second
        resource = api.objects["KRaftUser", "demo", "shop"]
        resource["spec"]["authentication"]["rotateAfterDays"] = 1
        await passes(operator)
        assert users.passwords["shop"] == second
        annotations = api.objects["Secret", "demo", "shop"]["metadata"]["annotations"]
        annotations[ISSUED] = "2020-01-01T00:00:00Z"
        operator.touched(KEY)
        await passes(operator)
        assert users.passwords["shop"] != second
        third = users.passwords["shop"]
        del api.objects["Secret", "demo", "shop"]
        operator.touched(KEY)
        await passes(operator)
        assert users.passwords["shop"] not in ("", third), "a deleted Secret is a rotation"
        operator.close()

    asyncio.run(main())


def test_a_given_password_needs_the_grant_of_an_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        _put(api, "Secret", "given", {"password": _encoded(PLANTED), "bad": _encoded(PLANTED + "\n")})
        given = {"type": "ScramSha512", "iterations": 4096, "passwordFrom": {"secret": "given", "key": "password"}}
        declare(api, "shop", authentication=given)
        await passes(operator)
        assert condition(api, "shop")["reason"] == "SecretMissing"
        assert f"kubectl label secret given {ALLOWED}=allowed" in condition(api, "shop")["message"]
        assert users.passwords == {}
        api.objects["Secret", "demo", "given"]["metadata"]["labels"] = {ALLOWED: "allowed"}
        await passes(operator)
        assert users.passwords == {"shop": PLANTED}
        api.objects["KRaftUser", "demo", "shop"]["spec"]["authentication"]["passwordFrom"]["key"] = "bad"
        await passes(operator)
        assert condition(api, "shop")["reason"] == "PasswordNotUsable"
        assert users.passwords == {"shop": PLANTED}, "the former password stays in force"
        operator.close()

    asyncio.run(main())


def test_a_password_is_in_no_status_no_event_no_log_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        caplog.set_level(logging.DEBUG)
        api, operator, users = await started(monkeypatch)
        _put(api, "Secret", "given", {"password": _encoded(PLANTED)}, **{ALLOWED: "allowed"})
        given = {"type": "ScramSha512", "iterations": 4096, "passwordFrom": {"secret": "given", "key": "password"}}
        declare(api, "shop", authentication=given, acls=[RULE])
        declare(api, "made")
        await passes(operator)
        words = [PLANTED, users.passwords["made"]]

        def refuse(_verb: str, kind: str, _name: str) -> ApiError | None:
            return ApiError(422, "Invalid", f"data: {PLANTED}") if kind == "Secret" else None

        users.refused = {"shop": "the cluster refuses the credentials of shop"}
        api.before = refuse
        for name in ("shop", "made"):
            api.objects["KRaftUser", "demo", name]["metadata"]["annotations"][ROTATE] = "now"
            api.objects["KRaftUser", "demo", name]["spec"]["quotas"] = {"producerByteRate": 9}
        await passes(operator)
        api.before = lambda *_: None
        users.seen = UsersSeen(hidden={"credentials": "why"})
        await passes(operator)
        words += [base64.b64encode(word.encode()).decode() for word in words]
        shown = [str(one) for (kind, *_), one in api.objects.items() if kind != "Secret"]
        for text in (*shown, caplog.text, repr(operator._memories)):
            for word in words:
                assert word not in text
        assert any(word in str(api.objects["Secret", "demo", "shop"]) for word in words), "the search can find"
        operator.close()

    asyncio.run(main())


def test_a_secret_of_somebody_else_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        _put(api, "Secret", "shop", {"mine": "eA=="})
        declare(api, "shop")
        await passes(operator)
        assert condition(api, "shop")["reason"] == "SecretInTheWay"
        assert api.objects["Secret", "demo", "shop"]["data"] == {"mine": "eA=="}
        assert users.passwords == {}
        operator.close()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["sample-104-tls", "other-cluster-ca"])
def test_a_user_takes_no_name_of_a_secret_that_a_cluster_may_need(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        declare(api, name)
        await passes(operator)
        assert condition(api, name)["reason"] == "SecretInTheWay"
        assert ("Secret", "demo", name) not in api.objects
        assert users.passwords == {}
        operator.close()

    asyncio.run(main())


def test_a_user_needs_a_listener_that_authenticates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = new_api()
        operator = new_operator(api)
        await settle(api, operator)
        Users(monkeypatch)
        declare(api, "shop")
        await passes(operator)
        assert condition(api, "shop")["reason"] == "NoListener"
        assert (
            "no listener of KRaftCluster sample authenticates clients by ScramSha512"
            in condition(api, "shop")["message"]
        )
        operator.close()

    asyncio.run(main())


def test_a_deleted_resource_takes_its_user_along_only_after_a_new_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        declare(api, "shop", acls=[RULE], quotas={"producerByteRate": 5})
        await passes(operator)
        resource = api.objects.pop(("KRaftUser", "demo", "shop"))
        back: list[str] = []
        listing = api.list

        async def list_(kind: str, *rest: Any, **named: Any) -> list[dict[str, Any]]:
            found = await listing(kind, *rest, **named)
            if kind == "KRaftUser" and not back:
                back.append(kind)
                api.objects["KRaftUser", "demo", "shop"] = resource  # restored while the pass runs
            return found

        api.list = list_  # type: ignore[method-assign]
        await operator.reconcile(KEY)
        assert users.seen.credentials == {"shop": {SCRAM: 4096}}
        del api.objects["KRaftUser", "demo", "shop"]
        await passes(operator)
        assert users.seen == UsersSeen({}, {}, {})
        assert json.loads(api.objects["ConfigMap", "demo", "sample-users"]["data"]["users"]) == []
        assert ("KRaftCluster", "DeletingUser") in events(api)
        operator.close()

    asyncio.run(main())


def test_claims_that_cannot_be_read_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        declare(api, "shop")
        await passes(operator)
        api.objects["ConfigMap", "demo", "sample-users"]["data"] = {"version": "1", "users": "[{"}
        api.objects["KRaftUser", "demo", "shop"]["spec"]["acls"] = [RULE]
        await passes(operator)
        assert condition(api, "shop")["reason"] == "RecordNotUnderstood"
        assert users.seen.acls == {}
        assert api.objects["ConfigMap", "demo", "sample-users"]["data"]["users"] == "[{"
        operator.close()

    asyncio.run(main())


def test_a_super_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, _users = await started(monkeypatch)
        declare(api, "admin")
        await passes(operator)
        assert condition(api, "admin")["reason"] == "InternalUser"
        assert ("Secret", "demo", "admin") not in api.objects
        operator.close()

    asyncio.run(main())


def test_a_user_without_its_cluster_is_reported() -> None:
    async def main() -> None:
        api = FakeApi()
        operator = new_operator(api)
        declare(api, "shop")
        assert await operator.reconcile(KEY) is None
        assert condition(api, "shop")["reason"] == "ClusterMissing"
        operator.close()

    asyncio.run(main())


def test_an_api_server_without_the_definition_stops_no_cluster() -> None:
    async def main() -> None:
        api = new_api()
        listing = api.list

        async def list_(kind: str, *rest: Any, **named: Any) -> list[dict[str, Any]]:
            if kind == "KRaftUser":
                raise ApiError(404, "NotFound", "the server could not find the requested resource")
            return await listing(kind, *rest, **named)

        api.list = list_  # type: ignore[method-assign]
        await settle(api, new_operator(api))

    asyncio.run(main())


def test_a_thousand_users_need_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        for number in range(1000):
            declare(api, f"user-{number}", uid=f"u-{number}", acls=[RULE])
        await passes(operator, 7)
        assert len(users.seen.credentials) == 1000
        assert {condition(api, f"user-{number}")["reason"] for number in range(1000)} == {"InForce"}
        reads, looks, writes = api.reads, users.looks, len(api.writes)
        await operator.reconcile(KEY)
        assert users.looks - looks <= 2
        assert api.reads - reads < 30
        assert len(api.writes) - writes < 3
        operator.close()

    asyncio.run(main())


def test_an_unreachable_cluster_leaves_users_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api, operator, users = await started(monkeypatch)
        declare(api, "shop")
        await passes(operator)

        async def look(*_: Any) -> UsersSeen:
            raise UnreachableError("b:1: no answer")

        monkeypatch.setattr("kraft_operator.apply.users.look", look)
        del api.objects["KRaftUser", "demo", "shop"]
        with pytest.raises(UnreachableError):
            await operator.reconcile(KEY)
        assert users.seen.credentials == {"shop": {SCRAM: 4096}}
        operator.close()

    asyncio.run(main())
