"""The queue, the Lease and the settings: the parts between the outside and passes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import pytest

from kraft_operator.kube.client import ApiError
from kraft_operator.kube.lease import Lease
from kraft_operator.pass_queue import FAILED_S, PACE_S, Queue
from kraft_operator.reconcile import Key
from kraft_operator.settings import Settings
from kraft_protocol.client.aio import UnreachableError
from tests.unit.operator.fake_kubernetes import FakeApi

A, B = Key("n", "a"), Key("n", "b")


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main

    asyncio.run(bounded())


async def _turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# The queue


def test_concurrent_events_are_one_pass_and_later_ones_another() -> None:
    async def main() -> None:
        passes: list[Key] = []
        gate = asyncio.Event()

        async def work(key: Key) -> None:
            passes.append(key)
            await gate.wait()

        clock = Clock()
        queue = Queue(work, clock)
        for _ in range(5):
            queue.put(A)
        task = asyncio.create_task(queue.run(workers=3))
        await _turns()
        assert passes == [A]
        queue.put(A)
        queue.put(A)
        queue.put(B)
        await _turns()
        assert passes == [A, B], "a cluster is never in two passes"
        gate.set()
        await _turns()
        clock.now += PACE_S
        queue.put(B)
        await _turns()
        assert passes == [A, B, A, B]
        task.cancel()

    run(main())


def test_the_earlier_time_wins() -> None:
    async def main() -> None:
        clock = Clock()
        passes: list[float] = []

        async def work(key: Key) -> float:
            passes.append(clock.now)
            return 30.0

        queue = Queue(work, clock)
        queue.put(A)
        task = asyncio.create_task(queue.run(workers=1))
        await _turns()
        queue.put(A, 100.0)
        clock.now = 29.0
        queue._changed.set()
        await _turns()
        assert passes == [0.0]
        clock.now = 30.0
        queue._changed.set()
        await _turns()
        assert passes == [0.0, 30.0]
        clock.now = 40.0
        queue.put(A)
        await _turns()
        assert passes == [0.0, 30.0, 40.0]
        task.cancel()

    run(main())


@pytest.mark.parametrize("error", [ApiError(500, "", "no"), UnreachableError("no answer"), ValueError("a bug")])
def test_only_unexpected_errors_are_logged_with_a_traceback(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """A node that did not answer left a traceback since its error is of another package."""

    async def main() -> None:
        async def work(_: Key) -> float | None:
            raise error

        queue = Queue(work, Clock())
        queue.put(A)
        task = asyncio.create_task(queue.run(workers=1))
        await _turns(8)
        task.cancel()

    run(main())
    (record,) = caplog.records
    assert bool(record.exc_info and record.exc_info[0]) == isinstance(error, ValueError)


def test_failed_passes_are_repeated_with_growing_pauses() -> None:
    async def main() -> None:
        clock = Clock()
        failed: list[float] = []
        others: list[float] = []

        async def work(key: Key) -> float | None:
            if key == B:
                others.append(clock.now)
                return None
            failed.append(clock.now)
            raise ApiError(500, "", "no")

        queue = Queue(work, clock)
        queue.put(A)
        task = asyncio.create_task(queue.run(workers=1))
        for _ in range(60):
            clock.now += FAILED_S / 2
            queue.put(B)
            await _turns(8)
        gaps = [round(later - before, 3) for before, later in itertools.pairwise(failed)]
        assert gaps == sorted(gaps)
        assert gaps[0] < gaps[-1]
        assert len(others) >= 50
        task.cancel()

    run(main())


def test_events_of_own_writes_cause_a_single_further_pass() -> None:
    """Each of six pods that a pass created caused a pass of its own."""

    async def main() -> None:
        passes: list[float] = []
        clock = Clock()

        async def work(_: Key) -> float:
            passes.append(clock.now)
            if len(passes) == 1:
                queue.put(A)
            return 60.0

        queue = Queue(work, clock)
        queue.put(A)
        task = asyncio.create_task(queue.run(workers=1))
        await _turns()
        for _ in range(5):
            queue.put(A)
            await _turns()
        assert passes == [0.0]
        clock.now += PACE_S
        queue.put(B, 60.0)  # the test's clock wakes no task
        await _turns()
        assert passes == [0.0, PACE_S]
        task.cancel()

    run(main())


# The Lease


def test_a_second_operator_takes_over_an_expired_lease() -> None:
    async def main() -> None:
        api, clock = FakeApi(), Clock()
        api.replace = _replace(api)  # type: ignore[attr-defined]
        first, second = (Lease(api, "n", "l", name, 15.0, clock) for name in ("one", "two"))  # type: ignore[arg-type]
        assert await first._try()
        assert not await second._try()
        for _ in range(5):
            clock.now += 10
            assert await first._try()
            assert not await second._try(), "it is renewed"
        clock.now += 14
        assert not first.held(), "who has not renewed it gives up before another may take it"
        assert not await second._try()
        clock.now += 2
        assert await second._try()
        assert second.held()
        assert not await first._try()
        lease = await api.get("Lease", "n", "l")
        assert lease is not None
        assert lease["spec"]["holderIdentity"] == "two"
        assert lease["spec"]["leaseTransitions"] == 1

    run(main())


def test_an_operator_that_cannot_renew_stops_before_another_takes_over() -> None:
    """A lease of 0.9 s in real time, because timeouts are real."""

    async def main() -> None:
        api = FakeApi()
        api.replace = _replace(api)  # type: ignore[attr-defined]
        clock = asyncio.get_running_loop().time
        first, second = (Lease(api, "n", "l", name, 0.9, clock) for name in ("one", "two"))  # type: ignore[arg-type]
        await first.acquire()
        silence = asyncio.Event()

        async def silent(*_: Any) -> None:
            await silence.wait()

        alone = FakeApi()
        alone.get = silent  # type: ignore[method-assign,assignment]
        first._api = alone  # type: ignore[assignment]

        async def takes() -> None:
            await second.acquire()
            assert not first.held()

        await asyncio.gather(first.keep(), takes())

    run(main())


def test_a_returned_lease_is_taken_at_once() -> None:
    async def main() -> None:
        api, clock = FakeApi(), Clock()
        api.replace = _replace(api)  # type: ignore[attr-defined]
        first, second = (Lease(api, "n", "l", name, 15.0, clock) for name in ("one", "two"))  # type: ignore[arg-type]
        assert await first._try()
        await first.release()
        assert not first.held()
        assert await second._try()

    run(main())


def test_a_lease_whose_request_was_interrupted_is_returned() -> None:
    """No replica held it then, and no replica could take it for 15 s."""

    async def main() -> None:
        api, clock, taken = FakeApi(), Clock(), asyncio.Event()
        replace = _replace(api)

        async def late(body: dict[str, Any]) -> dict[str, Any]:
            made = await replace(body)
            taken.set()
            await asyncio.sleep(60)
            return dict(made)

        api.replace = late  # type: ignore[attr-defined]
        api.objects["Lease", "n", "l"] = {"kind": "Lease", "metadata": {"name": "l", "namespace": "n"}}
        first, second = (Lease(api, "n", "l", name, 15.0, clock) for name in ("one", "two"))  # type: ignore[arg-type]
        task = asyncio.create_task(first.acquire())
        await taken.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        api.replace = replace  # type: ignore[attr-defined]
        await first.release()
        assert await second._try()

    run(main())


def test_a_lease_without_a_holder_is_taken() -> None:
    """The chart creates it, so that it is deleted with the release."""

    async def main() -> None:
        api = FakeApi()
        api.replace = _replace(api)  # type: ignore[attr-defined]
        api.objects["Lease", "n", "l"] = {"kind": "Lease", "metadata": {"name": "l", "namespace": "n"}}
        assert await Lease(api, "n", "l", "one", 15.0, Clock())._try()  # type: ignore[arg-type]

    run(main())


def test_of_two_simultaneous_requests_for_a_lease_one_succeeds() -> None:
    async def main() -> None:
        api, clock = FakeApi(), Clock()
        api.replace = _replace(api)  # type: ignore[attr-defined]
        names = [f"r{i}" for i in range(4)]
        leases = [Lease(api, "n", "l", name, 15.0, clock) for name in names]  # type: ignore[arg-type]
        results = await asyncio.gather(*(lease._try() for lease in leases))
        assert sum(results) == 1

    run(main())


def _replace(api: FakeApi) -> Any:
    async def replace(body: dict[str, Any]) -> dict[str, Any]:
        metadata = body["metadata"]
        return await api.patch(body["kind"], metadata["namespace"], metadata["name"], body)

    return replace


def test_a_closed_queue_finishes_its_passes_and_starts_none() -> None:
    async def main() -> None:
        gate, passes = asyncio.Event(), []

        async def work(key: Key) -> float:
            passes.append(key)
            await gate.wait()
            return 0.0

        clock = Clock()
        queue = Queue(work, clock)
        queue.put(A)
        task = asyncio.create_task(queue.run(workers=2))
        await _turns()
        clock.now = 7.0
        assert queue.longest_s() == 7.0
        queue.put(B, 1.0)
        queue.close()
        await _turns()
        assert not task.done(), "the pass at hand is ended first"
        gate.set()
        await task
        assert passes == [A]

    run(main())


# Settings


def test_settings_are_read_from_the_environment() -> None:
    env = {"KRAFT_NAMESPACES": "a, b,", "KRAFT_LEASE": "l", "KRAFT_LEASE_SECONDS": "9", "POD_NAME": "p"}
    settings = Settings.of(env)
    assert settings.namespaces == ("a", "b")
    assert (settings.lease, settings.lease_s, settings.resync_s) == ("l", 9.0, 30.0)
    assert settings.me.startswith("p-")
    assert settings.health_endpoint == "http://0.0.0.0:8081/healthz"
    assert Settings.of({"POD_IP": "fd00::7", "KRAFT_HEALTH_PORT": "9"}).health_endpoint == "http://[::]:9/healthz"


@pytest.mark.parametrize(
    "name",
    ["KRAFT_LEASE_SECONDS", "KRAFT_RESYNC_SECONDS", "KRAFT_HEALTH_PORT", "KRAFT_LOG_LEVEL"],
)
def test_a_wrong_setting_in_the_environment_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Settings.of({name: "soon"})
