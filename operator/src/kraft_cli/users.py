"""`kraftcluster user add|list|remove|rotate` and `kraftcluster client-config`."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kraft_cli.commands import Selects, output, show, waiting
from kraft_cli.target import NOT_THERE, REFUSED, WRONG, failure, wait_for

if TYPE_CHECKING:
    from kraft_operator.specs.cluster import NamedCluster

TYPES = {"scram-sha-512": "ScramSha512", "scram-sha-256": "ScramSha256", "tls": "MutualTls"}


def users(group: click.Group, selects: Selects[Any], find: Callable[..., Any]) -> None:
    """Add the commands to `group`, as `commands.shared` adds the others."""

    @group.group()
    def user() -> None:
        """Add, list, remove and rotate users: passwords or certificates, ACLs and quotas."""

    for make in (_add, _list, _remove, _rotate):
        make(user, selects, find)
    _client_config(group, selects, find)


def _add(group: click.Group, selects: Selects[Any], find: Callable[..., Any]) -> None:
    @group.command()
    @click.argument("name")
    @click.option("--type", "kind", type=click.Choice(sorted(TYPES)), help="authentication (default: the listener's)")
    @click.option(
        "--produce",
        multiple=True,
        metavar="TOPIC",
        help="topic that the user may create and write to; TOPIC* for a prefix",
    )
    @click.option("--consume", multiple=True, metavar="TOPIC", help="topic that the user may read; TOPIC* for a prefix")
    @click.option(
        "--group", "groups", multiple=True, metavar="GROUP", help="consumer group of the user (default: NAME*)"
    )
    @click.option("--producer-byte-rate", type=click.IntRange(1), help="quota: bytes produced per second")
    @click.option("--consumer-byte-rate", type=click.IntRange(1), help="quota: bytes consumed per second")
    @waiting
    @selects
    def add(
        name: str,
        kind: str | None,
        produce: tuple[str, ...],
        consume: tuple[str, ...],
        groups: tuple[str, ...],
        producer_byte_rate: int | None,
        consumer_byte_rate: int | None,
        wait: bool,
        timeout: float,
        **selected: Any,
    ) -> None:
        """Add the user NAME, or change what it may do. For more, write a KRaftUser into the cluster's file."""
        from kraft_local.resource_file import API_VERSION, USER, BadResourceError, parse_user
        from kraft_operator.specs.cluster import digest

        target = find(**selected)
        memory = target.folder.memory()
        if name in memory.users:
            raise failure(REFUSED, f"the file of {target.name} has the KRaftUser {name}: change it there")
        rules = [_rule("Topic", topic, "Write", "Create") for topic in produce]
        rules += [_rule("Topic", topic, "Read") for topic in consume]
        rules += [_rule("Group", one, "Read") for one in groups or ((f"{name}*",) if consume else ())]
        rates = {"producerByteRate": producer_byte_rate, "consumerByteRate": consumer_byte_rate}
        spec = {
            "cluster": target.name,
            "authentication": {"type": TYPES[kind] if kind else _type_of(target)},
            "acls": rules,
            "quotas": {key: value for key, value in rates.items() if value is not None},
        }
        document = {"apiVersion": API_VERSION, "kind": USER, "metadata": {"name": name}, "spec": spec}
        with target.folder.changing_requests() as requests:
            try:
                _, found = parse_user(document, "user add", target.name, requests.users)
            except BadResourceError as error:
                raise failure(WRONG, str(error)) from None
            _check_listener(target, found["spec"])
            requests.users[name] = found
        wanted = digest(found["spec"])
        _wait(target, name, wait, timeout, lambda state: state.get("spec") == wanted and _ready(state))
        click.echo(f"user {name} of {target.name}: `kraftcluster client-config {name}` prints its configuration")


def _rule(kind: str, name: str, *operations: str) -> dict[str, Any]:
    """The ACL for a name, or for all names that begin alike."""
    prefix = name.endswith("*") and name != "*"
    resource = {"type": kind, "name": name.removesuffix("*") if prefix else name}
    return {"resource": {**resource, "pattern": "Prefixed" if prefix else "Literal"}, "operations": [*operations]}


def _type_of(target: Any) -> str:
    """How the first listener that knows users authenticates them."""
    from kraft_operator.specs.security import authentication

    cluster = _cluster(target)
    found = [authentication(cluster, one) for one in cluster.spec.listeners]
    return next((one for one in found if one != "Anonymous"), "ScramSha512")


def _check_listener(target: Any, spec: dict[str, Any]) -> None:
    """Refuse a user that no listener authenticates: it becomes ready only after a change of the cluster's file."""
    from kraft_operator.api.user import KRaftUserSpec
    from kraft_operator.specs.user_access import fitting_listener, missing_listener

    cluster, parsed = _cluster(target), KRaftUserSpec.model_validate(spec)
    if fitting_listener(cluster, parsed) is None:
        raise failure(REFUSED, missing_listener(cluster, parsed))


def _cluster(target: Any) -> NamedCluster:
    """The cluster as its file describes it."""
    from kraft_operator.api.cluster import KRaftClusterSpec
    from kraft_operator.specs.cluster import NamedCluster
    from kraft_operator.specs.mode import in_force

    memory = target.folder.memory()
    spec = in_force(KRaftClusterSpec.model_validate(memory.accepted), memory.record)
    return NamedCluster(target.name, "default", "", spec)


def _list(group: click.Group, selects: Selects[Any], find: Callable[..., Any]) -> None:
    @group.command(name="list")
    @output
    @selects
    def list_(output: str, **selected: Any) -> None:
        """Show all users, and whether their credentials, ACLs and quotas are in force."""
        from rich.table import Table

        target = find(**selected)
        table = Table("user", "authentication", "ready", "reason", "issued", box=None)
        rows = []
        for name, one in sorted(_all(target).items()):
            state = _state(target, name)
            condition = _condition(state)
            row = {
                "name": name,
                "authentication": one["spec"]["authentication"]["type"],
                "ready": condition.get("status") == "True",
                "reason": condition.get("reason", "Waits"),
                "message": condition.get("message", ""),
                "issued": state.get("issued", ""),
            }
            rows.append(row)
            table.add_row(name, row["authentication"], str(row["ready"]), row["reason"], row["issued"])
        show({}, table, output, rows)


def _remove(group: click.Group, selects: Selects[Any], find: Callable[..., Any]) -> None:
    @group.command()
    @click.argument("name")
    @waiting
    @selects
    def remove(name: str, wait: bool, timeout: float, **selected: Any) -> None:
        """Remove the user NAME with its credentials, ACLs and quotas."""
        target = _existing(find, name, selected)
        if name in target.folder.memory().users:
            raise failure(REFUSED, f"the file of {target.name} has the KRaftUser {name}: remove it there")
        with target.folder.changing_requests() as requests:
            requests.users.pop(name, None)
            requests.rotations.pop(name, None)
        if wait and target.folder.lock.holder() is not None:
            wait_for(target, timeout, lambda _: "it is being removed" if _claimed(target, name) else None)
        click.echo(f"user {name} of {target.name} is removed")


def _rotate(group: click.Group, selects: Selects[Any], find: Callable[..., Any]) -> None:
    @group.command()
    @click.argument("name")
    @waiting
    @selects
    def rotate(name: str, wait: bool, timeout: float, **selected: Any) -> None:
        """Issue a new password or certificate for NAME.

        A former password ends at once for new connections, and for open ones within connections.max.reauth.ms.
        """
        target, word = _existing(find, name, selected), uuid.uuid4().hex[:12]
        with target.folder.changing_requests() as requests:
            requests.rotations[name] = word
        _wait(target, name, wait, timeout, lambda state: state.get("rotation") == word and _ready(state))
        click.echo(f"user {name} of {target.name} has new credentials: `kraftcluster client-config {name}`")


def _client_config(group: click.Group, selects: Selects[Any], find: Callable[..., Any]) -> None:
    @group.command(name="client-config")
    @click.argument("name")
    @click.option(
        "--format",
        "form",
        type=click.Choice(["java", "librdkafka", "kcat", "python"]),
        default="java",
        show_default=True,
        help="properties for Java, librdkafka or kcat -F; or a dictionary for Python (confluent-kafka)",
    )
    @click.option("--json", "as_json", is_flag=True, help="print all values as JSON, for programs")
    @selects
    def client_config(name: str, form: str, as_json: bool, **selected: Any) -> None:
        """Print the configuration of clients of the user NAME. It contains the password or the key."""
        target = _existing(find, name, selected)
        folder = target.folder.user(name)
        file = folder / {"java": "client.properties", "python": "python.json"}.get(form, "librdkafka.properties")
        try:
            text = (folder / "python.json").read_text() if as_json else file.read_text()
        except FileNotFoundError:
            reason = _condition(_state(target, name)).get("message") or "`kraftcluster up` first"
            raise failure(NOT_THERE, f"user {name} has no credentials yet: {reason}") from None
        if form == "python" and not as_json:
            pairs = [f"    {json.dumps(key)}: {json.dumps(value)},\n" for key, value in json.loads(text).items()]
            text = f"config = {{\n{''.join(pairs)}}}\n"
        click.echo(text, nl=False)


def _existing(find: Any, name: str, selected: dict[str, Any]) -> Any:
    """The cluster, if it has the user."""
    target = find(**selected)
    if name not in _all(target) or not re.fullmatch(r"[a-z0-9.-]+", name):
        names = ", ".join(sorted(_all(target))) or "none"
        raise failure(NOT_THERE, f"{target.name} has no user {name} (there is: {names})")
    return target


def _all(target: Any) -> dict[str, Any]:
    return {**target.folder.requests().users, **target.folder.memory().users}


def _state(target: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = target.folder.memory().user_states.get(name, {})
    return found


def _ready(state: dict[str, Any]) -> bool:
    return _condition(state).get("status") == "True"


def _condition(state: dict[str, Any]) -> dict[str, str]:
    """The condition Ready; empty before the first pass."""
    found: dict[str, str] = next(iter(state.get("conditions", ())), {})
    return found


def _claimed(target: Any, name: str) -> bool:
    return any(one["resource"] == name for one in target.folder.memory().user_claims)


def _wait(target: Any, name: str, wait: bool, timeout: float, done: Callable[[dict[str, Any]], bool]) -> None:
    if not wait or target.folder.lock.holder() is None:
        return

    def waits(_: Any) -> str | None:
        state = _state(target, name)
        if done(state):
            return None
        return _condition(state).get("message") or "it is being made"

    wait_for(target, timeout, waits)
