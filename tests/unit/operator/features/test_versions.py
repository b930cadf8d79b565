"""v1beta1 beside v1alpha1: conversions lose nothing, and objects in a real API server move from one to the other."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft_cli import versions
from kraft_cli.kubectl import main
from kraft_local.resource_file import BadResourceError, parsed
from kraft_operator.admission import Server
from kraft_operator.api.crd import crds
from kraft_operator.api.versions import ConversionError, answer, converted, definitions
from tests.unit.operator.features.control_plane import MISSING, control_plane, free_port, program
from tests.unit.operator.sample import ROOT

OLD, NEW = "kraftcluster.io/v1alpha1", "kraftcluster.io/v1beta1"
CLIENT = {"url": "https://127.0.0.1:1/convert"}


def _sample() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "deploy/samples/kraftcluster.yaml").read_text())
    document["spec"] |= {"drain": {"partitionsAtOnce": 7}, "rebalance": {"afterScaling": False}}
    return document


def test_a_cluster_survives_conversion_and_back() -> None:
    beta = converted(_sample(), "v1beta1")
    assert beta["apiVersion"] == NEW
    assert beta["spec"]["moves"] == {"partitionsAtOnce": 7}
    assert beta["spec"]["balance"] == {"afterScaling": False}
    assert "drain" not in beta["spec"] and "rebalance" not in beta["spec"]
    assert converted(beta, "v1alpha1") == _sample()
    assert converted(beta, "v1beta1") == beta


def _values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a structural schema with every field. Patterns and bounds do not matter to a conversion."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(0, 9) | st.sampled_from(["1Gi", "50%"])
    if "properties" in schema:
        return st.fixed_dictionaries({key: _values(value) for key, value in schema["properties"].items()})
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        names = st.sampled_from(["a", "drain", "balance"])
        return st.dictionaries(names, _values(values) if isinstance(values, dict) else st.integers(0, 9), max_size=2)
    if schema.get("type") == "array":
        return st.lists(_values(schema["items"]), min_size=1, max_size=2)
    plain = {"integer": st.integers(0, 9), "number": st.floats(0, 1), "boolean": st.booleans()}
    return plain.get(schema.get("type", ""), st.sampled_from(["", "x", "drain"]))


def _pruned(value: Any, schema: dict[str, Any]) -> Any:
    """A value without the fields that the API server drops, because the schema does not have them."""
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return {key: _pruned(one, known[key]) for key, one in value.items() if key in known}
    if isinstance(value, list):
        return [_pruned(one, schema["items"]) for one in value]
    values = schema.get("additionalProperties")
    if isinstance(value, dict) and isinstance(values, dict):
        return {key: _pruned(one, values) for key, one in value.items()}
    return value


@cache
def _kinds() -> tuple[str, ...]:
    return tuple(crd["spec"]["names"]["kind"] for crd in crds())


@cache
def _schemas(kind: str) -> dict[str, dict[str, Any]]:
    """The schemas of spec and status by version."""
    (definition,) = (one for one in definitions("v1alpha1", CLIENT) if one["spec"]["names"]["kind"] == kind)
    return {
        f"kraftcluster.io/{version['name']}": {
            **version["schema"]["openAPIV3Schema"],
            "properties": {
                key: value
                for key, value in version["schema"]["openAPIV3Schema"]["properties"].items()
                if key in {"spec", "status"}
            },
        }
        for version in definition["spec"]["versions"]
    }


@pytest.mark.parametrize("kind", _kinds())
@pytest.mark.parametrize(("here", "there"), [(OLD, NEW), (NEW, OLD)], ids=["to v1beta1", "to v1alpha1"])
@settings(deadline=None, max_examples=3, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
@given(data=st.data())
def test_every_field_survives_conversion_and_back(kind: str, here: str, there: str, data: st.DataObject) -> None:
    schemas = _schemas(kind)
    body = data.draw(_values(schemas[here]))
    one = {"apiVersion": here, "kind": kind, "metadata": {"name": "x", "labels": {"drain": "1"}}, **body}
    other = converted(one, there.rpartition("/")[2])
    content = {key: other[key] for key in body}
    assert _pruned(content, schemas[there]) == content, "the API server would drop a field"
    assert other["metadata"] == one["metadata"]
    assert converted(other, here.rpartition("/")[2]) == one


def test_rules_of_v1beta1_have_no_names_of_v1alpha1() -> None:
    for definition in definitions("v1alpha1", CLIENT):
        new = definition["spec"]["versions"][0]
        schema = new["schema"]["openAPIV3Schema"]
        rules = [*schema.get("x-kubernetes-validations", ())]
        rules += schema["properties"]["spec"].get("x-kubernetes-validations", ())
        text = json.dumps([rules, new.get("additionalPrinterColumns", [])])
        assert not re.search(r"\.(spec\.)?(drain|rebalance)\b", text)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["rebalance", "drain", "nodePools", "later"]), st.integers()))
def test_unknown_content_survives_conversion_and_back(spec: dict[str, int]) -> None:
    for kind in _kinds():
        one = {"apiVersion": OLD, "kind": kind, "metadata": {"name": "x"}, "spec": spec, "status": {"a": 1}}
        assert converted(converted(one, "v1beta1"), "v1alpha1") == one


def test_an_impossible_conversion_is_refused_with_the_reason() -> None:
    with pytest.raises(ConversionError, match="v1alpha1, v1beta1"):
        converted({"apiVersion": "kraftcluster.io/v2", "kind": "KRaftCluster"}, "v1beta1")
    review = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    request = {"uid": "u", "desiredAPIVersion": "kraftcluster.io/v2", "objects": [_sample()]}
    said = answer({**review, "request": request})["response"]
    assert (said["uid"], said["result"]["status"], said["convertedObjects"]) == ("u", "Failed", [])
    assert "v2" in said["result"]["message"]


def test_definitions_of_both_versions_have_the_same_fields_by_their_names() -> None:
    for plain, both in zip(crds(), definitions("v1alpha1", CLIENT), strict=True):
        new, old = both["spec"]["versions"]
        assert old == plain["spec"]["versions"][0]
        assert (new["storage"], old["storage"]) == (False, True)
        then, now = (one["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] for one in (old, new))
        names = {"rebalance": "balance", "drain": "moves"} if plain["spec"]["names"]["kind"] == "KRaftCluster" else {}
        assert {names.get(key, key): value for key, value in then.items()} == now
        assert ("conversion" in both["spec"]) is bool(names), "kinds that are the same need no webhook"
    assert definitions("v1alpha1", None) == list(crds())


def test_a_local_file_may_be_of_either_version() -> None:
    old, new = (yaml.safe_dump(one) for one in (_sample(), converted(_sample(), "v1beta1")))
    assert parsed(new, "x").spec == parsed(old, "x").spec
    assert parsed(new, "x").spec.drain.partitions_at_once == 7


def test_a_local_file_of_v1beta1_has_no_names_of_v1alpha1() -> None:
    """`drain` beside `moves` replaced it silently."""
    document = converted(_sample(), "v1beta1")
    document["spec"]["drain"] = {"partitionsAtOnce": 1}
    with pytest.raises(BadResourceError, match=r"spec\.drain: unknown field; this version has moves"):
        parsed(yaml.safe_dump(document), "x")


class _Kubectl:
    """Definitions that store v1beta1, after a run that ended before all API servers knew it."""

    def run(self, *words: str, stdin: str | None = None) -> str:
        if words[:2] == ("get", "crd"):
            both = [{"name": name, "served": True, "storage": name == "v1beta1"} for name in ("v1alpha1", "v1beta1")]
            status = {"storedVersions": ["v1alpha1", "v1beta1"]}
            one = {"metadata": {"name": "kraftclusters.kraftcluster.io"}, "spec": {"versions": both}}
            return json.dumps({"items": [{**one, "status": status}]})
        if words[:2] == ("get", "validatingwebhookconfigurations"):
            return json.dumps({"items": [{"webhooks": [{"name": versions.WEBHOOK, "clientConfig": CLIENT}]}]})
        return json.dumps({"items": []}) if words[0] == "get" else ""


def test_a_repeated_store_waits_for_all_api_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run ended in the pause; the second assumed from the definition that all API servers know it."""
    pauses: list[float] = []
    monkeypatch.setattr(versions, "pause", pauses.append)
    versions.store(_Kubectl(), "v1beta1")
    assert pauses == [versions.SETTLES_S]


# The real API server


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """Port and certificate of the operator's server."""
    folder = tmp_path_factory.mktemp("hook")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject]
    subprocess.run(command, check=True, capture_output=True)
    port, loop, begun = free_port(), asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        server = Server(addr="127.0.0.1", port=port, certfile=folder / "tls.crt", pkeyfile=folder / "tls.key")

        async def allow(review: Any, **_: Any) -> Any:
            return {**review, "response": {"uid": review["request"]["uid"], "allowed": True}}

        async with server:
            async for _ in server(allow):
                begun.set()

    async def goodbye() -> None:
        """Let the API server close its TLS connections: a closed loop would leave their sockets to the next tests."""
        end = time.monotonic() + 20
        open_files: Any = vars(loop)["_selector"].get_map()
        while len(open_files) > 1 and time.monotonic() < end:  # the remaining one belongs to the loop
            await asyncio.sleep(0.05)

    def run() -> None:
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.run_until_complete(goodbye())

    task = loop.create_task(serve())
    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(20)
    yield port, (folder / "tls.crt").read_text()
    loop.call_soon_threadsafe(task.cancel)
    thread.join(40)
    loop.close()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if MISSING:
        pytest.skip(f"without {', '.join(MISSING)}: see docs/how-to/develop-the-operator.md")
    with control_plane(tmp_path_factory.mktemp("plane")) as made:
        yield made


def _kubectl(config: Path, *words: str, stdin: object = None) -> str:
    path = program("kubectl")
    assert path is not None
    text = None if stdin is None else json.dumps(stdin)
    command = [path, f"--kubeconfig={config}", *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _get(config: Path, version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        _kubectl(config, "get", f"kraftclusters.{version}.kraftcluster.io", "sample", "-o", "json")
    )
    return found


def _kraft(config: Path, *words: str, code: int = 0) -> str:
    path = program("kubectl")
    done = CliRunner().invoke(main, [f"--kubeconfig={config}", "versions", *words], env={"KUBECTL": path})
    assert done.exit_code == code, f"{done.output} {done.exception}"
    return done.output


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_storage_moves_to_v1beta1_and_back_on_a_real_api_server(config: Path, hook: tuple[int, str]) -> None:
    _kubectl(config, "apply", "--server-side", "-f", str(ROOT / "deploy/crds"))
    _kubectl(config, "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    _kubectl(config, "apply", "-f", "-", stdin={**_sample(), "metadata": {"name": "sample", "namespace": "default"}})
    assert "no webhook" in _kraft(config, "serve", code=4)
    port, certificate = hook
    bundle = base64.b64encode(certificate.encode()).decode()
    client = {"url": f"https://127.0.0.1:{port}/kraftclusters", "caBundle": bundle}
    webhook = {
        "name": "kraftclusters.kraftcluster.io",
        "clientConfig": client,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    _kubectl(config, "apply", "-f", "-", stdin={**kind, "metadata": {"name": "w"}, "webhooks": [webhook]})

    said = _kraft(config, "serve")
    assert "kraftclusters.kraftcluster.io: serves v1beta1, v1alpha1; stores v1alpha1" in said
    beta = _get(config, "v1beta1")
    assert beta["spec"]["moves"]["partitionsAtOnce"] == 7
    assert _get(config, "v1alpha1")["spec"]["drain"]["partitionsAtOnce"] == 7

    assert "1 objects are stored as v1beta1" in _kraft(config, "store", "v1beta1")
    assert "stores v1beta1\n" in _kraft(config)
    assert _get(config, "v1alpha1")["spec"]["drain"] == {"partitionsAtOnce": 7, "bytesPerSecond": 0}
    beta["spec"]["moves"]["bytesPerSecond"] = 5
    for key in ("resourceVersion", "managedFields"):
        beta["metadata"].pop(key, None)
    _kubectl(config, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=beta)
    assert _get(config, "v1alpha1")["spec"]["drain"]["bytesPerSecond"] == 5
    assert "store v1alpha1" in _kraft(config, "withdraw", code=3), "what is stored could not be read any more"

    _kraft(config, "store", "v1alpha1")
    assert "v1beta1" in _kubectl(config, "get", "kraftclusters", "sample", "-o", "yaml"), "what kubectl remembers"
    assert "serves v1alpha1; stores v1alpha1" in _kraft(config, "withdraw")
    assert "v1alpha1" in _kubectl(config, "get", "kraftclusters", "sample", "-o", "yaml")
    assert _get(config, "v1alpha1")["spec"]["drain"] == {"partitionsAtOnce": 7, "bytesPerSecond": 5}
