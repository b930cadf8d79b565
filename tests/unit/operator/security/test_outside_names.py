"""The names by which clients outside of Kubernetes verify a broker."""

from __future__ import annotations

from kraft_operator.observe.cluster import ListedObjects
from kraft_operator.security.cluster_security import outside_of
from tests.unit.operator.sample import sample


def test_a_broker_is_known_by_the_machines_of_all_brokers() -> None:
    """On a cluster of three machines: the port of the first connection is open on each, and Kubernetes forwards it to
    any broker, whose certificate named its own machine only: clients refused a first connection by another one.
    """
    pods = {number: {"status": {"hostIP": f"10.0.0.{number}"}} for number in (1, 101, 102)}
    pods[103] = {"status": {}}
    listed = ListedObjects(pods=pods)
    assert outside_of(sample(), 101, (101, 102, 103), listed) == {"10.0.0.101", "10.0.0.102"}


def test_a_named_port_needs_no_machine() -> None:
    listeners = [{"name": "external", "port": 9094, "type": "NodePort", "host": "kafka.example"}]
    listed = ListedObjects(pods={101: {"status": {"hostIP": "10.0.0.101"}}})
    assert outside_of(sample(listeners=listeners), 101, (101,), listed) == set()
