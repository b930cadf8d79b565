"""The API server accepts every manifest of the sample, in a namespace that enforces the `restricted` pod standard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.kube import fresh_namespace, kubectl, needs_kubernetes
from tests.unit.operator.sample import manifests, sample

NAMESPACE = "kraft-e2e-manifests"
MANIFESTS = manifests(sample(NAMESPACE))

pytestmark = needs_kubernetes


@pytest.fixture(scope="module", autouse=True)
def namespace() -> Iterator[None]:
    fresh_namespace(NAMESPACE)
    label = "pod-security.kubernetes.io/enforce=restricted"
    assert kubectl("label", "namespace", NAMESPACE, label, "--overwrite").returncode == 0
    yield
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.parametrize("one", MANIFESTS, ids=[f"{m['kind']}-{m['metadata']['name']}" for m in MANIFESTS])
def test_the_api_server_accepts_every_manifest(one: dict[str, object]) -> None:
    words = ("apply", "--server-side", "--field-manager=kraft-operator", "--dry-run=server", "--validate=strict")
    answer = kubectl(*words, "-f", "-", stdin=one)
    assert answer.returncode == 0, answer.stderr
    assert "Warning" not in answer.stderr
