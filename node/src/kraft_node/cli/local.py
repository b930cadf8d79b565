"""`make node`: runs one node on this machine until Ctrl-C; formats new directories.

    python -m kraft_node.cli.local [--data DIRECTORY] [--config FILE] [--override KEY=VALUE]…

The Makefile calls it. It does the steps that a user does by hand with `kafka-storage` and `kafka-server-start`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kraft_node.cli.common import Parser, read_config, run
from kraft_protocol.ids import uuid_text

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig

CONFIG: Final = "deploy/local/server.properties"
READY_MAX_S: Final = 60.0
"""Time until the node listens. If it takes longer, the node's log has the reason."""


def main(arguments: Sequence[str]) -> int:
    """Format the directories of a new node, and run it until Ctrl-C. Returns the exit code."""
    parser = Parser(prog="python -m kraft_node.cli.local", description="Run one node on this machine until Ctrl-C.")
    parser.add_argument("--data", default=".kraft/data", help="the directory of topics and metadata")
    parser.add_argument("--config", default=CONFIG, help="the node's configuration")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="replace a key of the configuration"
    )
    args = parser.parse_args(arguments)
    overrides = [f"log.dirs={os.path.abspath(args.data)}", *args.override]
    config = read_config(args.config, overrides)
    format_once(config)
    threading.Thread(target=_announce, args=(config,), daemon=True).start()
    from kraft_node.cli.server_start import main as start

    return start([args.config, *(word for override in overrides for word in ("--override", override))])


def format_once(config: NodeConfig, cluster_id: str | None = None, *, say: Callable[[str], None] = print) -> str:
    """Format the unformatted directories of `config`. Returns the cluster's id.

    The id comes from formatted directories. Without them it is `cluster_id`, or a new id.
    """
    from kraft_node.cli import storage_format as plan
    from kraft_node.cli.storage import new_uuid
    from kraft_node.cli.storage_dirs import read_meta_properties, write_directories

    known = [entries for path in config.all_dirs if (entries := read_meta_properties(path)) is not None]
    chosen = known[0]["cluster.id"] if known else cluster_id or uuid_text(new_uuid())
    if len(known) == len(config.all_dirs):
        return chosen
    levels = plan.plan_features({}, None, dynamic_quorum=not config.voters)
    write_directories(
        config,
        cluster_id=chosen,
        records=plan.bootstrap_records(levels, []),
        levels=levels,
        voters=None if config.voters else plan.standalone_voter(config, new_uuid),
        ignore_formatted=True,
        new_uuid=new_uuid,
        say=say,
    )
    return chosen


def _announce(config: NodeConfig) -> None:
    """Once the node listens, print how to reach it."""
    endpoint = config.advertised_broker_listeners[0]
    host = endpoint.host or "localhost"
    deadline = time.monotonic() + READY_MAX_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, endpoint.port), 1.0):
            break
        time.sleep(0.05)
    else:
        return
    print(f"\n{greeting(host, endpoint.port)}\n", flush=True)


def greeting(host: str, port: int) -> str:
    """The text for a new user."""
    address = f"{host}:{port}"
    if shutil.which("kcat"):
        line = f"echo hello | kcat -b {address} -P -t greetings && kcat -b {address} -C -t greetings -e"
    else:
        line = f"kafka-console-producer.sh --bootstrap-server {address} --topic greetings"
    return f"  bootstrap address: {address}\n  try in another terminal: {line}\n  Ctrl-C stops the node; the data stays"


def entry() -> None:
    """Run the node of `make node` with the arguments of the process, then exit."""
    run(main)


if __name__ == "__main__":
    entry()
