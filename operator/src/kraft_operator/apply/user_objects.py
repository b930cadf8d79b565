"""KRaftUsers as objects of Kubernetes: Secrets, statuses, events, claims, and the proof that a resource was deleted.

The Secret of a user has the resource's name and is deleted with it. It is the only place of a generated password. All
Secrets of a cluster's users are read by one list request, and given passwords by another.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.api.user import MOUNT, ROTATE, KRaftUserSpec
from kraft_operator.apply.objects import difference
from kraft_operator.apply.users import MECHANISMS, condition
from kraft_operator.events import Events
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.plan.model.record import UserClaim
from kraft_operator.plan.users import BATCH_MAX, Credential, DesiredUser, UserState
from kraft_operator.security.certificates import Authority, CertificateError, key_of
from kraft_operator.security.names import CLIENTS, CLUSTER, authority_name, user_subject
from kraft_operator.specs import issued as by_issue
from kraft_operator.specs.client_config import (
    CONTROLLERS_FILE,
    TRUSTED_FILE,
    ClientAccess,
    Trust,
    controllers_properties,
    password_problem,
    secret_data,
    trust_at,
)
from kraft_operator.specs.cluster import INSTANCE, MANAGED_BY, MANAGER, NamedCluster
from kraft_operator.specs.issued import Issued, time_text
from kraft_operator.specs.security import has_tls
from kraft_operator.specs.user_access import bootstrap, fitting_listener, missing_listener, old_lasts

log = logging.getLogger("kraft_operator.users")

NAME: Final = "app.kubernetes.io/name"
SECRET_APP: Final = "kraftuser"  # noqa: S105
"""The name label of users' Secrets."""
ALLOWED: Final = f"{GROUP}/users"
"""The label of a Secret whose password a KRaftUser may name: `allowed`. An administrator sets it."""
ID: Final = f"{GROUP}/credential"
ISSUED: Final = f"{GROUP}/issued"
ROTATION: Final = f"{GROUP}/rotation"
"""Annotations of a user's Secret."""
UNREPORTED: Final = frozenset({"Changing", "AuthorityWaits"})
"""Reasons that need no help. They cause no event."""
CONFLICT: Final = 409
WHOSE: Final = {CLIENTS: "clients'", CLUSTER: "nodes'"}
RESERVED: Final = re.compile(r".+-(cluster-ca|clients-ca|[0-9]+-tls|listener-tls)")
"""Names of the Secrets with the certificates of clusters (`security.names`). A user's Secret there would stop a cluster
whose node comes later."""

Object = dict[str, Any]


class _ProblemError(Exception):
    """A user cannot have credentials now. Messages never contain passwords."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class UserObjects:
    """The `UserKeeper` of one cluster on Kubernetes, for one pass."""

    api: Api
    events: Events
    cluster: NamedCluster
    resources: list[Object]
    """All KRaftUsers of the namespace, as last seen."""
    resource: Object
    """The KRaftCluster. It gets the events about deleted KRaftUsers."""
    write_claims: Callable[[Mapping[str, UserClaim]], Awaitable[object]]
    authority_keys: Mapping[str, str] = field(default_factory=dict)
    """The fingerprints of the authorities in the record, by name: nodes trust no others."""
    _secrets: dict[str, Object] = field(default_factory=dict)
    _given: dict[str, Object] = field(default_factory=dict)
    _passwords: dict[str, str] = field(default_factory=dict, repr=False)
    _issued: dict[str, Issued] = field(default_factory=dict)
    _trust: Mapping[str, str] = field(default_factory=dict)
    _authorities: dict[str, Authority] = field(default_factory=dict)
    _made: int = 0

    async def remember(self, claims: Mapping[str, UserClaim]) -> None:
        """Write the claims into their record."""
        await self.write_claims(claims)

    # Credentials

    async def credentials(self, desired_users: Collection[DesiredUser]) -> Mapping[str, Credential]:
        """Make missing and due credentials, and write their Secrets. Returns those in force by resource."""
        if not desired_users:
            return {}
        try:
            await self._read(desired_users)
        except ApiError as error:
            if not error.lasting:
                raise
            text = f"the operator may not read Secrets ({error.status}): install it with its present roles"
            return {one.resource: Credential("", "SecretsRefused", text) for one in desired_users}
        by_name = {one["metadata"]["name"]: one for one in self.resources}
        found = await asyncio.gather(*(self._credential(by_name[one.resource], one) for one in desired_users))
        return dict(zip((one.resource for one in desired_users), found, strict=True))

    async def _read(self, desired_users: Collection[DesiredUser]) -> None:
        """Read everything that credentials depend on."""
        namespace, name = self.cluster.namespace, self.cluster.name
        selector = f"{NAME}={SECRET_APP},{INSTANCE}={name}"
        secrets, given = await asyncio.gather(
            self.api.list("Secret", namespace, selector),
            self.api.list("Secret", namespace, f"{ALLOWED}=allowed"),
        )
        self._secrets = {one["metadata"]["name"]: one for one in secrets}
        self._given = {one["metadata"]["name"]: one for one in given}
        if self.cluster.secure:
            trust = await self.api.get("ConfigMap", namespace, f"{name}-trust")
            self._trust = (trust or {}).get("data", {})
        if self.cluster.secure and any(not one.mechanism for one in desired_users):
            await self._read_authority(CLIENTS)
        if self.cluster.secure and any(one.controllers for one in desired_users):
            await self._read_authority(CLUSTER)

    async def _read_authority(self, name: str) -> None:
        found = await self.api.get("Secret", self.cluster.namespace, self._secret_of(name))
        if found is not None:
            data = _texts(found)
            self._authorities[name] = Authority(data.get("ca.crt", ""), data.get("ca.key", ""))

    def _secret_of(self, authority: str) -> str:
        return f"{self.cluster.name}-{authority_name(authority)}"

    async def _credential(self, resource: Object, desired: DesiredUser) -> Credential:
        spec = KRaftUserSpec.model_validate(resource["spec"], extra="ignore")
        try:
            issued = self._in_force(resource, desired, spec)
            if issued is None:
                return Credential()
            await self._write(resource, desired, spec, issued, self._for_controllers(desired, spec, issued))
        except _ProblemError as error:
            return Credential("", error.reason, str(error))
        self._issued[desired.resource] = issued
        if desired.mechanism:
            self._passwords[desired.resource] = issued.text("password")
        return Credential(issued.id)

    def _in_force(self, resource: Object, desired: DesiredUser, spec: KRaftUserSpec) -> Issued | None:
        """The credentials as they should be; None if they are made in a later pass. Raises _ProblemError."""
        wanted, now = spec.authentication, datetime.now(UTC)
        rotation = resource["metadata"].get("annotations", {}).get(ROTATE, "")
        if fitting_listener(self.cluster, spec) is None:
            raise _ProblemError("NoListener", missing_listener(self.cluster, spec))
        if self.cluster.secure and not self._trust.get(TRUSTED_FILE):
            raise _ProblemError("AuthorityWaits", "the certificates of the cluster are not made yet")
        there = self._secrets.get(desired.resource)
        if there is not None and not _is_of(there, resource):
            text = f"the Secret {desired.resource} belongs to a deleted KRaftUser and is not deleted yet"
            raise _ProblemError("SecretLeaves", text)
        before = None if there is None else _issued_of(there)
        if wanted.password_from is not None:
            return self._given_password(spec)
        if not desired.mechanism:
            return self._certificate(desired, spec, before, rotation, now)
        if before is not None and not by_issue.password_due(before, wanted, rotation, now):
            return self._edited(desired, before, now) or before
        return by_issue.new_password(rotation, now) if self._may_make() else before

    def _edited(self, desired: DesiredUser, before: Issued, now: datetime) -> Issued | None:
        """The credentials with a password that a person wrote into the user's Secret; None if nobody did."""
        jaas = _decoded(self._secrets[desired.resource]["data"].get("sasl.jaas.config", ""))
        found = by_issue.edited(before, jaas.decode(errors="replace"), now)
        if found is not None and (problem := password_problem(found.data["password"])):
            text = f"the password in Secret {desired.resource}, key password: {problem}"
            advice = "correct it, or delete the Secret to get another"
            raise _ProblemError("PasswordNotUsable", f"{text}: {advice}")
        return found

    def _may_make(self) -> bool:
        """Whether this pass may make another credential."""
        self._made += 1
        return self._made <= BATCH_MAX

    def _given_password(self, spec: KRaftUserSpec) -> Issued:
        assert spec.authentication.password_from is not None
        where = spec.authentication.password_from
        secret = self._given.get(where.secret)
        if secret is None:
            text = f"the Secret {where.secret} does not exist, or KRaftUsers may not name it: an administrator allows"
            text += f" it by `kubectl label secret {where.secret} {ALLOWED}=allowed`"
            raise _ProblemError("SecretMissing", text)
        if where.key not in secret.get("data", {}):
            raise _ProblemError("SecretMissing", f"the Secret {where.secret} has no key {where.key}")
        password = _decoded(secret["data"][where.key])
        problem = password_problem(password)
        if problem:
            raise _ProblemError(
                "PasswordNotUsable", f"the password in Secret {where.secret}, key {where.key}: {problem}"
            )
        metadata = secret["metadata"]
        made = f"{metadata['uid']}/{metadata['resourceVersion']}/{where.key}"
        return Issued(made, metadata.get("creationTimestamp", ""), "", {"password": password})

    def _certificate(
        self, desired: DesiredUser, spec: KRaftUserSpec, before: Issued | None, rotation: str, now: datetime
    ) -> Issued | None:
        with self._issuing(CLIENTS, desired) as authority:
            wanted = spec.authentication
            if not by_issue.certificate_due(before, desired.user, wanted, rotation, authority, now):
                return before
            if not self._may_make():
                return before
            return by_issue.new_certificate(desired.user, wanted, rotation, authority, now)

    def _for_controllers(self, desired: DesiredUser, spec: KRaftUserSpec, issued: Issued) -> dict[str, bytes]:
        """The entries of the Secret for connections to controllers; empty without the right to them.

        Raises _ProblemError.
        """
        if not (desired.controllers and self.cluster.secure):
            return {}
        there = self._secrets.get(desired.resource, {"metadata": {}})
        before = {key: _decoded(value) for key, value in there.get("data", {}).items()}
        is_new = there["metadata"].get("annotations", {}).get(ID) != issued.id
        subject = user_subject(desired.user, self.cluster.name, self.cluster.namespace)
        with self._issuing(CLUSTER, desired) as authority:
            made = by_issue.for_controllers(
                before, subject, spec.authentication, authority, datetime.now(UTC), is_new=is_new
            )
        return {**made, CONTROLLERS_FILE: controllers_properties(desired.user, self._trust[TRUSTED_FILE], made)}

    @contextmanager
    def _issuing(self, name: str, desired: DesiredUser) -> Iterator[Authority]:
        """The authority `name` of the cluster, to issue a certificate. Raises _ProblemError."""
        authority, known = self._authorities.get(name), self.authority_keys.get(name, "")
        if authority is None or not known:
            raise _ProblemError("AuthorityWaits", f"the {WHOSE[name]} authority of the cluster is not made yet")
        if problem := by_issue.name_problem(desired.user):
            raise _ProblemError("UserNameTooLong", problem)
        try:
            if key_of(authority.certificate) != known:
                text = f"the Secret {self._secret_of(name)} has another key than the nodes trust: restore it"
                raise _ProblemError("AuthorityChanged", f"{text}; no certificate is issued meanwhile")
            yield authority
        except (CertificateError, ValueError):
            text = f"the Secret {self._secret_of(name)} does not hold an authority that can issue certificates"
            raise _ProblemError("AuthorityNotValid", text) from None

    async def _write(
        self,
        resource: Object,
        desired: DesiredUser,
        spec: KRaftUserSpec,
        issued: Issued,
        more: Mapping[str, bytes],
    ) -> None:
        """Write the user's Secret, with `more` entries, if it differs. Raises _ProblemError."""
        listener = fitting_listener(self.cluster, spec)
        assert listener is not None
        trust = trust_at(self._trust, listener.name) if has_tls(self.cluster, listener) else Trust()
        access = ClientAccess(
            bootstrap(self.cluster, listener),
            desired.user,
            desired.mechanism,
            issued.text("password"),
            trust.trusted,
            issued.text("user.crt"),
            issued.text("user.key"),
            trust.trusts_system,
        )
        texts = {key: value.encode() for key, value in secret_data(access, MOUNT).items()}
        data = {
            key: base64.b64encode(value).decode() for key, value in sorted({**issued.data, **texts, **more}.items())
        }
        metadata = {
            "labels": {NAME: SECRET_APP, INSTANCE: self.cluster.name, MANAGED_BY: MANAGER},
            "annotations": {ID: issued.id, ISSUED: issued.at, ROTATION: issued.rotation},
        }
        there = self._secrets.get(desired.resource)
        if there is None and RESERVED.fullmatch(desired.resource):
            text = f"a Secret of the name {desired.resource} is for certificates of a cluster"
            raise _ProblemError("SecretInTheWay", f"{text}: name the KRaftUser otherwise")
        try:
            if there is None:
                await self.api.create(self._secret(resource, metadata, data))
            elif there.get("data", {}) != data or not _within(metadata, there["metadata"]):
                version = {"resourceVersion": there["metadata"]["resourceVersion"]}
                gone = dict.fromkeys(there.get("data", {}).keys() - data.keys())
                patch = {"metadata": {**metadata, **version}, "data": {**data, **gone}}
                await self.api.patch("Secret", self.cluster.namespace, desired.resource, patch)
        except ApiError as error:
            if error.status == CONFLICT:
                text = f"the Secret {desired.resource} exists and is not this KRaftUser's, or has changed just now"
                raise _ProblemError("SecretInTheWay", f"{text}: delete it, or name the resource otherwise") from None
            if not error.lasting:
                raise
            text = f"the API server refuses the Secret {desired.resource} ({error.status} {error.reason})"
            raise _ProblemError("SecretsRefused", text) from None

    def _secret(self, resource: Object, metadata: Object, data: Mapping[str, str]) -> Object:
        owner = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "KRaftUser",
            "name": resource["metadata"]["name"],
            "uid": resource["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": False,
        }
        names = {"name": resource["metadata"]["name"], "namespace": self.cluster.namespace}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {**names, **metadata, "ownerReferences": [owner]},
            "data": dict(data),
        }

    async def passwords(self, resources: Collection[str]) -> Mapping[str, str]:
        """The passwords of these resources, as read or made in this pass."""
        return {name: self._passwords[name] for name in resources if name in self._passwords}

    # Reports

    async def report_states(self, states: Mapping[str, UserState]) -> None:
        """Write the statuses that differ, and events for new problems and new credentials."""
        now = datetime.now(UTC)
        names = [one["metadata"]["name"] for one in self.resources]
        reports = [self._report_one(number, states[name], now) for number, name in enumerate(names) if name in states]
        await asyncio.gather(*reports)

    async def _report_one(self, number: int, state: UserState, now: datetime) -> None:
        resource = self.resources[number]
        name, before = resource["metadata"]["name"], resource.get("status", {})
        after = {**before, **condition(state, resource, time_text(now)), **self._facts(resource, state, now)}
        change = difference(before, after)
        if not change:
            return
        former: Mapping[str, Any] = next(iter(before.get("conditions", ())), {})
        new = (former.get("reason"), former.get("message", "")) != (state.reason, state.message)
        body = {"kind": "KRaftUser", **resource}
        if new and not state.ready and state.reason not in UNREPORTED:
            log.warning(
                "KRaftUser has a problem resource=%s/%s reason=%s message=%s",
                self.cluster.namespace,
                name,
                state.reason,
                state.message,
            )
            await self.events.emit(body, "Warning", state.reason, state.message)
        made = before.get("issued"), before.get("rotation")
        if before.get("issued") and made != (after.get("issued"), after.get("rotation")):
            text = f"new credentials are in Secret {name}; the former ones end: {after.get('oldEnds', 'at their date')}"
            await self.events.emit(body, "Normal", "CredentialsRotated", text)
        try:
            patched = await self.api.patch("KRaftUser", self.cluster.namespace, name, {"status": change}, "status")
        except ApiError as error:
            if error.status != 404:  # the resource was deleted meanwhile
                raise
            return
        self.resources[number] = patched

    def _facts(self, resource: Object, state: UserState, now: datetime) -> Object:
        """What the status shows of the credentials in force."""
        name, issued = resource["metadata"]["name"], self._issued.get(resource["metadata"]["name"])
        if issued is None:
            return {}
        spec, before = KRaftUserSpec.model_validate(resource["spec"], extra="ignore"), resource.get("status", {})
        found = {
            "userName": spec.user_name or name,
            "secret": name,
            "issued": issued.at,
            "rotation": issued.rotation,
            "acls": sum(len(rule.operations) for rule in spec.acls),
        }
        if issued.expires is not None:
            found["expires"] = time_text(issued.expires)
        replaced = before.get("credential") and state.sent not in (None, before["credential"])
        listener = fitting_listener(self.cluster, spec)
        if replaced and MECHANISMS[spec.authentication.type] and listener is not None:
            lasts = old_lasts(self.cluster, listener)
            found["oldEnds"] = "Never" if lasts is None else time_text(now + lasts)
        return found

    async def gone(self, claims: Collection[UserClaim]) -> set[str]:
        """Users without a resource, as a new list of the resources proves. The pass may have listed them minutes ago.

        Writes an event for each user.
        """
        known = set(_names_and_uids(self.resources))
        there = set(_names_and_uids(await self.api.list("KRaftUser", self.cluster.namespace)))
        if there - known:
            return set()  # the next pass reads the new resources first
        found = set()
        for claim in claims:
            if (claim.resource, claim.uid) in there:
                continue
            text = f"user {claim.user} is deleted with its password, ACLs and quotas: the KRaftUser {claim.resource}"
            text += f" (uid {claim.uid}) is gone"
            log.info(
                "event resource=%s/%s reason=DeletingUser message=%s", self.cluster.namespace, self.cluster.name, text
            )
            await self.events.emit(self.resource, "Normal", "DeletingUser", text, combine=False)
            found.add(claim.user)
        return found

    async def ended(self, claims: Collection[UserClaim]) -> None:
        """Do nothing: the Secret of a user is deleted with its owner."""


def _names_and_uids(resources: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    return ((one["metadata"]["name"], one["metadata"].get("uid", "")) for one in resources)


def _is_of(secret: Object, resource: Object) -> bool:
    owners = {one.get("uid") for one in secret["metadata"].get("ownerReferences", ())}
    return resource["metadata"].get("uid") in owners


def _issued_of(secret: Object) -> Issued | None:
    """The credentials in a user's Secret; None if they cannot be read."""
    annotations = secret["metadata"].get("annotations", {})
    kept = ("password", "user.crt", "user.key", by_issue.STORE_FILE, by_issue.STORE_PASSWORD)
    data = {key: _decoded(value) for key, value in secret.get("data", {}).items() if key in kept}
    made = annotations.get(ID, "")
    return Issued(made, annotations.get(ISSUED, ""), annotations.get(ROTATION, ""), data) if made else None


def _decoded(value: str) -> bytes:
    return base64.b64decode(value)


def _texts(secret: Object) -> dict[str, str]:
    return {key: _decoded(value).decode(errors="replace") for key, value in secret.get("data", {}).items()}


def _within(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    return all(value.items() <= whole.get(key, {}).items() for key, value in part.items())


def users_without_cluster(name: str, resources: Iterable[str]) -> dict[str, UserState]:
    """The states of KRaftUsers without an existing KRaftCluster."""
    text = f"KRaftCluster {name} does not exist in this namespace: create it, or delete this KRaftUser"
    return {resource: UserState(False, "ClusterMissing", text) for resource in resources}


async def all_users(api: Api, namespace: str) -> list[Object] | None:
    """All KRaftUsers of a namespace; None if the API server does not know or does not show this kind.

    An operator may be upgraded before the definitions and its roles are. Its clusters need no KRaftUsers.
    """
    try:
        return await api.list("KRaftUser", namespace)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        log.warning("KRaftUsers cannot be listed and are not reconciled namespace=%s error=%s", namespace, error)
        return None
