"""`python -m tests.suites [SUITE]...`: run suites of clients' projects."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.suites import confluent_go, franz_go, kafka_go, librdkafka, rskafka, sarama, watermill
from tests.suites.results import Results, record

SUITES: Final[dict[str, tuple[Callable[[str, Path], Results], Mapping[str, str]]]] = {
    "franz-go": (franz_go.run, franz_go.KNOWN),
    "sarama": (sarama.run, sarama.KNOWN),
    "librdkafka": (librdkafka.run, librdkafka.KNOWN),
    "librdkafka-848": (
        lambda server, folder: librdkafka.run(server, folder, "consumer"),
        {**librdkafka.KNOWN, **librdkafka.RACY},
    ),
    "confluent-go": (confluent_go.run, confluent_go.KNOWN),
    "confluent-go-848": (partial(confluent_go.run, protocol="consumer"), confluent_go.KNOWN),
    "rskafka": (rskafka.run, rskafka.KNOWN),
    "watermill": (watermill.run, watermill.KNOWN),
    "kafka-go": (kafka_go.run, kafka_go.KNOWN),
    "franz-go-chaos": (franz_go.run_chaos, franz_go.KNOWN),
    "franz-go-secured": (franz_go.run_secured, franz_go.KNOWN),
    "sarama-secured": (partial(sarama.run, secured=True), sarama.KNOWN_SECURED),
    "librdkafka-secured": (librdkafka.run_secured, librdkafka.KNOWN),
}


def main() -> int:
    """Returns exit code 1 if a test failed that is not known to fail."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of: {', '.join(SUITES)}; by default all")
    parser.add_argument("--server", choices=("kraftcluster", "apache"), default="kraftcluster")
    parser.add_argument("--record", action="store_true", help="note the counts for docs/compatibility.md")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.suites if name not in SUITES]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)} (there are {', '.join(SUITES)})")
    console, surprised = Console(), False
    for name in arguments.suites or SUITES:
        run, known = SUITES[name]
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"suite-{name}-") as folder:
            results = run(arguments.server, Path(folder))
        surprises = results.surprises(known)
        if arguments.record and not surprises:
            record(name, arguments.server, results)
        surprised |= bool(surprises)
        console.print(
            f"{name} against {arguments.server}: {len(results.passed)} passed, {len(results.skipped)} skipped, "
            f"{len(results.failed)} failed in {(time.monotonic() - began) / 60:.0f} min",
            style="red" if surprises else "green",
        )
        for test in results.failed:
            if test in known:
                console.print(f"  {test} failed, as known: {known[test]}")
        for test, text in surprises.items():
            console.print(f"  {test} FAILED\n{text}", markup=False)
    return 1 if surprised else 0


if __name__ == "__main__":
    sys.exit(main())
