"""`make pipeline-demo`: a cluster of local processes, data in, a table out, reports as files; then all is stopped.

    python -m tools.pipeline_demo [--out FOLDER] [--port N] [--records N]

Every command that it runs is printed, so that it can be run by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from kraft_operator.protocol import new_client
from kraft_pipeline.sinks.options import parse_sink
from kraft_pipeline.sinks.rows import RowWriter
from kraft_protocol.client.aio import Address
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.wire import messages

ROOT: Final = Path(__file__).parents[1]
SAMPLE: Final = ROOT / "deploy" / "samples" / "plaintext.yaml"
MARK: Final = "demo.json"
"""The file that marks a folder as a demo's; the next demo may remove a marked folder."""
TOPIC: Final = "orders"
PARTITIONS: Final = 6
CUSTOMERS: Final = ("ada", "bob", "cleo", "dan", "eve", "fay")
ROWS: Final = 50_000
"""Records per write."""


class Demo:
    """One run in its folder."""

    def __init__(self, out: Path, port: int, records: int) -> None:
        self.out, self.port, self.records = out, port, records
        self.bootstrap = f"localhost:{port}"
        self.table = out / "orders"

    def run(self) -> None:
        """Run the demo. Raises CalledProcessError if a command fails."""
        began = time.monotonic()
        cluster = ("--data", str(self.out / "cluster"))
        try:
            self.command("kraftcluster", "up", "--detach", "-f", str(SAMPLE), *cluster, "--port", str(self.port))
            self.data_in()
            self.table_out()
            self.incident(cluster)
            self.reports()
        finally:
            self.command("kraftcluster", "down", "--wipe", *cluster)
        print(f"\n{time.monotonic() - began:.0f} s. Results:")
        for path, what in (
            (self.table, "the Delta table"),
            (self.out / "orders_dead_letters", "records that are not orders, with the reason"),
            (self.out / "report", "the metadata's report: open report.html"),
            (self.out / "scrub.json", "the scrub's report: every byte of every replica was read"),
        ):
            assert path.exists(), path
            print(f"  {path}  {what}")

    def command(self, *words: str) -> None:
        """Print a command and run it in the repository's root. Raises CalledProcessError if it fails."""
        print(f"\n$ {shlex.join(words)}", flush=True)
        program = Path(sys.executable).with_name(words[0])
        env = {**os.environ, "COLUMNS": os.environ.get("COLUMNS", "120")}
        subprocess.run([program, *words[1:]], check=True, cwd=ROOT, env=env)

    def data_in(self) -> None:
        """Create the topic and write the orders; three of them are not JSON."""
        print(
            f"\n{self.records:,} orders into {PARTITIONS} partitions of the topic {TOPIC}, three of them no JSON",
            flush=True,
        )
        asyncio.run(self._create())
        with Cluster(Settings(self.bootstrap)) as client:
            given = {"kafka.bootstrap.servers": self.bootstrap, "topic": TOPIC, "kafka.compression.type": "zstd"}
            writer = RowWriter(client, parse_sink(given, ["key", "value"]))
            for batch in self._orders():
                writer.write(batch)
            writer.close()

    async def _create(self) -> None:
        topic = messages.CreateTopicsRequest.CreatableTopic(TOPIC, PARTITIONS, 3)
        async with new_client() as client:
            answer = await client.request(
                Address("localhost", self.port), messages.CreateTopicsRequest([topic], 30_000)
            )
        assert not answer.topics[0].error_code, answer

    def _orders(self) -> Iterator[pa.RecordBatch]:
        chance = random.Random(7)
        for first in range(0, self.records, ROWS):
            numbers = range(first, min(first + ROWS, self.records))
            names = [chance.choice(CUSTOMERS) for _ in numbers]
            values = [
                json.dumps({"id": number, "customer": name, "cents": chance.randrange(100, 20_000)}).encode()
                for number, name in zip(numbers, names, strict=True)
            ]
            if not first:
                values[1:4] = [b"<order/>", b'{"id": "four"', b"\x00\x01"]
            keys = pa.array([name.encode() for name in names], pa.binary())
            yield pa.record_batch({"key": keys, "value": pa.array(values, pa.binary())})

    def incident(self, cluster: tuple[str, str]) -> None:
        """Restart one broker: its partitions have another leader meanwhile, which the report shows."""
        self.command("kraftcluster", "roll", *cluster, "101")

    def table_out(self) -> None:
        """Write the topic into a Delta table, and show its status."""
        file = self.out / "orders.yaml"
        file.write_text(
            f"""\
apiVersion: kraftcluster.io/v1alpha1
kind: KafkaTable
metadata: {{name: orders}}
spec:
  bootstrapServers: {self.bootstrap}
  topics: {{names: [{TOPIC}]}}
  value: {{format: json, evolve: additive}}
  table: {{format: delta, path: {self.table}, partitionBy: [date]}}
  groupId: orders-table
"""
        )
        print(f"\n{file}:\n{file.read_text()}")
        self.command("kraft-pipeline", "table", "run", "--once", str(file))
        self.command("kraft-pipeline", "table", "status", str(file))
        from deltalake import DeltaTable  # noqa: PLC0415 - slow to import: after there is something to see

        rows = pa.table(DeltaTable(str(self.table)).to_pyarrow_table(columns=["customer", "cents"]))
        assert rows.num_rows == self.records - 3, rows.num_rows
        sums = rows.group_by("customer").aggregate([("cents", "sum"), ("cents", "count")]).sort_by("customer")
        print("\nThe table, by customer:")
        for row in sums.to_pylist():
            print(f"  {row['customer']:6} {row['cents_count']:8,} orders  {row['cents_sum'] / 100:14,.2f}")

    def reports(self) -> None:
        """Archive the metadata, write its report, and scrub all replicas."""
        archive = str(self.out / "metadata")
        self.command("kraft-pipeline", "meta", "archive", "--bootstrap-server", self.bootstrap, "--table", archive)
        sizes = ("--sizes-from", self.bootstrap)
        self.command("kraft-pipeline", "meta", "report", archive, "--out", str(self.out / "report"), *sizes)
        scrub = ("--topic", TOPIC, "--out", str(self.out / "scrub.json"))
        self.command("kraft-pipeline", "scrub", "run", "--bootstrap-server", self.bootstrap, *scrub)


def main() -> int:
    """Run the demo. Returns 1 if a command failed, 2 if the folder is not a demo's, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / ".kraft" / "demo", help="folder of the results")
    parser.add_argument("--port", type=int, default=9092, help="port of the first broker")
    parser.add_argument("--records", type=int, default=300_000)
    options = parser.parse_args()
    out = options.out.absolute()
    if out.exists() and not (out / MARK).exists():
        print(f"{out} is there and no demo made it: --out names another folder", file=sys.stderr)
        return 2
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARK).write_text("{}\n")
    try:
        Demo(out, options.port, options.records).run()
    except subprocess.CalledProcessError as error:
        print(f"\nthis failed with {error.returncode}: {shlex.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
