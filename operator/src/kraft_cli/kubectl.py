"""`kubectl-kraft`, which kubectl runs as `kubectl kraft`: the state of a KRaftCluster, and requests to its operator.

It runs kubectl, with its login and context. It needs the rights to read and patch KRaftClusters. `logs` and `top` need
the rights of `kubectl logs` and `kubectl top`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from kraft_cli.commands import named, output, shared
from kraft_cli.kraftcluster import print_completion
from kraft_cli.target import FAILED, NOT_THERE, REFUSED, WRONG, failure
from kraft_cli.versions import register as register_versions
from kraft_operator.specs.planner_input import REPLACE, request_text

NO_FILES: Final = 4
"""Cobra's directive: do not complete names of files."""
API_VERSION: Final = "v1alpha1"
KIND: Final = f"kraftclusters.{API_VERSION}.kraftcluster.io"
"""The resource with its version. Without a version, kubectl would use the newest served version."""
MANAGER: Final = "kubectl-kraft"
INSTANCE: Final = "app.kubernetes.io/instance"
NODE: Final = "kraftcluster.io/node"
_LOGGED: Final = re.compile(r"[EWIF]\d{4} \d\d:\d\d:\d\d\.")
_CODES: Final = {
    NOT_THERE: ("NotFound", "not found", "was refused", "Unable to connect", "does not exist", "no configuration"),
    REFUSED: ("Forbidden", "is invalid", "Unauthorized", "be logged in"),
}
"""Exit codes by parts of kubectl's messages."""


class Kubectl:
    """kubectl with the options that select API server and namespace."""

    def __init__(self, words: Sequence[str]) -> None:
        program = os.environ.get("KUBECTL") or shutil.which("kubectl")
        if program is None:
            raise failure(NOT_THERE, "kubectl is not on the PATH")
        self.command = [program, *words]

    def run(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output. Raises click.ClickException with its error message."""
        done = subprocess.run([*self.command, *words], input=stdin, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise _complaint(done.stderr, done.returncode)
        return done.stdout

    def lines(self, *words: str) -> Iterator[str]:
        """Run kubectl and yield its output line by line."""
        with subprocess.Popen([*self.command, *words], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
            assert process.stdout is not None
            yield from process.stdout
        if process.returncode:
            raise failure(FAILED, f"kubectl ended with {process.returncode}")


def _complaint(stderr: str, code: int) -> click.ClickException:
    """Convert kubectl's error output, without the log lines of its libraries, to an error with our exit code."""
    lines = [line for line in stderr.splitlines() if not _LOGGED.match(line)]
    message = "\n".join(lines).strip().removeprefix("error: ") or f"kubectl ended with {code}"
    if "have a resource type" in message:
        return failure(NOT_THERE, f"{message}: the operator's definitions are not installed, see charts/README.md")
    found = next((ours for ours, words in _CODES.items() if any(word in message for word in words)), FAILED)
    return failure(found, message)


class KubeTarget:
    """A KRaftCluster as a target."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self._kubectl = kubectl
        self.name = name

    def resource(self) -> dict[str, Any]:
        """The KRaftCluster with its status, from the API server. Fails with our exit code."""
        found: dict[str, Any] = json.loads(self._kubectl.run("get", KIND, self.name, "-o", "json"))
        return found

    def pods(self) -> list[dict[str, Any]]:
        """The pods of its nodes, as the API server has them."""
        selector = f"{INSTANCE}={self.name},app.kubernetes.io/name=kraftcluster"
        found: list[dict[str, Any]] = json.loads(self._kubectl.run("get", "pods", "-l", selector, "-o", "json"))[
            "items"
        ]
        return found

    def driven(self) -> None:
        """Do nothing: users may lack the right to see the operator. A request stays until an operator runs."""

    def annotate(self, values: Mapping[str, str]) -> None:
        """Set annotations of the resource."""
        self._patch({"metadata": {"annotations": dict(values)}})

    def flag(self, name: str, value: bool) -> None:
        """Set a field of the specification to true or false."""
        self._patch({"spec": {name: value}})

    def request_replacement(self, item: Mapping[str, Any]) -> None:
        """Write an annotation. The operator removes it, so that no later `kubectl apply` repeats the request."""
        self.annotate({f"{REPLACE}{item['name']}": request_text(item)})

    def withdraw_replacement(self, name: str) -> None:
        """Delete the annotation of the request; harmless if the operator has removed it already."""
        self._patch({"metadata": {"annotations": {f"{REPLACE}{name}": None}}})

    def _patch(self, body: Mapping[str, Any]) -> None:
        words = ["patch", KIND, self.name, "--type=merge", f"--field-manager={MANAGER}", "-p", json.dumps(body)]
        self._kubectl.run(*words)

    def log(self, node: Mapping[str, Any], lines: int, follow: bool) -> Iterator[str]:
        """The lines of the log of a node's pod; with `follow`, without end."""
        pod = node.get("pod") or f"{self.name}-{node['id']}"
        return self._kubectl.lines("logs", pod, f"--tail={lines}", *(["--follow"] if follow else []))

    def use(self, nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
        """Rows of node id, roles, processor time and memory, by `kubectl top`; empty texts for unknown values."""
        printed = self._kubectl.run("top", "pod", "--no-headers", "-l", f"{INSTANCE}={self.name},{NODE}")
        use = {words[0]: words[1:3] for line in printed.splitlines() if len(words := line.split()) >= 3}
        rows = []
        for node in nodes:
            cpu, memory = use.get(node.get("pod", ""), ("", ""))
            rows.append((str(node["id"]), ",".join(node["roles"]), cpu, memory))
        return rows


def _selects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select a cluster."""
    command = click.option("-c", "--cluster", help="name of the cluster, if several exist in the namespace")(command)
    return _reaches(click.option("-n", "--namespace", help="as for kubectl")(command))


def _reaches(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select the Kubernetes cluster."""
    command = click.option("--context", help="as for kubectl")(command)
    return click.option("--kubeconfig", help="as for kubectl")(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@_selects
def main(**_: str | None) -> None:
    """Show KRaftClusters, and send requests to their operator.

    Options that select a cluster stand before or after the command, as in kubectl.
    """


def _kubectl(**flags: str | None) -> Kubectl:
    """Run kubectl with these options. An option that is None has its value before the command or the group, if any."""
    above = click.get_current_context().parent
    while above is not None:
        flags = {name: value or above.params.get(name) for name, value in flags.items()}
        above = above.parent
    return Kubectl([f"--{name}={value}" for name, value in flags.items() if value is not None])


def _find(cluster: str | None, named: str | None = None, **flags: str | None) -> KubeTarget:
    before = click.get_current_context().find_root().params
    kubectl = _kubectl(**flags)
    name = named or cluster or before.get("cluster")
    if name is None:
        there = kubectl.run("get", KIND, "-o", "name").split()
        if len(there) != 1:
            names = ", ".join(item.partition("/")[2] for item in there)
            what = f"{len(there)} KRaftClusters ({names}): name one" if there else "no KRaftCluster"
            raise failure(WRONG if there else NOT_THERE, f"this namespace has {what}")
        name = there[0].partition("/")[2]
    return KubeTarget(kubectl, name)


@main.command()
@click.option("-f", "--file", type=click.File(), help="a changed resource (default: the cluster's present resource)")
@click.option("--node-image", default="", help="the new operator's nodeImage: the image of clusters without `image`")
@output
@named
@_selects
def preview(file: Any, node_image: str, output: str, **selected: Any) -> None:
    """Show what an operator of this version would restart and change, before it is upgraded or FILE is applied.

    Exit code 0 if it would change nothing, else 1.
    """
    from pydantic import ValidationError

    from kraft_operator.api.problems import problems
    from kraft_operator.api.versions import ConversionError, converted
    from kraft_operator.report import preview as report

    target = _find(**selected)
    changed = None if file is None else _resource_in(file, target.name)
    try:
        if changed is not None and changed.get("apiVersion"):
            changed = converted(changed, API_VERSION)
        found = report.preview(target.resource(), target.pods(), changed, node_image)
    except ConversionError as error:
        raise failure(WRONG, str(error)) from None
    except ValidationError as error:
        raise failure(REFUSED, "; ".join(problems(error))) from None
    if output == "table":
        for line in found.lines:
            click.echo(line)
    else:
        click.echo(json.dumps(asdict(found)))
    if found != report.Preview():
        raise SystemExit(FAILED)


def _resource_in(file: Any, name: str) -> dict[str, Any]:
    """The KRaftCluster with this name in an open file. Raises click.ClickException."""
    import yaml

    from kraft_local.resource_file import yaml_problem

    try:
        documents = [one for one in yaml.safe_load_all(file) if isinstance(one, dict)]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise failure(WRONG, f"{file.name}: {yaml_problem(error)}") from None
    for one in documents:
        metadata = one.get("metadata")
        if one.get("kind") == "KRaftCluster" and isinstance(metadata, dict) and metadata.get("name") == name:
            return one
    raise failure(WRONG, f"{file.name} contains no KRaftCluster {name}")


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of `kubectl-kraft` for SHELL."""
    print_completion(main, "kubectl-kraft", shell)


shared(main, _selects, _find)
register_versions(main, _reaches, _kubectl)


def entry() -> None:
    """Run the program."""
    main(prog_name="kubectl kraft")


def complete() -> None:
    """`kubectl_complete-kraft`: kubectl runs it to complete words after `kubectl kraft`."""
    from click.shell_completion import ShellComplete

    *words, begun = sys.argv[1:] or [""]
    for item in ShellComplete(main, {}, "kubectl-kraft", "").get_completions(words, begun):
        click.echo(item.value + (f"\t{item.help}" if item.help else ""))
    click.echo(f":{NO_FILES}")


if __name__ == "__main__":
    entry()
