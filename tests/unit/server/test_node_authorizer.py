"""A node with an authorizer: when its listeners open, and which starts it refuses."""

from __future__ import annotations

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.broker.lifecycle import BrokerState
from kraft_node.server.node import Node, StartRefused
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster
from tests.unit.broker.world import Loop, make_env

STANDARD = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
OPEN = {**STANDARD, "allow.everyone.if.no.acl.found": "true"}


def test_a_node_with_an_authorizer_authorizes_itself() -> None:
    """No principal has any right: the broker cannot register with its own controller, as in Apache Kafka."""
    cluster = Cluster(combined=1, overrides=STANDARD, start=False)
    cluster["k1"].start()
    cluster.rest(5_000)
    assert cluster.node("k1").authorizer.denied > 0
    assert cluster.node("k1").broker.lifecycle.broker_epoch == -1
    assert cluster.image.brokers.get(1) is None


def test_a_node_whose_principal_is_a_super_user_can_register() -> None:
    cluster = Cluster(combined=1, overrides={**STANDARD, "super.users": "User:ANONYMOUS"})
    assert not cluster.image.brokers.get(1).fenced
    assert cluster.ask("k1", m.DescribeQuorumRequest()).error_code == 0


@pytest.mark.parametrize("early", ["CONTROLLER", "PLAINTEXT"])
def test_a_late_listener_opens_after_the_acls_are_known(early: str) -> None:
    cluster = Cluster(combined=1, overrides={**OPEN, "early.start.listeners": early})
    assert len(cluster.node("k1")._late_listeners) == (early == "PLAINTEXT")
    answer = cluster.ask("k1", m.DescribeClusterRequest(endpoint_type=2), controller=True)
    assert answer.error_code == 0


@pytest.mark.parametrize("early", ["", "PLAINTEXT"])
def test_a_broker_listener_waits_for_the_acls_unless_it_starts_early(early: str) -> None:
    overrides = {**STANDARD, "super.users": "User:ANONYMOUS", "early.start.listeners": early}
    cluster = Cluster(combined=1, overrides=overrides if early else {k: v for k, v in overrides.items() if v})
    node = cluster.node("k1")
    (listener,) = node.broker_listeners
    assert not listener.held
    # The same again, with ACLs that arrive last.
    node.serving, node.authorizer.is_ready, listener.held = False, False, True
    node._broker_state(BrokerState.RUNNING)
    assert listener.held is (not early)
    node._authorizer_moved(node.raft, node.raft.high_watermark)
    assert not listener.held


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"authorizer.class.name": "com.example.Mine"}, "com.example.Mine"),
        ({**STANDARD, "super.users": "root"}, "super.users"),
    ],
)
def test_the_start_is_refused_with_the_reason(keys: dict[str, str], words: str) -> None:
    cluster = Cluster(combined=1, start=False)
    node = Node(make_env(Loop()), NodeConfig.parse({**cluster["k1"].config.texts, **keys}))
    with pytest.raises(StartRefused, match=words):
        node.start()
