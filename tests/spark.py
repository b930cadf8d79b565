"""One Spark session for each test process, with our data source and Spark's own connector to Kafka.

`make test-spark42` puts another PySpark first on the PYTHONPATH; the session's Python workers inherit it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peer import missing
from tools import peers

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
QUICK = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.python.authenticate.socketTimeout": "240s",  # the time that a new Python worker has to call back
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Sessions of tests live a minute: optimized compilation costs more than it saves, and the UI is not used."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of two threads on this machine; skips with a reason without Java or PySpark (in CI a failure)."""
    if shutil.which("java") is None:
        missing("Java", "Spark needs version 17 or later")
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        missing("PySpark", "pip install '.[dev]' installs it (450 MB)")
    from kraft_pipeline.sources.kraft import register

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in QUICK.items():
        builder = builder.config(name, value)
    if peers.connector_installed():
        builder = builder.config("spark.jars", ",".join(map(str, sorted(peers.connector().glob("*.jar")))))
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


SLOW_START = ("failed to connect back", "waiting for the Python worker")
"""Spark gives a source's Python process ten seconds to start, which cannot be configured: too few on a busy machine."""
STARTS = 6


def until_it_ends(start: Callable[[], Any]) -> list[int]:
    """Wait for the end of a query, restarted if its Python process was too slow; returns rows by micro-batch."""
    rows: list[int] = []
    for left in reversed(range(STARTS)):
        query, ended = start(), False
        try:
            ended = query.awaitTermination(300)
            assert ended
        except Exception as e:
            if not left or not any(text in str(e) for text in SLOW_START):
                raise
        rows += [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        if ended:
            break
    return rows


def require_connector() -> None:
    """Skip (in CI fail) if Spark's own connector is not installed."""
    if not peers.connector_installed():
        missing("Spark's connector to Kafka", "`make peers` installs it (needs Maven)")
