"""KafkaTable on Spark while its processes are killed: driver, JVM, executors, Python workers, the source's process.

Spark speculates: it runs two attempts of many tasks. Another Spark reads the tables meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import runner
from kraft_pipeline.tables.specs import table_spec
from tests.compat.pipeline.test_pipeline_client import create
from tests.compat.pipeline.test_pipeline_table import document, rows, send, written_files
from tests.compat.pipeline.test_pipeline_table_life import keyed
from tests.compat.security.sessions import short_sessions
from tests.compat.targets import Ours, Target
from tests.lake import Lake
from tests.sparkrun import CLUSTER, SPECULATION, VICTIMS, SparkRun

KILLS = int(os.environ.get("KRAFT_KILLS", "5"))  # `make table-kills`: fifty of each table
SEED = os.environ.get("KRAFT_SEED", "0")
KINDS = ["driver", *VICTIMS]
TABLES = [("parquet", "append"), ("delta", "append"), ("iceberg", "append"), ("delta", "upsert"), ("iceberg", "upsert")]
RECORDS = 600
pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.xdist_group("spark-kraftcluster"),
    pytest.mark.timeout(900 + 300 * KILLS),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ours]:
    target = Ours("kraftcluster", tmp_path / "server")
    yield target.start()
    target.kill()


class Sent:
    """The content of the topic: rows and dead letters, or the last value of each key."""

    def __init__(self, server: Target, mode: str, chance: random.Random) -> None:
        self._server, self._mode, self._chance = server, mode, chance
        self.count = 0
        self.last: dict[bytes, int] = {}
        self.dead: Counter[bytes] = Counter()

    def more(self) -> None:
        """Send a round of records."""
        numbers = range(self.count, self.count + RECORDS)
        self.count += RECORDS
        bad = [b"dead %d" % n for n in numbers if n % 10 == 0]
        self.dead.update(bad)
        if self._mode == "append":
            send(self._server, "t", [b'{"n": %d}' % n for n in numbers if n % 10] + bad)
            return
        changes = [(f"k{self._chance.randrange(50)}", None if self._chance.random() < 0.3 else n) for n in numbers]
        keyed(self._server, "t", [(key, None if n is None else b'{"n": %d}' % n) for key, n in changes])
        keyed(self._server, "t", [("bad", one) for one in bad])
        for key, n in changes:
            self.last.pop(key.encode(), None)
            if n is not None:
                self.last[key.encode()] = n


def judged(found: list[dict[str, Any]], mode: str) -> int:
    """Check that no row is repeated; returns the number of rows."""
    marks = Counter(bytes(row["_key"]) if mode == "upsert" else row["n"] for row in found)
    assert not marks or max(marks.values()) == 1, marks.most_common(5)
    return len(found)


def specification(server: Target, folder: Path, kind: str, mode: str) -> tuple[Path, dict[str, Any]]:
    """A table of small batches on Spark with its own executors."""
    given = document(server, "t", folder / "t", kind)
    given["spec"] |= {
        "value": {"format": "json", "schema": {"n": "long"}},
        "commit": {"maxRows": 60, "maxDelay": "1ms"},
        "engine": {"mode": "local", "spark": {**CLUSTER, **SPECULATION}},
        "maintenance": {"every": "10s"},
    }
    given["spec"]["table"] |= {"mode": "upsert", "key": ["_key"]} if mode == "upsert" else {}
    (folder / "table.yaml").write_text(json.dumps(given))
    return folder / "table.yaml", given


@pytest.mark.parametrize(("kind", "mode"), TABLES)
def test_processes_of_spark_are_killed(server: Ours, tmp_path: Path, kind: str, mode: str) -> None:
    check_kills(server, tmp_path, kind, mode, {})


def test_processes_of_spark_are_killed_on_a_secured_cluster(tmp_path: Path) -> None:
    """Tokens and sessions are shorter than the run, and the driver's and the executors' files have no secret."""
    with short_sessions(tmp_path) as (node, secured):
        check_kills(node.target, tmp_path, "delta", "append", secured)


def check_kills(server: Target, tmp_path: Path, kind: str, mode: str, more: dict[str, Any]) -> None:
    """Kill processes, then compare the table with the topic; `more`: fields of the specification."""
    file, given = specification(server, tmp_path, kind, mode)
    given["spec"] |= more
    file.write_text(json.dumps(given))
    parsed, chance = table_spec.parse(given), random.Random(f"{kind}{mode}{KILLS}{SEED}")
    create(server, "t", 2 if mode == "append" else 1)
    sent, killed, read = Sent(server, mode, chance), Counter[str](), 0
    kinds = [KINDS[number % len(KINDS)] for number in range(KILLS)]
    chance.shuffle(kinds)
    with Lake(tmp_path) as lake:
        while kinds:
            with SparkRun(file) as run:
                before = len(kinds)
                while kinds and run.status is None:
                    sent.more()
                    run.until(run.batches + chance.randrange(1, 6))
                    time.sleep(chance.random() * 0.3)
                    if run.kill(kinds[-1], chance.choice):
                        killed[kinds.pop()] += 1
                        print(f"killed {killed}", flush=True)
                    if kind != "parquet" and runner.open_table(parsed).schema() is not None:
                        read = max(read, judged(lake.read(kind, parsed.path), mode))
                if run.status is not None:
                    assert run.wait() in {-9, 1}, "\n".join(run.lines[-40:])
                    assert len(kinds) < before, "\n".join(run.lines[-40:])
        given["spec"]["commit"] = {}
        file.write_text(json.dumps(given))
        with SparkRun(file, "--once") as run:
            assert run.wait() == 0, "\n".join(run.lines[-60:])
        found = lake.read(kind, parsed.path) if kind != "parquet" else rows(parsed.path, kind)
    judged(found, mode)
    if mode == "append":
        assert Counter(row["n"] for row in found) == Counter(n for n in range(sent.count) if n % 10)
        assert kind == "parquet" or read > 0
    else:
        assert {bytes(row["_key"]): row["n"] for row in found} == sent.last
    assert Counter(row["value"] for row in rows(parsed.dead_letter_path, kind)) == sent.dead
    for dead_letters in (False, True):
        files = runner.open_table(parsed, dead_letters=dead_letters).files()
        assert written_files(parsed, dead_letters=dead_letters) == files
