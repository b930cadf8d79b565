"""The webhook: its refusals, its default (off), and its server."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import kopf
import pytest

from kraft_operator.admission import configure_webhooks, refusals_of_cluster, refusals_of_topic, register_webhooks
from kraft_operator.settings import Settings
from tests.unit.operator.sample import sample


def _spec(**changes: Any) -> dict[str, Any]:
    return sample(**changes).spec.model_dump(by_alias=True, exclude_none=True)


def test_refusals_name_the_wrong_fields() -> None:
    assert refusals_of_cluster(_spec()) == []
    (line,) = refusals_of_cluster(_spec(config={"min.insync.replica": "2"}))
    assert "did you mean min.insync.replicas?" in line
    (line,) = refusals_of_cluster(_spec(metadataVersion="9.9"))
    assert line == "spec.metadataVersion: 9.9 is unknown to this operator, which knows 3.3-IV3 to 4.3-IV0"
    (line,) = refusals_of_cluster({**_spec(), "paused": "maybe"})
    assert line == 'spec.paused: "maybe" is not valid: true or false is expected'
    assert refusals_of_cluster({**_spec(), "laterField": 1}) == [], "it is for a later operator"
    assert refusals_of_topic({"cluster": "c", "config": {"retention.ms": "1"}}) == []
    assert len(refusals_of_topic({"cluster": "c", "config": {"retention.ms": "x", "y": "1"}})) == 2


@pytest.mark.parametrize(
    ("changes", "status", "named"),
    [
        ({"listeners": [{"name": "tls", "port": 9093, "tls": True}]}, {"clusterId": "c"}, "spec.listeners[tls]"),
        ({"listeners": [{"name": "x", "port": 9091}]}, {"clusterId": "c", "security": "Tls"}, "port 9091"),
        ({"config": {"ssl.client.auth": "none"}}, {"clusterId": "c", "security": "Tls"}, "ssl.client.auth"),
        ({"security": {"tls": "Disabled"}}, {"clusterId": "c", "security": "Tls"}, "spec.security: this cluster runs"),
        ({"security": {}}, {"clusterId": "c"}, "spec.security: this cluster runs without TLS"),
        ({"security": {}, "hibernated": True}, {"clusterId": "c"}, ""),
        ({}, {"clusterId": "c", "security": "Tls"}, ""),
        ({}, {"clusterId": "c", "authorities": [{"name": "cluster", "key": "k"}]}, ""),
        ({"listeners": [{"name": "x", "port": 9091}]}, {}, ""),
    ],
    ids=["plaintext", "port", "key", "off", "on", "stopped", "fine", "unknown mode", "new"],
)
def test_the_mode_in_which_a_cluster_began_is_known(changes: Any, status: Any, named: str) -> None:
    spec = {**_spec(), "security": None, **changes}
    found = refusals_of_cluster({key: value for key, value in spec.items() if value is not None}, status)
    if named:
        assert any(named in line for line in found), found
    else:
        assert found == []


def test_the_handler_gives_the_status_along() -> None:
    made = kopf.OperatorRegistry()
    register_webhooks(made)
    handlers = {handler.id: handler for handler in made._webhooks.get_all_handlers()}
    spec = {**_spec(), "security": {"tls": "Disabled", "openListeners": ["external"]}}
    with pytest.raises(kopf.AdmissionError, match="runs with TLS"):
        handlers["kraftclusters"].fn(spec=spec, status={"clusterId": "c", "security": "Tls"}, operation="UPDATE")


def test_a_port_without_certificates_is_named() -> None:
    with pytest.raises(ValueError, match="KRAFT_WEBHOOK_CERTS"):
        Settings.of({"KRAFT_WEBHOOK_PORT": "9443"})
    assert Settings.of({}).webhook_port == 0


def test_each_path_has_its_handler() -> None:
    made = kopf.OperatorRegistry()
    register_webhooks(made)
    handlers = {handler.id: handler for handler in made._webhooks.get_all_handlers()}
    assert handlers.keys() == {"kraftclusters", "krafttopics"}
    for plural, handler in handlers.items():
        assert handler.selector is not None
        assert plural in {handler.selector.any_name, handler.selector.plural}
    with pytest.raises(kopf.AdmissionError, match="do not know this key"):
        handlers["krafttopics"].fn(spec={"cluster": "c", "config": {"y": "1"}}, operation="UPDATE")
    assert handlers["krafttopics"].fn(spec={"cluster": "c", "config": {"y": "1"}}, operation="DELETE") is None


def test_the_webhook_is_served_with_the_given_certificate(tmp_path: Path) -> None:
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject], check=True)

    async def main() -> None:
        settings = kopf.OperatorSettings()
        ours = Settings(webhook_port=0, webhook_certs=str(tmp_path), host="127.0.0.1")
        configure_webhooks(settings, ours)
        server = settings.admission.server
        assert isinstance(server, kopf.WebhookServer)
        server.port = None  # any
        asked: list[Any] = []

        async def serve(review: Any, *, webhook: str | None = None, **_: Any) -> Any:
            asked.append((webhook, review))
            return {"response": {"allowed": True}}

        config = await anext(aiter(server(serve)))
        trust = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
        url = f"https://127.0.0.1:{server.port or _port(config['url'])}/kraftclusters"
        async with aiohttp.ClientSession() as session, session.post(url, json={"a": 1}, ssl=trust) as answer:
            assert json.loads(await answer.text())["response"]["allowed"]
        assert asked == [("kraftclusters", {"a": 1})]

    asyncio.run(main())


def _port(url: str) -> int:
    return urlsplit(url).port or 0
