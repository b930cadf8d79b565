"""kafka-server-start: runs one node, from its configuration file, until a signal stops it.

    kafka-server-start [-daemon] CONFIG [--override KEY=VALUE]... [--json]

SIGTERM, SIGINT or SIGHUP (unless nohup ignores it) stops the node cleanly: it hands over leadership, flushes logs and
writes a clean-shutdown mark. A second signal stops it at once. Exit codes: 0 after a clean stop, 1 if the start is
refused or the node has failed. The last line of the log has the reason. The log goes to standard output, one line per
event; with `--json` each line is an object. `-daemon` runs the node in the background, without the terminal's signals;
its log is `$LOG_DIR/kafkaServer.out`.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config.zookeeper import MIGRATION_KEY
from kraft_node.cli.common import Parser, ToolError, flush_output, message, program, run
from kraft_node.cli.common import read_config as read

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.config.zookeeper import ZooKeeperSettings
    from kraft_node.migration.zookeeper import Connect
    from kraft_node.runtime.env import RealEnv
    from kraft_node.server.node import Node

log = logging.getLogger("kraft_node.server")

STOP_MAX_S: Final = 60.0
"""A clean stop that takes longer is abandoned: supervisors kill nodes after about this time."""

HARD_EXIT: Final = 130

STARTED_MS: Final = 1_000
"""What need not happen in a start happens this much later."""

DAEMON_LOG: Final = "kafkaServer.out"
"""The file of a daemon's output in $LOG_DIR, as in Kafka's script."""


class _Lines(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO  server.node event key=value`."""

    converter = staticmethod(__import__("time").gmtime)

    def format(self, record: logging.LogRecord) -> str:
        seconds = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        name = record.name.removeprefix("kraft_node.")
        text = f"{seconds}.{int(record.msecs):03d}Z {record.levelname:<5} {name} {_printable(record.getMessage())}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class _Json(_Lines):
    """One object per line: time, level, logger, message, and the trace of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        fields: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name.removeprefix("kraft_node."),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def _printable(text: str) -> str:
    """`text` with escapes for line breaks and other control characters.

    Clients choose the names of groups, and each event must stay on one line.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def formatter(*, as_json: bool) -> logging.Formatter:
    """The format of log lines: JSON objects, or text with time, level, logger and message."""
    return _Json() if as_json else _Lines()


def set_up_logging(*, as_json: bool, level: str = "INFO") -> None:
    """Send log lines to standard output."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter(as_json=as_json))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.raiseExceptions = False
    # Log lines contain time, level, logger and message; collecting more would cost time for every line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _zookeeper(settings: ZooKeeperSettings) -> Connect:
    """Sessions of ZooKeeper, for a controller that migrates. Raises ValueError without kazoo."""
    try:
        from kraft_node.runtime.zookeeper import kazoo_sessions
    except ModuleNotFoundError as e:
        raise ValueError(
            f"{MIGRATION_KEY}=true needs the extra zookeeper: pip install 'kraftcluster[zookeeper]'"
        ) from e
    return kazoo_sessions(settings)


class _Process:
    """The node in its process: starts it, handles signals, decides the exit code."""

    def __init__(self, config: NodeConfig) -> None:
        from kraft_node.runtime.env import RealEnv

        self.config = config
        self.real: RealEnv = RealEnv()
        self.node: Node | None = None
        self.code = 0
        self.stopping = False

    def run(self) -> int:
        import signal

        from kraft_node.runtime.garbage import Garbage
        from kraft_node.runtime.process import ProcessMetrics
        from kraft_node.server.node import Node, StartRefused

        _raise_descriptor_limit()
        self._size_sockets()
        signal.set_wakeup_fd(self.real.loop.wake_fd, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._signalled)
        try:
            self.node = Node(
                self.real.env,
                self.config,
                host_name=_host_name(self.config),
                on_fatal=self._fatal,
                zookeeper=_zookeeper,
            )
            self.node.registry.register(ProcessMetrics().collect)
            self.node.start()
        except (StartRefused, OSError, ValueError) as e:
            log.error("start refused: %s", e)
            return 1
        env = self.real.env
        Garbage(env.line, env.clock, env.scheduler).start()
        env.scheduler.call_later(STARTED_MS, self._after_start)
        self.real.loop.run()
        self.real.close()
        log.info("stopped code=%d", self.code)
        return self.code

    def _after_start(self) -> None:
        from kraft_node.runtime.cpu_slice import shorten_slice

        shorten_slice()

    def _size_sockets(self) -> None:
        """Apply socket buffer sizes only if they are configured: the kernel's own sizing is faster than Kafka's 100
        KiB.
        """
        config = self.config
        if config.is_set("socket.send.buffer.bytes"):
            self.real.net.send_buffer = config.int("socket.send.buffer.bytes")
        if config.is_set("socket.receive.buffer.bytes"):
            self.real.net.receive_buffer = config.int("socket.receive.buffer.bytes")
        if config.is_set("socket.listen.backlog.size"):
            self.real.net.backlog = config.int("socket.listen.backlog.size")

    def _signalled(self, number: int, _frame: Any) -> None:
        if self.stopping:
            os._exit(HARD_EXIT)
        self.stopping = True
        self.real.loop.call_from_thread(self._stop, number)

    def _stop(self, number: int) -> None:
        log.info("stopping signal=%d", number)
        self.real.loop.call_later(STOP_MAX_S * 1000, self._stop_overdue)
        if self.node is None:
            self.real.loop.stop()
        else:
            self.node.shutdown(self.real.loop.stop)

    def _stop_overdue(self) -> None:
        log.error("the clean stop timed out after %.0f s, stopping at once", STOP_MAX_S)
        _leave(1)

    def _fatal(self, reason: str) -> None:
        """The node must not continue: the disk's state is unknown, or the node was refused.

        Leaves no clean-shutdown mark.
        """
        log.critical("the node has failed: %s", reason)
        _leave(1)


def _leave(code: int) -> None:
    try:
        logging.shutdown()
        flush_output()
    finally:  # even if the log's output is gone
        os._exit(code)


def _raise_descriptor_limit() -> None:
    """Raise the limit of open files to its maximum: each partition in use and each connection needs at least one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as e:
            log.warning("cannot raise the limit of open files soft=%d hard=%d error=%s", soft, hard, e)


def _host_name(config: NodeConfig) -> str:
    """This machine's name, if an advertised listener has no host."""
    advertised = [*config.advertised_broker_listeners, *config.advertised_controller_listeners]
    if all(endpoint.host for endpoint in advertised):
        return "localhost"
    import socket

    return socket.getfqdn()


def _is_left_behind() -> bool:
    """Fork. Returns false in the process that continues without its terminal, true in the process that the user
    started.
    """
    folder = os.environ.get("LOG_DIR", "logs")
    os.makedirs(folder, exist_ok=True)
    log_file = os.open(os.path.join(folder, DAEMON_LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    if os.fork():
        return True
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log_file, 1)
    os.dup2(log_file, 2)
    return False


def main(arguments: Sequence[str]) -> int:
    """Run a node. Returns the exit code."""
    from kraft_node.base.version import COMPATIBLE_KAFKA_VERSION, VERSION

    parser = Parser(prog=program("kafka-server-start"), description="Run a node until SIGTERM or SIGINT.")
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="the node's server.properties")
    parser.add_argument("-daemon", action="store_true", help=f"run in the background, log to $LOG_DIR/{DAEMON_LOG}")
    parser.add_argument("--override", metavar="KEY=VALUE", action="append", default=[], help="replace a key of CONFIG")
    parser.add_argument("--json", action="store_true", help="log one JSON object per line")
    parser.add_argument("--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    options = parser.parse_args(arguments)
    if options.version:
        print(f"kraftcluster {VERSION} (Apache Kafka {COMPATIBLE_KAFKA_VERSION})")
        return 0
    if options.config is None:
        parser.error("CONFIG is missing")
    set_up_logging(as_json=options.json, level=options.log_level)
    try:
        config = read(options.config, options.override)
    except (ToolError, OSError) as e:
        if not options.json:
            raise
        log.error("start refused: %s", message(e))
        return 1
    if options.daemon and _is_left_behind():
        return 0
    for warning in config.warnings:
        log.warning("%s", warning)
    return _Process(config).run()


def entry() -> None:
    """The console script."""
    gc.disable()  # objects loaded at start stay alive: scanning them would take a tenth of the time
    run(main)


if __name__ == "__main__":
    entry()
