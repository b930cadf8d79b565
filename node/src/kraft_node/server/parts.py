"""The parts of a node, for its metrics, its status and its stop. `server.node` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.server.faults import FaultHandler
from kraft_node.server.monitoring.metrics import MetricsRegistry, RequestMetrics
from kraft_node.server.secure.node_security import NodeSecurity

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.env import Env
    from kraft_node.broker.broker import Broker
    from kraft_node.broker.controller_link import ActiveControllerLink
    from kraft_node.controller.controller import Controller
    from kraft_node.security.authorizer import Authorizer
    from kraft_node.server.channels.channel_pool import Channels
    from kraft_node.server.connections.listener import ServerListener
    from kraft_node.server.controller_registration import ControllerRegistrar
    from kraft_node.server.migration import NodeMigration
    from kraft_node.server.monitoring.monitoring_server import HttpServer
    from kraft_node.server.quorum.driver import RaftDriver
    from kraft_node.server.storage import NodeStorage


class NodeParts:
    """The parts of one node. A part is None before the start makes it, and if the roles of the node do not need it."""

    def __init__(self, env: Env, config: NodeConfig, faults: FaultHandler) -> None:
        """`faults` handles failures that end the node or are counted."""
        self.env = env
        self.config = config
        self.faults = faults
        self.security = NodeSecurity(env, config)
        self.storage: NodeStorage | None = None
        self.authorizer: Authorizer | None = None
        """Decides which operations clients may do; None: all operations."""
        self.raft: RaftDriver | None = None
        self.controller: Controller | None = None
        self.broker: Broker | None = None
        self.listeners: list[ServerListener] = []
        self.metrics = RequestMetrics()
        self.registry = MetricsRegistry()
        self.http: HttpServer | None = None
        self.link: ActiveControllerLink | None = None
        """The link to the active controller."""
        self.registration: ControllerRegistrar | None = None
        self.migration: NodeMigration | None = None
        """For a controller that migrates a cluster from ZooKeeper."""
        self.peers: Channels | None = None
        """The channels to other brokers; for a broker."""
        self.raft_started = False
        self.raft_channels: Channels | None = None
        """The channels of Raft to the other voters."""
        self.controller_channels: Channels | None = None
        """The channels of `link`."""
        self.broker_listeners: list[ServerListener] = []
        """The entries of `listeners` that the broker serves."""
