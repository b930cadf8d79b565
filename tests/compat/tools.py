"""Apache Kafka's command-line tools, run one after the other in one JVM a test process (tests/java/ToolServer.java)."""

from __future__ import annotations

import atexit
import os
import select
import struct
import subprocess
import threading
import time
from dataclasses import dataclass

from tests.peer import PROGRAMS, QUICK_JVM, java_program, require_peer

SOURCE = PROGRAMS / "ToolServer.java"
TIMEOUT_S = 120.0


@dataclass
class Done:
    """The result of a tool."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """The whole output of the tool."""
        return self.out + self.err


class ToolServer:
    """The JVM that runs them; started on first use, replaced after a tool that hangs or leaves a client open."""

    def __init__(self, *options: str) -> None:
        """`options` of the virtual machine."""
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(self, main_class: str, *args: str, stdin: str = "", timeout_s: float = TIMEOUT_S) -> Done:
        """Run one tool to its end; calls of other threads wait. Raises TimeoutError if it does not end."""
        with self._lock:
            return self._run(main_class, *args, stdin=stdin, timeout_s=timeout_s)

    def _run(self, main_class: str, *args: str, stdin: str, timeout_s: float) -> Done:
        process = self._started()
        words = [w.encode() for w in (main_class, *args)]
        request = struct.pack(">i", len(words)) + b"".join(struct.pack(">i", len(w)) + w for w in words)
        request += struct.pack(">i", len(stdin.encode())) + stdin.encode()
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.flush()
        deadline = time.monotonic() + timeout_s
        try:
            (code,) = struct.unpack(">i", self._read(4, deadline))
            out = self._read(struct.unpack(">i", self._read(4, deadline))[0], deadline)
            err = self._read(struct.unpack(">i", self._read(4, deadline))[0], deadline)
            (ends,) = struct.unpack(">i", self._read(4, deadline))
        except TimeoutError:
            self.close()
            raise TimeoutError(f"{main_class} {' '.join(args)} did not end within {timeout_s} s") from None
        if ends:
            self.close()
        return Done(code, out.decode(errors="replace"), err.decode(errors="replace"))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        jars = require_peer()
        if self._process is None or self._process.poll() is not None:
            folder, main_class = java_program(SOURCE)
            command = ["java", *QUICK_JVM, *self._options, "-Xmx384m", "-cp", f"{jars}/*:{folder}", main_class]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
            )
            atexit.register(self.close)
        return self._process

    def _read(self, count: int, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        data = b""
        while len(data) < count:
            readable, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise TimeoutError
            got = os.read(fd, count - len(data))
            assert got, "the JVM that runs the tools ended"
            data += got
        return data


SERVER = ToolServer()


def run_tool(main_class: str, *args: str, stdin: str = "", check: bool = True) -> Done:
    """Run a tool. With `check`, an exit code other than 0 fails the test with the tool's output."""
    done = SERVER.run(main_class, *args, stdin=stdin)
    assert not check or done.code == 0, f"{main_class} {' '.join(args)}: exit {done.code}\n{done.text}"
    return done
