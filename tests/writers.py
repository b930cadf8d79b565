"""`python -m tests.writers`: starts a writer of a KafkaTable for each line of arguments that it reads.

A writer's imports cost two seconds of processor time. Here they run once, and each writer is a fork that can be killed
like any process. Its output appears here, between `pid N` and `ended STATUS`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

ENDED = "ended "


class Writers:
    """The process; one writer at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.writers"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )

    def start(self, *arguments: str) -> int:
        """Start a writer; returns its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        line = self.line()
        assert line.startswith("pid "), line
        return int(line.split()[1])

    def line(self) -> str:
        """The next printed line; the last one of a writer begins with `ENDED`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process of the writers has ended"
        return line

    def ended(self) -> tuple[int, str]:
        """The exit status of the writer (a signal's number below zero), and its remaining output."""
        lines = []
        while not (line := self.line()).startswith(ENDED):
            lines.append(line)
        return int(line.removeprefix(ENDED)), "".join(lines)

    def finish(self, file: Path, given: dict[str, Any]) -> None:
        """Let another writer take all remaining records, in batches of maximum size, without a kill."""
        file.write_text(json.dumps(given | {"spec": given["spec"] | {"commit": {}}}))
        self.start("table", "run", str(file), "--once")
        status, reported = self.ended()
        assert status == 0, reported

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()


def main() -> None:
    """Fork for each line; threads start only in the forks."""
    from kraft_pipeline.cli.main import main as pipeline
    from kraft_pipeline.tables import iceberg, maintenance
    from kraft_pipeline.tables.stores import delta

    del delta, iceberg, maintenance

    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            print(f"pid {os.getpid()}", flush=True)
            status = 1
            try:
                status = pipeline(json.loads(line))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitpid(pid, 0)[1]
        print(f"{ENDED}{os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main()
