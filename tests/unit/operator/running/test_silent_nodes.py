"""Nodes that start and do not answer yet delay no volume and no pod: each pass waited for them for seconds."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from kraft_operator.observe import cluster, status
from kraft_operator.observe.cluster import Found, Look
from kraft_operator.observe.status import Statuses
from kraft_operator.plan.model.observed import Kube
from kraft_operator.protocol import new_client
from kraft_protocol.client.aio import Address


async def _silent() -> asyncio.Server:
    """A process that listens and sends nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def test_the_view_does_not_wait_for_unready_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "ANSWER_S", 1000.0)
    monkeypatch.setattr(status, "STARTS_S", 0.01)

    async def main() -> None:
        server, statuses = await _silent(), Statuses()
        where = Address(*server.sockets[0].getsockname())
        assert await statuses.of({1: ("process", where)}, hurry={1}) == {}
        assert not statuses.whole({1: ("process", where)}), "the next pass asks again"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(statuses.of({1: ("process", where)}), 0.05)
        server.close()

    asyncio.run(main())


def test_the_view_does_not_wait_for_a_quorum_without_ready_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "STARTS_S", 0.01)

    def found(*, ready: bool) -> Found:
        return Found(Kube({}, {}, {}), frozenset({("uid", ready, 0)}), {}, {}, {}, whole=True)

    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        look = Look(new_client(), lambda: 0.0)
        monkeypatch.setattr(look.view, "look", never)
        observed = await look.observed(found(ready=False), 0.0)
        assert observed.quorum.value is None, "unknown, not healthy"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(look.observed(found(ready=True), 0.0), 0.05)

    asyncio.run(main())
