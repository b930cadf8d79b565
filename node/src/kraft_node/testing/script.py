"""Coroutines on simulated time: client behaviour, written in the order in which it happens.

A `Script` runs one coroutine on a world's queue. The coroutine may await only `Moment`s: a single call back, or a time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from kraft_node.testing.world import SimHost, World

T = TypeVar("T")


class Moment(Generic[T]):
    """Something that happens once, with a value."""

    __slots__ = ("_value", "_waiting", "happened")

    def __init__(self) -> None:
        self.happened = False
        self._value: T | None = None
        self._waiting: list[Callable[[], None]] = []

    def happen(self, value: T) -> None:
        """Set the value; a second call is ignored."""
        if self.happened:
            return
        self.happened, self._value = True, value
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()

    def when(self, resume: Callable[[], None]) -> None:
        """Call `resume` once the value is set."""
        if self.happened:
            resume()
        else:
            self._waiting.append(resume)

    def __await__(self) -> Generator[Moment[Any], None, T]:
        if not self.happened:
            yield self
        return self._value  # type: ignore[return-value]


class Script:
    """One coroutine on `host`; it runs until it returns or is stopped. If it raises, the whole run ends."""

    def __init__(self, world: World, name: str, work: Coroutine[Moment[Any], None, None], host: SimHost) -> None:
        self.name = name
        self.done = False
        self._world = world
        self._work = work
        self._host = host
        world.at(0.0, self._step, host=host)

    def stop(self) -> None:
        """Stop the coroutine at its present wait."""
        if not self.done:
            self.done = True
            self._work.close()

    def _step(self) -> None:
        if self.done:
            return
        try:
            moment = self._work.send(None)
        except StopIteration:
            self.done = True
            return
        moment.when(self._soon)

    def _soon(self) -> None:
        self._world.at(0.0, self._step, host=self._host)


def sleep(world: World, duration_ms: float, host: SimHost | None = None) -> Moment[None]:
    """A moment that happens in `duration_ms`."""
    moment: Moment[None] = Moment()
    world.at(duration_ms, moment.happen, None, host=host)
    return moment
