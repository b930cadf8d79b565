"""An object store is down for a minute, and Spark's executors notice it first: the run waits and continues."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import runner
from kraft_pipeline.tables.engines.engine import SparkEngine
from kraft_pipeline.tables.engines.tasks import Job, Result
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.client.fetch import Range
from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.pipeline.test_pipeline_table import FORMATS, document, rows, written_files
from tests.compat.targets import Ours
from tests.objectstore import object_store
from tests.spark import spark
from tests.storeproxy import Proxy, proxy_of

__all__ = ["spark"]
AWAY_S = 60.0
RECORDS = 500
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stores"), pytest.mark.timeout(1800)]


class Losing(SparkEngine):
    """The store stops at the start of a batch's tasks: the driver has just read the table."""

    def __init__(self, session: Any, proxy: Proxy) -> None:
        super().__init__(session)
        self._proxy, self.batches = proxy, 0

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        self.batches += 1
        if self.batches == 2:
            self._proxy.leave()
            threading.Timer(AWAY_S, self._proxy.come_back).start()
        return super().run(job, ranges)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_store_that_executors_lose_first_for_a_minute(spark: Any, tmp_path: Path, kind: str) -> None:
    server = Ours("kraftcluster", tmp_path / "server").start()
    try:
        with object_store(tmp_path, "lake") as direct, proxy_of(direct) as (proxy, store):
            create(server, "t", 2)
            produced(server, "t", RECORDS)
            given = document(server, "t", "s3://lake/t", kind, table={"storageOptions": store})
            given["spec"]["commit"] = {"maxRows": 100, "maxDelay": "1ms"}
            parsed, waited, reported = table_spec.parse(given), list[str](), list[int]()
            engine = Losing(spark, proxy)
            writer = runner.Runner(parsed, engine, report=lambda done: reported.append(done.rows), wait=waited.append)
            thread = threading.Thread(target=writer.run, daemon=True)
            thread.start()
            while thread.is_alive() and sum(reported) < RECORDS:
                time.sleep(0.1)
            writer.stop()
            thread.join()
            assert proxy.refused > 0, "executors have met a store that is away"
            # Each record once, whether the tasks' own retries sufficed or the run repeated its batch.
            offsets = Counter((row["partition"], row["offset"]) for row in rows("s3://lake/t", kind, direct))
            assert sum(offsets.values()) == len(offsets) == RECORDS
            given["spec"]["table"]["storageOptions"] = direct
            parsed = table_spec.parse(given)
            runner.Runner(parsed, engine).run(once=True)
            assert written_files(parsed) == runner.open_table(parsed).files()
    finally:
        server.kill()
