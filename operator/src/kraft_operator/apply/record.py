"""The record of a cluster on Kubernetes: the ConfigMap `NAME-record`. It is separate, because a status may be lost.

The claims of its KRaftUsers are kept alike in `NAME-users`.

The reconciler reads it before it plans, and writes it for each Remember step. If all pools delete their volumes with
the resource, the ConfigMap is deleted with it, too; otherwise it outlives the resource. Every write names the version
that was read, so it fails if another writer has changed the object.

Older operators kept the record in the status, which still contains all of it. If the object is missing, the record is
read from the status and the object is created from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.apply.kubernetes import InTheWayError, NotYetError
from kraft_operator.apply.templates import Template
from kraft_operator.kube.client import Api
from kraft_operator.plan.model.record import Record, UserClaim
from kraft_operator.specs.cluster import INSTANCE, MANAGED_BY, MANAGER, NamedCluster
from kraft_operator.specs.remembered import record_of, remembered, remembered_users, user_claims_of
from kraft_operator.specs.storage import owned

VERSION: Final = "1"
KIND: Final = "ConfigMap"
TEMPLATES_CHARS_MAX: Final = 256 * 1024
"""Larger templates are not kept: the object must stay below the API server's limit of 1 MiB."""

Object = dict[str, Any]


class BadRecordError(Exception):
    """The ConfigMap exists but is malformed or of another version. The operator must not act on the cluster."""


def name_of(cluster: str) -> str:
    """The name of a cluster's record."""
    return f"{cluster}-record"


def name_of_users(cluster: str) -> str:
    """The name of the record of a cluster's users."""
    return f"{cluster}-users"


class _KeptObject:
    """A ConfigMap of a cluster with what must outlive a pass, as last read or written."""

    def __init__(self, api: Api, cluster: NamedCluster, name: str, there: Object | None) -> None:
        """`there` is the object as read; None if it does not exist."""
        self._api = api
        self._cluster = cluster
        self._there = there
        self.name = name

    def data(self) -> dict[str, str] | None:
        """The data of the object, None if it does not exist yet.

        Raises BadRecordError for another version, InTheWayError if the object is not the operator's, and NotYetError if
        it belongs to a deleted cluster.
        """
        if self._there is None:
            return None
        metadata = self._there["metadata"]
        labels = metadata.get("labels", {})
        if (labels.get(INSTANCE), labels.get(MANAGED_BY)) != (self._cluster.name, MANAGER):
            raise InTheWayError(KIND, self.name)
        owners = {one["uid"] for one in metadata.get("ownerReferences", ())}
        if "deletionTimestamp" in metadata or not owners <= {self._cluster.uid}:
            raise NotYetError(f"ConfigMap {self.name} belongs to a deleted KRaftCluster and is not deleted yet")
        data: dict[str, str] = self._there.get("data", {})
        if data.get("version") != VERSION:
            text = f"ConfigMap {self.name}: version {data.get('version')!r}, and this operator knows {VERSION}"
            raise BadRecordError(f"{text}: run the operator that wrote it, or a later operator")
        return data

    def malformed(self, entry: str, error: ValidationError) -> BadRecordError:
        """The error of an entry that cannot be read."""
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or entry
        return BadRecordError(f"ConfigMap {self.name}: {place}: {problem['msg']}: restore it from a backup")

    async def write(self, entries: dict[str, str], *, is_new: bool) -> None:
        """Write the entries if they differ; `is_new`: also if the object does not exist.

        Raises ApiError 409 if another writer has changed the object since it was read.
        """
        data = {"version": VERSION, **entries}
        owners = self._cluster.owner() if all(map(owned, self._cluster.spec.node_pools)) else []
        there = self._there
        if there is None:
            if is_new:
                self._there = await self._api.create(
                    {"apiVersion": "v1", "kind": KIND, "metadata": self._metadata(owners), "data": data}
                )
            return
        uids = [one["uid"] for one in there["metadata"].get("ownerReferences", ())]
        if there.get("data") == data and uids == [one["uid"] for one in owners]:
            return
        version = there["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "ownerReferences": owners}, "data": data}
        self._there = await self._api.patch(KIND, self._cluster.namespace, self.name, patch)

    def _metadata(self, owners: list[Object]) -> Object:
        labels = {INSTANCE: self._cluster.name, MANAGED_BY: MANAGER, "app.kubernetes.io/name": "kraftcluster-record"}
        found: Object = {"name": self.name, "namespace": self._cluster.namespace, "labels": labels}
        return {**found, "ownerReferences": owners} if owners else found


class RecordObject:
    """The record of one cluster."""

    def __init__(self, api: Api, cluster: NamedCluster, there: Object | None) -> None:
        self._kept = _KeptObject(api, cluster, name_of(cluster.name), there)
        self.templates: Mapping[str, Template] = {}
        """The last accepted templates by pool, which are kept beside the record. `keep` writes them."""

    def read(self, before: KRaftClusterStatus) -> Record:
        """Return the record, from the status `before` if the object does not exist yet.

        Raises BadRecordError, InTheWayError and NotYetError.
        """
        data = self._kept.data()
        if data is None:
            return record_of(before)
        self.templates = _templates_of(data.get("templates", ""))
        try:
            return record_of(KRaftClusterStatus.model_validate_json(data.get("record", "")))
        except ValidationError as error:
            raise self._kept.malformed("record", error) from None

    async def keep(self, record: Record) -> None:
        """Write the record if it differs. Raises ApiError 409 if another writer has changed it since it was read."""
        entries = {"record": json.dumps(remembered(record), separators=(",", ":"))}
        if self.templates:
            text = json.dumps(self.templates, separators=(",", ":"), sort_keys=True)
            entries["templates"] = text if len(text) <= TEMPLATES_CHARS_MAX else ""
        await self._kept.write(entries, is_new=record != Record())


def _templates_of(text: str) -> dict[str, Template]:
    """The stored templates. They are only a help, so text that cannot be read counts as none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


class UserRecord:
    """The claims of the users of one cluster, in an object of their own because they may be large."""

    def __init__(self, api: Api, cluster: NamedCluster, there: Object | None) -> None:
        self._kept = _KeptObject(api, cluster, name_of_users(cluster.name), there)

    def read(self) -> dict[str, UserClaim]:
        """The claims by user. Raises BadRecordError, InTheWayError and NotYetError."""
        data = self._kept.data()
        if data is None:
            return {}
        try:
            return user_claims_of(json.loads(data.get("users", "")))
        except ValidationError as error:
            raise self._kept.malformed("users", error) from None
        except (ValueError, TypeError):
            text = f"ConfigMap {self._kept.name}: users: this is not JSON"
            raise BadRecordError(f"{text}: restore it from a backup") from None

    async def keep(self, claims: Mapping[str, UserClaim]) -> None:
        """Write the claims if they differ. Raises ApiError 409 if another writer has changed them."""
        text = json.dumps(remembered_users(claims), separators=(",", ":"))
        await self._kept.write({"users": text}, is_new=bool(claims))
