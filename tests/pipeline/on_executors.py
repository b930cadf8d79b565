"""Archive, frames and scrubs with executors as processes: `python -m tests.pipeline.on_executors FILE`.

FILE is JSON: `log` (a log directory), `table` (the archive to write), `bootstrap`, `topic`. Prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kraft_pipeline.archive import run as archives
from kraft_pipeline.archive.frames import MetadataFrames
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.scrub.run import run as scrub
from kraft_pipeline.scrub.spec import ScrubSpec
from kraft_pipeline.tables.engines.engine import SparkEngine
from tests.sparkrun import CLUSTER


class Open(SparkEngine):
    """An engine whose session stays open."""

    def close(self) -> None:
        pass


def main(file: str) -> int:
    given = json.loads(Path(file).read_text())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("executors")
    for name, value in CLUSTER.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    archives.SPREAD_BYTES = 1  # type: ignore[misc] - small files are spread, too
    spec = ArchiveSpec(paths=(given["log"],), path=given["table"])
    done = archives.archive(spec, engine=lambda: Open(session))
    again = archives.archive(spec, engine=lambda: Open(session))
    found = MetadataFrames(session, given["table"])
    topics: dict[str, Any] = {row["topic"]: row["partitions"] for row in found.at().topics().collect()}
    reports = [
        scrub(session, one)
        for one in (
            ScrubSpec(directories=(given["log"],), topics=(given["topic"],)),
            ScrubSpec(bootstrap=given["bootstrap"], topics=(given["topic"],)),
        )
    ]
    state = {"changes": found.changes().count(), "topics": topics}
    print("RESULT" + json.dumps({"done": [done.to_json(), again.to_json()], "state": state, "scrubs": reports}))
    session.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
