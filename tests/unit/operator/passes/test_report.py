"""A pass as the status of the resource: every step in words, the waits, and the next node."""

from __future__ import annotations

import typing

import pytest

from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Metadata, Partition
from kraft_operator.plan.model.record import Record
from kraft_operator.report.status import document, status, step_text
from kraft_operator.specs.remembered import record_of
from tests.unit.operator.sample import sample

STEPS: dict[type, tuple[do.Step, str]] = {
    do.Remember: (do.Remember(Record(), "nodes are assigned"), "Remember: nodes are assigned"),
    do.CreateVolume: (do.CreateVolume(1, 0), "CreateVolume 1: the claims of disk 0 are created"),
    do.Format: (do.Format(1, 0), "Format 1: the job that formats disk 0 is created"),
    do.DropJob: (do.DropJob(1, 0), "DropJob 1: the job that formats disk 0 is deleted"),
    do.MarkFormatted: (
        do.MarkFormatted(1, 0),
        "MarkFormatted 1: disk 0 is formatted, and its claims are marked as the node's",
    ),
    do.MarkReplaced: (
        do.MarkReplaced(1, 1, ("disk",)),
        "MarkReplaced 1: the claims of disk 1 record that replacement disk is done",
    ),
    do.GrowVolume: (do.GrowVolume(1, 0, {"data": 1}), "GrowVolume 1: data to 1 bytes"),
    do.DeleteVolume: (
        do.DeleteVolume(1, 0),
        "DeleteVolume 1: the claims of disk 0 are deleted by deletionPolicy",
    ),
    do.MarkVolume: (do.MarkVolume(1, 0, ("more",), "Empty"), "MarkVolume 1: volume more is empty"),
    do.Cordon: (do.Cordon(1, ("/b",)), "Cordon 1: no new replica goes to /b"),
    do.MoveLogs: (do.MoveLogs(1, {("t", 0): "/a"}), "MoveLogs 1: 1 replicas move to other log directories"),
    do.CreatePod: (do.CreatePod(1, {}), "CreatePod 1: its pod is created"),
    do.RestoreConfig: (
        do.RestoreConfig(1, "ConfigMap c", {}),
        "RestoreConfig 1: ConfigMap c is created again, as its pod needs it",
    ),
    do.RewriteAspects: (
        do.RewriteAspects(1, {}),
        "RewriteAspects 1: the annotations of its pod get the form of this operator, without a restart",
    ),
    do.Recreate: (do.Recreate((1, 2), "corrected"), "Recreate 1, 2: corrected"),
    do.SetConfig: (do.SetConfig({"a": "1"}, ("b", "c")), "SetConfig: a=1, b is removed, c is removed"),
    do.SetFeature: (do.SetFeature("kraft.version", 1), "SetFeature: kraft.version is finalized at level 1"),
    do.Throttle: (do.Throttle(("t",), on=True), "Throttle: replicas of t are throttled while they move"),
    do.Reassign: (do.Reassign({("t", 0): (1, 2)}), "Reassign: t-0 to 1,2"),
    do.Unregister: (do.Unregister(101), "Unregister 101: its registration is removed"),
    do.AddVoter: (do.AddVoter(4), "AddVoter 4: it becomes a voter"),
    do.RemoveVoter: (do.RemoveVoter(4, "it leaves"), "RemoveVoter 4: it leaves"),
    do.Restart: (do.Restart((101, 102), "config"), "Restart 101, 102: config"),
    do.Stop: (do.Stop(1, "it leaves"), "Stop 1: it leaves"),
}


@pytest.mark.parametrize("kind", typing.get_args(do.Step), ids=lambda kind: kind.__name__)
def test_every_step_has_a_description(kind: type) -> None:
    step, words = STEPS[kind]
    assert step_text(step) == words


def _status(plan: do.Plan, before: KRaftClusterStatus | None = None, now: str = "2026-01-01T00:00:00Z"):  # type: ignore[no-untyped-def]
    return status(sample(), Record(), None, plan, before or KRaftClusterStatus(), generation=3, now=now)


def test_a_step_that_waits_for_approval_is_shown() -> None:
    plan = do.Plan(pending=do.Restart((101,), "config"))
    plan.block("ApprovalNeeded", "revision x waits for approval")
    found = _status(plan)
    assert (found.step.action, found.step.nodes, found.step.waits_for) == ("Restart", [101], "approval")
    assert found.plan[0] == "Restart 101: config (waits for approval)"


def test_a_condition_keeps_the_time_of_its_change() -> None:
    first = _status(do.Plan())
    later = _status(do.Plan(), first, now="2026-02-02T00:00:00Z")
    assert document(later) == document(first), "nothing has changed: nothing is written"
    blocked = do.Plan()
    blocked.block("QuorumAtRisk", "voter 2 is behind")
    times = {one.type: one.last_transition_time[:7] for one in _status(blocked, first, now="2026-02-02").conditions}
    assert times["Degraded"] == "2026-02"
    assert times["Ready"] == "2026-01"


def test_the_record_is_read_back_from_the_status() -> None:
    record = Record("MkU3OEVBNTcwNTJENDM2Qk", voters=(1, 2), retired=(7,))
    found = status(sample(), record, None, do.Plan(), KRaftClusterStatus(), generation=1, now="2026-01-01T00:00:00Z")
    assert record_of(KRaftClusterStatus.model_validate(document(found))) == record


def test_partitions_that_refuse_writes_are_named_first() -> None:
    from kraft_operator.report.status import _partitions

    partitions = [Partition("t", n, (1, 2, 3), frozenset({1, 2}), 2) for n in range(12)]
    partitions.append(Partition("z", 0, (1, 2, 3), frozenset({3}), 2, moving=True))
    found = _partitions(Metadata({}, tuple(partitions)))
    assert (found.total, found.under_replicated, found.under_min_isr, found.moving) == (13, 13, 1, 1)
    assert found.named[0] == "z-0: in sync 3 of 1,2,3, at least 2"
    assert len(found.named) == 10
