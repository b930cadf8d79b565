"""Brings Apache Kafka from Maven Central into `.peers/<version>/lib` and runs its programs.

    python tools/peers.py install [VERSION ...]       (default: the release that we are compatible with; 3.9.2 is the
                                                       last one with ZooKeeper, which comes with it)
    python tools/peers.py run [--version V] MAIN_CLASS [ARG ...]
    python tools/peers.py suite                       (kafka-python's source with its tests, of the installed version)
    python tools/peers.py connector                   (Spark's own connector to Kafka: the jars that PySpark lacks)
    python tools/peers.py connect                     (Kafka Connect's worker and its connector for files)
    python tools/peers.py lakehouse                   (a Spark with Delta's and Iceberg's own jars: 550 MB)
    python tools/peers.py azurite                     (an emulator of Azure's blob storage; needs npm)
    python tools/peers.py sslyze                      (a scanner of TLS servers, in a virtual environment of its own)

Tests and benchmarks judge by these; nothing of them is part of the product. Another folder: KRAFT_PEER_HOME.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = "4.3.1"
LAST_WITH_ZOOKEEPER = "3.9.2"
LOG4J = {VERSION: ("log4j-core", "log4j-slf4j-impl"), LAST_WITH_ZOOKEEPER: ()}
LOG4J_VERSION = "2.25.3"
MODULES = ("kafka_2.13", "kafka-tools", "kafka-shell", "kafka-streams")
CONNECTOR_VERSION = "4.2.0"
"""The version of spark-sql-kafka-0-10; Maven Central does not have the version for Spark 4.3 yet. This one works
there."""
CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),  # the latest on Maven Central
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""The connector, and its POM's dependencies beyond Spark's own jars."""
CONNECT = tuple(("org.apache.kafka", module, VERSION) for module in ("connect-runtime", "connect-file"))
"""Kafka Connect, which is not among the dependencies of `MODULES`."""
LAKEHOUSE_SPARK = "4.1"
"""The latest Spark that Delta and Iceberg support; on 4.3 neither of them starts."""
LAKEHOUSE = (
    ("io.delta", f"delta-spark_{LAKEHOUSE_SPARK}_2.13", "4.4.0"),
    ("io.delta", "delta-storage", "4.4.0"),
    ("org.apache.iceberg", f"iceberg-spark-runtime-{LAKEHOUSE_SPARK}_2.13", "1.12.0"),
)
AZURITE_VERSION = "3.37.0"
SSLYZE_VERSION = "6.3.1"
COMPLETE = ".complete"
CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAA"
START_S = 120
"""Seconds for an Apache server to start on a busy machine."""


def home() -> Path:
    """The folder with one subfolder per version."""
    return Path(os.environ.get("KRAFT_PEER_HOME", ROOT / ".peers"))


def lib(version: str = VERSION) -> Path:
    """The folder of `version`'s jars; it may not exist."""
    return home() / version / "lib"


def installed(version: str = VERSION) -> bool:
    """Whether a complete set of jars and a Java to run them exist."""
    return _has_all(version) and shutil.which("java") is not None


def _has_all(version: str) -> bool:
    """Whether the jars are the jars of `_wanted`; an earlier release of this program may have left fewer."""
    marker = lib(version) / COMPLETE
    return marker.exists() and marker.read_text() == _names(_wanted(version))


def archive(version: str = VERSION) -> Path:
    """The class data sharing archive, which saves a third of a start; it may not exist."""
    return home() / version / "classes.jsa"


def java_command(main_class: str, *args: str, version: str = VERSION, options: tuple[str, ...] = ()) -> list[str]:
    """The command line that runs the peer's `main_class`; `options` are passed to the JVM."""
    return ["java", *options, "-cp", f"{lib(version)}/*", main_class, *args]


def kafka_python_version() -> str:
    """The version of kafka-python in this environment; "?" if it is missing."""
    try:
        return metadata.version("kafka-python")
    except metadata.PackageNotFoundError:
        return "?"


def kafka_python() -> Path:
    """The folder of kafka-python's unpacked source, with its tests; it may not exist."""
    return home() / f"kafka-python-{kafka_python_version()}"


def kafka_python_installed() -> bool:
    """Whether that source is complete."""
    return (kafka_python() / COMPLETE).exists()


def install_kafka_python() -> None:
    """Download and unpack kafka-python's source if it is missing. Raises CalledProcessError with pip's message."""
    target = kafka_python()
    if kafka_python_installed():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        wanted = f"kafka-python=={kafka_python_version()}"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--no-binary=kafka-python", "--dest", folder, wanted], check=True)
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        (unpacked,) = (path for path in Path(folder).iterdir() if path.is_dir())
        (unpacked / COMPLETE).touch()
        unpacked.rename(target)
    print(f"kafka-python {kafka_python_version()}: source with its tests in {target}")


def connector() -> Path:
    """The folder of the Spark connector's jars; it may not exist."""
    return home() / f"spark-sql-kafka-{CONNECTOR_VERSION}" / "lib"


def connector_installed() -> bool:
    """Whether all connector jars exist."""
    return (connector() / COMPLETE).exists()


def install_connector() -> None:
    """Download the connector's jars if they are missing. Raises CalledProcessError with Maven's message."""
    if connector_installed():
        return
    # Without dependencies: Spark's POMs name their own repositories, and Spark is installed already.
    _download(list(CONNECTOR), connector(), transitive=False)
    print(f"spark-sql-kafka-0-10 {CONNECTOR_VERSION}: {len(CONNECTOR)} jars in {connector()}")


def connect() -> Path:
    """The folder of Kafka Connect's jars; it may not exist."""
    return home() / f"connect-{VERSION}" / "lib"


def connect_installed() -> bool:
    """Whether all jars of Connect exist, and a Java to run them."""
    return (connect() / COMPLETE).exists() and shutil.which("java") is not None


def install_connect() -> None:
    """Download Connect's jars if they are missing. Raises CalledProcessError with Maven's message."""
    if (connect() / COMPLETE).exists():
        return
    _download(list(CONNECT), connect())
    print(f"Kafka Connect {VERSION}: {len(list(connect().glob('*.jar')))} jars in {connect()}")


def lakehouse() -> Path:
    """The folder of a Spark (`python`) and the jars for tables (`lib`); it may not exist."""
    return home() / f"lakehouse-{LAKEHOUSE_SPARK}"


def lakehouse_installed() -> bool:
    """Whether both exist, and a Java to run them."""
    return (lakehouse() / "lib" / COMPLETE).exists() and shutil.which("java") is not None


def install_lakehouse() -> None:
    """Download both if they are missing. Raises CalledProcessError with pip's or Maven's message."""
    if (lakehouse() / "lib" / COMPLETE).exists():
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    subprocess.run([*pip, "--target", str(lakehouse() / "python"), f"pyspark=={LAKEHOUSE_SPARK}.*"], check=True)
    _download(list(LAKEHOUSE), lakehouse() / "lib", transitive=False)
    print(f"Spark {LAKEHOUSE_SPARK} with Delta's and Iceberg's jars in {lakehouse()}")


def _wanted(version: str) -> list[tuple[str, str, str]]:
    wanted = [("org.apache.kafka", module, version) for module in MODULES]
    wanted += [("org.apache.logging.log4j", module, LOG4J_VERSION) for module in LOG4J.get(version, LOG4J[VERSION])]
    if version == LAST_WITH_ZOOKEEPER:
        wanted.append(("org.slf4j", "slf4j-simple", "1.7.36"))
    return wanted


def _names(wanted: list[tuple[str, str, str]]) -> str:
    return "\n".join(":".join(one) for one in wanted)


def _pom(wanted: list[tuple[str, str, str]], *, transitive: bool) -> str:
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{number}</version>"
        f"{'' if transitive else alone}</dependency>"
        for group, artifact, number in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>peers</groupId><artifactId>peers</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def azurite() -> Path:
    """The emulator's main file; it may not exist."""
    return home() / f"azurite-{AZURITE_VERSION}" / "node_modules/azurite/dist/src/blob/main.js"


def azurite_installed() -> bool:
    """Whether it exists, and a Node.js to run it."""
    return azurite().exists() and shutil.which("node") is not None


def install_azurite() -> None:
    """Download it if it is missing. Raises CalledProcessError with npm's message."""
    if azurite().exists():
        return
    target = home() / f"azurite-{AZURITE_VERSION}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        npm = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder]
        subprocess.run([*npm, f"azurite@{AZURITE_VERSION}"], check=True)
        shutil.copytree(folder, target, symlinks=True, dirs_exist_ok=True)
    print(f"Azurite {AZURITE_VERSION} in {target}")


def sslyze() -> Path:
    """The scanner's program; it needs other versions of packages than we."""
    return home() / f"sslyze-{SSLYZE_VERSION}" / "bin/sslyze"


def install_sslyze() -> None:
    """Install it if it is missing. Raises CalledProcessError with pip's message."""
    if sslyze().exists():
        return
    target = sslyze().parents[1]
    subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
    pip = [str(target / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"sslyze=={SSLYZE_VERSION}"], check=True)
    print(f"sslyze {SSLYZE_VERSION} in {target}")


def _download(wanted: list[tuple[str, str, str]], target: Path, *, transitive: bool = True) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pom.xml").write_text(_pom(wanted, transitive=transitive))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        subprocess.run(command, cwd=folder, check=True)
    (target / COMPLETE).write_text(_names(wanted))


def install(version: str) -> None:
    """Download the jars of `version` if they are missing. Raises CalledProcessError with Maven's message."""
    target = lib(version)
    if _has_all(version):
        print(f"Apache Kafka {version}: already in {target}")
    else:
        _download(_wanted(version), target)
        archive(version).unlink(missing_ok=True)  # it is of other jars
        print(f"Apache Kafka {version}: {len(list(target.glob('*.jar')))} jars in {target}")
    if version == VERSION and not archive().exists() and shutil.which("java") is not None:
        _share()


def _share() -> None:
    """Write the class data sharing archive by starting and stopping a server; without it starts are only slower."""
    made = archive().with_suffix(".new")
    with tempfile.TemporaryDirectory() as folder:
        with socket.create_server(("localhost", 0)) as one, socket.create_server(("localhost", 0)) as other:
            port, internal = one.getsockname()[1], other.getsockname()[1]
        config = Path(folder) / "server.properties"
        config.write_text(
            f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:{internal}\n"
            f"listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{internal}\n"
            f"controller.listener.names=CONTROLLER\nlog.dirs={folder}/data\n"
        )
        storage = java_command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
        subprocess.run(storage, check=True, capture_output=True)
        options = ("-XX:+UseSerialGC", f"-XX:ArchiveClassesAtExit={made}")
        command = java_command("kafka.Kafka", str(config), options=options)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            for _ in range(START_S * 5):
                with contextlib.suppress(OSError), socket.create_connection(("localhost", port)):
                    break
                time.sleep(0.2)
            server.terminate()
    if made.exists():
        made.rename(archive())
    print(f"Apache Kafka {VERSION}: {'its classes in' if archive().exists() else 'starts without'} {archive()}")


def main() -> int:
    """The command line; exit code 1 if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    installing = commands.add_parser("install", help="download the jars")
    installing.add_argument("versions", nargs="*", default=[VERSION])
    running = commands.add_parser("run", help="run one of Kafka's main classes")
    running.add_argument("--version", default=VERSION)
    running.add_argument("main_class")
    running.add_argument("args", nargs=argparse.REMAINDER)
    commands.add_parser("suite", help="download kafka-python's source with its integration tests")
    commands.add_parser("connector", help="download Spark's connector to Kafka")
    commands.add_parser("connect", help="download Kafka Connect")
    commands.add_parser("lakehouse", help="download a Spark with Delta and Iceberg")
    commands.add_parser("azurite", help="download an emulator of Azure's blob storage")
    commands.add_parser("sslyze", help="install a scanner of TLS servers")
    options = parser.parse_args()
    if options.command == "sslyze":
        install_sslyze()
        return 0
    if options.command == "suite":
        if kafka_python_version() == "?":
            print("peers: kafka-python is not installed here", file=sys.stderr)
            return 1
        install_kafka_python()
        return 0
    if options.command == "azurite":
        if shutil.which("npm") is None:
            print("peers: npm is not on the PATH", file=sys.stderr)
            return 1
        install_azurite()
        return 0
    by_maven = {"connect": install_connect, "connector": install_connector, "lakehouse": install_lakehouse}
    if options.command in {"install", *by_maven}:
        if shutil.which("mvn") is None:
            print("peers: Maven (mvn) is not on the PATH", file=sys.stderr)
            return 1
        if options.command != "install":
            by_maven[options.command]()
            return 0
        for version in options.versions:
            install(version)
        return 0
    if not installed(options.version):
        print(f"peers: Apache Kafka {options.version} is not in {home()}: run `install` first", file=sys.stderr)
        return 1
    return subprocess.run(
        java_command(options.main_class, *options.args, version=options.version), check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
