"""`kraft-pipeline executor`: Spark starts it in the pods of `engine.mode: kubernetes`. Not for users.

Spark describes an executor by environment variables (`SPARK_DRIVER_URL`, …, `SPARK_JAVA_OPT_0`, …) and gives its
container the argument `executor`. Java replaces this process.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OPTION: Final = "SPARK_JAVA_OPT_"
ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def add(groups: Any) -> None:
    """Add the parser of the command."""
    parser = groups.add_parser("executor", help="internal: Spark starts it in its pods")
    parser.set_defaults(run=_run)


def command(environment: Mapping[str, str], home: Path) -> list[str]:
    """The command line of Java, for Spark in `home`. Raises KeyError for a missing variable."""
    options = [name for name in environment if name.startswith(OPTION)]
    options.sort(key=lambda name: int(name.removeprefix(OPTION)))
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    java = ["java", *(environment[name] for name in options), f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{home}/jars/*"]
    return [*java, BACKEND, *(word for name, key in ARGUMENTS.items() for word in (name, environment[key]))]


def _run(_: argparse.Namespace) -> int:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SystemExit("kraft-pipeline: PySpark is not installed")
    os.environ.setdefault("SPARK_HOME", str(Path(found.origin).parent))
    words = command(os.environ, Path(os.environ["SPARK_HOME"]))
    os.execvp(words[0], words)  # noqa: S606 - no shell is wanted
