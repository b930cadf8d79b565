"""Fetch (1), versions 4-18: records from partitions, once or as an incremental session (KIP-227).

Versions: 7 sessions; 9 leader epochs (KIP-320); 11 rack; 12 flexible, last fetched epoch and divergence (KIP-595); 13
topic ids (KIP-516); 15 replica state; 16 leader hints (KIP-951); 17, 18 for followers and the metadata quorum.

Followers use this API, too: their fetch offsets report their progress to the leader. Consumers that name their rack
are sent to a replica there if `replica.selector.class` is set (KIP-392).

A consumer above its quota gets a throttle time instead of records (KIP-219).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.base import rare
from kraft_node.base.turns import Turns
from kraft_node.broker.fetch import reader
from kraft_node.broker.fetch.large import FirstRead, LargeFetch, is_large, rounds
from kraft_node.broker.fetch.session import FetchSession, Judge, SessionCache
from kraft_node.broker.fetch.waiting import NOTHING, WAITING_MAX, WaitingFetch, make_room, waits
from kraft_node.broker.leader_hints import hint_at_leaders
from kraft_node.partition.isolation import READ_LOG_END
from kraft_protocol.client.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import FetchResponse

if TYPE_CHECKING:
    from kraft_node.base.config.view import ConfigView
    from kraft_node.base.env import Env
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.client_quotas import ClientQuotas
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.broker.replication.throttle import ReplicationQuota
    from kraft_node.broker.self_fencing import SelfFence
    from kraft_node.partition.manager import ReplicaManager

FUTURE_REPLICA: Final = -3
"""Kafka's id for moves between its own directories; the only negative id that is not a consumer's."""
ISOLATION_LEVELS: Final = (0, 1)
TOPIC_IDS_VERSION: Final = 13
REPLICA_STATE_VERSION: Final = 15
LEADER_HINT_VERSION: Final = 16
RACK_VERSION: Final = 11
SWEEP_MS: Final = 1000
"""Minimum time between two checks of all waiting fetches for disconnected clients."""


class FetchHandler:
    """Owns the sessions and the waiting fetches."""

    def __init__(
        self,
        env: Env,
        config: ConfigView,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        quotas: ClientQuotas,
        fence: SelfFence,
    ) -> None:
        self.replicas = replicas
        self.clock = env.clock
        self.disk = env.disk
        self.background = env.background
        self.scheduler = env.scheduler
        self.turns = Turns(env)
        """Runs repeated reads, and fetches of very many partitions."""
        self.waiting: set[WaitingFetch] = set()
        self.prefer: reader.Prefer | None = None
        """The replica that consumers with a rack should read from; None: always this replica (KIP-392)."""
        self.quota: ReplicationQuota | None = None
        """Limits the data for followers that catch up."""
        self._config = config
        self._metadata = metadata
        self._quotas = quotas
        self._fence = fence
        self._swept_ms = -SWEEP_MS
        self._max_bytes = config.int("fetch.max.bytes")
        self.sessions = SessionCache(config.int("max.incremental.fetch.session.cache.slots"), env.rng, self.turns)

    def __call__(self, ctx: RequestContext, request: Any, judge: Judge | None = None) -> Any:
        """Answer at once, or once enough bytes can be read.

        `judge` returns the topics of a session that this client may not read.
        """
        by_topic_id = ctx.api_version >= TOPIC_IDS_VERSION
        replica_id, _ = reader_of(request, ctx.api_version)
        if request.isolation_level not in ISOLATION_LEVELS:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown isolation level {request.isolation_level}")
        full = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        if full:
            if request.session_id != NO_SESSION:
                self.sessions.close(request.session_id)
            session = FetchSession(by_topic_id=by_topic_id, replica_id=replica_id)
        else:
            resumed = self._resume(request, by_topic_id=by_topic_id)
            if not isinstance(resumed, FetchSession):
                return FetchResponse(error_code=resumed)
            session = resumed
        if is_large(request, session, is_judged=judge is not None):
            first = FirstRead(self, ctx, request, session, judge)
            LargeFetch(self, ctx, session, first.steps()).start(request)
            return None
        session.update(request.topics)
        if request.forgotten_topics_data and not full:
            session.forget(request.forgotten_topics_data)
        if not session.partitions:
            # A session without partitions ends; its last request is answered without a session.
            self.sessions.close(session.id)
            session, full = FetchSession(by_topic_id=by_topic_id, replica_id=replica_id), True
            session.update(request.topics)
            if not session.partitions:
                return self.answer_empty(request, session)
        self.note_reader(ctx, request, session)
        if judge is not None:
            session.denied = judge(session, session.topics) or None
        if request.session_epoch == INITIAL_EPOCH:
            self.sessions.keep(session, self.clock.monotonic_ms())
        elif session.id != NO_SESSION and not self.sessions.count(session):
            self.sessions.close(session.id)
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        fetch = self.fetch_of(ctx, request, session, all_rows=full)
        if self.refuses(session):
            return self.answer(fetch, reader.refuse(session.partitions.values(), ErrorCode.NOT_LEADER_OR_FOLLOWER))
        found = fetch.collect()
        if found.cold:
            fetch.warm(found, request.max_wait_ms)
            return None
        if request.max_wait_ms <= 0 or fetch.is_enough(found) or not self.may_wait():
            return self.answer(fetch, found)
        fetch.wait(found, request.max_wait_ms)
        return None

    def answer_empty(self, request: Any, session: FetchSession) -> Any:
        """The response to a request of no partitions; its session, if it begins one, may get some later."""
        if request.session_epoch == INITIAL_EPOCH:
            self.sessions.keep(session, self.clock.monotonic_ms())
        return FetchResponse(session_id=session.id)

    def _resume(self, request: Any, *, by_topic_id: bool) -> FetchSession | ErrorCode:
        """The session of an incremental request; an earlier request of it ends."""
        session = self.sessions.resume(
            request.session_id, request.session_epoch, by_topic_id=by_topic_id, now_ms=self.clock.monotonic_ms()
        )
        if isinstance(session, FetchSession):
            if session.large is not None:
                session.large.superseded()
                if session not in self.sessions:
                    return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            older = waits(session)
            if older is not None:
                older.superseded()
        return session

    def note_reader(self, ctx: RequestContext, request: Any, session: FetchSession) -> None:
        """Note in the session the broker or the rack of its reader."""
        replica_id, replica_epoch = reader_of(request, ctx.api_version)
        if replica_id >= 0:
            session.replica_id, session.replica_epoch = replica_id, replica_epoch
            self.replicas.surroundings.clock_of(replica_id).fetched_ms = self.clock.monotonic_ms()
        elif ctx.api_version >= RACK_VERSION and replica_id != FUTURE_REPLICA:
            session.rack = request.rack_id

    def fetch_of(self, ctx: RequestContext, request: Any, session: FetchSession, *, all_rows: bool) -> WaitingFetch:
        """The request with its session, and the limits of broker and quota."""
        replica_id, _ = reader_of(request, ctx.api_version)
        max_bytes = 1 if rare.takes("answer of one batch") else min(request.max_bytes, self._max_bytes)
        if self._quotas.is_active and replica_id < 0:
            quota_max = self._quotas.fetch_bytes_max(ctx)
            max_bytes = max_bytes if quota_max is None else min(max_bytes, quota_max)
        is_consumer = replica_id < 0 and replica_id != FUTURE_REPLICA
        isolation = request.isolation_level if is_consumer else READ_LOG_END
        return WaitingFetch(
            self, ctx, session, max_bytes, min(request.min_bytes, max_bytes), isolation, all_rows=all_rows
        )

    def refuses(self, session: FetchSession) -> bool:
        """Whether consumers must not be served: another broker may lead by now."""
        return session.replica_id < 0 and bool(self._fence.fenced)

    def may_wait(self) -> bool:
        """Whether another fetch may wait."""
        if rare.takes("fetch cannot wait"):
            return False
        if len(self.waiting) < WAITING_MAX:
            return True
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._swept_ms < SWEEP_MS:
            return False
        self._swept_ms = now_ms
        return make_room(self.waiting)

    def answer(self, fetch: WaitingFetch, found: reader.Collected) -> Any:
        """The response with the rows found; the session notes the sent rows."""
        throttled = self.throttled(fetch, found)
        if throttled is not None:
            return throttled
        session = fetch.session
        rows = found.rows
        if session.id != NO_SESSION:
            rows = reader.settle(session, rows, self.replicas, fetch.isolation, all_rows=fetch.all_rows)
        else:
            session.close(self.turns)
        made = reader.Answer(session.id, self.disk)
        made.add(rows)
        if found.wrong_leader:
            self.hint(fetch, rows, made.response)
        return made.response

    def throttled(self, fetch: WaitingFetch, found: reader.Collected) -> Any:
        """The response for a consumer above its quota; None for all others."""
        session = fetch.session
        if fetch.ctx.handled_ms < 0 or session.replica_id >= 0:
            return None
        throttle_ms = self._quotas.fetched(fetch.ctx, reader.size_of(found))
        if throttle_ms <= 0:
            return None
        fetch.ctx.connection.mute(throttle_ms)
        if session.id == NO_SESSION:
            session.close(self.turns)
        return FetchResponse(throttle_ms, session_id=session.id)

    def hint(self, fetch: WaitingFetch, rows: list[reader.Row], response: Any) -> None:
        """Name the leaders to readers of the wrong broker, if their version supports it."""
        if fetch.ctx.api_version < LEADER_HINT_VERSION:
            return
        failed = [(wanted.key, row) for wanted, row in rows if row.error_code in reader.WRONG_LEADER]
        hint_at_leaders(self._metadata, fetch.ctx.listener, failed, response)
        if fetch.session.replica_id >= 0:
            response.node_endpoints = []  # followers know brokers' addresses from the metadata

    def go_on_in_turns(self, fetch: WaitingFetch) -> None:
        """Read very many partitions again."""
        LargeFetch(self, fetch.ctx, fetch.session, rounds(fetch)).start(NOTHING)

    def superseded_response(self) -> Any:
        """The answer to a request that a later request of its session replaces."""
        return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)

    def config_changed(self) -> None:
        """Follow the limits in force; excess sessions are evicted when new sessions come."""
        self._max_bytes = self._config.int("fetch.max.bytes")
        self.sessions.slots = self._config.int("max.incremental.fetch.session.cache.slots")


def reader_of(request: Any, version: int) -> tuple[int, int]:
    """The broker id of a follower (negative for consumers), and its broker epoch (-1 if unknown)."""
    state = request.replica_state if version >= REPLICA_STATE_VERSION else None
    return (request.replica_id, -1) if state is None else (state.replica_id, state.replica_epoch)
