"""`format("kraft")` on a secured node, beside Spark's own connector, and where its secrets must not appear."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_protocol.sasl.oauthbearer import OAUTHBEARER
from tests.compat.pipeline.test_pipeline_table import document, rows
from tests.compat.security import foreign_clients as foreign
from tests.compat.security.all_ways import PLAIN, SCRAM_512, WAYS, Access, AllWays, Way
from tests.compat.security.secured import PASSWORDS
from tests.compat.security.test_secured_clients import created
from tests.spark import QUICK_JVM, require_connector

CLIENT = "pipeline on a secured cluster"
XDIST_GROUP = "spark"  # with the many tests of the other clients
pytestmark = pytest.mark.timeout(900)  # a session starts in seconds on an idle machine


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AllWays]:
    found = AllWays("kraftcluster", tmp_path_factory.mktemp("secured"))
    found.target.start()
    yield found
    found.target.stop()


def options(access: Access) -> dict[str, str]:
    """The options of a source or a sink, which are those of Spark's own connector."""
    found = {f"kafka.{key}": value for key, value in access.java().items()}
    return {"kafka.bootstrap.servers": access.Bootstrap, **found}


def numbers(frame: Any) -> list[int]:
    return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())


EVERYDAY = (Way("SSL"), Way("SASL_SSL", SCRAM_512), Way("SASL_SSL", OAUTHBEARER))


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, id=str(way), marks=() if way in EVERYDAY else (pytest.mark.slow,)) for way in WAYS],
)
def test_source_and_sink_write_and_read(spark: Any, node: AllWays, name: str, way: Way) -> None:
    created(node, name)
    given = options(node.access(way))
    rows = spark.range(100).selectExpr("cast(id as string) value")
    rows.write.format("kraft").options(**given).option("topic", name).mode("append").save()
    assert numbers(spark.read.format("kraft").options(**given).option("subscribe", name).load()) == list(range(100))


def test_sparks_own_connector_reads_and_writes_with_the_same_options(spark: Any, node: AllWays, name: str) -> None:
    require_connector()
    created(node, name)
    given = options(node.access(Way("SASL_SSL", SCRAM_512)))
    for kind, first in (("kraft", 0), ("kafka", 50)):
        rows = spark.range(first, first + 50).selectExpr("cast(id as string) value")
        rows.write.format(kind).options(**given).option("topic", name).mode("append").save()
    for kind in ("kraft", "kafka"):
        frame = spark.read.format(kind).options(**given).option("subscribe", name).load()
        assert numbers(frame) == list(range(100))


def test_a_file_of_properties_beside_its_stores(spark: Any, node: AllWays, name: str, tmp_path: Path) -> None:
    created(node, name)
    access = node.access(Way("SSL"))
    values = access.java()
    for key in ("ssl.keystore.location", "ssl.truststore.location"):
        source = Path(values[key])
        (tmp_path / source.name).write_bytes(source.read_bytes())
        values[key] = source.name
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    given = {"kafka.bootstrap.servers": access.Bootstrap, "kafka.properties.file": str(file)}
    rows = spark.range(10).selectExpr("cast(id as string) value")
    rows.write.format("kraft").options(**given).option("topic", name).mode("append").save()
    assert numbers(spark.read.format("kraft").options(**given).option("subscribe", name).load()) == list(range(10))


def test_secrets_appear_nowhere(node: AllWays, name: str, tmp_path: Path) -> None:
    """Not in plans, pages and events of Spark, its log, its checkpoint, and messages of failures."""
    created(node, name)
    created(node, f"{name}-copy")
    tls = node.access(Way("SSL"))
    inline = {
        "kafka.bootstrap.servers": tls.Bootstrap,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": Path(tls.Key).read_text(),
        "kafka.ssl.keystore.certificate.chain": Path(tls.Certificate).read_text(),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": Path(tls.CA).read_text(),
    }
    plain = options(node.access(Way("SASL_SSL", PLAIN)))
    wrong = options(node.access(Way("SASL_SSL", PLAIN), Password="planted-wrong"))
    malformed = {**plain, "kafka.sasl.jaas.config": plain["kafka.sasl.jaas.config"].rstrip(";")}
    key = Path(tls.Key).read_text().splitlines()[1]
    given = {"right": [inline, plain], "topic": name, "copy": f"{name}-copy"}
    given["wrong"] = {"password": wrong, "jaas": malformed}
    (tmp_path / "options.json").write_text(json.dumps(given))
    foreign.confluent_kafka(node.access(Way("SSL")), name)
    done = subprocess.run(
        [sys.executable, "-m", "tests.compat.pipeline.secured_queries", str(tmp_path)],
        capture_output=True, text=True, timeout=400, check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    (tmp_path / "options.json").unlink()
    (tmp_path / "output").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("rows 20") == 2 and "stream 20" in done.stdout
    assert "uthentication failed" in done.stdout and "sasl.jaas.config" in done.stdout
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in files) and (tmp_path / "page-0").stat().st_size > 1000
    for path in files:
        data = path.read_bytes()
        for secret in (PASSWORDS["ann"], "planted-wrong", key):
            assert secret.encode() not in data, f"{secret[:20]} is in {path.name}"


def properties_file(node: AllWays, folder: Path, way: Way) -> Path:
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in node.access(way).java().items()))
    return file


def test_a_table_is_written_by_the_properties_beside_its_specification(
    node: AllWays, name: str, tmp_path: Path
) -> None:
    foreign.confluent_kafka(node.access(Way("SSL")), name)
    properties_file(node, tmp_path, Way("SSL"))
    given = document(node.target, name, tmp_path / "t", "delta", security={"propertiesFile": "client.properties"})
    given["spec"]["bootstrapServers"] = node.access(Way("SSL")).Bootstrap
    (tmp_path / "table.yaml").write_text(json.dumps(given))
    done = pipeline("table", "run", str(tmp_path / "table.yaml"), "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(int(bytes(row["value"])) for row in rows(tmp_path / "t", "delta")) == list(range(20))
    given["spec"]["security"] = {"propertiesFile": "absent.properties"}
    (tmp_path / "table.yaml").write_text(json.dumps(given))
    done = pipeline("table", "run", str(tmp_path / "table.yaml"), "--once")
    assert done.returncode == 2
    assert "spec.security.propertiesFile" in done.stderr and "absent.properties is not a file" in done.stderr


def test_the_archive_reads_the_controllers_that_secured_brokers_name(node: AllWays, tmp_path: Path) -> None:
    properties_file(node, tmp_path, Way("SASL_SSL", SCRAM_512))
    (tmp_path / "controllers.properties").write_text("security.protocol=PLAINTEXT\n")
    spec = {
        "bootstrapServers": node.access(Way("SASL_SSL", SCRAM_512)).Bootstrap,
        "security": {
            "propertiesFile": "client.properties",
            "controllerPropertiesFile": "controllers.properties",
        },
        "table": {"path": str(tmp_path / "archive")},
    }
    kind = "KafkaMetadataArchive"
    given = {"apiVersion": "kraftcluster.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    (tmp_path / "archive.yaml").write_text(json.dumps(given))
    done = pipeline("meta", "archive", "-f", str(tmp_path / "archive.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(tmp_path / "archive" / "changes", "parquet")


def test_a_scrub_reads_secured_brokers(node: AllWays, name: str, tmp_path: Path) -> None:
    foreign.confluent_kafka(node.access(Way("SSL")), name)
    file = properties_file(node, tmp_path, Way("SASL_SSL", SCRAM_512))
    address = node.access(Way("SASL_SSL", SCRAM_512)).Bootstrap
    words = ("scrub", "run", "--bootstrap-server", address, "--command-config", str(file), "--topic", name)
    done = pipeline(*words, "--master", "local[1]", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["totals"]["batches"] > 0


def pipeline(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `kraft-pipeline`."""
    return subprocess.run(
        [sys.executable, "-m", "kraft_pipeline.cli.main", *words],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "SPARK_SUBMIT_OPTS": QUICK_JVM},
    )  # fmt: skip
