"""KRaftUsers of a cluster with TLS: a Secret suffices for a client; a rotation and a deletion end former access."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import pytest

from e2e.kube import (
    CLIENT_IMAGE,
    NAMESPACE,
    WORK_RIGHTS,
    Cluster,
    Workload,
    add_user,
    get,
    kubectl,
    needs_kubernetes,
    timed,
    until,
)

pytestmark = needs_kubernetes

REAUTH_MS = 5_000

PRODUCER = """
import json, time
from confluent_kafka import KafkaException, Producer
def delivered(error, message):
    print("refused " + error.name() if error else "taken", flush=True)
config = json.load(open("/etc/kraft-user/python.json"))
def failed(error):
    print("error " + error.name(), flush=True)
producer = Producer({**config, "message.timeout.ms": 5000, "error_cb": failed})
while True:
    try:
        producer.produce("work-users", b"x", on_delivery=delivered)
    except KafkaException as error:
        print("refused " + error.args[0].name(), flush=True)
    producer.poll(0.5)
"""
"""Produces for ever on the connections that it has, and tells how each record ended."""


@pytest.fixture(scope="module")
def cluster(operator: None) -> Iterator[Cluster]:
    listeners = [
        {"name": "certs", "port": 9092},
        {"name": "passwords", "port": 9094, "authentication": "ScramSha512"},
    ]
    config = {"min.insync.replicas": "2", "connections.max.reauth.ms": str(REAUTH_MS)}
    one = Cluster("users", security={"tls": "Enabled"}, listeners=listeners, config=config)
    _forget(one)
    one.apply()
    one.settle()
    yield one
    _forget(one)


def _forget(cluster: Cluster) -> None:
    kubectl("delete", "kraftusers", "--all", "-n", NAMESPACE, check=True)
    kubectl("delete", "krafttopic", "work-users", "-n", NAMESPACE, "--ignore-not-found", check=True)
    cluster.forget()


def _password() -> str:
    return base64.b64decode(get("secret", "app")["data"]["password"]).decode()


def _run(pod: str) -> None:
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "client",
        "image": CLIENT_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/client/bin/python", "-u", "-c", PRODUCER],
        "securityContext": security,
        "volumeMounts": [{"name": "user", "mountPath": "/etc/kraft-user"}],
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "user", "secret": {"secretName": "app"}}],
    }
    metadata = {"name": pod, "namespace": NAMESPACE}
    kubectl("delete", "pod", pod, "-n", NAMESPACE, "--ignore-not-found", check=True)
    kubectl(
        "create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, check=True
    )


def _last(pod: str) -> str:
    return kubectl("logs", pod, "-n", NAMESPACE, "--tail=40").stdout


def test_a_client_needs_nothing_but_the_secret_of_its_user(cluster: Cluster) -> None:
    with timed("a user with a certificate"):
        add_user("shop", cluster, acls=WORK_RIGHTS, authentication={"type": "MutualTls"})
    with Workload(cluster, secret="shop") as work:
        pass
    work.assert_nothing_lost(at_least=20)


def test_a_rotation_and_a_deletion_end_the_former_access(cluster: Cluster) -> None:
    topic = {
        "apiVersion": "kraftcluster.io/v1alpha1",
        "kind": "KRaftTopic",
        "metadata": {"name": "work-users", "namespace": NAMESPACE},
        "spec": {"cluster": "users", "partitions": 3, "replicas": 3},
    }
    kubectl("apply", "-f", "-", stdin=topic, check=True)
    with timed("a user with a password"):
        add_user("app", cluster, acls=WORK_RIGHTS, authentication={"type": "ScramSha512"})
    first = _password()
    _run("former")
    until("the first password is taken", lambda: "taken" in _last("former"), 90)
    kubectl("annotate", "kraftuser", "app", "-n", NAMESPACE, "kraftcluster.io/rotate=one", check=True)
    until("the password is another", lambda: _password() != first, 60)
    until("the former password ends", lambda: "_AUTHENTICATION" in _last("former"), 60)
    _run("stolen")
    until("the new password is taken", lambda: "taken" in _last("stolen"), 90)
    kubectl("delete", "kraftuser", "app", "-n", NAMESPACE, check=True)
    with timed("a deleted user is refused on its open connection"):
        until("it is refused", lambda: "_AUTHENTICATION" in _last("stolen"), 30)
    time.sleep(REAUTH_MS / 1000)  # by then no connection to any broker is authenticated
    assert "taken" not in kubectl("logs", "stolen", "-n", NAMESPACE, "--since=2s", check=True).stdout
    until("the Secret is gone", lambda: get("secret", "app") is None, 60)
    claims = json.loads(get("configmap", "users-users")["data"]["users"])
    assert all(one["user"] != "app" for one in claims)
    shown = kubectl(
        "get", "events,kraftusers,kraftclusters,configmaps", "-n", NAMESPACE, "-o", "yaml", check=True
    ).stdout
    assert first not in shown
    kubectl("delete", "pod", "former", "stolen", "-n", NAMESPACE, check=True)
