"""The controller of one node: takes requests, lets managers plan, appends records, and answers after commit.

Active while this node leads the metadata quorum, standby otherwise (KIP-631). Each request is processed in this order:
check, plan, prepare, replay on the overlay, schedule, wait, answer. Nothing interrupts the steps before the wait. A
plan that cannot be replayed is a defect of the planner. It is refused and undone, and never gets into the log, where
every node would fail on it at each start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Protocol

from kraft_node.base.config import NodeConfig
from kraft_node.base.env import Env
from kraft_node.base.long_answers import answer
from kraft_node.base.request import Handler, RequestContext
from kraft_node.base.turns import Turns
from kraft_node.controller.activation import activation_records
from kraft_node.controller.brokers import Brokers
from kraft_node.controller.deferred import Deferred
from kraft_node.controller.describe import describe_configs, describe_controllers
from kraft_node.controller.envelope import Envelopes
from kraft_node.controller.long_plans.in_turns import InTurns
from kraft_node.controller.migration import ControllerMigration
from kraft_node.controller.mutation_quota import (
    CREATE_PARTITIONS_STRICT,
    CREATE_TOPICS_STRICT,
    DELETE_TOPICS_STRICT,
    MutationQuotas,
)
from kraft_node.controller.partitions.isr import Isr
from kraft_node.controller.partitions.leaders import Leaders
from kraft_node.controller.partitions.reassignments import Reassignments
from kraft_node.controller.partitions.topics import TopicManager
from kraft_node.controller.periodic import Periodic, PeriodicTask
from kraft_node.controller.plan import Plan, Steps, next_plan, steps_of
from kraft_node.controller.producer_ids import allocate
from kraft_node.controller.settings import loggers
from kraft_node.controller.settings.acls import Acls
from kraft_node.controller.settings.configs import Configs
from kraft_node.controller.settings.features import Features, default_bootstrap_records
from kraft_node.controller.settings.quotas import QuotaManager
from kraft_node.controller.settings.scram import Scram
from kraft_node.controller.settings.tokens import DelegationTokens, refuse_description
from kraft_node.controller.state.controller_state import ControllerState
from kraft_node.metadata.delta import MetadataDelta
from kraft_node.metadata.features import METADATA_VERSION
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.metadata.partitions import NO_LEADER, MetadataError
from kraft_node.metadata.prepared import Prepared
from kraft_node.raft.accumulator import BatchTooLarge
from kraft_node.raft.node import NotLeader
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.error_response import error_response
from kraft_protocol.wire.stored import NoOpRecord

log = logging.getLogger(__name__)

"""How often per session time-out the controller looks for silent brokers."""


class ControllerLog(Protocol):
    """The interface of the metadata log for the active controller; `server.quorum.driver.RaftDriver` implements it."""

    @property
    def next_offset(self) -> int:
        """The offset of the next appended record."""

    def prepare(self, epoch: int, records: Sequence[Any], *, atomic: bool = True) -> Prepared:
        """The offsets of the records if they are scheduled next, at the versions of `Controller.metadata_level()`.

        `atomic`: in one batch, committed or lost together. Raises NotLeader (of the epoch) and BatchTooLarge.
        """

    def schedule(self, prepared: Prepared) -> None:
        """Append the records that were prepared last.

        They are committed later; if leadership is lost, perhaps never.
        """


class Controller:
    """The controller of one node (see the package). `handlers` serve the controller listener, except Raft's own
    requests.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        cluster_id: str,
        image: MetadataImage,
        metadata_log: ControllerLog,
        bootstrap: Sequence[Any] = (),
    ) -> None:
        self.leader_id = -1
        """The leader of the quorum as far as this node knows; -1: unknown."""
        self.in_transaction: Callable[[], bool] = lambda: False
        """Whether a committed metadata transaction is open (`MetadataLoader.in_transaction`)."""
        self.on_defect: Callable[[str, BaseException], None] = _log_defect
        """Called with place and error: for a plan that was refused and undone, and for periodic work that failed."""
        self.epoch: int | None = None
        """The epoch in which this controller is active; None while it is a standby."""
        self.cluster = ControllerState(image, config, cluster_id, env.clock, env.rng)
        self._image = image
        self._env = env
        self._config = config
        self._log = metadata_log
        self._bootstrap = tuple(bootstrap) or tuple(default_bootstrap_records())
        self._deferred = Deferred()
        self._last_append_ms = 0
        self._last_offset = -1
        """Offset of the last record appended in this epoch: the overlay ends there."""
        self.migration = ControllerMigration(config, self.cluster, env.scheduler, self.write, self._elect_leaderless)
        self.leaders = Leaders(self.cluster)
        self.features = Features(self.cluster)
        self.brokers = Brokers(self.cluster, self.leaders, self.migration)
        self.configs = Configs(self.cluster)
        self.topics = TopicManager(self.cluster, self.configs)
        self.isr = Isr(self.cluster)
        self.reassignments = Reassignments(self.cluster)
        self.quotas = QuotaManager(self.cluster)
        window_s = config.int("controller.quota.window.num") * config.int("controller.quota.window.size.seconds")
        self.mutations = MutationQuotas(image, env.clock, window_s)
        self.scram = Scram(self.cluster)
        self.tokens = DelegationTokens(self.cluster)
        self.acls = Acls(self.cluster)
        self.turns = Turns(env)
        """Runs requests that need more than their share of a loop turn in steps."""
        self.in_turns = InTurns(self.turns, self)
        """The plans that go on after their first turn."""
        self._periodic = Periodic(env.clock, env.scheduler, self._tasks())
        self.handlers: dict[ApiKey, Handler] = self._handlers()

    # Leadership

    def metadata_level(self) -> int:
        """The metadata.version at which records must be written: the overlay's."""
        return self.cluster.level

    @property
    def is_active(self) -> bool:
        """Whether this node leads the quorum and `on_leader` was called for the epoch."""
        return self.epoch is not None

    def follow(self, loader: MetadataLoader) -> None:
        """Stay hot as a standby: follow committed records, so that becoming leader does not cost time for every
        partition."""
        self.cluster.indexes.is_followed = True
        self._build_anew()
        loader.followers.append(self._follow_committed)
        loader.publishers.append(self._image_moved)

    def _follow_committed(self, record: Any) -> None:
        if self.epoch is None:
            self.cluster.indexes.follow(record, self._image.topics)

    def _image_moved(self, delta: MetadataDelta, image: MetadataImage) -> None:
        del image
        if delta.is_snapshot:
            assert self.epoch is None, "law: a leader never loads a snapshot"
            self._build_anew()
        elif self.epoch is not None:
            self.migration.moved(delta)

    def _build_anew(self) -> None:
        self.cluster.indexes.begin(self._image)
        self._env.scheduler.call_soon(self._build)

    def _build(self) -> None:
        if not self.cluster.indexes.build(self._image):
            self._env.scheduler.call_soon(self._build)

    def on_leader(self, epoch: int) -> None:
        """This node leads the quorum in `epoch`, and the image holds everything committed before."""
        assert self.epoch is None, f"law: epoch {epoch} begins after epoch {self.epoch} has ended"
        self.epoch = epoch
        self.leader_id = self._config.node_id
        self._last_offset = -1
        self.cluster.view.clear()
        records = activation_records(
            is_empty=METADATA_VERSION not in self._image.features,
            in_transaction=self.in_transaction(),
            bootstrap=self._bootstrap,
            static_min_isr=self._config.int("min.insync.replicas"),
            migration=self.migration.first_records,
        )
        self.cluster.activate()
        self.mutations.clear()
        log.info("controller is active id=%d epoch=%d", self._config.node_id, epoch)
        if records:
            log.info("writing the first records count=%d", len(records))
            try:
                self._append(Plan(None, records, atomic=False))
            except KafkaError as e:
                if e.code != ErrorCode.NOT_CONTROLLER:
                    raise MetadataError(
                        f"the first records of the active controller do not fit: {e.__cause__ or e}"
                    ) from e
                return  # the epoch is over already: `on_lost_leadership` follows
        self.migration.begun_at = self._last_offset
        self._periodic.start()
        # The former controller may have resigned between two turns (see `long_plans.departures`).
        self._elect_leaderless()

    def _elect_leaderless(self) -> None:
        self.in_turns.add(steps_of(self.leaders.broker_unfenced(NO_LEADER)), _forget)

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        """Another node leads, or the leader is unknown (-1). Clients of the wrong controller get this id."""
        del epoch
        self.leader_id = leader_id

    def on_lost_leadership(self, epoch: int) -> None:
        """This node no longer leads: drop uncommitted records, and refuse the requests that wait for them."""
        del epoch  # only one leadership can be lost, with any epoch after it
        if self.epoch is None:
            return
        self.leader_id = -1
        log.info("controller is no longer active id=%d epoch=%d", self._config.node_id, self.epoch)
        self.epoch = None
        self._periodic.stop()
        self.migration.lost()
        self.cluster.deactivate()
        self._deferred.drop(self.not_controller(), _refuse)

    def on_commit(self, offset: int) -> None:
        """The image has replayed everything up to and including `offset`."""
        self.cluster.view.committed()
        if self.epoch is None:
            return
        self._deferred.committed(offset)
        self.migration.committed(offset)

    def not_controller(self) -> KafkaError:
        """The answer to requests for the active controller; it names that controller if it is known."""
        message = "No controller appears to be active."
        if self.leader_id >= 0 and self.leader_id != self._config.node_id:
            message = f"The active controller appears to be node {self.leader_id}."
        return KafkaError(ErrorCode.NOT_CONTROLLER, message)

    # Requests

    def handle(self, ctx: RequestContext, request: Any) -> Any:
        """Answer a request of `handlers`, now (returns the response) or later (returns None). May raise KafkaError."""
        return self.handlers[ApiKey(ctx.api_key)](ctx, request)

    def _handlers(self) -> dict[ApiKey, Handler]:
        planned: dict[ApiKey, Callable[[RequestContext, Any], Plan]] = {
            ApiKey.CREATE_TOPICS: lambda ctx, request: self.topics.create(
                request, self.mutations.of(ctx, CREATE_TOPICS_STRICT)
            ),
            ApiKey.DELETE_TOPICS: lambda ctx, request: self.topics.delete(
                request, ctx.api_version, self.mutations.of(ctx, DELETE_TOPICS_STRICT)
            ),
            ApiKey.CREATE_PARTITIONS: lambda ctx, request: self.topics.grow(
                request, self.mutations.of(ctx, CREATE_PARTITIONS_STRICT)
            ),
            ApiKey.ALTER_CONFIGS: lambda _, request: self.configs.alter_whole(request),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda _, request: self.configs.alter_incrementally(request),
            ApiKey.ELECT_LEADERS: lambda ctx, request: self.leaders.elect(request, ctx.api_version),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda _, request: self.reassignments.alter(request),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda _, request: self.reassignments.list(request),
            ApiKey.ALTER_CLIENT_QUOTAS: lambda _, request: self.quotas.alter(request),
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda _, request: self.scram.alter(request),
            ApiKey.ALTER_PARTITION: lambda ctx, request: self.isr.alter(request, ctx.api_version),
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: lambda _, request: self.isr.assign_directories(request),
            ApiKey.UPDATE_FEATURES: lambda ctx, request: self.features.update(request, ctx.api_version),
            ApiKey.BROKER_REGISTRATION: self._register_broker,
            ApiKey.BROKER_HEARTBEAT: lambda ctx, request: self.brokers.heartbeat(request, ctx.connection),
            ApiKey.UNREGISTER_BROKER: lambda _, request: next_plan(self.brokers.unregister(request)),
            ApiKey.CONTROLLER_REGISTRATION: lambda _, request: self.brokers.register_controller(request),
            ApiKey.ALLOCATE_PRODUCER_IDS: lambda _, request: allocate(request, self.cluster),
            ApiKey.CREATE_ACLS: lambda _, request: self.acls.create(request),
            **self.tokens.planners(),
        }
        handlers: dict[ApiKey, Handler] = {key: self._planned(planner) for key, planner in planned.items()}
        handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = partial(
            loggers.answer, self._config.node_id, handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS]
        )
        handlers[ApiKey.DELETE_ACLS] = self._delete_acls
        handlers[ApiKey.DESCRIBE_ACLS] = self._describe_acls
        handlers[ApiKey.DESCRIBE_CLUSTER] = self._describe_cluster
        handlers[ApiKey.DESCRIBE_CONFIGS] = self._describe_configs
        handlers[ApiKey.DESCRIBE_DELEGATION_TOKEN] = refuse_description
        handlers[ApiKey.ENVELOPE] = Envelopes(handlers, lambda: self.is_active, self.turns).handle
        return handlers

    def _planned(self, planner: Callable[[RequestContext, Any], Plan]) -> Handler:
        def handle(ctx: RequestContext, request: Any) -> Any:
            if self.epoch is None:
                raise self.not_controller()
            self._deferred.check_room()
            self.migration.check(ApiKey(ctx.api_key))
            plan = self.planned(f"planning {ApiKey(ctx.api_key).name}", partial(planner, ctx, request))
            self.write(plan)
            if plan.rest is not None:
                answers_at_end = plan.response is None
                self.in_turns.add(plan.rest, partial(self._answer_late, ctx, request) if answers_at_end else _forget)
                if answers_at_end:
                    return None
            # Without records it is only a query, but the answer may contain uncommitted data.
            if self._last_offset <= self._deferred.reached:
                return plan.response
            self._deferred.add(self._last_offset, ctx, request, plan.response)
            return None

        return handle

    def _answer_late(self, ctx: RequestContext, request: Any, outcome: Plan | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            ctx.respond(_refuse(ctx, request, outcome))
        else:
            self._deferred.add(self._last_offset, ctx, request, outcome.response)
            self._deferred.committed(self._deferred.reached)

    def planned(self, what: str, planner: Callable[[], Plan]) -> Plan:
        """The plan that `planner` returns. Raises KafkaError; a defect of the planner is noted as one of `what`."""
        try:
            return planner()
        except KafkaError:
            raise
        except Exception as e:
            raise self._refuse_defect(what, e) from e

    def _register_broker(self, ctx: RequestContext, request: Any) -> Plan:
        kraft_version = self.features.kraft_version
        return next_plan(self.brokers.register(request, ctx.api_version, lambda: self._log.next_offset, kraft_version))

    def _describe_cluster(self, ctx: RequestContext, request: Any) -> Any:
        cluster_id = self.cluster.cluster_id
        return describe_controllers(request, ctx.api_version, cluster_id, self._image, ctx.listener, self.leader_id)

    def _describe_configs(self, ctx: RequestContext, request: Any) -> Any:
        steps = describe_configs(request, self._image, self.cluster.committed_config(), self._config.node_id)
        return answer(self.turns, ctx, request, steps)

    def _describe_acls(self, ctx: RequestContext, request: Any) -> Any:
        return answer(self.turns, ctx, request, self.acls.describe(request))

    def _delete_acls(self, ctx: RequestContext, request: Any) -> Any:
        if self.epoch is None:
            raise self.not_controller()

        def steps() -> Generator[None, None, Any]:
            found = yield from self.acls.find(request)
            return self._planned(lambda *_: self.acls.delete(request, found))(ctx, request)

        return answer(self.turns, ctx, request, steps())

    # Appending

    def write(self, plan: Plan) -> None:
        """Append the records of a plan, if it has any. Raises KafkaError; then the plan's `rest` is closed."""
        try:
            if plan.records:
                self._append(plan)
            elif plan.appended is not None:
                plan.appended(self._log.next_offset - 1)
        except KafkaError:
            if plan.rest is not None:
                plan.rest.close()
            raise

    def _append(self, plan: Plan) -> None:
        """Replay the plan on the overlay and append it. `_last_offset` becomes the offset of its last record.

        Raises KafkaError: then nothing has changed, and nothing gets into the log.
        """
        assert self.epoch is not None, "law: only the active controller appends"
        try:
            prepared = self._log.prepare(self.epoch, plan.records, atomic=plan.atomic)
            self.cluster.apply(prepared.first_offset, plan.records)
        except NotLeader:
            raise self.not_controller() from None
        except BatchTooLarge:
            message = "Unable to perform excessively large batch operation."
            raise KafkaError(ErrorCode.POLICY_VIOLATION, message) from None
        except Exception as e:
            raise self._refuse_defect("preparing records", e) from e
        self._last_offset = prepared.last_offset
        self._last_append_ms = self._env.clock.monotonic_ms()
        if plan.appended is not None:
            plan.appended(prepared.last_offset)
        self._log.schedule(prepared)
        self.cluster.view.committed()

    def _refuse_defect(self, what: str, error: Exception) -> KafkaError:
        """A defect of ours that has changed nothing: the error for the requester."""
        self.on_defect(f"the controller, {what}", error)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    # Periodic work

    def _tasks(self) -> list[PeriodicTask]:
        config = self._config
        balance_s = config.int("leader.imbalance.check.interval.seconds")
        tasks = [
            PeriodicTask("fence stale brokers", self.cluster.sessions.check_period_ms, self._fence_stale),
            PeriodicTask("write no-op", config.int("metadata.max.idle.interval.ms"), self._write_no_op),
            PeriodicTask("remove expired tokens", self.tokens.period_ms, self._sweep_tokens),
            PeriodicTask(
                "elect preferred leaders",
                balance_s * 1000 if config.boolean("auto.leader.rebalance.enable") else 0,
                self._sweeper(lambda: steps_of(self.leaders.elect_preferred())),
            ),
            PeriodicTask(
                "elect unclean leaders",
                config.int("unclean.leader.election.interval.ms"),
                self._sweeper(lambda: steps_of(self.leaders.elect_unclean())),
            ),
        ]
        return [task._replace(run=self._guarded(task.run)) for task in tasks]

    def _guarded(self, run: Callable[[int], bool]) -> Callable[[int], bool]:
        """`run`; its exceptions end only this turn: lost leadership (`on_lost_leadership` follows) or a defect."""

        def guarded(late_ms: int) -> bool:
            if self.migration.is_reading:
                return False  # the transaction takes nothing else
            try:
                return run(late_ms)
            except KafkaError as e:
                log.warning("periodic work of the controller was refused error=%s", e)
            except Exception as e:
                self._refuse_defect("periodic work", e)
            return False

        return guarded

    def _fence_stale(self, late_ms: int) -> bool:
        if late_ms > self.cluster.sessions.timeout_ms // 2:
            return False  # the process was paused: heartbeats that arrived in time may be unread, so look again later
        plan = self.brokers.fence_one_stale()
        if plan is None:
            return False
        if plan.records:
            lease_ms, closed = self.cluster.sessions.timeout_ms, self.cluster.sessions.closed_limits
            log.info("a broker is fenced silent_limit_ms=%d closed_limits_ms=%d,%d", lease_ms, *closed)
        self.write(plan)
        if plan.rest is not None:
            self.in_turns.add(plan.rest, _forget)
        return True

    def _sweep_tokens(self, late_ms: int) -> bool:
        del late_ms
        plan = self.tokens.sweep()
        self.write(plan)
        return bool(plan.records)

    def _write_no_op(self, late_ms: int) -> bool:
        """Commit a record from time to time, so that the other nodes can distinguish an idle log from a stuck log."""
        del late_ms
        idle = self._env.clock.monotonic_ms() - self._last_append_ms
        if idle >= self._config.int("metadata.max.idle.interval.ms"):
            self._append(Plan(None, (NoOpRecord(),)))
        return False

    def _sweeper(self, elect: Callable[[], Steps]) -> Callable[[int], bool]:
        """Periodic elections, in turns; a period in which the former elections still go on is left out."""
        goes_on = False

        def done(_: Plan | KafkaError) -> None:
            nonlocal goes_on
            goes_on = False

        def run(_late_ms: int) -> bool:
            nonlocal goes_on
            if goes_on:
                return False
            plan = next_plan(elect())
            if plan.records:
                log.info("leaders are elected partitions=%d", len(plan.records))
            self.write(plan)
            if plan.rest is not None:
                goes_on = True
                self.in_turns.add(plan.rest, done)
            return False

        return run


def _log_defect(where: str, error: BaseException) -> None:
    log.error("an operation was refused because of a defect where=%s", where, exc_info=error)


def _refuse(ctx: RequestContext, request: Any, error: KafkaError) -> Any:
    return error_response(request, ctx.api_version, error.code, error.message)


def _forget(_: Plan | KafkaError) -> None:
    """For plans without a requester. If one is refused, the periodic work or heartbeat behind it begins it again."""
