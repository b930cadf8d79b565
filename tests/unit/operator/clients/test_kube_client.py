"""Requests to an API server over HTTP: retries, expired logins, proxies; and kopf's login."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.client import Configuration

from kraft_operator import handlers
from kraft_operator.kube import access as logins
from kraft_operator.kube import client as kube
from kraft_operator.kube.access import Access, NoAccessError, access
from kraft_operator.kube.client import Api, ApiError

Object = dict[str, Any]
Answer = tuple[int, dict[str, str], Object]


class Server:
    """Sends its answers in order; None breaks the connection. Keeps the requests' first lines and headers."""

    def __init__(self, answers: list[Answer | None], tls: ssl.SSLContext | None = None) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._tls = tls

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._one, "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *rest = head.decode().strip().split("\r\n")
                headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in rest)}
                await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(first.rpartition(" ")[0])
                self.headers.append(headers)
                answer = self.answers.pop(0)
                if answer is None:
                    return
                body = json.dumps(answer[2]).encode()
                lines = [f"HTTP/1.1 {answer[0]} X", f"Content-Length: {len(body)}"]
                lines += [f"{key}: {value}" for key, value in answer[1].items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()


def _against(answers: list[Answer | None], ask: Callable[[Api], Awaitable[None]]) -> Server:
    server = Server(answers)

    async def main() -> None:
        async with server as url:

            async def login() -> Access:
                return Access(Configuration(host=url))

            async with Api(login) as api:
                await ask(api)

    asyncio.run(main())
    assert not answers
    return server


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube, "PAUSE_S", 0.001)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


# Retries


def test_throttling_and_transient_errors_are_retried() -> None:
    async def ask(api: Api) -> None:
        found = await api.get("Pod", "n", "p")
        assert found == {"a": 1}

    answers: list[Answer | None] = [(429, {"Retry-After": "0"}, {}), (500, {}, {}), None, (503, {}, {})]
    requests = _against([*answers, (200, {}, {"a": 1})], ask).requests
    assert requests == ["GET /api/v1/namespaces/n/pods/p"] * 5


def test_a_failed_creation_is_not_repeated_but_a_throttled_one_is() -> None:
    async def ask(api: Api) -> None:
        body = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
        with pytest.raises(ApiError) as error:
            await api.create(body)
        assert error.value.status == 500
        assert await api.create(body) == {}

    assert len(_against([(500, {}, {}), (429, {}, {}), (201, {}, {})], ask).requests) == 3


@pytest.mark.parametrize("answer", [(429, {}, {}), (500, {}, {}), None], ids=["throttled", "failed", "broken"])
def test_a_deletion_with_a_precondition_is_not_repeated(answer: Answer | None) -> None:
    async def ask(api: Api) -> None:
        with pytest.raises(ApiError):
            await api.delete("Pod", "n", "p", "u", "7")

    assert len(_against([answer], ask).requests) == 1


def test_refusals_are_raised_to_the_caller() -> None:
    async def ask(api: Api) -> None:
        assert await api.get("Pod", "n", "p") is None
        with pytest.raises(ApiError, match=r"409 Conflict: .*has changed"):
            await api.patch("KRaftCluster", "n", "c", {}, "status")
        await api.delete("Pod", "n", "gone")

    said = {"reason": "Conflict", "message": "it has changed"}
    server = _against([(404, {}, {}), (409, {}, said), (404, {}, {})], ask)
    assert server.requests[1].startswith("PATCH /apis/kraftcluster.io/v1alpha1/namespaces/n/kraftclusters/c/status?")
    assert server.headers[1]["content-type"] == "application/merge-patch+json"


def test_long_lists_are_read_in_pages() -> None:
    async def ask(api: Api) -> None:
        assert [one["n"] for one in await api.list("Pod", None, "a=b")] == [1, 2, 3]

    first = {"items": [{"n": 1}, {"n": 2}], "metadata": {"continue": "token"}}
    server = _against([(200, {}, first), (200, {}, {"items": [{"n": 3}], "metadata": {}})], ask)
    assert server.requests[0] == "GET /api/v1/pods?limit=500&labelSelector=a%3Db"
    assert server.requests[1].endswith("continue=token")


def test_machines_are_listed_without_their_specification() -> None:
    async def ask(api: Api) -> None:
        assert await api.list("Node", None, only_metadata=True) == []

    server = _against([(200, {}, {"items": None, "metadata": {}})], ask)
    assert server.headers[0]["accept"] == "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


# Logins


def _kubeconfig(path: Path, server: str, user: Object, **cluster: Any) -> Path:
    document = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u", "namespace": "demo"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


PLUGIN = """#!/bin/sh
echo x >> {calls}
printf '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{"token": "t%s"}}}}' \
  "$(wc -l < {calls} | tr -d ' ')"
"""


def test_an_exec_plugin_is_run_again_after_its_token_expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, plugin = tmp_path / "calls", tmp_path / "plugin"
    plugin.write_text(PLUGIN.format(calls=calls))
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    server = Server([(200, {}, {}), (401, {}, {}), (200, {}, {}), (401, {}, {})])

    async def main() -> None:
        async with server as url:
            monkeypatch.setenv("KUBECONFIG", str(_kubeconfig(tmp_path / "config", url, user)))
            async with Api() as api:
                assert api.namespace == "demo"
                for _ in range(2):
                    await api.get("Pod", "n", "p")
                with pytest.raises(ApiError, match="401"):  # renewed a moment ago: the plugin is not run in a loop
                    await api.get("Pod", "n", "p")

    asyncio.run(main())
    assert [one["authorization"] for one in server.headers] == ["Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"]
    assert calls.read_text().count("x") == 2


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return certificate, key


def test_a_changed_ca_file_is_trusted_after_a_reconnect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server got a certificate of another CA, and its restart ended the open connections."""
    (old, _), (new, key) = _certificate(tmp_path, "old"), _certificate(tmp_path, "new")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(new, key)
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.read_bytes())
    server = Server([(200, {}, {"a": 1})], tls)

    async def main() -> None:
        async with server as url:
            path = _kubeconfig(tmp_path / "config", url, {"token": "t"}, **{"certificate-authority": str(ca)})
            monkeypatch.setenv("KUBECONFIG", str(path))
            async with Api() as api:
                ca.write_bytes(new.read_bytes())
                assert await api.get("Pod", "n", "p") == {"a": 1}

    asyncio.run(main())


def test_a_service_accounts_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = _certificate(tmp_path, "one")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    for name, text in (("token", "first"), ("namespace", "home"), ("ca.crt", certificate.read_text())):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(logins, "ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    server = Server([(401, {}, {}), (200, {}, {})], tls)

    async def main() -> None:
        async with server as url:
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", url.rpartition(":")[2])
            async with Api() as api:
                assert api.namespace == "home"
                (tmp_path / "token").write_text("second")
                await api.get("Pod", "n", "p")

    asyncio.run(main())
    assert [one["authorization"].lower() for one in server.headers] == ["bearer first", "bearer second"]


def test_requests_use_the_configured_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([(200, {}, {"a": 1})])

    async def main() -> None:
        async with server as url:
            path = _kubeconfig(tmp_path / "config", "http://kubernetes.invalid", {}, **{"proxy-url": url})
            monkeypatch.setenv("KUBECONFIG", str(path))
            async with Api() as api:
                assert await api.get("Pod", "n", "p") == {"a": 1}

    asyncio.run(main())
    assert server.requests == ["GET http://kubernetes.invalid/api/v1/namespaces/n/pods/p"]


@pytest.mark.parametrize("text", [None, "", "clusters: []", "a: ["], ids=["absent", "empty", "no context", "no YAML"])
def test_a_missing_login_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(NoAccessError, match=str(path)):
        asyncio.run(access())


def test_kopf_uses_the_same_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _kubeconfig(tmp_path / "config", "http://somewhere:1", {"token": "t"}, **{"proxy-url": "http://p:2"})
    monkeypatch.setenv("KUBECONFIG", str(path))
    found = asyncio.run(handlers.login())
    assert (found.server, found.scheme, found.token, found.proxy_url) == (
        "http://somewhere:1",
        "Bearer",
        "t",
        "http://p:2",
    )
