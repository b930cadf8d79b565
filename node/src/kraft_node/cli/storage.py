"""kafka-storage: formats a node's directories, shows their state, generates ids, explains feature levels (KIP-631,
KIP-853).

    kafka-storage format -c FILE -t CLUSTER_ID [-s | -N | -I VOTERS] [-r RELEASE] [-f F=L]… [-S SCRAM]… [-g]
    kafka-storage info -c FILE
    kafka-storage random-uuid
    kafka-storage version-mapping [-r RELEASE]
    kafka-storage feature-dependencies -f FEATURE=LEVEL…

As in Kafka 4.3.1, a cluster id may be any text, but use `random-uuid` to generate it. Unlike Kafka, we refuse a blank
id. `--json` (ours) prints a command's output as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraft_node.cli.common import Parser, ToolError, program, read_config, run
from kraft_protocol.ids import Uuid, random_uuid, uuid_text


class SystemRandom:
    """The operating system's random numbers as `base.env.Rng`."""

    def random_bytes(self, count: int) -> bytes:
        """Read random bytes from the operating system. They are fit for ids and secrets."""
        return os.urandom(count)

    def randrange(self, stop: int) -> int:
        """A number from 0 to `stop` - 1. Its bias is negligible, because 128 random bits are reduced."""
        return int.from_bytes(os.urandom(16), "big") % stop


def new_uuid() -> Uuid:
    """A random id for a cluster or a directory, from the operating system's random numbers."""
    return random_uuid(SystemRandom())


CLUSTER_ID_CHARACTERS: Final = 22
NEEDED: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "sasl.enabled.mechanisms",
        "sasl.mechanism.inter.broker.protocol",
        "security.inter.broker.protocol",
    }
)
"""Keys that the tool reads or checks. Variables of others may have values on the node alone."""


def main(arguments: Sequence[str]) -> int:
    """Run one command. Returns its exit code: 1 if `info` found a problem, else 0. Raises ToolError."""
    args = _parser().parse_args(_joined(arguments))
    result: int = args.command(args)
    return result


def _joined(arguments: Sequence[str]) -> list[str]:
    """The arguments with a cluster id that begins with a dash joined to its option: argparse takes it for an option.

    Brokers with ZooKeeper made such ids, one in 64.
    """
    joined: list[str] = []
    for word in arguments:
        is_id = word.startswith("-") and len(word) == CLUSTER_ID_CHARACTERS
        if is_id and joined and joined[-1] in ("-t", "--cluster-id"):
            joined[-1] = f"--cluster-id={word}"
        else:
            joined.append(word)
    return joined


def _parser() -> Parser:
    latest = "4.3-IV0"
    parser = Parser(prog=program("kafka-storage"), description="The Kafka storage tool.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, function: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.set_defaults(command=function)
        return sub

    sub = command("info", info, "Show the state of this node's log directories.")
    sub.add_argument("--config", "-c", required=True, help="the node's configuration file")

    sub = command("format", format_storage, "Format the log directories of this node.")
    sub.add_argument("--config", "-c", required=True, help="the node's configuration file")
    sub.add_argument("--cluster-id", "-t", required=True, help="the cluster's id, the same on every node")
    sub.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        help="a SCRAM credential, as 'SCRAM-SHA-256=[name=alice,password=secret]'; iterations, salt and "
        "saltedpassword are optional",
    )
    sub.add_argument(
        "--ignore-formatted", "-g", action="store_true", help="leave formatted directories as they are, format the rest"
    )
    sub.add_argument("--release-version", "-r", help=f"the release that defines the feature levels (default {latest})")
    sub.add_argument(
        "--feature", "-f", action="append", default=[], help="the level of one feature, as feature=level; repeatable"
    )
    quorum = sub.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", "-s", action="store_true", help="a dynamic quorum with only this controller")
    quorum.add_argument(
        "--no-initial-controllers",
        "-N",
        action="store_true",
        help="join a dynamic quorum after its first controllers are formatted on other nodes",
    )
    quorum.add_argument(
        "--initial-controllers",
        "-I",
        help="a dynamic quorum of these controllers, as id@hostname:port:directory,…; the same on every node",
    )

    sub = command("version-mapping", version_mapping, "Show the feature levels of a release.")
    sub.add_argument("--release-version", "-r", help=f"the release (default {latest})")
    sub = command("feature-dependencies", feature_dependencies, "Show the features that a feature level depends on.")
    sub.add_argument("--feature", "-f", action="append", required=True, help="feature=level; repeatable")
    command("random-uuid", print_random_uuid, "Generate an id for a new cluster.")
    return parser


def print_random_uuid(args: argparse.Namespace) -> int:
    """Print a new random id of 22 characters, as text or JSON. Returns 0."""
    text = uuid_text(new_uuid())
    print(json.dumps({"uuid": text}) if args.json else text)
    return 0


def version_mapping(args: argparse.Namespace) -> int:
    """Print the default level of each feature for a release. Returns 0. Raises ToolError for an unknown release."""
    from kraft_node.cli.storage_format import find_metadata_version
    from kraft_node.metadata.features import METADATA_VERSION, METADATA_VERSIONS, SUPPORTED_RANGES, default_level

    version = find_metadata_version(args.release_version) if args.release_version is not None else METADATA_VERSIONS[-1]
    levels = {name: default_level(name, version.level) for name in SUPPORTED_RANGES}
    if args.json:
        print(json.dumps(levels))
        return 0
    for name, level in levels.items():
        suffix = f" ({args.release_version or version.name})" if name == METADATA_VERSION else ""
        print(f"{name}={level}{suffix}")
    return 0


def feature_dependencies(args: argparse.Namespace) -> int:
    """Print the features that the given levels require. Returns 0. Raises ToolError for an unknown feature or level."""
    from kraft_node.cli.storage_format import parse_feature
    from kraft_node.metadata.features import METADATA_VERSION, SUPPORTED_RANGES, dependencies, metadata_version

    found: dict[str, Mapping[str, int]] = {}
    for text in args.feature:
        name, level = parse_feature(text)
        if name not in SUPPORTED_RANGES:
            raise ToolError(f"Unknown feature: {name}")
        if level not in SUPPORTED_RANGES[name]:
            raise ToolError(f"Feature level {level} is not supported for feature {name}")
        found[f"{name}={level}"] = dependencies(name, level)
    if args.json:
        print(json.dumps({feature: dict(needs) for feature, needs in found.items()}))
        return 0
    for feature, needs in found.items():
        if not needs:
            print(f"{feature} has no dependencies.")
            continue
        print(f"{feature} requires:")
        for name, level in needs.items():
            shown = f" ({metadata_version(level).name})" if name == METADATA_VERSION else ""
            print(f"    {name}={level}{shown}")
    return 0


def info(args: argparse.Namespace) -> int:
    """Print the log directories, their metadata and their problems. Returns 1 if a problem was found."""
    from kraft_node.cli.storage_dirs import read_directories

    config = read_config(args.config, needed=NEEDED)
    directories, problems, values = read_directories(sorted(config.all_dirs))
    problems += _mismatches(values, config.node_id)
    if args.json:
        print(json.dumps({"directories": directories, "metadata": values, "problems": problems}))
        return 1 if problems else 0
    if directories:
        print("Found log directory:" if len(directories) == 1 else "Found log directories:")
        print("\n".join(f"  {path}" for path in directories) + "\n")
    if values:
        # The first directory represents all: differences are listed as problems.
        first = values[min(values)]
        print("Found metadata: {" + ", ".join(f"{key}={first[key]}" for key in sorted(first)) + "}\n")
    if problems:
        print("Found problem:" if len(problems) == 1 else "Found problems:")
        print("\n".join(f"  {problem}" for problem in problems) + "\n")
    return 1 if problems else 0


def _mismatches(values: Mapping[str, Mapping[str, str]], node_id: int) -> list[str]:
    problems: list[str] = []
    for path, entries in values.items():
        if entries.get("version", "0") == "0":
            problems.append(f"{path}: meta.properties has version 0, which does not support KRaft mode")
        for key in ("cluster.id", "node.id"):
            others = {other.get(key) for other in values.values()}
            if len(others) > 1 and entries.get(key) != values[min(values)].get(key):
                problems.append(f"{path}: {key} is {entries.get(key)}, not {values[min(values)].get(key)}")
        stated = entries.get("node.id", entries.get("broker.id", str(node_id)))
        if stated != str(node_id):
            problems.append(f"{path}: node.id is {stated}, but the configuration has {node_id}")
    return problems


def format_storage(args: argparse.Namespace) -> int:
    """Format the log directories, and write the first voters if given. Raises ToolError."""
    from kraft_node.cli import storage_format as plan
    from kraft_node.cli.scram_argument import parse_scram
    from kraft_node.cli.storage_dirs import write_directories

    config = read_config(args.config, needed=NEEDED)
    if not args.cluster_id.strip():
        raise ToolError("The cluster id is blank; generate one with `kafka-storage random-uuid`.")
    static = bool(config.voters)
    if static and (args.standalone or args.initial_controllers is not None):
        raise ToolError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    voters = None
    if args.standalone:
        voters = plan.standalone_voter(config, new_uuid)
    elif args.initial_controllers is not None:
        voters = plan.parse_voters(args.initial_controllers)
    elif config.is_controller and not static and not args.no_initial_controllers:
        raise ToolError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )
    release = plan.find_metadata_version(args.release_version) if args.release_version is not None else None
    levels = plan.plan_features(dict(map(plan.parse_feature, args.feature)), release, dynamic_quorum=not static)
    records = plan.bootstrap_records(levels, [parse_scram(text, os.urandom) for text in args.add_scram])
    done = write_directories(
        config,
        cluster_id=args.cluster_id,
        records=records,
        levels=levels,
        voters=voters,
        ignore_formatted=args.ignore_formatted,
        new_uuid=new_uuid,
        say=_print_nothing if args.json else print,
    )
    if args.json:
        print(
            json.dumps(
                {"cluster.id": args.cluster_id, "node.id": config.node_id, "features": levels, "formatted": done}
            )
        )
    return 0


def _print_nothing(text: str) -> None:
    del text


def entry() -> None:
    """Run `kafka-storage` with the arguments of the process, then exit."""
    run(main)


if __name__ == "__main__":
    entry()
