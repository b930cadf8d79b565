"""The whole reconciler under seeds, and planted bugs, each of which must break its law.

Brokers die between plan and act, views are stale, the API server is throttled, answers are lost, the resource is
deleted and applied anew.

More seeds: `python -m tests.sim.operator.passes --seeds 300`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraft_operator import one_pass
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.apply.fence import Permit
from kraft_operator.apply.kubernetes import Hands
from kraft_operator.apply.record import RecordObject
from kraft_operator.kube.client import ApiError
from kraft_operator.plan import gates, planner
from kraft_operator.plan.model.record import PLAINTEXT, Record
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import Plan
from kraft_operator.plan.nodes import assign, roll
from kraft_operator.plan.nodes import replace as replacing
from kraft_operator.specs.remembered import record_of
from tests.sim.operator.passes import Life
from tests.tiers import seeds

Patch = pytest.MonkeyPatch
FOREVER_MS = 1e9


@pytest.mark.parametrize("seed", seeds(range(4), everyday=2))
def test_no_law_is_broken_and_the_cluster_settles(seed: int) -> None:
    Life(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10])
def test_a_disk_that_became_the_last_is_used_again(seed: int) -> None:
    """The broker with the last in-sync copy was stopped for its replacement, and no replica could catch up."""
    Life(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1211])
def test_a_slow_read_after_the_second_look_counts_against_the_deadline(seed: int) -> None:
    """During a read of 10 s a voter died, and the operator stopped another voter."""
    Life(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1227])
def test_a_broker_that_enters_an_isr_during_the_look_may_be_stopped(seed: int) -> None:
    """The law was wrong: it excused ISRs that had just shrunk, but not an ISR that had just grown."""
    Life(seed).run()


@pytest.mark.parametrize("seed", seeds(range(4), everyday=2))
def test_drained_nodes_are_restarted_by_the_gates(seed: int) -> None:
    """This holds also while brokers die, the API server is slow and answers are lost; in the end no mark is left."""
    life = Life(seed, drains=True)
    life.run()
    assert life.evicted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_more_seeds(seed: int) -> None:
    Life(seed).run()


# Planted bugs


def _no_deadline(patch: Patch) -> None:
    patch.setattr(planner, "ACT_AGE_MAX_MS", FOREVER_MS)


def _gate_at_plan_time_only(patch: Patch) -> None:
    """A plan is carried out however long that takes."""
    _no_deadline(patch)

    async def at_once(planned: Plan, *_: object) -> Permit:
        return Permit(planned, FOREVER_MS / 1000)

    patch.setattr(one_pass, "look_again", at_once)


def _behind_other_steps(patch: Patch) -> None:
    """Disruptive steps come last in a plan, after steps that take time."""

    def fence(s: Situation, _observed: object) -> None:
        s.plan.good_ms = FOREVER_MS

    patch.setattr(planner, "_fence", fence)


def _repeated_deletion(patch: Patch) -> None:
    """A deletion without an answer is repeated for minutes, in any state of the pod."""
    _no_deadline(patch)

    async def stop(self: Any, node_id: int) -> None:
        pod = self._seen.pods.get(node_id)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        for _ in range(5):
            with contextlib.suppress(ApiError):
                await self._api.delete("Pod", self._cluster.namespace, name, uid)
                break
            await asyncio.sleep(30)

    patch.setattr(Hands, "_stop", stop)


def _record_in_the_status(patch: Patch) -> None:
    """The operator knows past steps from the status alone. The mode is known: else it does nothing without a record."""

    def read(_: RecordObject, before: KRaftClusterStatus) -> Record:
        found = record_of(before)
        return replace(found, security=found.security or PLAINTEXT)

    begun = assign._begun

    def forgets(record: Record, *more: Any) -> Any:
        found = begun(record, *more)
        return replace(found, replacements=()) if isinstance(found, Record) else found

    patch.setattr(RecordObject, "read", read)
    patch.setattr(assign, "_begun", forgets)
    patch.setattr(Situation, "replaced", lambda _: {})


def _unfenced_is_up(patch: Patch) -> None:
    """A broker that has died counts until it is fenced."""

    def serving(s: Situation) -> frozenset[int]:
        assert s.metadata is not None
        return frozenset(i for i, broker in s.metadata.brokers.items() if not broker.fenced)

    patch.setattr(Situation, "serving", serving)


def _no_second_look_at_disks(patch: Patch) -> None:
    """A disk is given up if that was safe before the stop."""
    last_copies = replacing._last_copies

    def only_before(s: Situation, node: Any, *, accepted: bool) -> Any:
        return last_copies(s, node, accepted=accepted) if node.id in s.kube.pods else None

    patch.setattr(replacing, "_last_copies", only_before)


def _no_gate_of_brokers(patch: Patch) -> None:
    for module in (gates, roll, replacing):
        patch.setattr(module, "isr_without", lambda *_, **__: None)


BUGS: dict[str, tuple[Callable[[Patch], None], str, range]] = {
    "gate at plan time only": (_gate_at_plan_time_only, "isr|quorum", range(40)),
    "disruption behind other steps": (_behind_other_steps, "isr|quorum", range(40)),
    "repeated deletion": (_repeated_deletion, "isr|quorum", range(40)),
    "record in the status": (_record_in_the_status, "once", range(10)),
    "who is not fenced is up": (_unfenced_is_up, "isr", range(610, 690)),
    "no second look at disks": (_no_second_look_at_disks, "copy", range(60)),
    "no gate of brokers": (_no_gate_of_brokers, "isr", range(20)),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_breaks_its_law(bug: str, monkeypatch: Patch) -> None:
    plant, laws, seeds = BUGS[bug]
    plant(monkeypatch)
    for seed in seeds:
        try:
            Life(seed).run()
        except AssertionError as error:
            if str(error).partition(":")[0] in laws.split("|"):
                print(f"{bug}: seed {seed}: {error}")
                return
    pytest.fail(f"{bug}: no seed of {seeds} finds it")
