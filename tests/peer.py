"""Foreign programs that tests need. Without the program its test is skipped; in CI, where all are installed, it fails.

`tests/conftest.py` summarizes the skips in the last line of a run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from tools import peers

CI = bool(os.environ.get("CI"))
QUICK_JVM = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"),
    *(f"-XX:SharedArchiveFile={peers.archive()}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"),
)
"""Short programs start faster without the optimising compiler, and with classes from an archive, if it is there."""
OTHER_JVM = QUICK_JVM[:2]
"""For the jars of another release, which have no archive."""
PROGRAMS = Path(__file__).parent / "java"
OTHER_JARS = ("IcebergRestServer.java",)
"""Programs that need other jars than Apache Kafka's."""

IS_MISSING = " is missing: "
"""Stands between the name and the remedy in the reason of each skip."""


def missing(what: str, how: str) -> NoReturn:
    """Skip the test because `what` is missing; fail it in CI. `how` tells a person how to install it."""
    reason = f"{what}{IS_MISSING}{how}"
    if CI:
        pytest.fail(reason)
    pytest.skip(reason)


def require_peer(version: str = peers.VERSION) -> Path:
    """The folder of the jars of Apache Kafka `version`."""
    if not peers.installed(version):
        missing(f"Apache Kafka {version}", "run `make peers` (needs Java and Maven)")
    return peers.lib(version)


def require_program(name: str) -> str:
    """The path of a program such as kcat or javac."""
    found = shutil.which(name)
    if found is None:
        missing(name, "install it from your system's packages")
    return found


def java_program(source: Path) -> tuple[str, str]:
    """The folder of the classes of a program in `tests/java`, and its main class.

    `java FILE.java` would compile the file at each start, which takes six times as long as the start.
    """
    jars = require_peer()
    return str(_compiled(jars)), source.stem


@cache
def _compiled(jars: Path) -> Path:
    """The folder with all classes of `tests/java`. Its name depends on the sources, and the first process compiles."""
    sources = sorted(path for path in PROGRAMS.glob("*.java") if path.name not in OTHER_JARS)
    digest = hashlib.sha256(b"".join([str(jars).encode(), *(path.read_bytes() for path in sources)])).hexdigest()
    target = peers.ROOT / "build" / "test-programs" / digest[:16]
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            made = target.with_suffix(".new")
            shutil.rmtree(made, ignore_errors=True)
            options = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-proc:none", "-nowarn"]
            command = [require_program("javac"), *options, "-d", str(made), "-cp", f"{jars}/*", *map(str, sources)]
            subprocess.run(command, check=True, capture_output=True)
            made.rename(target)
    return target


def run_java(
    main_class: str,
    *args: str,
    stdin: bytes | None = None,
    timeout_s: float = 120,
    classpath: tuple[Path, ...] = (),
    check: bool = True,
    version: str = peers.VERSION,
) -> subprocess.CompletedProcess[bytes]:
    """Run a main class (or a .java source file) with the jars of the peer of `version`; output captured."""
    jars = require_peer(version)
    if main_class.endswith(".java") and version == peers.VERSION:
        folder, main_class = java_program(Path(main_class))
        classpath = (*classpath, Path(folder))
    path = ":".join([f"{jars}/*", *map(str, classpath)])
    options = QUICK_JVM if version == peers.VERSION else OTHER_JVM
    command = ["java", *options, "-cp", path, main_class, *args]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    if check and done.returncode != 0:
        raise AssertionError(
            f"{main_class} {' '.join(args)}: exit {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}"
        )
    return done


SHELL_TRIES = 5
SHELL_TIMEOUT_S = 40.0


def run_metadata_shell(*args: str, is_whole: Callable[[str], bool]) -> str:
    """The output of Apache Kafka's metadata shell. It runs again until the output is `is_whole`, or for the last time.

    On a busy machine the shell may run the command before it has loaded the snapshot, as if it were empty, or never
    end.
    """
    out = ""
    for left in reversed(range(SHELL_TRIES)):
        try:
            out = run_java("org.apache.kafka.shell.MetadataShell", *args, timeout_s=SHELL_TIMEOUT_S).stdout.decode()
        except subprocess.TimeoutExpired:
            if not left:
                raise
        if is_whole(out):
            break
    return out


@pytest.fixture(scope="session")
def peer() -> Path:
    """The folder of Apache Kafka's jars."""
    return require_peer()
