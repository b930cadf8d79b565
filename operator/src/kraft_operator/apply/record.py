"""The record of a cluster on Kubernetes: the ConfigMap `NAME-record`. It is separate, because a status may be lost.

The reconciler reads it before it plans, and writes it for each Remember step. If all pools delete their volumes with
the resource, the ConfigMap is deleted with it, too; otherwise it outlives the resource. Every write names the version
that was read, so it fails if another writer has changed the object.

Older operators kept the record in the status, which still contains all of it. If the object is missing, the record is
read from the status and the object is created from it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import ValidationError

from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.apply.kubernetes import InTheWayError, NotYetError
from kraft_operator.kube.client import Api
from kraft_operator.plan.model.record import Record
from kraft_operator.specs.cluster import INSTANCE, MANAGED_BY, MANAGER, NamedCluster
from kraft_operator.specs.remembered import record_of, remembered
from kraft_operator.specs.storage import owned

VERSION: Final = "1"
KIND: Final = "ConfigMap"

Object = dict[str, Any]


class BadRecordError(Exception):
    """The ConfigMap exists but is malformed or of another version. The operator must not act on the cluster."""


def name_of(cluster: str) -> str:
    """The name of a cluster's record."""
    return f"{cluster}-record"


class RecordObject:
    """The record's ConfigMap of one cluster, as last read or written."""

    def __init__(self, api: Api, cluster: NamedCluster, there: Object | None) -> None:
        """`there` is the object as read; None if it does not exist."""
        self._api = api
        self._cluster = cluster
        self._there = there

    @property
    def name(self) -> str:
        """The name of the ConfigMap."""
        return name_of(self._cluster.name)

    def read(self, before: KRaftClusterStatus) -> Record:
        """Return the record, from the status `before` if the object does not exist yet.

        Raises BadRecordError, InTheWayError if the object is not the operator's, and NotYetError if it belongs to a
        deleted cluster.
        """
        if self._there is None:
            return record_of(before)
        metadata = self._there["metadata"]
        labels = metadata.get("labels", {})
        if (labels.get(INSTANCE), labels.get(MANAGED_BY)) != (self._cluster.name, MANAGER):
            raise InTheWayError(KIND, self.name)
        owners = {one["uid"] for one in metadata.get("ownerReferences", ())}
        if "deletionTimestamp" in metadata or not owners <= {self._cluster.uid}:
            raise NotYetError(f"ConfigMap {self.name} belongs to a deleted KRaftCluster and is not deleted yet")
        return self._parsed(self._there.get("data", {}))

    def _parsed(self, data: dict[str, str]) -> Record:
        where = f"ConfigMap {self.name}"
        if data.get("version") != VERSION:
            text = f"{where}: version {data.get('version')!r}, and this operator knows {VERSION}: run the operator that"
            raise BadRecordError(f"{text} wrote it, or a later one")
        try:
            return record_of(KRaftClusterStatus.model_validate_json(data.get("record", "")))
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(map(str, problem["loc"])) or "record"
            raise BadRecordError(f"{where}: {place}: {problem['msg']}: restore it from a backup") from None

    async def keep(self, record: Record) -> None:
        """Write the record if it differs. Raises ApiError 409 if another writer has changed it since it was read."""
        data = {"version": VERSION, "record": json.dumps(remembered(record), separators=(",", ":"))}
        owners = self._cluster.owner() if all(map(owned, self._cluster.spec.node_pools)) else []
        there = self._there
        if there is None:
            if record == Record():
                return
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
