"""kafka-go's own tests (github.com/segmentio/kafka-go): a client in Go with a protocol of its own, against one node
with a plain listener and one for SASL.

The addresses localhost:9092 and localhost:9093 are in the sources, and the suite gets free ports there instead. The
suite's `getOffsets` calls a function that it never sets; three tests use it, so the copy sets it.

Three tests failed once on a busy machine and have not run against Apache Kafka yet, so they are not in `KNOWN`:
`TestRebalanceTooManyConsumers` and `TestConsumerGroupWithTopic` (each within 10 s, on a topic that the reader creates),
and `consumer_group_rebalance` (it expects equal shares of three partitions).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kraft_protocol.sasl.jaas import written
from kraft_protocol.sasl.properties import MODULES
from tests.compat.members import PROGRAMS
from tests.compat.security.secured import STANDARD_AUTHORIZER
from tests.compat.targets import Target, free_ports
from tests.suites.fetching import go_module, go_test
from tests.suites.results import Results

MODULE, VERSION = "github.com/segmentio/kafka-go", "v0.4.51"
PACKAGES: Final = ("", "compress", "sasl")
"""The packages whose tests need a server."""
TIME_OUT_S: Final = 900
USERS: Final = {
    "SCRAM-SHA-256": ("adminscram256", "admin-secret-256"),
    "SCRAM-SHA-512": ("adminscram512", "admin-secret-512"),
}
PLAIN: Final = {"username": "adminplain", "password": "admin-secret", "user_adminplain": "admin-secret"}
LARGEST_BYTES: Final = 200_000_000
ASKS: Final = "\tconn, err := cg.coordinator()\n\tif err != nil {\n\t\tt.Errorf("
COMPLETE: Final = """\tcg.config.Topics = []string{config.Topic}
	if err := cg.config.Validate(); err != nil {
		t.Fatal(err)
	}
"""
KNOWN: Final[dict[str, str]] = {
    "TestReaderReadCompactedMessage": "it asks for segments below 1 MiB, which Kafka 4 forbids, too",
}


def run(server: str, folder: Path) -> Results:
    """Build and run the suite."""
    source = go_module(MODULE, VERSION, folder)
    port, sasl_port = free_ports(2)
    _rewrite(source, {"9092": str(port), "9093": str(sasl_port)})
    programs = {name: folder / f"{name or 'kafka'}.test" for name in PACKAGES}
    for name, program in programs.items():
        go_test(source / name, program, "-mod=mod")  # its go.mod is not tidy
    results = Results()
    with _node(server, folder / "server", port, sasl_port):
        for name, program in programs.items():
            done = subprocess.run(
                [str(program), "-test.v", f"-test.timeout={TIME_OUT_S}s"],
                env={**os.environ, "KAFKA_VERSION": "4.3.1", "KAFKA_SKIP_NETTEST": "1"},
                cwd=source / name,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            results.read_go(done.stdout, methods=True)
            if "panic: " in done.stdout + done.stderr or (done.returncode and not results.failed):
                results.failed[f"the program {program.name}"] = (done.stdout + done.stderr)[-2000:]
    return results


def _rewrite(source: Path, ports: dict[str, str]) -> None:
    """Replace the ports in the packages that connect, and complete the configuration of `getOffsets`."""
    for name in PACKAGES:
        for path in (source / name).glob("*.go"):
            text = path.read_text()
            path.write_text(re.sub(r"\b909[23]\b", lambda found: ports[found[0]], text))
    path = source / "reader_test.go"
    text = path.read_text()
    assert text.count(ASKS) == 1, "the suite's getOffsets has changed"
    path.write_text(text.replace(ASKS, COMPLETE + ASKS))


@contextmanager
def _node(server: str, folder: Path, port: int, sasl_port: int) -> Iterator[None]:
    """One combined node at these ports, which it advertises as ports of localhost, as the suite expects."""
    (controller_port,) = free_ports(1)
    own, secure = f"PLAINTEXT://127.0.0.1:{port}", f"SASL://127.0.0.1:{sasl_port}"
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"{own},{secure},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://localhost:{port},SASL://localhost:{sasl_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "auto.create.topics.enable": "true",
        "message.max.bytes": str(LARGEST_BYTES),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl.sasl.enabled.mechanisms": ",".join(["PLAIN", *USERS]),
        "listener.name.sasl.plain.sasl.jaas.config": written(MODULES["PLAIN"], PLAIN),
        **{f"listener.name.sasl.{name.lower()}.sasl.jaas.config": written(MODULES[name], {}) for name in USERS},
    }
    words = [
        word
        for mechanism, (name, password) in USERS.items()
        for word in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]
    node: Target = PROGRAMS[server](
        server, folder, values, port, controller_port, is_lone=False, format_options=tuple(words)
    )
    try:
        node.start()
        yield
    finally:
        node.kill()
