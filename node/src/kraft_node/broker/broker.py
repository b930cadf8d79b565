"""One broker: its handler table, committed metadata, start and stop.

`server.node` uses it in this order: `Broker(...)`, `apply` with everything committed so far, listeners opened with
`handlers`, `start` with the endpoints to register. At the end `begin_shutdown`, then `close`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.config.resources import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, TOPIC_RESOURCE
from kraft_node.base.config.topic import TopicConfigs
from kraft_node.base.turns import Turns
from kraft_node.broker.auto_topics import AutoTopics
from kraft_node.broker.client_quotas import ClientQuotas
from kraft_node.broker.coordinators.group.config import GroupConfig
from kraft_node.broker.coordinators.group.coordinator import GroupCoordinator
from kraft_node.broker.coordinators.group_settings import GroupSettings
from kraft_node.broker.coordinators.leadership import TopicLeadership
from kraft_node.broker.coordinators.store import ImageView, ReplicaStore
from kraft_node.broker.coordinators.transaction.config import TransactionConfig
from kraft_node.broker.coordinators.transaction.coordinator import TransactionCoordinator
from kraft_node.broker.directories import DirectoryAssignments
from kraft_node.broker.forward import FORWARDED, Forwarder
from kraft_node.broker.handlers.acls import describe_acls
from kraft_node.broker.handlers.alter_configs import AlterConfigsHandler
from kraft_node.broker.handlers.alter_replica_log_dirs import alter_replica_log_dirs
from kraft_node.broker.handlers.delegation_tokens import DelegationTokensHandler
from kraft_node.broker.handlers.delete_records import delete_records
from kraft_node.broker.handlers.describe_client_quotas import describe_client_quotas
from kraft_node.broker.handlers.describe_cluster import describe_cluster
from kraft_node.broker.handlers.describe_configs import describe_configs
from kraft_node.broker.handlers.describe_log_dirs import DescribeLogDirsHandler
from kraft_node.broker.handlers.describe_producers import describe_producers
from kraft_node.broker.handlers.describe_topic_partitions import describe_topic_partitions
from kraft_node.broker.handlers.describe_user_scram_credentials import describe_user_scram_credentials
from kraft_node.broker.handlers.fetch import FetchHandler
from kraft_node.broker.handlers.list_config_resources import list_config_resources
from kraft_node.broker.handlers.list_offsets import list_offsets
from kraft_node.broker.handlers.metadata import MetadataHandler
from kraft_node.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from kraft_node.broker.handlers.produce import ProduceHandler
from kraft_node.broker.handlers.telemetry import get_telemetry_subscriptions, push_telemetry
from kraft_node.broker.lifecycle import BrokerIdentity, BrokerState, Lifecycle
from kraft_node.broker.log_dir_moves import LogDirMoves
from kraft_node.broker.metadata_cache import CONSUMER_OFFSETS, TRANSACTION_STATE, MetadataCache
from kraft_node.broker.pieces import in_pieces
from kraft_node.broker.producer_ids import ProducerIds
from kraft_node.broker.replication import Replication
from kraft_node.broker.replication.racks import RACK_AWARE, RackAware
from kraft_node.broker.self_fencing import KEY as SELF_FENCING_KEY
from kraft_node.broker.self_fencing import SelfFence, timeout_of
from kraft_node.broker.telemetry import Telemetry
from kraft_node.broker.transactions.markers import MarkersHandler
from kraft_node.broker.transactions.offsets import OffsetTransactions
from kraft_node.broker.transactions.verifier import Errors, Verifier
from kraft_node.metadata.features import (
    CORDONED_LOG_DIRS_SUPPORTED,
    DIRECTORY_ASSIGNMENT_SUPPORTED,
    METADATA_VERSION,
    SUPPORTED_RANGES,
    TRANSACTION_VERSION,
    metadata_version,
)
from kraft_node.partition.manager import ReplicaManager
from kraft_node.partition.storage import Storage
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.env import Env
    from kraft_node.base.request import Handler
    from kraft_node.broker.controller_link import ControllerLink
    from kraft_node.broker.coordinators.transaction.rules import ProducerEpoch
    from kraft_node.log.errors import LogDirDamaged
    from kraft_node.log.manager.log_manager import LogManager
    from kraft_node.metadata.delta import MetadataDelta
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.security.authorizer import Authorizer
    from kraft_protocol.ids import Uuid

log = logging.getLogger(__name__)

CORDONED: Final = "cordoned.log.dirs"
ALL_DIRECTORIES: Final = "*"


class Broker:
    """Connects replicas, handlers, coordinators and life cycle.

    `image` is the node's committed image. `controller` is the link to the active controller; `controller_apis` are the
    APIs that it serves: of the forwarded APIs only these are offered. `authorizer` decides what clients may do; None:
    everything. `peers(node_id, lane)` returns the channel to another broker's inter-broker listener, as registered,
    with a connection per lane; None if it is unknown.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        *,
        cluster_id: str,
        image: MetadataImage,
        logs: LogManager,
        controller: ControllerLink,
        controller_apis: frozenset[ApiKey] = frozenset(FORWARDED),
        peers: Callable[[int, int], ControllerLink | None] = lambda _node_id, _lane: None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.env = env
        self.turns = Turns(env)
        """Runs requests that need more than their share of a loop turn in steps."""
        self.node_id, self.cluster_id = config.node_id, cluster_id
        self.image = image
        self.logs = logs
        self.controller = controller
        self.config = BrokerConfig(config)
        self.topic_configs = TopicConfigs(self.config)
        self.metadata = MetadataCache(image)
        self.quotas = ClientQuotas(image, env.clock, self.config)
        has_room = self._has_room_for_directories
        report = self.assignments = DirectoryAssignments(self.node_id, self._epoch, controller, env.scheduler, has_room)
        storage = self.storage = Storage(logs, self.node_id, self.topic_config, report.note, has_room)
        report.accepted = storage.directory_accepted
        self.replication = Replication(env, self.node_id, self.config, image, self._epoch, controller, peers)
        self.replicas = ReplicaManager(env, self.node_id, image, storage.open, storage.delete, self.replication.cluster)
        self.moves = LogDirMoves(env, self.node_id, logs, self.replicas, report, self.config)
        logs.on_recovered = self._log_recovered
        self.auto_topics = AutoTopics(self.config, controller)
        self.lifecycle: Lifecycle | None = None
        self.snapshot_end: Callable[[], int] = lambda: 0
        """The end of this node's latest snapshot of the metadata."""
        self.producer_ids = ProducerIds(self.node_id, self._epoch, controller, env.scheduler)
        self.telemetry = Telemetry(env.clock, env.rng, self.config.int("telemetry.max.bytes"))
        self.group_settings = GroupSettings(self.config, image)
        self.verifier = Verifier(image, self.config, env.scheduler, peers, self.node_id, self._verify_here)
        fence_ms = timeout_of(config.texts.get(SELF_FENCING_KEY, ""), config.int("broker.session.timeout.ms"))
        self.fence = SelfFence(env.clock, env.scheduler, fence_ms)
        self.groups = self._group_coordinator()
        self.group_leadership = TopicLeadership(CONSUMER_OFFSETS, self.node_id, self.metadata, self.groups)
        self.markers = MarkersHandler(
            env, self.node_id, self.replicas, self.metadata, self.groups, self.fence, config.int("request.timeout.ms")
        )
        self.transactions, self.transaction_leadership = self._transaction_coordinator(peers)
        self.fetch = self._fetch_handler()
        self.produce = ProduceHandler(env, self.replicas, self.metadata, self.fence, self.verifier)
        handlers = self._table(controller_apis, authorizer)
        self.own_handlers = in_pieces(self.turns, handlers)
        """The handlers of requests that this broker sends itself: nothing is checked."""
        self.handlers = in_pieces(self.turns, handlers if authorizer is None else self._guarded(handlers, authorizer))
        """The handlers of the broker's listeners. ApiVersions advertises them, except telemetry."""
        self._on_state: Callable[[BrokerState], None] | None = None
        self._knows_topics = False
        """Whether the image has all that was committed before this start. An older image may name this broker leader of
        a finished epoch. It may also lack a replica that has returned since: following it would delete its log."""
        self._cordon()

    def _guarded(self, handlers: dict[ApiKey, Handler], authorizer: Authorizer) -> dict[ApiKey, Handler]:
        from kraft_node.broker.authorization import guarded  # noqa: PLC0415  (nodes without one do without)
        from kraft_node.broker.authorization.gate import Gate  # noqa: PLC0415

        return guarded(handlers, Gate(authorizer, self.image, self.turns, self.config))

    def _fetch_handler(self) -> FetchHandler:
        handler = FetchHandler(self.env, self.config, self.replicas, self.metadata, self.quotas, self.fence)
        if self.config.string_or_none("replica.selector.class") == RACK_AWARE:
            handler.prefer = RackAware(self.metadata)
        handler.quota = self.replication.leader_quota
        return handler

    def _group_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            clock=self.env.clock,
            scheduler=self.env.scheduler,
            rng=self.env.rng,
            store=ReplicaStore(self.replicas, CONSUMER_OFFSETS, self.config.int("offsets.topic.compression.codec")),
            cluster=ImageView(self.image, self.auto_topics.create_internal),
            config=GroupConfig.from_config(self.config),
            turns=self.turns,
            background=self.env.background,
            times=self.group_settings.times,
            has_consumer_groups=self.group_settings.has_consumer_groups,
            transactions=OffsetTransactions(self.replicas, self.verifier, self.env.clock),
        )

    def _transaction_coordinator(
        self, peers: Callable[[int, int], ControllerLink | None]
    ) -> tuple[TransactionCoordinator, TopicLeadership]:
        image = self.image
        coordinator = TransactionCoordinator(
            clock=self.env.clock,
            scheduler=self.env.scheduler,
            store=ReplicaStore(self.replicas, TRANSACTION_STATE),
            cluster=ImageView(image, self.auto_topics.create_internal),
            config=TransactionConfig.from_config(self.config),
            take_id=self.producer_ids.take,
            version=lambda: image.features.get(TRANSACTION_VERSION) or 0,
            peers=peers,
            node_id=self.node_id,
            write_marker=self.markers.write,
            turns=self.turns,
        )
        return coordinator, TopicLeadership(TRANSACTION_STATE, self.node_id, self.metadata, coordinator)

    def _verify_here(self, name: str, producer: ProducerEpoch, partitions: Sequence[tuple[str, int]]) -> Errors:
        return self.transactions.verify(name, producer, partitions)

    def _table(self, controller_apis: frozenset[ApiKey], authorizer: Authorizer | None) -> dict[ApiKey, Handler]:
        """The handlers, each bound to the parts of the broker that it needs."""
        image, metadata, config, replicas = self.image, self.metadata, self.config, self.replicas
        node_id, cluster_id, turns, env = self.node_id, self.cluster_id, self.turns, self.env
        timeout_ms = config.int("request.timeout.ms")
        forward = Forwarder(self.controller, timeout_ms)
        alter_configs = AlterConfigsHandler(env.background, node_id, config, metadata, forward)
        metadata_handler = MetadataHandler(
            turns, metadata, config, self.auto_topics, cluster_id=cluster_id, node_id=node_id
        )
        log_dirs = DescribeLogDirsHandler(env, turns, node_id, image, self.logs, self.storage, replicas)
        forwarded: dict[ApiKey, Handler] = {key: forward for key in FORWARDED if key in controller_apis}
        return forwarded | {
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: partial(list_offsets, replicas),
            ApiKey.DELETE_RECORDS: partial(delete_records, replicas, metadata, env.scheduler),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: partial(offset_for_leader_epoch, replicas),
            ApiKey.METADATA: metadata_handler,
            ApiKey.WRITE_TXN_MARKERS: self.markers,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: partial(describe_topic_partitions, turns, metadata, config),
            ApiKey.DESCRIBE_CLUSTER: partial(describe_cluster, metadata, cluster_id, node_id),
            ApiKey.DESCRIBE_PRODUCERS: partial(describe_producers, replicas, metadata),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs.incremental,
            ApiKey.ALTER_CONFIGS: alter_configs.replace,
            ApiKey.DESCRIBE_CONFIGS: partial(describe_configs, turns, metadata, config, node_id),
            ApiKey.LIST_CONFIG_RESOURCES: partial(list_config_resources, turns, metadata),
            ApiKey.DESCRIBE_CLIENT_QUOTAS: partial(describe_client_quotas, turns, image),
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: partial(describe_user_scram_credentials, turns, image),
            ApiKey.DESCRIBE_ACLS: describe_acls,
            ApiKey.DESCRIBE_LOG_DIRS: log_dirs,
            ApiKey.ALTER_REPLICA_LOG_DIRS: partial(alter_replica_log_dirs, self.moves),
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: partial(get_telemetry_subscriptions, self.telemetry),
            ApiKey.PUSH_TELEMETRY: partial(push_telemetry, self.telemetry),
            **DelegationTokensHandler(config, image, forward, authorizer).handlers(),
            **self.groups.handlers,
            **self.transactions.handlers,
        }

    def _epoch(self) -> int:
        return -1 if self.lifecycle is None else self.lifecycle.broker_epoch

    @property
    def state(self) -> BrokerState:
        """The state of the lifecycle, for the metric BrokerState; NOT_RUNNING before `start`."""
        return BrokerState.NOT_RUNNING if self.lifecycle is None else self.lifecycle.state

    @property
    def ready(self) -> bool:
        """Whether the broker serves clients: unfenced, not fenced by itself, and not shutting down."""
        lifecycle = self.lifecycle
        return (
            lifecycle is not None
            and self.state == BrokerState.RUNNING
            and not lifecycle.fenced
            and not self.fence.fenced
        )

    # --- start and stop ---

    def start(
        self,
        endpoints: Sequence[tuple[str, str, int, int]],
        *,
        previous_epoch: int = -1,
        on_state: Callable[[BrokerState], None] | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """Register with the controller and keep the lease.

        `endpoints`: (listener, host, port, security protocol number) as advertised. `previous_epoch`: the broker epoch
        of the last clean shutdown, from the log directories. `on_failure` gets the reason if registration is given up.
        """
        identity = BrokerIdentity(
            self.node_id,
            self.cluster_id,
            endpoints,
            {name: (levels.min_level, levels.max_level) for name, levels in SUPPORTED_RANGES.items()},
            self.storage.directory_ids(),
            self.config.string_or_none("broker.rack"),
            previous_epoch,
        )
        lifecycle = Lifecycle(
            self.env,
            self.config,
            identity,
            self.controller,
            lambda: self.image.offset,
            self.storage.offline_directory_ids,
            self._cordoned_directories,
            self.snapshot_end,
        )
        self.lifecycle = lifecycle
        self._on_state = on_state
        lifecycle.on_state = self._state_changed
        lifecycle.on_acknowledged = self.fence.acknowledged
        lifecycle.on_failure = on_failure or lifecycle.on_failure
        lifecycle.start()
        lifecycle.ready_to_unfence()

    def _state_changed(self, state: BrokerState) -> None:
        if self._on_state is not None:
            self._on_state(state)
        if state == BrokerState.RECOVERY:
            self.topics_known()
        if state == BrokerState.RUNNING:
            self.replication.start(self.replicas)
            self.moves.resume()

    def topics_known(self) -> None:
        """From now on the image contains everything that was committed before this start, and is followed."""
        self._knows_topics = True
        self.storage.topics_known()
        self.group_leadership.reload()
        self.transaction_leadership.reload()
        self.env.scheduler.call_soon(self.storage.remove_strays, self._is_hosted)

    def begin_shutdown(self, done: Callable[[], None]) -> None:
        """Have the controller move leadership away, then call `done`; call `close` afterwards."""
        if self.lifecycle is None:
            done()
        else:
            self.lifecycle.begin_shutdown(done)

    def close(self) -> None:
        """Stop everything. The owner of the log manager closes the logs."""
        self.groups.shutdown()
        self.transactions.close()
        self.replication.close()
        self.moves.close()
        self.fence.close()
        if self.lifecycle is not None:
            self.lifecycle.close()

    def renew_lease(self) -> None:
        """The connection to the active controller has closed: send a heartbeat over another one at once."""
        if self.lifecycle is not None:
            self.lifecycle.renew()

    def directory_failed(self, partitions: list[tuple[str, int]]) -> None:
        """A log directory has failed: its partitions answer KAFKA_STORAGE_ERROR, and the broker reports it to the
        controller."""
        self.storage.lost(partitions, self.image.topics)
        self.replicas.failed(partitions)
        if self.lifecycle is not None:
            self.lifecycle.directories_changed()

    def _log_recovered(self, topic: str, index: int) -> None:
        self.replicas.recovered(topic, index)
        self.moves.recovered(topic, index)

    def replica_withdrawn(self, topic: str, index: int, damage: LogDirDamaged | None) -> None:
        """A log must no longer be used: it is quarantined, or (None) it may be opened again at once."""
        topic_id = self.replicas.withdrawn(topic, index)
        if damage is not None and topic_id is not None:
            self.storage.quarantined(topic_id, index)

    # --- committed metadata ---

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a run of committed records that `image` contains already. The cost is proportional to the changes."""
        assert image is self.image, "law: a node has one image"
        if delta.configs or delta.is_snapshot:
            self._configs_changed(delta)
        if delta.quotas or delta.is_snapshot:
            self.quotas.changed()
        if self._knows_topics and (delta.topics or delta.is_snapshot):
            self.replicas.apply(delta)
            self._coordinators_follow(delta)
            if delta.is_snapshot:
                # A snapshot does not list removed partitions, and the manager knows only the open partitions.
                self.env.scheduler.call_soon(self.storage.remove_strays, self._is_hosted)
        self.replication.apply(delta)
        is_other_level = METADATA_VERSION in delta.features or delta.is_snapshot
        if is_other_level:
            self._level_changed()
        if is_other_level or self.node_id in delta.brokers:
            self._look_at_registration()
        if self.lifecycle is not None:
            self.lifecycle.metadata_moved()

    def _has_room_for_directories(self) -> bool:
        return self.image.metadata_level >= DIRECTORY_ASSIGNMENT_SUPPORTED

    def _level_changed(self) -> None:
        if self._has_room_for_directories():
            self.assignments.metadata_version_changed()
        elif len(self.storage.directories()) > 1:
            log.error(
                "several log directories are not supported: the controller does not notice if one fails "
                "metadata.version=%s needed=%s",
                metadata_version(self.image.metadata_level).name,
                metadata_version(DIRECTORY_ASSIGNMENT_SUPPORTED).name,
            )

    def _look_at_registration(self) -> None:
        """A registration from before the metadata.version was raised lacks the log directories."""
        own = self.image.brokers.get(self.node_id)
        if own is None or own.directories or own.epoch != self._epoch() or not self._has_room_for_directories():
            return
        assert self.lifecycle is not None, "law: a broker with an epoch has registered"
        self.lifecycle.register_again()

    def _is_hosted(self, topic: str, index: int) -> bool:
        state = self.metadata.partition(topic, index)
        return state is not None and self.node_id in state.replicas

    def topic_config(self, topic: str) -> Any:
        """The effective configuration of a topic."""
        return self.topic_configs.resolve(self.image.configs.get((TOPIC_RESOURCE, topic)) or {})

    def _configs_changed(self, delta: MetadataDelta) -> None:
        self.group_settings.changed()
        own = ((BROKER_RESOURCE, str(self.node_id)), (BROKER_RESOURCE, ""))
        changed: set[str] = set()
        if delta.is_snapshot or any(resource in delta.configs for resource in own):
            configs = self.image.configs
            changed = self.config.update(configs.get(own[0]) or {}, configs.get(own[1]) or {})
        if changed:
            log.info("configurations changed keys=%s", ", ".join(sorted(changed)))
            self.topic_configs.broker_changed()
            self.fetch.config_changed()
            self.replication.config_changed()
            self.verifier.config_changed()
            self.moves.config_changed()
            self._cordon()
        if changed or delta.is_snapshot:
            topics = dict.fromkeys(partition.topic for partition in self.replicas.opened())
        else:
            topics = dict.fromkeys(name for kind, name in delta.configs if kind == TOPIC_RESOURCE)
        for topic in topics:
            self.storage.configure(topic)
        self._subscriptions_changed(delta)

    def _subscriptions_changed(self, delta: MetadataDelta) -> None:
        configs = self.image.configs
        if delta.is_snapshot:
            self.telemetry.reload(configs.items())
            return
        for resource in delta.configs:
            if resource[0] == CLIENT_METRICS_RESOURCE:
                self.telemetry.configs_changed(resource[1], configs.get(resource))

    def _cordon(self) -> None:
        paths = self.config.list(CORDONED)
        if ALL_DIRECTORIES in paths:
            paths = [directory.path for directory in self.storage.directories()]
        if self.storage.cordon(paths) and self.lifecycle is not None:
            self.lifecycle.directories_changed()

    def _cordoned_directories(self) -> list[Uuid] | None:
        if self.image.metadata_level < CORDONED_LOG_DIRS_SUPPORTED:
            return None
        return self.storage.cordoned_directory_ids()

    # --- the coordinators ---

    def _coordinators_follow(self, delta: MetadataDelta) -> None:
        self.group_leadership.apply(delta)
        self.transaction_leadership.apply(delta)
        if delta.is_snapshot:
            self.groups.on_metadata_reloaded()
            return
        changes = delta.topics.values()
        deleted = [(change.name, change.id) for change in changes if change.deleted]
        if deleted:
            self.groups.on_topics_deleted(deleted)
        names = {change.name for change in changes}
        self.groups.on_topics_changed(names, created=any(change.created for change in changes))
