"""Looks at a cluster with ZooKeeper for `kraftcluster migrate`, and gives ZooKeeper back to its brokers.

    python -m kraft_node.cli.migration_survey look    --zookeeper HOST:PORT,… [--command-config FILE]
    python -m kraft_node.cli.migration_survey release --zookeeper HOST:PORT,… [--metadata-log FOLDER]

Both print one JSON object. `look` reads ZooKeeper and the brokers' configurations, and writes nothing. `release`
deletes `/migration` and the `/controller` of a KRaft controller, in one transaction. `--zk-tls-config-file` names a
file with `zookeeper.ssl.*` keys, as for Kafka's own tools, and `zookeeper.sasl.jaas.config`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kraft_node.base.config import ConfigError, NodeConfig
from kraft_node.base.config.listeners import parse_host_port
from kraft_node.base.config.zookeeper import CONNECT_KEY, MIGRATION_KEY, SESSION_KEY, zookeeper_settings
from kraft_node.cli.client import NodeClient, security_in
from kraft_node.cli.common import Parser, ToolError, program, read_text, run
from kraft_node.cli.storage import SystemRandom
from kraft_node.metadata.kinds.zk_migration import MIGRATION, POST_MIGRATION
from kraft_node.metadata.log_batches import decode_batches
from kraft_node.migration.claim import read_progress, release
from kraft_node.migration.gates import read_live
from kraft_node.migration.survey import BrokerFacts, Survey, document, findings, survey
from kraft_node.migration.tree import paths
from kraft_node.migration.tree.values import ZnodeError, read_controller
from kraft_node.migration.zookeeper import ZooKeeper, ZooKeeperError
from kraft_protocol.client.security import ClientSecurity
from kraft_protocol.errors import error_name
from kraft_protocol.records.batch import whole_batches
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import DescribeConfigsRequest
from kraft_protocol.wire.stored import ZkMigrationStateRecord

BROKER_S: Final = 10.0
"""How long a broker may take to answer."""
ELECTION_S: Final = 30.0
"""How long `release` waits for a broker to become the controller."""
LOOK_S: Final = 0.2
BROKER_RESOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
NOT_IN_ZOOKEEPER: Final = frozenset(
    {
        "NoOpRecord",
        "RegisterBrokerRecord",
        "UnregisterBrokerRecord",
        "BrokerRegistrationChangeRecord",
        "RegisterControllerRecord",
        "FenceBrokerRecord",
        "UnfenceBrokerRecord",
        "ZkMigrationStateRecord",
        "BeginTransactionRecord",
        "EndTransactionRecord",
        "AbortTransactionRecord",
        "FeatureLevelRecord",
    }
)
"""Records of the metadata log that ZooKeeper does not need."""


def main(arguments: Sequence[str]) -> int:
    """Run one command and print its JSON object. Returns the exit code 0; raises ToolError, which names ZooKeeper."""
    args = _parser().parse_args(arguments)
    try:
        session = _session(args)
        try:
            found: dict[str, Any] = args.command(session, args)
        finally:
            session.close()
    except (ZooKeeperError, ZnodeError) as e:
        raise ToolError(f"ZooKeeper {args.zookeeper}: {e}") from None
    print(json.dumps(found))
    return 0


def _parser() -> Parser:
    parser = Parser(prog=program("migration-survey"), description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for name, function in (("look", _look), ("release", _release)):
        sub = commands.add_parser(name)
        sub.set_defaults(command=function)
        sub.add_argument("--zookeeper", required=True, metavar="HOST:PORT,…")
        sub.add_argument(
            "--zk-tls-config-file",
            metavar="FILE",
            help="zookeeper.ssl.* and zookeeper.sasl.* keys",
        )
        sub.add_argument("--command-config", metavar="FILE", help="client properties, for brokers with TLS and SASL")
        sub.add_argument("--metadata-log", metavar="FOLDER", help="__cluster_metadata-0 of a stopped controller")
    return parser


def _session(args: argparse.Namespace) -> ZooKeeper:
    try:
        from kraft_node.runtime.zookeeper import kazoo_sessions
    except ModuleNotFoundError:
        raise ToolError("ZooKeeper needs the extra zookeeper: pip install 'kraftcluster[zookeeper]'") from None
    texts = [f"{MIGRATION_KEY}=true", f"{CONNECT_KEY}={args.zookeeper}", f"{SESSION_KEY}=10000"]
    controller = "process.roles=controller\nnode.id=1\nlisteners=C://:1\ncontroller.listener.names=C\n"
    base = f"{controller}listener.security.protocol.map=C:PLAINTEXT\ncontroller.quorum.voters=1@localhost:1\n"
    try:
        tls = read_text(args.zk_tls_config_file) if args.zk_tls_config_file else ""
        settings = zookeeper_settings(NodeConfig.parse(f"{base}log.dirs=/\n{tls}", texts))
    except ConfigError as e:
        raise ToolError(f"{args.zk_tls_config_file or args.zookeeper}: {e}") from None
    assert settings is not None, "law: the key of the migration is true"
    return kazoo_sessions(settings)()


# look


def _look(session: ZooKeeper, args: argparse.Namespace) -> dict[str, Any]:
    security = security_in(args.command_config)
    found = survey(session, SystemRandom())
    brokers = {broker: _facts(broker, found, security) for broker in sorted(found.view.live)}
    return document(found, brokers, findings(found, brokers))


def _facts(broker: int, found: Survey, security: ClientSecurity) -> BrokerFacts:
    """What the broker says of itself, at its first listener that answers."""
    problems = []
    for endpoint in found.endpoints.get(broker, ()):
        address = parse_host_port(endpoint.partition("://")[2])
        if address is None:
            problems.append(f"{endpoint} is no address")
            continue
        try:
            with NodeClient(*address, timeout_s=BROKER_S, security=security) as client:
                return _described(broker, client)
        except ToolError as e:
            problems.append(str(e))
    return BrokerFacts(problem="; ".join(problems) or "it has no listener in ZooKeeper")


def _described(broker: int, client: NodeClient) -> BrokerFacts:
    resource = DescribeConfigsRequest.DescribeConfigsResource(BROKER_RESOURCE, str(broker), None)
    (answer,) = client.request(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest([resource])).results
    if answer.error_code:
        raise ToolError(
            f"{client.address} does not describe itself: {answer.error_message or error_name(answer.error_code)}"
        )
    return BrokerFacts(
        {one.name: one.value for one in answer.configs},
        frozenset(one.name for one in answer.configs if one.config_source != DEFAULT_SOURCE),
        {key: versions[1] for key, versions in client.versions.items()},
    )


# release


def _release(session: ZooKeeper, args: argparse.Namespace) -> dict[str, Any]:
    progress = read_progress(session)
    refusal = None if progress is None else _refusal(session, progress.offset, args.metadata_log)
    if refusal is not None:
        return {"released": False, "refusal": refusal, "controller": _controller(session)}
    was_claimed = release(session)
    until = time.monotonic() + ELECTION_S
    while _controller(session) is None and time.monotonic() < until:
        time.sleep(LOOK_S)
    return {"released": was_claimed, "refusal": None, "controller": _controller(session)}


def _refusal(session: ZooKeeper, offset: int, folder: str | None) -> str | None:
    """Why ZooKeeper, which has the metadata up to that offset, must not be given back; None: it may."""
    if not read_live(session):
        return (
            "no broker is registered in ZooKeeper, so no broker could become the controller: start the brokers with "
            "broker-ID-migrating.properties first"
        )
    if folder is None:
        return None
    unwritten, finished_at = _unwritten(folder, offset)
    if finished_at is not None:
        return (
            f"the migration is finished (offset {finished_at} of {folder}): ZooKeeper is not up to date, and there is "
            "no way back"
        )
    if not unwritten:
        return None
    return (
        f"ZooKeeper lacks {len(unwritten)} records of {folder}, the first at offset {unwritten[0]}: start the "
        "controllers again, and stop them once lagRecords is 0"
    )


def _controller(session: ZooKeeper) -> int | None:
    """The broker that is the controller; None without a controller."""
    (znode,) = session.get([paths.CONTROLLER])
    value = None if znode is None else read_controller(paths.CONTROLLER, znode.data)
    return None if value is None or value.kraft_epoch >= 0 else value.broker_id


def _unwritten(folder: str, offset: int) -> tuple[list[str], int | None]:
    """Records behind that offset which ZooKeeper lacks, and the offset at which the migration was finished.

    They may be uncommitted. Offset -1: ZooKeeper was not written since it was read, so it lacks what follows the
    migration.
    """
    files = sorted(Path(folder).glob("*.log"))
    if not files:
        raise ToolError(f"{folder}: no segment of a metadata log is here")
    if int(files[0].stem) > offset + 1:
        raise ToolError(
            f"{folder}: the log begins at {files[0].stem}, after offset {offset} in ZooKeeper: records are unknown"
        )
    unwritten: list[str] = []
    is_migrated, finished_at = offset >= 0, None
    # A batch that is cut off at the end was never acknowledged: the controller was killed while it wrote it.
    wholes = (whole_batches(path.read_bytes()) for path in files)
    for at, record in (one for whole in wholes for batch in decode_batches(whole) for one in batch.records):
        name = type(record).__name__
        if isinstance(record, ZkMigrationStateRecord) and at > offset:
            is_migrated |= record.zk_migration_state == MIGRATION
            finished_at = at if record.zk_migration_state == POST_MIGRATION else None
            if record.zk_migration_state == MIGRATION:
                unwritten = []  # ZooKeeper has what the migration has read
        elif at > offset and name not in NOT_IN_ZOOKEEPER:
            unwritten.append(f"{at} {name}")
    return (unwritten if is_migrated else []), finished_at


def entry() -> None:
    """Run the program."""
    run(main)


if __name__ == "__main__":
    entry()
