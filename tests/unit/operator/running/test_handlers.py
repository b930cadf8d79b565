"""The handlers that kopf calls, and a new leader's first look."""

from __future__ import annotations

import asyncio
import contextlib
import inspect

import kopf

from kraft_operator import handlers, leader
from kraft_operator.pass_queue import Queue
from kraft_operator.reconcile import Key
from kraft_operator.settings import Settings
from tests.unit.operator.fake_kubernetes import FakeApi

KEYS = [Key("demo", "a"), Key("demo", "b")]


def test_every_handler_runs_on_the_loop() -> None:
    """kopf runs plain functions in threads: they woke queues that belong to the loop, and read them during writes."""
    made = kopf.OperatorRegistry()
    handlers.register(made, leader.Operator(Settings()))
    found = [one for part in (made._watching, made._activities) for one in part.get_all_handlers()]
    assert len(found) > 10
    assert [one.id for one in found if not inspect.iscoroutinefunction(one.fn)] == []


def test_a_new_leader_reconciles_each_cluster_once_at_once() -> None:
    """If its event was lost, a cluster waited for the whole pause between two looks."""

    async def main() -> None:
        passes: list[Key] = []

        async def work(key: Key) -> None:
            passes.append(key)

        operator, api = leader.Operator(Settings()), FakeApi()
        for key in KEYS:
            api.objects["KRaftCluster", *key] = {"metadata": {"namespace": key.namespace, "name": key.name}}
        queues = [Queue(work, asyncio.get_running_loop().time) for _ in range(2)]
        operator._queue, operator._others = queues
        lists = 0

        async def pause(_: float) -> None:
            nonlocal lists
            lists += 1
            if lists == 3:
                raise asyncio.CancelledError
            await asyncio.gather(*(_turns(queue) for queue in queues))

        with contextlib.suppress(asyncio.CancelledError):
            await operator._resync(api, pause)
        assert sorted(passes) == KEYS

    asyncio.run(main())


async def _turns(queue: Queue) -> None:
    task = asyncio.create_task(queue.run())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_recreated_resource_is_a_change() -> None:
    """After a gap, a watch lists what exists. A new object of the same generation looked like an echo of the old."""
    made, woken = kopf.OperatorRegistry(), list[Key]()
    handlers._pipeline_wakers(made, woken.append)
    (of_table,) = [one.fn for one in made._watching.get_all_handlers() if one.selector.any_name == "kafkatables"]

    async def event(uid: str) -> None:
        meta = {"uid": uid, "generation": 1}
        await of_table(namespace="demo", name="a", body={"kind": "KafkaTable"}, meta=meta, type=None)

    async def main() -> None:
        for uid in ("u", "u", "v"):
            await event(uid)

    asyncio.run(main())
    assert woken == [Key("demo", "KafkaTable/a")] * 2
