"""`python -m tests.lake`: a Spark with Delta's and Iceberg's own jars that answers requests line by line.

It is not the Spark of the pipeline's tests, but the last version that these jars support (tools/peers.py).
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.peer import missing
from tests.spark import QUICK
from tools import peers

ANSWER = "answer "
MORE = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.cache-enabled": "false",
}


class Lake:
    """The process. Iceberg tables in `folder` are also named lake.NAME. Skips the test if it is not installed."""

    def __init__(self, folder: Path) -> None:
        if not peers.lakehouse_installed():
            missing("a Spark with Delta and Iceberg", "`python tools/peers.py lakehouse` installs it (needs Maven)")
        env = {**os.environ, "PYTHONPATH": f"{peers.lakehouse() / 'python'}:{peers.ROOT}", "TZ": "UTC"}
        env.pop("SPARK_HOME", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lake", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            env=env,
            cwd=folder,
        )

    def read(self, kind: str, path: Path | str, where: str = "true", **options: Any) -> list[dict[str, Any]]:
        """The rows of a table, with Spark's options of its format."""
        given = {name: str(value) for name, value in options.items()}
        return self._ask({"kind": kind, "path": str(path), "where": where, "options": given})

    def stream(self, kind: str, path: Path | str, copy: Path) -> list[dict[str, Any]]:
        """Continue a stream of Spark from a table into a folder; returns all rows copied so far."""
        return self._ask({"kind": kind, "path": str(path), "copy": str(copy)})

    def sql(self, text: str) -> list[dict[str, Any]]:
        """The result of a statement. Raises AssertionError with Spark's message."""
        return self._ask({"sql": text})

    def _ask(self, question: dict[str, Any]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = "\n"
        while line and not line.startswith(ANSWER):
            line = self._process.stdout.readline()
        assert line, "Spark has ended"
        found = pickle.loads(base64.b64decode(line.removeprefix(ANSWER)))
        assert isinstance(found, list), found
        return found

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(600)
        self._process.stdout.close()


def main(folder: str) -> None:
    """Answer requests until standard input ends."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("lake")
    for name, value in {**QUICK, **MORE, "spark.sql.catalog.lake.warehouse": folder}.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.jars", ",".join(map(str, (peers.lakehouse() / "lib").glob("*.jar"))))
    spark = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        question, found = json.loads(line), Any
        try:
            if "sql" in question:
                rows = spark.sql(question["sql"])
            elif "copy" in question:
                stream = spark.readStream.format(question["kind"]).load(question["path"]).writeStream.format("parquet")
                stream = stream.option("checkpointLocation", question["copy"] + "/_checkpoint")
                stream.trigger(availableNow=True).start(question["copy"]).awaitTermination()
                rows = spark.read.parquet(question["copy"])
            else:
                reader = spark.read.format(question["kind"]).options(**question["options"])
                rows = reader.load(question["path"]).where(question["where"])
            found = [row.asDict(recursive=True) for row in rows.collect()]
        except Exception as e:
            found = "\n".join(line for line in str(e).splitlines() if not line.startswith(("\t", " ")))
        print(ANSWER + base64.b64encode(pickle.dumps(found)).decode(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
