"""The status of a node's process (`/status`): which configuration it has read, how many topics exist."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from kraft_operator.observe.pages import page
from kraft_operator.plan.model.observed import ActiveMigration, ControllerMigration
from kraft_protocol.client.aio import Address, UnreachableError

ANSWER_S: Final = 2.0
STARTS_S: Final = 0.5
"""The timeout in seconds for nodes that are not ready. The next pass sends the request again."""


class StatusReport(NamedTuple):
    """One answer to `/status`."""

    voters: tuple[int, ...]
    """The voters in the configuration that the process has read; empty for a dynamic quorum."""
    revision: str
    """The revision of the configuration; empty if it lacks a revision."""
    topics: int | None
    """The number of all topics, with any permissions; None until the node has metadata."""
    offset: int | None = None
    """The offset of the last metadata record that the node has applied; None until the node has metadata."""
    cluster_id: str | None = None
    migration: ControllerMigration | None = None
    """The migration from ZooKeeper; None until the node has metadata."""


async def node_status(address: Address) -> StatusReport | None:
    """Request `/status` from a node. Returns None if its version does not serve it. Raises UnreachableError."""
    try:
        status, body = await asyncio.wait_for(page(address, "/status"), ANSWER_S)
        if status == 404:
            return None
        if status != 200:
            raise UnreachableError(f"{address}: /status: answer {status}")
        return parsed(json.loads(body))
    except (OSError, EOFError, TimeoutError, ValueError, KeyError, TypeError) as error:
        reason = str(error) or f"no answer in {ANSWER_S:g} s"
        raise UnreachableError(f"{address}: /status: {reason}") from error


class Statuses:
    """Statuses of the processes of one cluster. Each process gets one request, because it reads its file once."""

    def __init__(self) -> None:
        self._known: dict[object, StatusReport | None] = {}

    async def of(
        self, processes: Mapping[int, tuple[object, Address]], hurry: Collection[int] = ()
    ) -> dict[int, StatusReport]:
        """Statuses by node id, for the nodes that answer. `processes` has a unique key for each process.

        Nodes in `hurry` get a short timeout, so that they do not delay the others.
        """
        self._known = {key: self._known[key] for key, _ in processes.values() if key in self._known}
        await asyncio.gather(
            *(
                self._query(key, where, STARTS_S if node in hurry else None)
                for node, (key, where) in processes.items()
                if key not in self._known
            )
        )
        answers = {node: self._known.get(key) for node, (key, _) in processes.items()}
        return {node: answer for node, answer in answers.items() if answer is not None}

    def whole(self, processes: Mapping[int, tuple[object, Address]]) -> bool:
        """Whether all of `processes` have answered."""
        return all(key in self._known for key, _ in processes.values())

    async def _query(self, key: object, where: Address, within_s: float | None) -> None:
        with contextlib.suppress(UnreachableError, TimeoutError):
            async with asyncio.timeout(within_s):
                self._known[key] = await node_status(where)


def parsed(found: dict[str, Any]) -> StatusReport:
    """Convert the JSON body of `/status`. Raises KeyError or TypeError if it is malformed."""
    voters, revision = tuple(found["voters"]), found["configRevision"]
    return StatusReport(
        voters, revision, found.get("topics"), found.get("offset"), found.get("clusterId"), _migration(found)
    )


def _migration(found: dict[str, Any]) -> ControllerMigration | None:
    """The migration in the body of `/status`. Raises KeyError or TypeError if it is malformed."""
    recorded, own = found.get("zkMigrationState"), found.get("migration")
    if recorded is None:
        return None
    if own is None or not own["isActive"]:
        return ControllerMigration(recorded, own is not None)
    active = ActiveMigration(
        own["state"],
        own["driver"],
        tuple(own["blockers"]),
        own["lagRecords"],
        tuple(own["zookeeperBrokers"]),
        tuple(own["waitingBrokers"]),
        tuple(own.get("missingBrokers", ())),
        tuple(own.get("incompatibleBrokers", ())),
    )
    return ControllerMigration(recorded, True, active)


async def reported_migration(controllers: Mapping[int, Address]) -> dict[int, ControllerMigration]:
    """Request the state of the migration from controllers. Controllers without an answer are left out."""

    async def ask(address: Address) -> ControllerMigration | None:
        try:
            status = await node_status(address)
        except UnreachableError:
            return None
        return None if status is None else status.migration

    answers = await asyncio.gather(*map(ask, controllers.values()))
    return {node: one for node, one in zip(controllers, answers, strict=True) if one is not None}
