"""Repeated records of the workload that its producer does not explain.

librdkafka writes stored batches again when it bumps its epoch (its issue 4953). `tests.faults.epochs` recognizes that
by the client's log and by the batches in a broker's files. Any other repetition is a fault of the cluster.
"""

from __future__ import annotations

import io
import json
import logging
import subprocess
import tarfile
from pathlib import Path

from e2e.kube import Cluster, Workload
from kraft_node.testing.histories.logs import RecordOutcome, Sent
from tests.faults.epochs import Forgiveness, ProducerLog, batches_of

PRODUCER = "workload"
FILES = 'cd /var/lib/kraft && tar -cf - $(find . -path "*/log/{topic}-*/*.log")'


def unexplained(cluster: Cluster, work: Workload, folder: Path) -> list[str]:
    """The records that are in the log more than once for no known reason.

    To be called once the workload has ended and the cluster is in sync. The details move from the workload's report to
    files in `folder`.
    """
    lines, repeats = work.report.pop("explanations", []), work.report.pop("repeats", {})
    if not repeats:
        return []
    (folder / "producer.log").write_text("\n".join(lines))
    (folder / "repeats.json").write_text(json.dumps(repeats))
    print(f"{sum(map(len, repeats.values()))} records are in the log more than once; details in {folder}")
    log = ProducerLog()
    for line in lines:
        log.emit(logging.makeLogRecord({"msg": line}))
    topic = work.topic
    forgives = Forgiveness({PRODUCER: log}, batches_of(_files(cluster, topic, folder), topic, work.partitions))
    found = [f"no reason to refuse: {line}" for line in log.unfounded]
    for partition, records in repeats.items():
        for number, offsets in records.items():
            place = (topic, int(partition))
            record = Sent(PRODUCER, place, int(number), number, RecordOutcome.ACKNOWLEDGED)
            if not forgives(record, offsets):
                found.append(f"partition {partition}, record {number}: offsets {offsets}")
    return found


def _files(cluster: Cluster, topic: str, folder: Path) -> Path:
    """A folder with the topic's partitions, as one broker has them. Each broker has all partitions."""
    for pod in cluster.pods().values():
        name = pod["metadata"]["name"]
        command = ["kubectl", "exec", name, "-n", cluster.namespace, "--", "sh", "-c", FILES.format(topic=topic)]
        got = subprocess.run(command, capture_output=True, check=False, timeout=300)
        if got.returncode == 0 and got.stdout:
            with tarfile.open(fileobj=io.BytesIO(got.stdout)) as archive:
                members = archive.getmembers()
                archive.extractall(folder, members, filter="data")
            if members:
                return folder / Path(members[0].name).parent.parent
    raise AssertionError(f"no broker has files of {topic}")
