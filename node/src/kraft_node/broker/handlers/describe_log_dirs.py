"""DescribeLogDirs (35), versions 1-5: the content of log directories (3 top-level error, 4 volume sizes, 5 cordoned).

An unused partition has no log on disk yet. It is listed with size 0 in the directory where its log will be, because
Kafka would have created it. A quarantined replica has lag -1, Kafka's value for a log with unknown end.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kraft_node.base.long_answers import answer
from kraft_node.broker.pieces import pieces
from kraft_node.log.manager.log_manager import UNMEASURED, measured
from kraft_node.metadata.features import CORDONED_LOG_DIRS_SUPPORTED
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.messages import DescribeLogDirsResponse as Response

UNKNOWN_LAG: Final = -1

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from kraft_node.base.env import Env
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.log.manager.directory import Directory
    from kraft_node.log.manager.log_manager import LogManager
    from kraft_node.metadata.image import MetadataView
    from kraft_node.partition.manager import ReplicaManager
    from kraft_node.partition.storage import Storage


Wanted: TypeAlias = "dict[str, set[int]] | None"
"""The requested partitions, by topic; None: all."""

PARTITIONS_A_STEP: Final = 200


class _Unmeasured(NamedTuple):
    """A row without a known size, and the path of its log."""

    row: Any
    path: str


class DescribeLogDirsHandler:
    """Describes the directories of one broker."""

    def __init__(
        self,
        env: Env,
        turns: Turns,
        node_id: int,
        image: MetadataView,
        logs: LogManager,
        storage: Storage,
        replicas: ReplicaManager,
    ) -> None:
        self._disk = env.disk
        self._background = env.background
        self._turns = turns
        self._node_id = node_id
        self._image = image
        self._logs = logs
        self._storage = storage
        self._replicas = replicas

    def __call__(self, ctx: RequestContext, request: Any) -> Any:
        """Every directory, with the requested topics (None: all)."""
        return answer(self._turns, ctx, request, self._steps(ctx, request))

    def _steps(self, ctx: RequestContext, request: Any) -> Generator[None, None, Any]:
        unmeasured: list[_Unmeasured] = []
        wanted = None if request.topics is None else (yield from _wanted(request))
        unused = yield from self._unused(wanted)
        knows_of_cordons = self._image.metadata_level >= CORDONED_LOG_DIRS_SUPPORTED
        results = []
        for directory in self._storage.directories():
            result = Response.DescribeLogDirsResult(log_dir=directory.path, topics=[])
            result.is_cordoned = directory.cordoned and knows_of_cordons and directory.online
            results.append(result)
            if not directory.online:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            try:
                result.total_bytes, result.usable_bytes = directory.volume_bytes()
                result.topics = yield from self._topics(
                    directory, wanted, unused.pop(Uuid(directory.id), ()), unmeasured
                )
            except OSError as e:
                directory.fail(e)
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        if unmeasured:
            self._measure(ctx, Response(results=results), unmeasured)
            return None
        return Response(results=results)

    def _measure(self, ctx: RequestContext, response: Any, unmeasured: list[_Unmeasured]) -> None:
        """Let a lane measure logs that the loop must not measure, then answer."""
        disk = self._disk

        def work() -> None:
            for one in unmeasured:
                with suppress(OSError):  # deleted or moved; a failed directory will be noticed by its users
                    one.row.partition_size = measured(disk, one.path)

        self._background.submit("log-sizes", work, lambda _: None if ctx.answered else ctx.respond(response))

    def _topics(
        self,
        directory: Directory,
        wanted: Wanted,
        unused: Iterable[tuple[str, int, int]],
        unmeasured: list[_Unmeasured],
    ) -> Generator[None, None, list[Any]]:
        """The content of a directory; rows that a lane must complete are added to `unmeasured`. Raises OSError."""
        topics: dict[str, list[Any]] = {}
        for number, (topic, index, size) in enumerate(chain(self._storage.sizes(directory), unused)):
            if number % PARTITIONS_A_STEP == PARTITIONS_A_STEP - 1:
                yield
            if _is_wanted(wanted, topic, index):
                lag = 0 if (topic, index) not in directory.quarantined else UNKNOWN_LAG
                row = Response.DescribeLogDirsPartition(partition_index=index, partition_size=size, offset_lag=lag)
                topics.setdefault(topic, []).append(row)
                if size == UNMEASURED:
                    row.partition_size = 0
                    unmeasured.append(_Unmeasured(row, self._logs.path(directory, topic, index)))
        for topic, index, size, end in self._logs.futures.sizes(directory):
            if _is_wanted(wanted, topic, index):
                lag = self._lag(topic, index, end)
                row = Response.DescribeLogDirsPartition(index, size, lag, is_future_key=True)
                topics.setdefault(topic, []).append(row)
        return [Response.DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()]

    def _lag(self, topic: str, index: int, end: int) -> int:
        """How many offsets a copy that ends at `end` lacks; -1 if unknown."""
        partition = self._replicas.peek((topic, index))
        return UNKNOWN_LAG if partition is None else max(0, partition.log.end_offset - end)

    def _unused(self, wanted: Wanted) -> Generator[None, None, dict[Uuid, list[tuple[str, int, int]]]]:
        """Partitions of this broker without a log, by their assigned directory.

        A partition without an assignment chooses when its log is created; it is listed in the first online directory.
        """
        online = self._storage.directory_ids()
        found: dict[Uuid, list[tuple[str, int, int]]] = {}
        looked_at = 0
        for name in [topic.name for topic in self._image.topics]:
            start = 0
            while (topic := self._image.topics.by_name(name)) is not None and start < len(topic):
                for index in range(start, min(start + PARTITIONS_A_STEP, len(topic))):
                    state = topic.partition(index)
                    if state is None or self._node_id not in state.replicas or not _is_wanted(wanted, name, index):
                        continue
                    if self._storage.directory_of(name, index) is None and online:
                        assigned = state.directory(self._node_id)
                        directory = assigned if assigned in online else online[0]
                        found.setdefault(directory, []).append((name, index, 0))
                looked_at += min(PARTITIONS_A_STEP, len(topic) - start) + 1
                start += PARTITIONS_A_STEP
                if looked_at >= PARTITIONS_A_STEP:
                    looked_at = 0
                    yield
        return found


def _wanted(request: Any) -> Generator[None, None, dict[str, set[int]]]:
    """The requested partitions by topic, collected in steps."""
    wanted: dict[str, set[int]] = {}
    for piece in pieces(request, ("topics", "partitions"), PARTITIONS_A_STEP):
        for topic in piece.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
        yield
    return wanted


def _is_wanted(wanted: Wanted, topic: str, index: int) -> bool:
    return wanted is None or index in wanted.get(topic, ())
