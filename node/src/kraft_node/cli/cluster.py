"""kafka-cluster: prints the id and endpoints of a running cluster, unregisters a broker (KIP-631, KIP-919).

    kafka-cluster cluster-id     -b HOST:PORT | -C HOST:PORT
    kafka-cluster list-endpoints -b HOST:PORT [--include-fenced-brokers] | -C HOST:PORT
    kafka-cluster unregister     -b HOST:PORT | -C HOST:PORT  --id BROKER
    kafka-cluster api-versions   -b HOST:PORT | -C HOST:PORT

`--command-config FILE` names client properties, for TLS and SASL. `api-versions` and `--json` are ours.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, Final

from kraft_node.cli.client import NodeClient, connect, security_in
from kraft_node.cli.common import Parser, ToolError, program, run
from kraft_protocol.wire.api import API, ApiKey

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Run one command. Returns the exit code 0; raises ToolError after a failure."""
    args = _parser().parse_args(arguments)
    result: int = args.command(args)
    return result


def _parser() -> Parser:
    parser = Parser(prog=program("kafka-cluster"), description="The Kafka cluster tool.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, function: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=function)
        sub.add_argument("--json", action="store_true", help="print JSON")
        sub.add_argument(
            "--command-config", "-c", "--config", metavar="FILE", help="file of client properties, for TLS and SASL"
        )
        where = sub.add_mutually_exclusive_group(required=True)
        where.add_argument("--bootstrap-server", "-b", metavar="HOST:PORT,…", help="brokers to connect to")
        where.add_argument("--bootstrap-controller", "-C", metavar="HOST:PORT,…", help="controllers to connect to")
        return sub

    command("cluster-id", cluster_id, "Print the cluster's id.")
    sub = command("unregister", unregister, "Unregister a broker that will not return.")
    sub.add_argument("--id", "-i", type=int, required=True, help="the broker's id")
    sub = command("list-endpoints", list_endpoints, "List brokers, or controllers, with their addresses.")
    sub.add_argument("--include-fenced-brokers", action="store_true", help="include fenced brokers")
    command("api-versions", api_versions, "List the requests and versions that a node answers.")
    return parser


def _connect(args: argparse.Namespace) -> NodeClient:
    servers = args.bootstrap_controller if args.bootstrap_server is None else args.bootstrap_server
    return connect(servers, security_in(args.command_config))


def _describe(client: NodeClient, args: argparse.Namespace, *, fenced: bool = False) -> Any:
    from kraft_protocol.wire.messages import DescribeClusterRequest

    kind = _CONTROLLERS if args.bootstrap_server is None else _BROKERS
    request = DescribeClusterRequest(endpoint_type=kind, include_fenced_brokers=fenced)
    response = client.request(ApiKey.DESCRIBE_CLUSTER, request)
    _check(response)
    return response


def _check(response: Any) -> None:
    if response.error_code:
        from kraft_protocol.errors import error_name

        name = error_name(response.error_code)
        raise ToolError(f"{name}: {response.error_message}" if response.error_message else name)


def cluster_id(args: argparse.Namespace) -> int:
    """Print the cluster's id, as text or JSON. Raises ToolError."""
    with _connect(args) as client:
        found = _describe(client, args).cluster_id
    print(json.dumps({"cluster.id": found}) if args.json else f"Cluster ID: {found}")
    return 0


def unregister(args: argparse.Namespace) -> int:
    """Unregister a broker. Raises ToolError without an active controller, or with the code of the answer."""
    from kraft_protocol.wire.messages import UnregisterBrokerRequest

    with _connect(args) as client:
        target = client
        if args.bootstrap_controller:
            # Only the active controller can do this; brokers forward the request.
            described = _describe(client, args)
            leader = [node for node in described.brokers if node.broker_id == described.controller_id]
            if not leader:
                raise ToolError("no controller is active")
            target = NodeClient(leader[0].host, leader[0].port, security=security_in(args.command_config))
        with target:
            _check(target.request(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=args.id)))
    print(json.dumps({"unregistered": args.id}) if args.json else f"Broker {args.id} is no longer registered.")
    return 0


def list_endpoints(args: argparse.Namespace) -> int:
    """Print the address of each broker or controller. Raises ToolError."""
    fenced = args.include_fenced_brokers
    if fenced and args.bootstrap_controller:
        raise ToolError("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    with _connect(args) as client:
        described = _describe(client, args, fenced=fenced)
    kind = "controller" if args.bootstrap_server is None else "broker"
    nodes = sorted(described.brokers, key=lambda node: node.broker_id)
    rows = [
        {
            "ID": node.broker_id,
            "HOST": node.host,
            "PORT": node.port,
            "RACK": node.rack,
            "STATE": "fenced" if node.is_fenced else "unfenced",
            "ENDPOINT_TYPE": kind,
        }
        for node in nodes
    ]
    if kind == "controller":
        for row in rows:
            del row["STATE"]
    if args.json:
        print("\n".join(json.dumps({key.lower(): value for key, value in row.items()}) for row in rows))
        return 0
    widths = {"HOST": max([len(node.host) for node in nodes], default=4), "ENDPOINT_TYPE": 15}
    columns = ["ID", "HOST", "PORT", "RACK", *(["STATE"] if kind == "broker" else []), "ENDPOINT_TYPE"]
    print(" ".join(f"{name:<{widths.get(name, 10)}}" for name in columns))
    for row in rows:
        cells = ("null" if row[name] is None else str(row[name]) for name in columns)
        print(" ".join(f"{cell:<{widths.get(name, 10)}}" for name, cell in zip(columns, cells, strict=True)))
    return 0


def api_versions(args: argparse.Namespace) -> int:
    """Print the versions of each API that the node supports, and the newest that both sides support."""
    with _connect(args) as client:
        versions = client.versions
    if args.json:
        print(json.dumps({_name(key): {"min": low, "max": high} for key, (low, high) in sorted(versions.items())}))
        return 0
    print(f"{client.address} -> (")
    for key, (low, high) in sorted(versions.items()):
        spec = API.get(key)
        common = min(high, spec.max_version) if spec else -1
        usable = f"[usable: {common}]" if spec and common >= max(low, spec.min_version) else "[unusable]"
        print(f"\t{_name(key)}({key}): {low} to {high} {usable}")
    print(")")
    return 0


def _name(key: int) -> str:
    """`ListOffsets` of LIST_OFFSETS."""
    if key not in API:
        return "UNKNOWN"
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))


def entry() -> None:
    """Run `kafka-cluster` with the arguments of the process, then exit."""
    run(main)


if __name__ == "__main__":
    entry()
