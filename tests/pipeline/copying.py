"""A streaming query that copies a topic to another in transactions: `python -m tests.pipeline.copying FILE [--once]`.

FILE is JSON: `options` of both sides, `source`, `sink` (options), `checkpoint`, and `spark` (settings).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from kraft_pipeline.sources.kraft import register


def main(file: str, *more: str) -> int:
    given = json.loads(Path(file).read_text())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("copying")
    for name, value in given["spark"].items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    frame = session.readStream.format("kraft").options(**given["options"], **given["source"]).load()
    writer = frame.select("key", "value").writeStream.format("kraft").options(**given["options"], **given["sink"])
    trigger = {"availableNow": True} if "--once" in more else {"processingTime": "0 seconds"}
    query = writer.option("checkpointLocation", given["checkpoint"]).trigger(**trigger).start()
    reported = -1
    while not query.awaitTermination(0.2):
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > reported and progress["numInputRows"]:
            reported = progress["batchId"]
            print(f"batch {reported}: {progress['numInputRows']} rows", flush=True)
    session.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
