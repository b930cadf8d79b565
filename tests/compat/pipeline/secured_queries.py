"""A Spark program with planted secrets: batches, streams, sinks and failures, while Spark logs all that it can.

`python -m tests.compat.pipeline.secured_queries FOLDER` reads `options.json` of the folder and writes into it.
"""

from __future__ import annotations

import json
import logging
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kraft_pipeline.sources.kraft import register
from tests.spark import QUICK, until_it_ends


def main(folder: Path) -> None:
    logging.basicConfig(level=logging.INFO)
    given: dict[str, Any] = json.loads((folder / "options.json").read_text())
    (folder / "events").mkdir()
    builder = SparkSession.builder.master("local[2]").appName("secured")
    settings = {**QUICK, "spark.ui.enabled": "true", "spark.ui.port": "0", "spark.eventLog.enabled": "true"}
    settings |= {"spark.eventLog.dir": (folder / "events").as_uri(), "spark.sql.maxMetadataStringLength": "100000"}
    settings |= {"spark.ui.explainMode": "extended", "spark.eventLog.logStageExecutorMetrics": "true"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("INFO")
    register(session)

    def read(reader: Any, options: dict[str, str], **more: str) -> Any:
        options = {**options, "subscribe": given["topic"], "startingOffsets": "earliest", **more}
        return reader.format("kraft").options(**options).load()

    for right in given["right"]:
        frame = read(session.read, right)
        frame.explain(True)
        print("rows", frame.count())
        writer = frame.select("value").write.format("kraft").options(**right).option("topic", given["copy"])
        writer.mode("append").save()
    stream = read(session.readStream, given["right"][0], maxOffsetsPerTrigger="10")

    def start() -> Any:
        writer = stream.select("value").writeStream.format("kraft").options(**given["right"][1])
        writer = writer.option("topic", given["copy"]).option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        with suppress(Exception):
            query.explain(True)
        return query

    print("stream", sum(until_it_ends(start)))
    for kind, options in given["wrong"].items():
        try:
            read(session.read, options).count()
        except Exception as error:
            print("wrong", kind, error)
        else:
            print("wrong", kind, "was accepted")
    url = session.sparkContext.uiWebUrl
    pages = [f"api/v1/applications/{session.sparkContext.applicationId}/{part}" for part in (
        "sql?details=true&planDescription=true&length=1000", "environment", "jobs", "stages?details=true", "storage/rdd"
    )]  # fmt: skip
    for number, page in enumerate([*pages, "SQL/", "StreamingQuery/", "environment/", "jobs/", "stages/"]):
        with urllib.request.urlopen(f"{url}/{page}", timeout=30) as answer:
            (folder / f"page-{number}").write_bytes(answer.read())
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
