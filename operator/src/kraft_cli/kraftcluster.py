"""`kraftcluster`: a whole cluster on this machine, from the same file as on Kubernetes.

kraftcluster up -f kraftcluster.yaml     until Ctrl-C; --detach leaves it running
kraftcluster status | plan | logs | top | roll | replace | approve | pause | resume | hibernate | wake | skip
kraftcluster user add | list | remove | rotate, client-config
kraftcluster migrate check | start | status | finalize | revert     a cluster that comes from ZooKeeper
kraftcluster down [--wipe]
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from kraft_cli.commands import named, output, shared, show
from kraft_cli.migration import migrate
from kraft_cli.target import FAILED, NOT_THERE, REFUSED, WRONG, failure, wait_for
from kraft_cli.users import users

READY_S: Final = 120.0
DOWN_S: Final = 120.0
HINT: Final = "kill any node (it restarts); Ctrl-C stops all nodes, the data stays"
PATH: Final = click.Path(path_type=Path)
LOOK_S: Final = 0.1


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Run a Kafka cluster of local processes, as a KRaftCluster file describes it."""


DATA: Final = click.option("--data", type=PATH, help="folder of clusters (default: .kraft beside the file, or here)")
FILE: Final = click.option("-f", "--file", type=PATH, help="the cluster's file (default: kraftcluster.yaml)")


def _selects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select a cluster."""
    command = click.option("-c", "--cluster", help="name of the cluster, if several exist")(command)
    short = () if command.__name__ == "logs" else ("-f",)  # there -f means "follow", as in kubectl
    return click.option(*short, "--file", type=PATH, help="the cluster's file")(DATA(command))


def _find(data: Path | None, file: Path | None, cluster: str | None, named: str | None = None) -> Any:
    from kraft_cli.local import LocalTarget, find_folder

    return LocalTarget(find_folder(data, file, named or cluster))


@main.command()
@click.option("--detach", is_flag=True, help="return when the cluster is ready, and leave it running in the background")
@click.option(
    "--timeout", default=READY_S, show_default=True, help="with --detach: seconds to wait until the cluster is ready"
)
@click.option(
    "--port",
    type=click.IntRange(1, 60000),
    help="port of the first broker; the other ports are derived from it and stay",
)
@DATA
@FILE
def up(detach: bool, timeout: float, port: int | None, data: Path | None, file: Path | None) -> None:
    """Start the cluster, or take over its running nodes. Keep it as the file describes, also when the file changes."""
    from kraft_cli.local import DEFAULT_FILE, base_of, name_of
    from kraft_local.folder import Folder

    file = (file or Path(DEFAULT_FILE)).absolute()
    folder = Folder(base_of(data, file) / name_of(file))
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failure(WRONG, f"{folder.root}: {error.strerror}: name another folder with --data") from None
    if detach:
        _run_detached(folder, file, port, timeout)
        return
    if not folder.lock.take():
        holder = folder.lock.holder()
        who = f"process {holder[0]}" if holder is not None else "another process"
        raise failure(NOT_THERE, f"{folder.root.name} is already driven by {who}: `kraftcluster status`, or `down` it")
    try:
        code = asyncio.run(_run(folder, file, port))
    finally:
        folder.lock.release()
    sys.exit(code)


async def _run(folder: Any, file: Path, port: int | None) -> int:
    """Run until a signal, or until the reader of the output is gone. Returns the exit code."""
    from kraft_cli.screen import Lines, Screen, WhileRead
    from kraft_local.resource_file import BadResourceError
    from kraft_local.supervisor import Supervisor

    stop, at_once = asyncio.Event(), asyncio.Event()
    screen = WhileRead(Screen(HINT) if sys.stdout.isatty() else Lines(HINT), stop.set)

    def signalled() -> None:
        (at_once if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, signalled)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # an ignored SIGHUP means: started by nohup
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop.set)
    supervisor = Supervisor(folder, file, screen)
    try:
        new = not folder.exists()
        supervisor.memory.offset = _offset(supervisor, file, port)
        try:
            supervisor.load()
        except BadResourceError as error:
            raise failure(WRONG if new else REFUSED, str(error)) from None
        async with supervisor.client:
            await supervisor.run(stop)
            screen.event("stopping; Ctrl-C again stops at once")
            clean = await supervisor.stop_all(at_once)
            screen.event("stopped; the data stays" if clean else "stopped, not cleanly; the data stays")
    finally:
        screen.close()
    return 0 if clean else FAILED


def _offset(supervisor: Any, file: Path, port: int | None) -> int:
    """The difference between all ports and the ports in the file."""
    if port is None:
        return int(supervisor.memory.offset)
    from kraft_local.resource_file import BadResourceError, parsed, read

    try:
        first = parsed(read(file), str(file), supervisor.memory.accepted).spec.listeners[0].port
    except BadResourceError as error:
        raise failure(WRONG if supervisor.memory.accepted is None else REFUSED, str(error)) from None
    if supervisor.memory.ports and port - first != supervisor.memory.offset:
        raise failure(REFUSED, f"ports cannot change: this cluster's begin at {first + supervisor.memory.offset}")
    return port - first


def _run_detached(folder: Any, file: Path, port: int | None, timeout: float) -> None:
    """Start a supervisor in the background, unless it runs with this file already; wait until the cluster is ready."""
    from kraft_cli.local import LocalTarget, Silent
    from kraft_cli.screen import greeting
    from kraft_local.supervisor import Supervisor
    from kraft_operator.report import tables

    target = LocalTarget(folder)
    process = None
    if folder.lock.holder() is not None:
        _offset(Supervisor(folder, file, Silent(), acts=False), file, port)
        followed = (folder.status() or {}).get("local", {}).get("file", str(file))
        if followed != str(file):
            raise failure(REFUSED, f"{folder.root.name} runs already, and follows {followed}")
    else:
        command = [sys.executable, "-m", "kraft_cli.kraftcluster", "up"]
        command += ["-f", str(file), "--data", str(folder.root.parent)]
        command += ["--port", str(port)] if port is not None else []
        with folder.supervisor_log().open("wb") as log:
            process = subprocess.Popen(  # noqa: S603  (this program)
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
    until = time.monotonic() + timeout
    while (process is not None and folder.lock.holder() is None) or folder.status() is None:
        if process is not None and process.poll() is not None:
            reason = folder.supervisor_log().read_text().strip().removeprefix("Error: ")
            raise failure(process.returncode or FAILED, reason or "it has ended")
        if time.monotonic() > until:
            raise failure(FAILED, f"no progress in {timeout:g} s: see {folder.supervisor_log()}")
        time.sleep(LOOK_S)

    def waits(resource: dict[str, Any]) -> str | None:
        if process is not None and process.poll() is not None:
            raise failure(process.returncode or FAILED, folder.supervisor_log().read_text().strip())
        return None if tables.is_ready(resource) else tables.condition(resource, "Ready").get("message", "")

    wait_for(target, max(0.0, until - time.monotonic()), waits)
    if process is not None:
        process.returncode = 0  # the supervisor stays
    click.echo(greeting(target.resource()) + "\n  it runs in the background; `kraftcluster down` stops it\n")


@main.command()
@click.option("--wipe", is_flag=True, help="remove the cluster with all of its data, too")
@click.option("--timeout", default=DOWN_S, show_default=True, help="seconds until nodes that still run are killed")
@named
@_selects
def down(wipe: bool, timeout: float, **selected: Any) -> None:
    """Stop all nodes, brokers first. The data stays, unless --wipe."""
    from kraft_local.world import unclean

    folder = _find(**selected).folder
    holder = folder.lock.holder()
    running = _running(folder)
    clean = True
    if holder is not None:
        clean = _end_supervisor(folder, holder, timeout)
    until = time.monotonic() + timeout
    while not folder.lock.take():
        # A supervisor writes that it stops before it releases the lock.
        if folder.lock.holder() is not None or time.monotonic() > until:
            raise failure(NOT_THERE, f"another supervisor drives {folder.root.name} now")
        time.sleep(LOOK_S)
    try:
        clean = asyncio.run(_stop_nodes(folder, timeout)) and clean and not unclean(folder, running)
        if wipe:
            shutil.rmtree(folder.root)
    finally:
        folder.lock.release()
    click.echo(f"{folder.root.name}: {'stopped' if clean else 'stopped, not cleanly'}" + ("; wiped" if wipe else ""))
    if not clean:
        sys.exit(FAILED)


def _running(folder: Any) -> list[int]:
    """Node ids of the running processes."""
    from kraft_local.processes import Processes

    processes = Processes()
    found = ((node_id, processes.look(folder.node(node_id))) for node_id in folder.node_ids())
    return [node_id for node_id, process in found if process is not None and process.alive]


def _end_supervisor(folder: Any, holder: tuple[int, str], timeout: float) -> bool:
    """Make the supervisor stop itself and its nodes. Returns whether it did in time."""
    from kraft_local.processes import send

    send(*holder, signal.SIGTERM)
    until = time.monotonic() + timeout
    while folder.lock.holder() == holder:
        if time.monotonic() > until:
            send(*holder, signal.SIGKILL)
            return False
        time.sleep(LOOK_S)
    return True


async def _stop_nodes(folder: Any, timeout: float) -> bool:
    """Stop nodes without a supervisor. Returns whether all stopped cleanly."""
    from kraft_cli.local import Silent
    from kraft_local.supervisor import Supervisor

    supervisor = Supervisor(folder, Path(), Silent())
    at_once = asyncio.Event()
    late = asyncio.get_running_loop().call_later(timeout, at_once.set)
    try:
        return await supervisor.stop_all(at_once)
    finally:
        late.cancel()


@main.command()
@output
@DATA
@FILE
def preview(output: str, data: Path | None, file: Path | None) -> None:
    """Show what a changed file (-f) would change, without changing it."""
    from rich.console import Group

    from kraft_cli.local import DEFAULT_FILE, find_folder, look_once
    from kraft_local.resource_file import BadResourceError
    from kraft_operator.report import tables

    path = (file or Path(DEFAULT_FILE)).absolute()
    folder = find_folder(data, path, None)
    try:
        resource = asyncio.run(look_once(folder, path, path))
    except BadResourceError as error:
        raise failure(REFUSED, str(error)) from None
    show(resource, Group(*tables.plan_lines(resource)), output, resource["status"].get("plan", []))


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of this program for SHELL. Put it where your shell looks for completion scripts."""
    print_completion(main, "kraftcluster", shell)


def print_completion(group: click.Command, name: str, shell: str) -> None:
    """The script that click generates."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(group, {}, name, f"_{name.upper().replace('-', '_')}_COMPLETE").source())


shared(main, _selects, _find)
users(main, _selects, _find)
migrate(main)


def entry() -> None:
    """Run the program."""
    main(prog_name=os.path.basename(sys.argv[0]) if sys.argv[0].endswith("kraftcluster") else "kraftcluster")


if __name__ == "__main__":
    entry()
