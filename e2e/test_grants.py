"""Pipelines use only Secrets and claims that an administrator has allowed. Their pods need not run for this test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.kube import NAMESPACE, Object, get, kubectl, needs_kubernetes, until

pytestmark = needs_kubernetes

NAME = "granted"
ACCOUNT = "kraft-pipeline"


@pytest.fixture
def table(operator: None) -> Iterator[Object]:
    """A table with a driver that reads a Secret. Its image does not exist."""
    _forget()
    key = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "lake-keys", "key": "k"}}}
    spec = {
        "bootstrapServers": "nowhere:9092",
        "topics": {"names": ["orders"]},
        "table": {"path": "/lake/orders"},
        "driver": {
            "image": "localhost/no-such-image:1",
            "env": [key],
            "volumes": [{"name": "lake", "mountPath": "/lake", "claimName": "lake-of-granted"}],
        },
    }
    metadata = {"name": NAME, "namespace": NAMESPACE}
    yield {"apiVersion": "kraftcluster.io/v1alpha1", "kind": "KafkaTable", "metadata": metadata, "spec": spec}
    _forget()


def _forget() -> None:
    kubectl("delete", "kafkatable", NAME, "-n", NAMESPACE, "--ignore-not-found", check=True)
    kubectl("delete", "serviceaccount", ACCOUNT, "-n", NAMESPACE, "--ignore-not-found", check=True)
    kubectl("delete", "pvc", "lake-of-granted", "-n", NAMESPACE, "--ignore-not-found", "--wait=false", check=True)


def _degraded() -> Object:
    found = get("kafkatable", NAME).get("status", {}).get("conditions", ())
    return next((one for one in found if one["type"] == "Degraded"), {})


def test_secrets_and_claims_are_used_only_if_permitted(table: Object) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=table, check=True)
    until("the Secret is refused", lambda: _degraded().get("reason") == "SecretNotAllowed", 60)
    account = get("serviceaccount", ACCOUNT)
    assert account["automountServiceAccountToken"] is False
    assert get("deploy", f"{NAME}-table") is None
    grant = '{"secrets": [{"name": "lake-keys"}]}'
    kubectl("patch", "serviceaccount", ACCOUNT, "-n", NAMESPACE, "-p", grant, check=True)
    until("the claim is missed", lambda: _degraded().get("reason") == "ClaimNotFound", 60)
    metadata = {"name": "lake-of-granted", "namespace": NAMESPACE}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    kubectl("create", "-f", "-", stdin=claim, check=True)
    until("the claim is refused", lambda: _degraded().get("reason") == "ClaimNotAllowed", 60)
    kubectl("label", "pvc", "lake-of-granted", "-n", NAMESPACE, "kraftcluster.io/pipelines=allowed", check=True)
    made = until("the driver is made", lambda: get("deploy", f"{NAME}-table"), 60)
    assert made["spec"]["template"]["spec"]["serviceAccountName"] == ACCOUNT
    who = f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    rights = kubectl("auth", "can-i", "--list", who, "-n", NAMESPACE, check=True).stdout
    assert "selfsubjectreviews" in rights, "each account has this right"
    assert "secrets" not in rights
