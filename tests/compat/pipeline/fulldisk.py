"""Runs a KafkaTable on a disk that is too small until it waits, enlarges the disk, and reports the result.

`unshare -rm python -m tests.compat.pipeline.fulldisk SPEC DISK ROWS COPY`: the disk is a tmpfs that no other process
sees. At the end the table is copied out of it. Prints a JSON object: the reasons of the run's waits, and the files
beside the table.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from kraft_pipeline.tables import runner
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.specs import table_spec

WAIT_S = 240.0


def main(file: Path, disk: Path, rows: int, copy: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=True)
    given = table_spec.load(file)
    waited: list[str] = []
    writer = runner.Runner(given, InlineEngine(), wait=waited.append)
    thread = threading.Thread(target=writer.run)
    thread.start()
    table = runner.open_table(given)
    deadline = time.monotonic() + WAIT_S
    while not waited and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    while time.monotonic() < deadline and thread.is_alive():
        if table.state().batch >= 0 and sum(file.rows for file in table.live()) >= rows:
            break
        time.sleep(0.1)
    writer.stop()
    thread.join()
    shutil.copytree(disk, copy)
    known = table.files()
    there = {str(path.relative_to(given.path)) for path in Path(given.path).rglob("kafkatable-*.parquet")}
    print(json.dumps({"waited": waited, "left": sorted(there - known)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
