"""A stream that writes in transactions while Spark's processes are killed, and Spark runs tasks twice (speculation)."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.pipeline.test_pipeline_client import create
from tests.compat.pipeline.test_pipeline_table import send
from tests.compat.pipeline.test_pipeline_transactions import committed
from tests.compat.security.sessions import short_sessions
from tests.compat.targets import Ours, Target
from tests.sparkrun import CLUSTER, SPECULATION, VICTIMS, SparkRun

KILLS = int(os.environ.get("KRAFT_KILLS", "5"))  # `make table-kills`: fifty
SEED = os.environ.get("KRAFT_SEED", "0")
KINDS = ["driver", *VICTIMS]
RECORDS = 600
PROGRAM = ("tests.pipeline.copying",)
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


def specification(options: dict[str, str], folder: Path, **source: str) -> Path:
    given = {
        "options": options,
        "source": {"subscribe": "t", "startingOffsets": "earliest", "minPartitions": "4", **source},
        "sink": {"topic": "copy", "kafka.transactional.id": "copying", "kafka.transaction.timeout.ms": "20000"},
        "checkpoint": (folder / "checkpoint").as_uri(),
        "spark": {**CLUSTER, **SPECULATION},
    }
    (folder / "copy.json").write_text(json.dumps(given))
    return folder / "copy.json"


def test_a_stream_in_transactions_is_killed(server: Ours, tmp_path: Path) -> None:
    check_kills(server, tmp_path, {"kafka.bootstrap.servers": server.bootstrap})


def test_a_stream_in_transactions_is_killed_on_a_secured_cluster(tmp_path: Path) -> None:
    """Tokens and sessions are shorter than the run."""
    with short_sessions(tmp_path) as (node, secured):
        options = {
            "kafka.bootstrap.servers": secured["bootstrapServers"],
            "kafka.properties.file": secured["security"]["propertiesFile"],
        }
        check_kills(node.target, tmp_path, options)


def check_kills(server: Target, tmp_path: Path, options: dict[str, str]) -> None:
    chance, count, killed = random.Random(f"{KILLS}{SEED}"), 0, Counter[str]()
    create(server, "t", 2)
    create(server, "copy", 3)
    file = specification(options, tmp_path, maxOffsetsPerTrigger="80")
    kinds = [KINDS[number % len(KINDS)] for number in range(KILLS)]
    chance.shuffle(kinds)
    while kinds:
        with SparkRun(file, program=PROGRAM) as run:
            before = len(kinds)
            while kinds and run.status is None:
                send(server, "t", [b"%d" % n for n in range(count, count + RECORDS)])
                count += RECORDS
                run.until(run.batches + chance.randrange(1, 4))
                time.sleep(chance.random() * 0.5)
                if run.kill(kinds[-1], chance.choice):
                    killed[kinds.pop()] += 1
                    print(f"killed {killed}", flush=True)
            assert run.status is None or len(kinds) < before, "\n".join(run.lines[-60:])
    file = specification(options, tmp_path)
    for left in reversed(range(6)):  # Spark gives a source's process ten seconds to start
        with SparkRun(file, "--once", program=PROGRAM) as run:
            if run.wait() == 0:
                break
            assert left, "\n".join(run.lines[-60:])
    assert committed(server, "copy") == Counter(range(count))
