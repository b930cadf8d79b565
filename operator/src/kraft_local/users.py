"""KRaftUsers of a file and of the command line, reconciled by the supervisor in each pass, as on Kubernetes.

What the Secret of a user is there is the folder `users/NAME` here: credentials and client configurations. Only the
user of this machine can read it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kraft_local.folder import Folder, Memory, Requests
from kraft_operator.api.user import ROTATE, KRaftUserSpec
from kraft_operator.apply import users
from kraft_operator.apply.user_requests import look
from kraft_operator.observe.source import MetadataSource
from kraft_operator.plan.model.record import UserClaim
from kraft_operator.plan.users import Credential, DeclaredUsers, DesiredUser, UserState, names_of
from kraft_operator.security.certificates import Authority, CertificateError, key_of
from kraft_operator.security.names import CLIENTS, CLUSTER, TRUST, authority_name, user_subject
from kraft_operator.specs import issued as by_issue
from kraft_operator.specs.client_config import (
    CONTROLLERS_CERTIFICATE,
    CONTROLLERS_FILE,
    CONTROLLERS_KEY,
    TRUSTED_FILE,
    ClientAccess,
    Trust,
    controllers_properties,
    password_problem,
    secret_data,
    trust_at,
)
from kraft_operator.specs.cluster import NamedCluster, digest
from kraft_operator.specs.issued import Issued
from kraft_operator.specs.remembered import remembered_users, user_claims_of
from kraft_operator.specs.security import has_tls
from kraft_operator.specs.user_access import fitting_listener, internal_users, missing_listener

CREDENTIALS: Final = "credentials.json"
Bootstrap = Callable[[str], str]
"""The addresses of a listener."""


class LocalUsers:
    """The `UserKeeper` of a local cluster. Resources have no uid; their names and their users identify them."""

    def __init__(self, folder: Folder, memory: Memory, show: Callable[[str], None], bootstrap: Bootstrap) -> None:
        self._folder = folder
        self._memory = memory
        self._show = show
        self._bootstrap = bootstrap
        self._cluster: NamedCluster | None = None
        self._issued: dict[str, Issued] = {}

    @property
    def resources(self) -> list[dict[str, Any]]:
        """The KRaftUsers as objects, with their last status."""
        requests = self._folder.requests()
        found = {**requests.users, **self._memory.users}
        return [
            {
                "metadata": {
                    "name": name,
                    "uid": one["spec"].get("userName", name),
                    "generation": self._memory.generation,
                    "annotations": {**one["annotations"], **_rotation(requests, name)},
                },
                "spec": one["spec"],
                "status": self._memory.user_states.get(name, {}),
            }
            for name, one in found.items()
        ]

    @property
    def claims(self) -> dict[str, UserClaim]:
        """The claims on users, by user, from the memory."""
        return user_claims_of(self._memory.user_claims)

    @property
    def any(self) -> bool:
        """Whether the cluster has KRaftUsers, or users that are deleted with a former one."""
        return bool(self.resources or self.claims)

    def _declared(self, cluster: NamedCluster) -> DeclaredUsers:
        """The declared users. All are valid, because an invalid file or request is refused."""
        return users.declared(self.resources, cluster.name, self.claims.values(), internal_users(cluster))[0]

    async def run(self, source: MetadataSource, cluster: NamedCluster) -> bool:
        """Carry out a batch. Returns whether more work is due. Raises UnreachableError."""
        self._cluster, declared, claims = cluster, self._declared(cluster), self.claims
        due, _ = await users.UserPass(source, self).run(declared, claims)
        return due

    async def lines(self, source: MetadataSource, cluster: NamedCluster) -> list[str]:
        """Messages about the planned changes, which are not carried out. Raises UnreachableError."""
        declared, claims = self._declared(cluster), self.claims
        names = names_of(declared, claims)
        _, seen = await source.first(lambda address: look(source.client, address, names))
        return list(users.preview(declared, seen, claims))

    # The keeper

    async def remember(self, claims: Mapping[str, UserClaim]) -> None:
        """Store the claims, durably."""
        self._memory.user_claims = remembered_users(claims)
        self._folder.remember(self._memory)

    async def credentials(self, desired_users: Collection[DesiredUser]) -> Mapping[str, Credential]:
        """Make missing and due credentials, and write their files."""
        by_name = {one["metadata"]["name"]: one for one in self.resources}
        return {one.resource: self._credential(by_name[one.resource], one) for one in desired_users}

    def _credential(self, resource: Mapping[str, Any], desired: DesiredUser) -> Credential:
        spec, cluster = KRaftUserSpec.model_validate(resource["spec"]), self._cluster
        assert cluster is not None
        listener = fitting_listener(cluster, spec)
        if listener is None:
            return Credential("", "NoListener", missing_listener(cluster, spec))
        if not desired.mechanism and (problem := by_issue.name_problem(desired.user)):
            return Credential("", "UserNameTooLong", problem)
        try:
            former = self._stored(desired.resource) if desired.controllers else None
            issued = self._in_force(resource, desired, spec)
            is_new = former is not None and former.id != issued.id
            more = self._for_controllers(cluster, desired, spec, is_new=is_new)
            trust = trust_at(self._public(), listener.name) if has_tls(cluster, listener) else Trust()
        except FileNotFoundError as error:
            return Credential("", "SecretMissing", f"{error.filename} does not exist")
        except CertificateError as error:
            return Credential("", "AuthorityNotValid", str(error))
        except ValueError as error:
            return Credential("", "PasswordNotUsable", str(error))
        access = ClientAccess(
            self._bootstrap(listener.name),
            desired.user,
            desired.mechanism,
            issued.text("password"),
            trust.trusted,
            issued.text("user.crt"),
            issued.text("user.key"),
            trust.trusts_system,
        )
        folder = self._folder.user(desired.resource)
        texts = {key: value.encode() for key, value in secret_data(access, str(folder)).items()}
        for name, data in {**issued.data, **texts, **more}.items():
            _write(folder / name, data)
        for name in {TRUSTED_FILE, CONTROLLERS_CERTIFICATE, CONTROLLERS_KEY, CONTROLLERS_FILE} - {*texts, *more}:
            (folder / name).unlink(missing_ok=True)
        self._issued[desired.resource] = issued
        return Credential(issued.id)

    def _in_force(self, resource: Mapping[str, Any], desired: DesiredUser, spec: KRaftUserSpec) -> Issued:
        """The credentials as they should be. Raises FileNotFoundError, CertificateError, ValueError."""
        wanted, now = spec.authentication, datetime.now(UTC)
        rotation = resource["metadata"]["annotations"].get(ROTATE, "")
        if wanted.password_from is not None:
            path = self._folder.security(wanted.password_from.secret) / wanted.password_from.key
            password = path.read_bytes()
            problem = password_problem(password)
            if problem:
                raise ValueError(f"the password in {path}: {problem}")
            at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            return Issued(f"{path}/{path.stat().st_mtime_ns}", by_issue.time_text(at), "", {"password": password})
        before = self._stored(desired.resource)
        if desired.mechanism:
            if not by_issue.password_due(before, wanted, rotation, now):
                assert before is not None
                return before
            made = by_issue.new_password(rotation, now)
        else:
            authority = self._authority(CLIENTS)
            if not by_issue.certificate_due(before, desired.user, wanted, rotation, authority, now):
                assert before is not None
                return before
            made = by_issue.new_certificate(desired.user, wanted, rotation, authority, now)
        data = {key: base64.b64encode(value).decode() for key, value in made.data.items()}
        stored = {"id": made.id, "at": made.at, "rotation": made.rotation, "data": data}
        _write(self._folder.user(desired.resource) / CREDENTIALS, json.dumps(stored).encode())
        return made

    def _for_controllers(
        self, cluster: NamedCluster, desired: DesiredUser, spec: KRaftUserSpec, *, is_new: bool
    ) -> dict[str, bytes]:
        """The files for connections to controllers; empty without the right to them.

        Raises FileNotFoundError, CertificateError, ValueError.
        """
        if not (desired.controllers and cluster.secure):
            return {}
        if problem := by_issue.name_problem(desired.user):
            raise CertificateError(problem)
        folder, names = self._folder.user(desired.resource), (CONTROLLERS_CERTIFICATE, CONTROLLERS_KEY)
        before = {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}
        subject = user_subject(desired.user, cluster.name, cluster.namespace)
        authority, now = self._authority(CLUSTER), datetime.now(UTC)
        made = by_issue.for_controllers(before, subject, spec.authentication, authority, now, is_new=is_new)
        return {**made, CONTROLLERS_FILE: controllers_properties(desired.user, self._public()[TRUSTED_FILE], made)}

    def _authority(self, name: str) -> Authority:
        """An authority that the nodes trust. Raises FileNotFoundError, CertificateError."""
        stored = authority_name(name)
        authority = Authority(self._security_file(stored, "ca.crt"), self._security_file(stored, "ca.key"))
        if key_of(authority.certificate) != dict(self._memory.record.authorities).get(name):
            where = self._folder.security(stored)
            raise CertificateError(f"{where} has another key than the nodes trust: restore it")
        return authority

    def _stored(self, resource: str) -> Issued | None:
        """The credentials that were issued before. Raises ValueError if their file is damaged."""
        path = self._folder.user(resource) / CREDENTIALS
        try:
            stored = json.loads(path.read_text())
            data = {key: base64.b64decode(value) for key, value in stored["data"].items()}
            return Issued(stored["id"], stored["at"], stored["rotation"], data)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            text = "this is not the file of a user's credentials: restore it, or delete it to get new credentials"
            raise ValueError(f"{path}: {text}") from None

    def _public(self) -> dict[str, str]:
        """What clients trust, by listener. Raises FileNotFoundError."""
        return {path.name: path.read_text() for path in self._folder.security(TRUST).iterdir()}

    def _security_file(self, name: str, file: str) -> str:
        return (self._folder.security(name) / file).read_text()

    async def passwords(self, resources: Collection[str]) -> Mapping[str, str]:
        """The passwords of the credentials in force, by resource. Resources without credentials are left out."""
        return {name: self._issued[name].text("password") for name in resources if name in self._issued}

    async def report_states(self, states: Mapping[str, UserState]) -> None:
        """Store the statuses, if they differ."""
        now, found = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), {}
        for one in self.resources:
            name = one["metadata"]["name"]
            found[name] = one["status"]
            if name in states:
                condition = users.condition(states[name], one, now)
                found[name] = {**one["status"], **condition, **self._facts(one), "spec": digest(one["spec"])}
        if found != self._memory.user_states:
            self._memory.user_states = found
            self._folder.remember(self._memory)

    def _facts(self, resource: Mapping[str, Any]) -> dict[str, Any]:
        issued = self._issued.get(resource["metadata"]["name"])
        if issued is None:
            return {}
        expires = {} if issued.expires is None else {"expires": by_issue.time_text(issued.expires)}
        return {"issued": issued.at, "rotation": issued.rotation, **expires}

    async def gone(self, claims: Collection[UserClaim]) -> set[str]:
        """All users of the claims, announced. Deletes their folders."""
        for claim in claims:
            self._show(f"user {claim.user} is deleted with its password, ACLs and quotas: KRaftUser {claim.resource}")
        await self.ended(claims)
        return {claim.user for claim in claims}

    async def ended(self, claims: Collection[UserClaim]) -> None:
        """Delete the folders with credentials and client configurations. A user without ACLs has one, too."""
        names = {one["metadata"]["name"] for one in self.resources}
        for claim in claims:
            if claim.resource not in names:  # else the folder has the credentials of the resource's new user
                shutil.rmtree(self._folder.user(claim.resource), ignore_errors=True)


def _rotation(requests: Requests, name: str) -> dict[str, str]:
    return {ROTATE: requests.rotations[name]} if name in requests.rotations else {}


def _write(path: Path, data: bytes) -> None:
    """Replace a file atomically if it differs; only the user of this machine can read it."""
    try:
        if path.read_bytes() == data:
            return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
