"""Runs own assignors in a thread, and writes the targets that they compute.

A run begins with a heartbeat that finds the group at a newer epoch than its target. Until it ends, members keep what
they have. The result counts only after the check of `assignors.own`; so a failing assignor never damages a group:

- the target stays, and members that hold partitions go on;
- members without partitions get UNKNOWN_SERVER_ERROR with the reason;
- after `RETRY_MS` the next heartbeat begins another run.

A run that takes longer than `LIMIT_MS` has failed, and no other begins on this broker before it returns.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group.consumer.assignors.own import AssignorError, AssignorTask
from kraft_node.broker.coordinators.group.consumer.changes import (
    ConsumerChange,
    TargetChange,
    TargetEpoch,
    TargetEpochChange,
)
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Timer
    from kraft_node.broker.coordinators.group.consumer.assignors.spec import Target
    from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
    from kraft_node.broker.coordinators.group.consumer.services import ConsumerServices
    from kraft_node.broker.coordinators.group.shard_state import ShardState

log = logging.getLogger(__name__)

LANE: Final = "assignors"
LIMIT_MS: Final = 30_000
"""The time of one run, its wait for earlier runs included."""
RETRY_MS: Final = 20_000
"""Longer than any heartbeat interval, so that each member learns of the failure."""


class _Run:
    """One run of an assignor; it is over when it has returned, or has taken too long."""

    __slots__ = ("group", "is_late", "is_over", "limit", "task")

    def __init__(self, group: ConsumerGroup, task: AssignorTask) -> None:
        self.group = group
        self.task = task
        self.is_over = False
        self.is_late = False
        self.limit: Timer | None = None


class OwnTargets:
    """The runs for one shard's groups."""

    __slots__ = ("_services", "_shard")

    def __init__(self, shard: ShardState, services: ConsumerServices) -> None:
        self._shard = shard
        self._services = services

    def check(self, group: ConsumerGroup, member_id: str) -> None:
        """Raise KafkaError UNKNOWN_SERVER_ERROR for a member without partitions while the assignor fails."""
        if group.assignor_failure and not group.holds(member_id).assigned:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, group.assignor_failure)

    def begin(self, group: ConsumerGroup, task: AssignorTask) -> None:
        """Run an assignor for a group that has no run."""
        group.is_assigning = True
        if self._services.late_runs:
            self._fail(group, task, "an earlier run has not returned yet")
            return
        run = _Run(group, task)
        run.limit = self._shard.scheduler.call_later(LIMIT_MS, self._too_late, run)
        self._services.background.submit(LANE, task.run, partial(self._returned, run))

    def _too_late(self, run: _Run) -> None:
        if not run.is_over:
            run.is_over = run.is_late = True
            self._services.late_runs += 1
            self._fail(run.group, run.task, f"it has not returned within {LIMIT_MS / 1000:.0f} s")

    def _returned(self, run: _Run, result: Mapping[str, Target] | BaseException) -> None:
        if run.is_late:
            self._services.late_runs -= 1
        if run.is_over:
            return
        run.is_over = True
        if run.limit is not None:
            run.limit.cancel()
        group = run.group
        if self._shard.consumers.get(group.group_id) is not group:
            return  # removed, or loaded again
        if not isinstance(result, BaseException):
            self._store(group, run.task, result)
        elif isinstance(result, AssignorError):
            self._fail(group, run.task, str(result))
        else:
            self._fail(group, run.task, f"{type(result).__name__}: {result}")

    def _fail(self, group: ConsumerGroup, task: AssignorTask, reason: str) -> None:
        self._services.assignor_failures += 1
        group.assignor_failure = f"Assignor {task.assignor.name} failed: {reason}."
        log.error("assignor failed group=%s assignor=%s error=%s", group.group_id, task.assignor.name, reason)
        self._shard.scheduler.call_later(RETRY_MS, self._retry, group)

    def _retry(self, group: ConsumerGroup) -> None:
        group.assignor_failure = ""
        group.is_assigning = False

    def _store(self, group: ConsumerGroup, task: AssignorTask, targets: Mapping[str, Target]) -> None:
        """Write the targets of the members that are still there.

        A static member that came back with a new id has the target of its former id, which the run did not know. Then
        partitions could have two owners: the result is dropped, and the next heartbeat begins another run.
        """
        group.is_assigning = False
        name = group.group_id
        if any(target for member_id, target in group.targets.items() if member_id not in task.members):
            log.info("result of an assignor is out of date group=%s assignor=%s", name, task.assignor.name)
            return
        changes: list[ConsumerChange] = [
            TargetChange(name, member_id, target)
            for member_id, target in targets.items()
            if member_id in group.members and target != group.targets.get(member_id)
        ]
        changes.append(TargetEpochChange(name, TargetEpoch(task.epoch, self._shard.clock.wall_ms())))

        def done(error: KafkaError | None) -> None:
            if error is not None:
                log.warning(
                    "targets of an assignor are not stored group=%s assignor=%s error=%s",
                    name,
                    task.assignor.name,
                    error,
                )

        self._shard.write(changes, done)
