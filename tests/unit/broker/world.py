"""The surroundings of broker tests: a stopped clock and loop, a real metadata image, a scripted controller."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from kraft_node.base.env import Env
from kraft_node.base.request import ANONYMOUS, RequestContext
from kraft_node.metadata.image import MetadataImage
from kraft_node.runtime.disk import RealDisk
from kraft_protocol.wire import stored
from tests.stopped_time import SeededRandom, StoppedTime

LISTENER = "PLAINTEXT"
CLUSTER_ID = "Zm9vYmFyZm9vYmFyZm9vYg"


class Loop(StoppedTime):
    """The loop of a broker; time passes only in `run`."""

    def __init__(self) -> None:
        super().__init__(now=1_000_000)

    @property
    def now_ms(self) -> int:
        return self.now

    @now_ms.setter
    def now_ms(self, now: int) -> None:
        self.now = now

    def turn(self) -> None:
        """Run the next call, if it is due now."""
        self.step(self.now)

    def run(self, for_ms: int = 0) -> None:
        """Run the calls that are due now and in the next `for_ms` milliseconds."""
        self.advance(for_ms)


class AtOnce:
    """Does background work at once; `done` runs on the loop's next turn."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result: Any = work()
        except Exception as error:
            result = error
        self._loop.call_soon(done, result)


def make_env(loop: Loop) -> Env:
    return Env(loop, loop, SeededRandom(), RealDisk(), AtOnce(loop), None)  # type: ignore[arg-type]


class Controller:
    """A controller link that keeps its requests; tests answer."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def send(
        self,
        request: Any,
        version: int | None,
        done: Callable[[Any], None],
        timeout_ms: int,
        *,
        on_behalf_of: RequestContext | None = None,
    ) -> None:
        self.sent.append(Sent(request, version, done, on_behalf_of))

    def take(self, kind: type) -> Sent:
        """The oldest unanswered request, which must be of that kind."""
        sent = self.sent.pop(0)
        assert isinstance(sent.request, kind), sent.request
        return sent


class Sent:
    def __init__(self, request: Any, version: int | None, done: Callable[[Any], None], client: Any) -> None:
        self.request = request
        self.version = version
        self.answer = done
        self.client = client


class Client:
    """The client's end of requests: keeps the answers."""

    def __init__(self) -> None:
        self.closed = False
        self.answers: list[Any] = []
        self._ids = itertools.count(1)

    def answer(self, _ctx: RequestContext, message: Any) -> None:
        self.answers.append(message)

    def close(self) -> None:
        self.closed = True

    def bar(self) -> None: ...

    def unbar(self) -> None: ...

    def context(self, key: int, version: int, client_id: str | None = "test") -> RequestContext:
        return RequestContext(
            key, version, next(self._ids), client_id, "127.0.0.1", LISTENER, ANONYMOUS, self, 0, self.answer
        )


def topic_id(number: int) -> bytes:
    return number.to_bytes(2, "big") + bytes(13) + b"\x01"


def broker_records(*ids: int, fenced: Iterable[int] = ()) -> list[Any]:
    return [
        stored.RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=topic_id(1000 + broker),
            broker_epoch=broker + 10,
            end_points=[
                stored.RegisterBrokerRecord.BrokerEndpoint(
                    name=LISTENER, host=f"host{broker}", port=9092, security_protocol=0
                )
            ],
            features=[],
            rack=None,
            fenced=broker in fenced,
            in_controlled_shutdown=False,
            log_dirs=[],
        )
        for broker in ids
    ]


def topic_records(
    name: str, number: int, partitions: int = 1, *, leader: int = 1, isr: tuple[int, ...] = (1,), epoch: int = 0
) -> list[Any]:
    records: list[Any] = [stored.TopicRecord(name=name, topic_id=topic_id(number))]
    records += [
        stored.PartitionRecord(
            partition_id=partition,
            topic_id=topic_id(number),
            replicas=list(isr),
            isr=list(isr),
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=0,
        )
        for partition in range(partitions)
    ]
    return records


def replay(image: MetadataImage, records: Iterable[Any]) -> Any:
    """Commit `records`; returns the delta."""
    offset = image.offset
    for record in records:
        image.replay(record)
        offset += 1
    image.moved_to(offset, 1, 0)
    return image.take_delta()
