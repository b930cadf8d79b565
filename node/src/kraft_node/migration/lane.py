"""One session of ZooKeeper after the other, in a lane of background work: its calls wait for their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraft_node.base.env import Env
from kraft_node.migration.waits import DriverLife, LaneJob
from kraft_node.migration.zookeeper import Connect, NoAnswerError, ZooKeeper

LANE: Final = "zookeeper"


class LaneSession:
    """The session of a driver. It is begun when it is needed, and ends if a call gets no answer."""

    def __init__(self, env: Env, connect: Connect) -> None:
        self._env = env
        self._connect = connect
        self.session: ZooKeeper | None = None
        """None while no session exists."""
        self._begun: ZooKeeper | None = None
        """The last session; only the lane uses this."""

    def result(self, work: Callable[[ZooKeeper], Any]) -> DriverLife:
        """The result of `work` in the lane. Begins a session if none exists. Raises what `work` raises."""
        if self.session is None:
            self.session = yield LaneJob(self._begin)
        session = self.session
        assert session is not None, "law: a session was begun"
        try:
            return (yield LaneJob(lambda: work(session)))
        except NoAnswerError:
            self.drop()
            raise

    def drop(self) -> None:
        """End the session, also one that the lane begins just now."""
        self.session = None
        self._env.background.submit(LANE, self._close, lambda _: None)

    def _begin(self) -> ZooKeeper:
        self._begun = self._connect()
        return self._begun

    def _close(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.close()
