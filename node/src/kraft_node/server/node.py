"""The composition root: one node with the configured roles, from its directories to its listeners.

The start has Kafka's order: directories (locks, identity), controller listeners, Raft. Then the broker registers with
the active controller, catches up with the metadata, and is unfenced. Only then it serves its listeners. Their sockets
are bound from the start; connections wait. The stop is the reverse: the controller moves leadership away, connections
close, logs are flushed and closed with their clean-shutdown mark, and Raft hands over.

Only sans-IO parts are used here; `cli.server_start` provides the `Env`, simulations provide another `Env`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.config.effects import refusals
from kraft_node.base.config.node import own_boolean
from kraft_node.base.config.resources import BROKER_RESOURCE
from kraft_node.base.config.zookeeper import zookeeper_settings
from kraft_node.broker.controller_link import ActiveControllerLink
from kraft_node.broker.forward import FORWARDED
from kraft_node.broker.lifecycle import BrokerState
from kraft_node.metadata.partitions import MetadataError
from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.server.channels.channel_pool import Channels, broker_address
from kraft_node.server.channels.local_channel import LOOPBACK, LocalChannel
from kraft_node.server.connections.api_versions import with_connection_apis
from kraft_node.server.connections.buffers import BufferPool
from kraft_node.server.connections.context import NO_QUOTAS
from kraft_node.server.connections.listener import ConnectionLimiter, ServerListener
from kraft_node.server.controller_registration import ControllerRegistrar
from kraft_node.server.faults import FaultHandler, raising
from kraft_node.server.monitoring.monitoring_server import HttpServer
from kraft_node.server.monitoring.node_metrics import NodeMetrics
from kraft_node.server.monitoring.node_status import node_status
from kraft_node.server.node_settings import (
    GUARD_KEY,
    HTTP_KEY,
    connection_rates,
    creation_rates,
    host_and_port,
    limits_of,
    protected_listener,
    raft_config,
    snapshot_policy,
)
from kraft_node.server.parts import NodeParts
from kraft_node.server.quorum.driver import RaftDriver
from kraft_node.server.shutdown import NodeShutdown
from kraft_node.server.storage import NodeStorage, StorageRefused, open_storage
from kraft_protocol.ids import METADATA_TOPIC_NAME
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.config.listeners import ConfiguredListener
    from kraft_node.base.config.zookeeper import ZooKeeperSettings
    from kraft_node.base.env import Env
    from kraft_node.base.request import Handler
    from kraft_node.broker.broker import Broker
    from kraft_node.broker.client_quotas import ClientQuotas
    from kraft_node.controller.controller import Controller
    from kraft_node.log.errors import LogDirDamaged
    from kraft_node.metadata.delta import MetadataDelta
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.migration.zookeeper import Connect
    from kraft_node.server.migration import NodeMigration

log = logging.getLogger("kraft_node.server.node")

EARLY_KEY: Final = "early.start.listeners"

FORWARDING_LANE: Final = 1
"""The lane to the active controller for forwarded client requests; the node's own requests do not wait behind them."""


class StartRefused(Exception):  # noqa: N818 - a fact, not a fault
    """The reason why the node does not start, with the directory or key, for people."""


class Node(NodeParts):
    """One node. Call `start`, then `shutdown`. `on_fatal(reason)` is called when the node must not continue."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        *,
        host_name: str = "localhost",
        on_fatal: Callable[[str], None] | None = None,
        zookeeper: Callable[[ZooKeeperSettings], Connect] | None = None,
    ) -> None:
        super().__init__(env, config, FaultHandler(on_fatal or raising))
        self._zookeeper = zookeeper
        """Begins sessions of ZooKeeper, for a controller that migrates."""
        self.host_name = host_name
        self.ports: dict[str, int] = {}
        """The bound port, by listener name."""
        self.serving = False
        """Whether clients are served."""
        self._late_listeners: list[ServerListener] = []
        """Listeners that open once the authorizer knows the ACLs (`early.start.listeners`)."""
        self._pool = BufferPool(config.int("queued.max.request.bytes"))
        self._gate = ConnectionLimiter(
            limits_of(config, config),
            inter_broker=protected_listener(config),
            controllers=[endpoint.name for endpoint in config.controller_listeners],
        )
        self._started_ms = env.clock.monotonic_ms()
        self._stop = NodeShutdown(self)

    # Start

    def start(self) -> None:
        """Start; the rest happens on the loop. Raises StartRefused, or OSError for a port in use."""
        config = self.config
        self._refuse_what_is_not_served()
        self._started_ms = self.env.clock.monotonic_ms()
        try:
            self.storage = storage = open_storage(self.env, config, self._directory_failed, self._replica_withdrawn)
        except StorageRefused as e:
            raise StartRefused(str(e)) from None
        log.info(
            "node starts id=%d roles=%s cluster=%s dirs=%s",
            config.node_id, ",".join(sorted(config.roles)), storage.cluster_id, ",".join(config.all_dirs),
        )  # fmt: skip
        try:
            self.raft = raft = self._make_raft(storage)
            if config.is_controller:
                self.controller = self._make_controller(raft, storage)
                self.migration = self._make_migration(raft, self.controller)
                self._open_controller_listeners(self.controller)
            self.link = self._make_link(raft)
            if self.controller is not None:
                self._make_registration(raft, self.link)
            if config.is_broker:
                self.broker = self._make_broker(raft, storage, self.link)
                self._open_broker_listeners(self.broker)
            self._follow_configs(raft, storage)
            self._open_http()
            raft.start()
            self.raft_started = True
            if config.is_broker:
                self._register_broker()
        except (OSError, ValueError, ArithmeticError, LookupError, MetadataError) as e:
            self._stop.abandon_start()
            reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
            raise StartRefused(reason) from e

    def _refuse_what_is_not_served(self) -> None:
        config = self.config
        for refusal in refusals(config):
            raise StartRefused(refusal)
        if config.string("authorizer.class.name"):
            from kraft_node.security.authorizer import authorizer_of  # noqa: PLC0415  (nodes without one do without)

            try:
                self.authorizer = authorizer_of(config)
            except ValueError as e:
                raise StartRefused(str(e)) from None

    def _make_raft(self, storage: NodeStorage) -> RaftDriver:
        config = self.config
        local = ReplicaKey(config.node_id, storage.metadata_directory_id)
        listener = config.controller_listener_names[0].upper()
        static = [Voter(ReplicaKey(v.node_id), {listener: (v.host, v.port)}) for v in config.voters]
        driver = RaftDriver(
            self.env,
            storage.metadata,
            local=local,
            voters=VoterSet(static),
            cluster_id=storage.cluster_id,
            config=raft_config(config),
            policy=snapshot_policy(config),
            listener=listener,
            bootstrap_servers=config.bootstrap_servers,
            guards_empty_disk=own_boolean(config, GUARD_KEY),
            faults=self.faults,
            place=f"{METADATA_TOPIC_NAME}-0 in {config.metadata_log_dir}",
        )
        self.raft_channels = Channels(
            self.env,
            f"raft-client-{config.node_id}",
            driver.peers.endpoint_of,
            on_lost=driver.disconnected,
            patient=False,
            security=self.security.to_controllers,
        )
        driver.peers.use(self.raft_channels.find)
        if config.is_controller:
            driver.own = Voter(local, self._controller_addresses())
        driver.on_leader_changed.append(self._leader_changed)
        if self.authorizer is not None:
            driver.loader.publishers.append(self.authorizer.follow)
            driver.on_commit.append(lambda offset: self._authorizer_moved(driver, offset))
        return driver

    def _authorizer_moved(self, raft: RaftDriver, offset: int) -> None:
        """The ACLs are complete once all records known to be committed are in the image."""
        assert self.authorizer is not None
        if self.authorizer.is_ready or offset + 1 < raft.high_watermark:
            return
        self.authorizer.completed()
        log.info("authorizer is ready acls=%d offset=%d", len(self.authorizer), offset)
        for listener in self._late_listeners:
            listener.open_gates()

    def _controller_addresses(self) -> dict[str, tuple[str, int]]:
        """The endpoints of this controller, the default listener first."""
        return {e.name: (e.host or self.host_name, e.port) for e in self.config.advertised_controller_listeners}

    def _make_controller(self, raft: RaftDriver, storage: NodeStorage) -> Controller:
        # Imported here, as in _make_broker: most nodes have one role, and loading the other would take a tenth of the
        # start.
        from kraft_node.broker.pieces import in_pieces  # noqa: PLC0415
        from kraft_node.controller.controller import Controller  # noqa: PLC0415

        bootstrap = raft.bootstrap_records()
        controller = Controller(self.env, self.config, storage.cluster_id, raft.image, raft, bootstrap)
        # In place, because requests in envelopes use the same handlers.
        controller.handlers.update(raft.handlers())
        controller.follow(raft.loader)
        controller.features.kraft_version = lambda: raft.kraft_version
        controller.features.upgrade_kraft_version = lambda level, validate_only: raft.upgrade_kraft_version(
            -1 if controller.epoch is None else controller.epoch, level, validate_only
        )
        controller.features.quorum_nodes = lambda: raft.voters.ids
        controller.in_transaction = lambda: raft.loader.in_transaction
        controller.on_defect = self.faults.count
        controller.brokers.on_snapshot_reported = raft.snapshot_lags.note
        raft.metadata_level = controller.metadata_level
        raft.on_leader.append(controller.on_leader)
        raft.on_lost_leadership.append(lambda _epoch: controller.on_lost_leadership(raft.leader_id))
        raft.on_commit.append(controller.on_commit)
        raft.on_leader_changed.append(controller.on_leader_changed)
        if self.authorizer is not None:
            from kraft_node.controller.authorization import guarded  # noqa: PLC0415  (nodes without one do without)

            # In place, too: requests in envelopes are also checked.
            judged = guarded(controller.handlers, self.authorizer, lambda: raft.image.topics)
            controller.handlers.update(judged)
        # In place, too. The quorum's Fetch has only one partition.
        controller.handlers.update(in_pieces(controller.turns, controller.handlers, but={ApiKey.FETCH}))
        return controller

    def _make_migration(self, raft: RaftDriver, controller: Controller) -> NodeMigration | None:
        """The migration from ZooKeeper; None unless this controller is configured for it."""
        settings = zookeeper_settings(self.config)
        if settings is None:
            return None
        from kraft_node.server.migration import NodeMigration  # noqa: PLC0415  (few nodes migrate)
        from kraft_node.server.monitoring.migration_metrics import migration_metrics  # noqa: PLC0415

        migration = NodeMigration(self.env, self.config, self.security, settings, self._zookeeper, raft, controller)
        self.registry.register(lambda: migration_metrics(migration))
        return migration

    def _leader_changed(self, leader_id: int, epoch: int) -> None:
        log.info("quorum leader=%d epoch=%d", leader_id, epoch)
        assert self.link is not None
        self.link.leader_changed(leader_id)

    def _make_link(self, raft: RaftDriver) -> ActiveControllerLink:
        """The link to the active controller, in this process or another."""
        config = self.config
        client_id = f"node-{config.node_id}-to-controller"
        own = None
        if self.controller is not None:
            name = config.controller_listener_names[0]
            host = self._controller_addresses()[name][0]
            is_address = ":" in host or host.replace(".", "").isdecimal()
            host = host if is_address else LOOPBACK
            principal = partial(self.security.principal_at, name)
            own = LocalChannel(self.env, name, client_id, self.controller.handlers, host, principal)
        security = self.security.to_controllers
        channels = Channels(
            self.env,
            client_id,
            raft.peers.endpoint_of,
            on_lost=self._controller_lost,
            on_moved=self._controller_lost,
            patient=False,
            security=security,
        )
        self.controller_channels = channels
        link = ActiveControllerLink(
            self.env,
            config.node_id,
            own,
            channels.find,
            forwards=lambda node_id: channels.find(node_id, FORWARDING_LANE),
            drop=channels.drop,
            explain=raft.peers.explain,
        )
        # A new leader becomes the active controller only once it knows everything that was committed before.
        raft.on_leader.append(lambda _epoch: link.retry_now())
        return link

    def _controller_lost(self, node_id: int) -> None:
        """A connection to that controller is closed: if it is the active one, it must soon hear of the broker again."""
        if self.broker is not None and self.link is not None and node_id == self.link.leader_id:
            self.broker.renew_lease()

    def _make_registration(self, raft: RaftDriver, link: ActiveControllerLink) -> None:
        endpoints = self._addressed(self.config.advertised_controller_listeners)
        is_ready = self.migration is not None
        self.registration = ControllerRegistrar(self.env, self.config.node_id, raft.image, link, endpoints, is_ready)
        raft.loader.publishers.append(self.registration.moved)

    def _addressed(self, endpoints: list[ConfiguredListener]) -> list[tuple[str, str, int, int]]:
        """Name, host, port and security protocol of listeners, as others reach them."""
        return [
            (e.name, e.host or self.host_name, e.port or self.ports[e.name], e.security_protocol_id) for e in endpoints
        ]

    def _make_broker(self, raft: RaftDriver, storage: NodeStorage, link: ActiveControllerLink) -> Broker:
        from kraft_node.broker.broker import Broker  # noqa: PLC0415

        config = self.config
        served = frozenset(FORWARDED if self.controller is None else self.controller.handlers)
        listener = config.inter_broker_listener_name

        client_id = f"broker-{config.node_id}"
        locate = partial(broker_address, raft.image, listener)
        channels = self.peers = Channels(self.env, client_id, locate, patient=False, security=self.security.to_brokers)
        broker = Broker(
            self.env,
            config,
            cluster_id=storage.cluster_id,
            image=raft.image,
            logs=storage.logs,
            controller=link,
            controller_apis=served,
            peers=lambda node_id, lane: own if node_id == config.node_id else channels.find(node_id, lane),
            authorizer=self.authorizer,
        )
        principal = partial(self.security.principal_at, listener)
        own = LocalChannel(self.env, listener, client_id, broker.own_handlers, principal=principal)
        broker.config.checks.append(self.security.check)
        broker.snapshot_end = lambda: raft.snapshot_lags.own_end
        raft.loader.publishers.append(broker.apply)
        return broker

    def _follow_configs(self, raft: RaftDriver, storage: NodeStorage) -> None:
        """Apply the effective limits and periods, also on a node that is only a controller."""
        node_id = self.config.node_id
        values = BrokerConfig(self.config) if self.broker is None else self.broker.config
        alone = self.broker is None

        rates = self._gate.rates = connection_rates(self.config, raft.image)

        def follow(delta: MetadataDelta, image: MetadataImage) -> None:
            if delta.quotas or delta.is_snapshot:
                rates.quotas_changed()
            if not delta.configs and not delta.is_snapshot:
                return
            if alone:
                configs = image.configs
                own = configs.get((BROKER_RESOURCE, str(node_id))) or {}
                values.update(own, configs.get((BROKER_RESOURCE, "")) or {})
            self._gate.limits = limits_of(values, self.config)
            rates.configure(*creation_rates(values, self.config))
            storage.logs.reconfigure(values)
            self.security.follow(values)

        raft.loader.publishers.append(follow)

    def _register_broker(self) -> None:
        """Register the broker as soon as a controller is active; afterwards it continues by itself."""
        broker, storage = self.broker, self.storage
        assert broker is not None
        assert storage is not None
        broker.start(
            self._addressed(self.config.advertised_broker_listeners),
            previous_epoch=storage.previous_broker_epoch,
            on_state=self._broker_state,
            on_failure=self.faults.end,
        )

    def _broker_state(self, state: BrokerState) -> None:
        if state == BrokerState.RUNNING and not self.serving and not self._stop.is_under_way:
            self.serving = True
            for listener in self.broker_listeners:
                if self._is_early(listener.name, default=False):
                    listener.open_gates()
                else:
                    self._late_listeners.append(listener)
            log.info(
                "broker serves id=%d listeners=%s after_ms=%d",
                self.config.node_id,
                ",".join(f"{name}:{port}" for name, port in self.ports.items()),
                self.env.clock.monotonic_ms() - self._started_ms,
            )

    # Listeners

    def _open_controller_listeners(self, controller: Controller) -> None:
        for endpoint in self.config.controller_listeners:
            is_late = not self._is_early(endpoint.name, default=True)
            listener = self._listen(endpoint, controller.handlers, None, held=is_late)
            if is_late:
                self._late_listeners.append(listener)

    def _is_early(self, listener: str, *, default: bool) -> bool:
        """Whether a listener serves before the ACLs are known; then it serves super users only."""
        early = self.config.value(EARLY_KEY)
        named = listener in early if isinstance(early, list) else default
        return named or self.authorizer is None or self.authorizer.is_ready

    def _open_broker_listeners(self, broker: Broker) -> None:
        for endpoint in self.config.broker_listeners:
            listener = self._listen(endpoint, broker.handlers, broker.quotas, held=True)
            self.broker_listeners.append(listener)

    def _listen(
        self, endpoint: ConfiguredListener, handlers: dict[ApiKey, Handler], quotas: ClientQuotas | None, *, held: bool
    ) -> ServerListener:
        """Bind a listener; `quotas` apply to a broker's clients."""
        raft = self.raft
        assert raft is not None
        table, fallback = with_connection_apis(
            handlers,
            raft.image,
            is_broker=quotas is not None,
            kraft_version=lambda: raft.kraft_version,
            migrates=self.migration is not None,
        )
        listener = ServerListener(
            self.env,
            endpoint.name,
            table,
            gate=self._gate,
            pool=self._pool,
            metrics=self.metrics,
            versions_fallback=fallback,
            quotas=quotas or NO_QUOTAS,
            held=held,
            security=self.security.listener(endpoint, raft.image),
        )
        self.listeners.append(listener)
        self.ports[endpoint.name] = listener.listen(endpoint.host, endpoint.port)
        log.info("listening name=%s host=%s port=%d", endpoint.name, endpoint.host or "*", self.ports[endpoint.name])
        return listener

    def _open_http(self) -> None:
        NodeMetrics(self).register(self.registry)
        address = self.config.texts.get(HTTP_KEY)
        if not address:
            return
        host, port = host_and_port(HTTP_KEY, address)
        self.http = HttpServer(self.env, self.registry, self.not_ready, lambda: node_status(self))
        self.ports["http"] = self.http.listen(host.strip("[]"), port)
        log.info("listening name=http host=%s port=%d", host or "*", self.ports["http"])

    def not_ready(self) -> str | None:
        """Why clients are not served; None if they are."""
        if self._stop.is_under_way:
            return "stopping"
        if self.broker is not None:
            if not self.serving:
                return f"broker is {self.broker.state.name}"
            return None if self.broker.ready else "broker is fenced"
        if self.controller is None or self.raft is None or self.raft.leader_id < 0:
            return "no leader"
        return "no vote until all is there that a lost disk may have held" if self.raft.node.is_amnesiac else None

    # Failure

    def _directory_failed(self, directory: str, partitions: list[tuple[str, int]], error: BaseException) -> None:
        """A log directory has failed (KIP-112): the broker continues without it, as long as another directory is
        left."""
        log.error("log directory failed dir=%s error=%s", directory, error)
        assert self.storage is not None
        if directory == self.config.metadata_log_dir:
            self.faults.end(f"metadata directory {directory}: {error}")
        elif not self.storage.online_directories():
            self.faults.end(f"all log directories have failed, the last one {directory}: {error}")
        elif self.broker is not None:
            self.broker.directory_failed(partitions)

    def _replica_withdrawn(self, topic: str, index: int, damage: LogDirDamaged | None) -> None:
        if self.broker is not None:
            self.broker.replica_withdrawn(topic, index, damage)

    # Stop

    def shutdown(self, done: Callable[[], None]) -> None:
        """Stop cleanly, then call `done`; a second call is ignored."""
        self._stop.begin(done)
