"""The two servers under test as processes on free loopback ports: ours, and Apache Kafka."""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from kraft_node.cli import storage
from tests.compat import ports
from tests.compat.tools import run_tool
from tests.peer import QUICK_JVM, require_peer
from tools import peers

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
CLUSTER_ID = "kraftclusterTests00000A"[:22]


def free_ports(count: int) -> list[int]:
    """Free ports, all different, that no other program takes before the node binds them."""
    return ports.OURS.take(count)


@dataclass
class Target:
    """One combined node. `start` returns when the broker accepts connections and answers."""

    name: str
    folder: Path
    overrides: dict[str, str] = field(default_factory=dict)
    port: int = 0
    controller_port: int = 0
    process: subprocess.Popen[bytes] | None = None
    is_lone: bool = True
    """Whether it is a cluster by itself; otherwise `overrides` say roles and listeners (`members.Members`)."""

    format_options: tuple[str, ...] = ()
    """Of kafka-storage format."""

    jvm_options: tuple[str, ...] = ()
    """More options of the virtual machine of an Apache Kafka."""

    def __post_init__(self) -> None:
        if not self.port:
            self.port, self.controller_port = free_ports(2)
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The log directory; the first if there are several."""
        return Path(self.overrides.get("log.dirs", str(self.folder / "data")).split(",")[0])

    @property
    def log(self) -> Path:
        """The output of the process."""
        return self.folder / "server.log"

    def properties(self) -> Path:
        """Write the configuration file; both servers have the same keys."""
        lone = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        values = {
            **(lone if self.is_lone else {}),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.overrides.get("log.dirs", str(self.data)),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "8",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.overrides,
        }
        path = self.folder / "server.properties"
        path.write_text("".join(f"{k}={v}\n" for k, v in values.items()))
        return path

    def _command(self, program: str, *args: str) -> list[str]:
        raise AssertionError(f"{self.name}: no command for {program} {args}")

    def format(self) -> None:
        """Format the log directory unless it is formatted."""
        if (self.data / "meta.properties").exists():
            return
        self._storage("format", "-t", CLUSTER_ID, "-c", str(self.properties()), *self.format_options)

    def _storage(self, *args: str) -> None:
        """Run the storage tool."""
        command = self._command("storage", *args)
        done = subprocess.run(command, capture_output=True, timeout=START_TIMEOUT_S, check=False, env=self._env())
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def start(self) -> Target:
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start the process without waiting for it; format it first if it is new."""
        self.format()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command("server", str(self.properties())), stdout=log, stderr=log, env=self._env()
            )

    def wait_ready(self) -> None:
        """Wait until the answer to a Metadata request names a broker."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")
            if _names_a_broker(self.port):
                return
            time.sleep(0.05)
        raise AssertionError(f"{self.name} did not serve within {START_TIMEOUT_S} s:\n{self.tail()}")

    def tail(self) -> str:
        """The last lines it printed."""
        return "\n".join(self.log.read_text(errors="replace").split("\n")[-60:]) if self.log.exists() else ""

    def stop(self, sig: int = signal.SIGTERM) -> int | None:
        """Stop the process, with SIGKILL if it does not end in time; returns its exit code."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(sig)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"{self.name} did not stop within {STOP_TIMEOUT_S} s:\n{self.tail()}") from None
        return process.returncode

    def wipe(self) -> None:
        """Delete the log directory, as if it were lost."""
        shutil.rmtree(self.data)

    def kill(self) -> None:
        """SIGKILL."""
        self.stop(signal.SIGKILL)

    def _env(self) -> dict[str, str]:
        # Users' nodes load bytecode. Where it cannot be written, every start compiles the sources.
        return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def all_running(targets: Sequence[Target]) -> Iterator[None]:
    """Start servers at the same time, and kill them at the end."""
    try:
        for target in targets:
            target.launch()
        for target in targets:
            target.wait_ready()
        yield
    finally:
        for target in targets:
            target.kill()


class Ours(Target):
    """The node of this checkout."""

    def _storage(self, *args: str) -> None:
        with redirect_stdout(io.StringIO()) as printed:  # in this process, which saves a start
            assert storage.main(args) == 0, printed.getvalue()

    def _command(self, program: str, *args: str) -> list[str]:
        module = {"storage": "kraft_node.cli.storage", "server": "kraft_node.cli.server_start"}[program]
        return [sys.executable, "-m", module, *args]


class Apache(Target):
    """Apache Kafka from Maven Central. A test that makes one is skipped if the jars or Java are missing."""

    def __post_init__(self) -> None:
        require_peer()
        super().__post_init__()

    def _storage(self, *args: str) -> None:
        run_tool("kafka.tools.StorageTool", *args)  # saves the start of a virtual machine

    def _command(self, program: str, *args: str) -> list[str]:
        main = {"storage": "kafka.tools.StorageTool", "server": "kafka.Kafka"}[program]
        options = (*QUICK_JVM, *self.jvm_options, "-Xmx512m", f"-Dlog4j2.configurationFile={self._log4j()}")
        return peers.java_command(main, *args, options=options)

    def _log4j(self) -> Path:
        path = self.folder / "log4j2.properties"
        if not path.exists():
            path.write_text(
                "rootLogger.level=WARN\nrootLogger.appenderRef.c.ref=c\n"
                "appender.c.type=Console\nappender.c.name=c\n"
                "appender.c.layout.type=PatternLayout\nappender.c.layout.pattern=[%d] %p %m (%c)%n\n"
            )
        return path


def _names_a_broker(port: int) -> bool:
    """Request Metadata v1 of no topic. The bytes are written here, so that no client library is involved."""
    header = b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x04test"
    body = b"\x00\x00\x00\x00"
    request = header + body
    try:
        with closing(socket.create_connection(("127.0.0.1", port), timeout=2)) as s:
            s.settimeout(2)
            s.sendall(len(request).to_bytes(4, "big") + request)
            answer = b""
            while len(answer) < 12:
                got = s.recv(4096)
                if not got:
                    return False
                answer += got
            return int.from_bytes(answer[8:12], "big") > 0
    except OSError:
        return False
