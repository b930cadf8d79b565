"""`kubectl kraft versions`: which versions of the resources are served and stored, and the steps between versions.

It runs kubectl and needs the rights of an administrator, because definitions belong to the whole Kubernetes cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import click

from kraft_cli.commands import Selects
from kraft_cli.target import NOT_THERE, REFUSED, failure, pause
from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.api.crd import crds
from kraft_operator.api.versions import BETA, PATH, VERSIONS, definitions

MANAGER: Final = "kubectl-kraft"
WEBHOOK: Final = "kraftclusters.kraftcluster.io"
"""The name of the admission webhook, which has the operator's address."""
TRIES: Final = 5
DISCOVERED_S: Final = 0.5
"""Seconds between two looks at the versions that the API server lists."""
DISCOVERED_TRIES: Final = 40
SETTLES_S: Final = 10.0
"""Seconds until all API servers store the new version. Their watches need milliseconds."""
NAMES: Final = tuple(crd["metadata"]["name"] for crd in crds())


class RunsKubectl(Protocol):
    """What the steps need of `kubectl.Kubectl`."""

    def run(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output. Raises click.ClickException with its error message."""
        ...


def found(kubectl: RunsKubectl) -> dict[str, dict[str, Any]]:
    """The definitions that exist, by name."""
    items = json.loads(kubectl.run("get", "crd", *NAMES, "-o", "json", "--ignore-not-found") or '{"items": []}')
    listed = items.get("items", [items])
    return {one["metadata"]["name"]: one for one in listed}


def rows(there: Mapping[str, Any]) -> list[str]:
    """A line of text for each definition."""
    lines = []
    for name, crd in sorted(there.items()):
        served = [one["name"] for one in crd["spec"]["versions"] if one["served"]]
        stored = next(one["name"] for one in crd["spec"]["versions"] if one["storage"])
        old = [one for one in crd["status"].get("storedVersions", ()) if one != stored]
        more = f"; some objects may be stored as {', '.join(old)}" if old else ""
        lines.append(f"{name}: serves {', '.join(served)}; stores {stored}{more}")
    return lines


def serve(kubectl: RunsKubectl) -> None:
    """Serve both versions. Stored objects do not change. Raises click.ClickException without a webhook."""
    stored = {_storage(one) for one in found(kubectl).values()} or {VERSION}
    _apply(kubectl, BETA if stored == {BETA} else VERSION, _client(kubectl))
    _refresh(kubectl, VERSIONS)


def store(kubectl: RunsKubectl, version: str) -> int:
    """Store all objects as `version`. Returns how many objects were rewritten."""
    there = found(kubectl)
    if any(version not in _served(one) for one in there.values()) or not there:
        raise failure(REFUSED, f"{version} is not served: run `kubectl kraft versions serve` first")
    _apply(kubectl, version, _client(kubectl))
    if any(one["status"].get("storedVersions") != [version] for one in there.values()):
        # Every API server learns of it by its own watch. Until then it stores the former version. An earlier run may
        # have ended in this pause, so the definition alone does not prove that.
        pause(SETTLES_S)
    written = 0
    for name in there:
        items = json.loads(kubectl.run("get", name, "-A", "-o", "json"))["items"]
        for one in items:
            written += _rewrite(kubectl, name, one)
        change = json.dumps({"status": {"storedVersions": [version]}})
        kubectl.run("patch", "crd", name, "--subresource=status", "--type=merge", "-p", change)
    return written


def withdraw(kubectl: RunsKubectl) -> None:
    """Serve v1alpha1 only. Refused while an object may be stored as v1beta1."""
    there = found(kubectl)
    beta = [name for name, one in there.items() if BETA in one["status"].get("storedVersions", ())]
    if beta:
        text = (
            f"objects of {', '.join(beta)} may be stored as {BETA}: run `kubectl kraft versions store {VERSION}` first"
        )
        raise failure(REFUSED, text)
    _apply(kubectl, VERSION, None)
    _refresh(kubectl, (VERSION,))


def _served(crd: Mapping[str, Any]) -> list[str]:
    return [one["name"] for one in crd["spec"]["versions"] if one["served"]]


def _storage(crd: Mapping[str, Any]) -> str:
    return str(next(one["name"] for one in crd["spec"]["versions"] if one["storage"]))


def _apply(kubectl: RunsKubectl, storage: str, client: Mapping[str, Any] | None) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": definitions(storage, client)}
    words = ("apply", "--server-side", "--force-conflicts", f"--field-manager={MANAGER}", "-f", "-")
    kubectl.run(*words, stdin=json.dumps(document))


def _refresh(kubectl: RunsKubectl, served: Sequence[str]) -> None:
    """Make kubectl forget which versions were served before. It remembers them for hours, and would request those."""
    for _ in range(DISCOVERED_TRIES):
        group = json.loads(kubectl.run("get", "--raw", f"/apis/{GROUP}"))
        if {one["version"] for one in group["versions"]} == {*served}:
            break
        pause(DISCOVERED_S)
    kubectl.run("api-resources", f"--api-group={GROUP}", "--output=name")


def _client(kubectl: RunsKubectl) -> dict[str, Any]:
    """The address of the conversion webhook: as for admission, with another path."""
    hooks = json.loads(kubectl.run("get", "validatingwebhookconfigurations", "-o", "json"))["items"]
    for hook in (hook for item in hooks for hook in item.get("webhooks", ())):
        if hook["name"] == WEBHOOK:
            client = dict(hook["clientConfig"])
            if "service" in client:
                client["service"] = {**client["service"], "path": f"/{PATH}"}
            else:
                client["url"] = f"{client['url'].rpartition('/')[0]}/{PATH}"
            return client
    raise failure(NOT_THERE, "the operator has no webhook, which converts: install its chart with webhook.enabled=true")


def _rewrite(kubectl: RunsKubectl, name: str, one: dict[str, Any]) -> int:
    """Write an object unchanged, which stores it in the present version.

    Ignore an object that was deleted meanwhile.
    """
    where = ("-n", one["metadata"]["namespace"])
    for _ in range(TRIES):
        try:
            kubectl.run("replace", "-f", "-", stdin=json.dumps(one))
            return 1
        except click.ClickException as error:
            if "object has been modified" not in error.message and "not found" not in error.message:
                raise
        text = kubectl.run("get", name, one["metadata"]["name"], *where, "-o", "json", "--ignore-not-found")
        if not text.strip():
            return 0
        one = json.loads(text)
    raise failure(REFUSED, f"{name} {one['metadata']['name']} changes too often: try again")


def register(main: click.Group, reaches: Selects[Any], kubectl_of: Callable[..., RunsKubectl]) -> None:
    """The group of commands `versions`."""

    @main.group(invoke_without_command=True)
    @reaches
    def versions(**flags: str | None) -> None:
        """Show which versions of the resources are served and stored; serve or store another version."""
        if click.get_current_context().invoked_subcommand is None:
            for line in rows(found(kubectl_of(**flags))):
                click.echo(line)

    @versions.command("serve")
    @reaches
    def serve_both(**flags: str | None) -> None:
        """Serve v1beta1 beside v1alpha1, converted by the operator's webhook. Stored objects do not change."""
        serve(kubectl_of(**flags))
        for line in rows(found(kubectl_of(**flags))):
            click.echo(line)

    @versions.command("store")
    @click.argument("version", type=click.Choice(VERSIONS))
    @reaches
    def store_as(version: str, **flags: str | None) -> None:
        """Store all objects as VERSION, and rewrite objects that are stored as another version."""
        click.echo(f"{store(kubectl_of(**flags), version)} objects are stored as {version}")

    @versions.command("withdraw")
    @reaches
    def withdraw_beta(**flags: str | None) -> None:
        """Serve v1alpha1 only, without a webhook."""
        withdraw(kubectl_of(**flags))
        for line in rows(found(kubectl_of(**flags))):
            click.echo(line)
