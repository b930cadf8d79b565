"""`kraftcluster migrate start`: writes the configurations with which controllers and brokers begin the migration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from kraft_cli.commands import output, show
from kraft_cli.migration.survey import BLOCKER, FILE, of_brokers, of_kind, of_zookeeper, run_survey
from kraft_cli.target import REFUSED, WRONG, failure
from kraft_protocol.configs.properties import decode_properties, format_properties, parse_properties

MIGRATION_KEY: Final = "zookeeper.metadata.migration.enable"
VERSION_KEY: Final = "inter.broker.protocol.version"
MAP_KEY: Final = "listener.security.protocol.map"
AUTHORIZER_KEY: Final = "authorizer.class.name"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECRETS: Final = ("password.encoder.secret", "delegation.token.secret.key", "delegation.token.master.key")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX: Final = 65535
OF_AUTHORIZERS: Final = ("super.users", "allow.everyone.if.no.acl.found")
"""Settings of authorizers, which brokers do not describe: they come from the brokers' files."""
FROM_BROKERS: Final = (
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "zookeeper.set.acl",
    "principal.builder.class",
)
"""Settings of brokers that controllers need."""
SECURITY_PREFIXES: Final = ("ssl.", "sasl.", "listener.name.")
"""Settings that are copied if the broker's file is given, for requests between controllers and brokers."""
OF_ZOOKEEPER: Final = (
    "zookeeper.",
    VERSION_KEY,
    "broker.id",
    "broker.id.generation.enable",
    "control.plane.listener.name",
)
"""Keys, or the beginnings of keys, that a broker without ZooKeeper does not have."""


class Controller(NamedTuple):
    """One of the future controllers."""

    id: int
    host: str
    port: int

    @property
    def voter(self) -> str:
        """The controller as an entry of `controller.quorum.voters`: `ID@HOST:PORT`."""
        return f"{self.id}@{self.host}:{self.port}"


class Written(NamedTuple):
    """A file to write."""

    name: str
    text: str
    todo: list[str]
    """What to add by hand."""


@click.command()
@click.option(
    "--controller",
    "names",
    multiple=True,
    required=True,
    metavar="ID@HOST:PORT",
    help="a controller to set up; repeat it for each controller",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="folder to write the files to"
)
@click.option(
    "--broker-properties",
    "files",
    type=FILE,
    multiple=True,
    help="server.properties of a broker, the source of its new configurations; repeat it for each broker",
)
@click.option(
    "--http-port", type=click.IntRange(1, 65535), default=9100, show_default=True, help="port of http.listener"
)
@click.option("--log-dir", default="/var/lib/kraft", show_default=True, help="log.dirs of the controllers")
@click.option("--listener", default="CONTROLLER", show_default=True, help="name of the controllers' listener")
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    default="PLAINTEXT",
    show_default=True,
    help="security protocol of that listener",
)
@output
@of_brokers
@of_zookeeper
def start(
    zookeeper: str,
    zk_tls_config_file: Path | None,
    command_config: Path | None,
    output: str,
    names: tuple[str, ...],
    out: Path,
    files: tuple[Path, ...],
    **options: Any,
) -> None:
    """Write the properties of controllers and brokers into a folder, and say how to begin. Nothing is started."""
    controllers = [_controller(name) for name in names]
    survey = run_survey("look", zookeeper, zk_tls_config_file=zk_tls_config_file, command_config=command_config)
    blockers = of_kind(survey, BLOCKER)
    if blockers:
        first = f"{blockers[0]['subject']}: {blockers[0]['reason']}"
        raise failure(REFUSED, f"{len(blockers)} blockers, the first is {first}; run kraftcluster migrate check")
    _require_own_ids(controllers, [one["id"] for one in survey["brokers"]])
    _require_own_listener(options["listener"], survey["brokers"])
    tls = _properties(zk_tls_config_file) if zk_tls_config_file is not None else {}
    plan = MigrationPlan(survey, controllers, {"zookeeper.connect": zookeeper, **tls}, _by_id(files), options)
    written = [*plan.files()]
    write(out, written)
    steps = plan.steps()
    result = {
        "files": [{"file": str(out / one.name), "todo": one.todo} for one in written],
        "next": steps,
    }
    from rich.text import Text

    lines = [
        f"written      {out / one.name}" + "".join(f"\n  add        {todo}" for todo in one.todo) for one in written
    ]
    lines += [f"{number} {step}" for number, step in enumerate(steps, 1)]
    show(result, Text("\n".join(lines)), output)


def _controller(text: str) -> Controller:
    number, _, address = text.partition("@")
    host, _, port = address.rpartition(":")
    if not (number.isdecimal() and host and port.isdecimal() and 0 < int(port) <= PORT_MAX):
        raise failure(WRONG, f"--controller {text}: expected ID@HOST:PORT")
    return Controller(int(number), host, int(port))


def _require_own_ids(controllers: list[Controller], brokers: list[int]) -> None:
    ids = [one.id for one in controllers]
    for one in ids:
        if one in brokers:
            raise failure(WRONG, f"--controller {one}: broker {one} has this id; ids of controllers and brokers differ")
        if ids.count(one) > 1:
            raise failure(WRONG, f"--controller {one}: the id is given twice")


def _require_own_listener(listener: str, brokers: list[dict[str, Any]]) -> None:
    """Raise click.ClickException if a broker has a listener of this name: it would get the controllers' protocol."""
    for broker in brokers:
        if any(endpoint.partition("://")[0].upper() == listener.upper() for endpoint in broker["endpoints"]):
            raise failure(
                WRONG, f"--listener {listener}: broker {broker['id']} has a listener of this name; choose another name"
            )


def _properties(path: Path) -> dict[str, str]:
    try:
        return parse_properties(decode_properties(path.read_bytes()))
    except (OSError, ValueError) as e:
        raise failure(WRONG, f"{path}: {e}") from None


def _by_id(files: Iterable[Path]) -> dict[int, dict[str, str]]:
    found = {}
    for path in files:
        properties = _properties(path)
        number = properties.get("broker.id", properties.get("node.id", ""))
        if not number.isdecimal():
            raise failure(
                WRONG, f"{path}: broker.id is missing; a broker that migrates needs it (meta.properties has it)"
            )
        found[int(number)] = properties
    return found


class MigrationPlan:
    """The files and the steps."""

    def __init__(
        self,
        survey: Mapping[str, Any],
        controllers: list[Controller],
        zookeeper: Mapping[str, str],
        given: Mapping[int, dict[str, str]],
        options: Mapping[str, Any],
    ) -> None:
        self._survey = survey
        self._controllers = controllers
        self._zookeeper = zookeeper
        self._given = given
        self._options = options
        self._brokers = {one["id"]: one for one in survey["brokers"]}
        strangers = sorted(given.keys() - self._brokers.keys())
        if strangers:
            raise failure(WRONG, f"--broker-properties: broker {strangers[0]} is not in this cluster")
        self._first = next(iter(self._brokers.values()))

    def _quorum(self, broker: int) -> dict[str, str]:
        """Settings that controllers and brokers share, with the security protocols of this broker's listeners."""
        listener, protocol = self._options["listener"], self._options["protocol"]
        protocols = self._given.get(broker, {}).get(MAP_KEY) or self._brokers[broker]["configs"].get(MAP_KEY, "")
        return {
            "controller.quorum.voters": ",".join(one.voter for one in self._controllers),
            "controller.listener.names": listener,
            MAP_KEY: with_listener(protocols, listener, protocol),
        }

    def files(self) -> Iterable[Written]:
        """All files, those of controllers first."""
        for one in self._controllers:
            yield self._of_controller(one)
        for broker in self._brokers:
            yield self._migrating(broker)
            yield self._without_zookeeper(broker)

    def _of_controller(self, one: Controller) -> Written:
        listener = self._options["listener"]
        values = {
            "process.roles": "controller",
            "node.id": str(one.id),
            "listeners": f"{listener}://{one.host}:{one.port}",
            **self._quorum(self._first["id"]),
            "log.dirs": self._log_dir(one),
            "http.listener": self._page(one),
            MIGRATION_KEY: "true",
            **self._zookeeper,
        }
        chosen = set(self._first["chosen"])
        configs = self._first["configs"]
        values |= {key: configs[key] for key in FROM_BROKERS if key in chosen and configs.get(key)}
        if configs.get(AUTHORIZER_KEY):
            values[AUTHORIZER_KEY] = STANDARD_AUTHORIZER
        given = next(iter(self._given.values()), {})
        values |= {key: given[key] for key in (*FROM_BROKERS, *OF_AUTHORIZERS, *SECRETS) if key in given}
        values |= {key: value for key, value in given.items() if key.startswith(SECURITY_PREFIXES)}
        reason = "{} as the brokers have it"
        todo = [reason.format(key) for key in SECRETS if key in chosen and key not in values]
        if not given and configs.get(AUTHORIZER_KEY):
            todo.append(
                "super.users (with the controllers' user) and allow.everyone.if.no.acl.found as the brokers have them"
            )
        if not given and (configs.get("security.inter.broker.protocol") or "PLAINTEXT") != "PLAINTEXT":
            todo.append("ssl.* and sasl.* for the listener between brokers, or give --broker-properties")
        return Written(f"controller-{one.id}.properties", format_properties(values), todo)

    def _page(self, one: Controller) -> str:
        """`http.listener`; controllers on the same host have ports one after the other."""
        neighbours = [other.id for other in self._controllers if other.host == one.host]
        return f"{one.host}:{self._options['http_port'] + neighbours.index(one.id)}"

    def _log_dir(self, one: Controller) -> str:
        """`log.dirs`; controllers on the same host have folders with their ids."""
        is_alone = sum(other.host == one.host for other in self._controllers) == 1
        return str(self._options["log_dir"]) if is_alone else f"{self._options['log_dir']}-{one.id}"

    def _migrating(self, broker: int) -> Written:
        values = {**self._quorum(broker), MIGRATION_KEY: "true"}
        given = self._given.get(broker)
        if given is None:
            values = {"broker.id": str(broker), **values}
            todo = [f"these lines to the configuration of broker {broker}; replace the same keys there"]
        else:
            values, todo = {**given, **values}, []
        return Written(f"broker-{broker}-migrating.properties", format_properties(values), todo)

    def _without_zookeeper(self, broker: int) -> Written:
        given = self._given.get(broker)
        own = {"process.roles": "broker", "node.id": str(broker), **self._quorum(broker)}
        if self._first["configs"].get(AUTHORIZER_KEY):
            own[AUTHORIZER_KEY] = STANDARD_AUTHORIZER
        if given is None:
            gone = f"remove {', '.join(OF_ZOOKEEPER[1:])} and all zookeeper.* from the configuration of broker {broker}"
            return Written(f"broker-{broker}-kraft.properties", format_properties(own), [gone, "these lines there"])
        kept = {key: value for key, value in given.items() if not key.startswith(OF_ZOOKEEPER)}
        kept.pop("password.encoder.secret", None)
        return Written(f"broker-{broker}-kraft.properties", format_properties({**kept, **own}), [])

    def steps(self) -> list[str]:
        """What to do with the files."""
        version = self._first["configs"].get(VERSION_KEY) or "3.9"
        release = version if "-IV" in version else ".".join(version.split(".")[:2])
        pages = " ".join(map(self._page, self._controllers))
        cluster = self._survey["clusterId"]
        file = "controller-ID.properties"
        return [
            "restart the brokers one by one with broker-ID-migrating.properties; wait until all replicas are in sync",
            f"on each controller: kafka-storage format --cluster-id={cluster} -r {release} -c {file}",
            f"on each controller: kafka-server-start {file}",
            f"follow the migration: kraftcluster migrate status {pages}",
            "in DUAL_WRITE: restart the brokers one by one with broker-ID-kraft.properties",
        ]


def with_listener(protocols: str, listener: str, protocol: str) -> str:
    """`listener.security.protocol.map` with one more listener."""
    found = dict(part.strip().split(":", 1) for part in protocols.split(",") if ":" in part)
    found[listener] = protocol
    return ",".join(f"{name}:{value}" for name, value in found.items())


def write(out: Path, files: list[Written]) -> None:
    """Write all files or none. Raises click.ClickException if one exists with another content."""
    for one in files:
        path = out / one.name
        if path.exists() and path.read_text() != one.text:
            raise failure(REFUSED, f"{path} exists with another content: remove it, or name another folder with --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for one in files:
            path = out / one.name
            path.touch(mode=0o600)  # it may have secrets
            path.write_text(one.text)
    except OSError as e:
        raise failure(WRONG, f"{e.filename}: {e.strerror}") from None
