"""`python -m tests.soak --minutes N`: run the load, roll the nodes now and then, judge and draw."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console

from tests.faults.copying import Copying
from tests.faults.members import wait_until
from tests.faults.workload import Clients
from tests.soak.cluster import Cluster
from tests.soak.load import COPIES, EVENTS, Reading, Writing, create_topics, state_wrong
from tests.soak.reading import Latencies, Sequences
from tests.soak.report import Result, draw, judge
from tests.soak.samples import Sampler

LEFT_S = 180.0
"""The time until everything written has been copied and read."""
STOP_S = 330.0
GROUPS = {"classic": EVENTS, "consumer": EVENTS, "copies": COPIES}
"""Groups of two members, and the topic that each reads; the last two by the protocol of KIP-848."""


def main() -> int:
    """Returns exit code 1 if something is lost, repeated or grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--roll-every", type=float, default=10.0, metavar="MINUTES", help="0: never")
    parser.add_argument("--rate", type=float, default=400.0, help="records a second")
    parser.add_argument("--sample-every", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        cluster = Cluster(Path(folder))
        try:
            cluster.up()
            result, sampler = soak(cluster, arguments, console)
        finally:
            cluster.down()
    (arguments.out / "samples.json").write_text(json.dumps(sampler.document()))
    (arguments.out / "result.json").write_text(json.dumps(vars(result), indent=1))
    draw(sampler, arguments.out / "soak.svg")
    console.print(result.text(), style="green" if result.good else "red", markup=False)
    if arguments.json:
        print(json.dumps(vars(result)))
    return 0 if result.good else 1


def soak(cluster: Cluster, arguments: argparse.Namespace, console: Console) -> tuple[Result, Sampler]:
    """The run itself."""
    create_topics(cluster.bootstrap)
    result = Result(arguments.minutes)
    latencies = {name: Latencies() for name in ("acknowledged", *GROUPS)}
    sequences = {group: Sequences(group) for group in GROUPS}
    writers, readers = Clients(), Clients()
    share = arguments.rate / 3
    writing = [Writing(writers, f"p{n}", cluster.bootstrap, share, latencies["acknowledged"]) for n in range(2)]
    state = Writing(writers, "state", cluster.bootstrap, share, latencies["acknowledged"])
    copiers = [Copying(readers, f"t{n}", cluster.bootstrap, EVENTS, COPIES, "classic", abandoned=0.0) for n in range(2)]
    for group, topic in GROUPS.items():
        protocol = "classic" if group == "classic" else "consumer"
        for n in range(2):
            Reading(readers, f"{group}-{n}", cluster.bootstrap, topic, protocol, sequences[group], latencies[group])
    for writer in writing:
        writer.write_events()
    state.write_state()
    sampler = Sampler(cluster, latencies, arguments.sample_every)
    sampling = threading.Event()
    thread = threading.Thread(target=sampler.sample_until, args=(sampling.is_set,), daemon=True)
    thread.start()
    _roll_now_and_then(cluster, sampler, arguments, console)
    writers.stop(STOP_S)
    sent = {key: count for writer in writing for key, count in writer.sent.items()}
    missing: list[str] = []

    def all_read() -> bool:
        missing[:] = [text for group in sequences.values() for text in group.missing(sent)]
        return not missing

    try:
        wait_until("everything is read", all_read, LEFT_S)
    except AssertionError:
        result.findings += missing
    sampling.set()
    thread.join()
    readers.stop(STOP_S)
    result.findings += [text for writer in (*writing, state) for text in writer.findings]
    result.findings += [text for group in sequences.values() for text in group.findings]
    result.findings += state_wrong(cluster.bootstrap, state.latest)
    result.records = sum(writer.records for writer in (*writing, state))
    result.copied = sequences["copies"].read
    result.transactions = sum(copier.transactions for copier in copiers)
    result.rolls = len(sampler.rolls)
    judge(result, sampler)
    return result, sampler


def _roll_now_and_then(cluster: Cluster, sampler: Sampler, arguments: argparse.Namespace, console: Console) -> None:
    end = arguments.minutes * 60
    every = arguments.roll_every * 60
    due = every
    while (now := sampler.now()) < end:
        if every and now >= due and end - now > every / 2:
            begun = sampler.now()
            cluster.roll()
            sampler.rolls.append((begun, sampler.now()))
            console.print(f"{sampler.now() / 60:.1f} min: rolled in {sampler.now() - begun:.0f} s")
            due += every
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
