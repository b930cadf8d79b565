"""The integration tests of confluent-kafka-go (github.com/confluentinc/confluent-kafka-go): librdkafka's consumers,
producers, transactions and its whole admin client, against one node with a plain listener and one with PLAIN.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

from tests.suites.clusters import one_secured
from tests.suites.fetching import go_module, go_test
from tests.suites.results import Results
from tests.suites.securing import PASSWORD, USER

MODULE, VERSION = "github.com/confluentinc/confluent-kafka-go/v2", "v2.11.1"
TIME_OUT_S: Final = 1200
KNOWN: Final = {
    "TestTransactionalProducer": "it expects that Flush(-1) waits; in this client a negative time has already ended",
    "TestParallelConsumerCloses": "of two closes at a time one may find the client closed already, another error",
}
SECONDS, NANOSECONDS = "rand.Seed(time.Now().Unix())", "rand.Seed(time.Now().UnixNano())"
"""Names of topics are drawn by the second, so that two tests of one second get the same."""
COMPOSE: Final = "github.com/testcontainers/testcontainers-go/modules/compose"
MODULES: Final = f"""module {MODULE}

go 1.21

require github.com/stretchr/testify v1.9.0

require {COMPOSE} v0.0.0

replace {COMPOSE} => ./compose
"""
"""What the package needs. The module itself requires hundreds of others, for schema registries and for containers."""
CONTAINERS: Final = """// Package compose stands for the start of containers: the node of these tests runs already.
package compose

type ExecError struct{ Error error }

type LocalDockerCompose struct{}

func NewLocalDockerCompose([]string, string) *LocalDockerCompose { return &LocalDockerCompose{} }

func (d *LocalDockerCompose) WithCommand([]string) *LocalDockerCompose { return d }

func (d *LocalDockerCompose) Invoke() ExecError { return ExecError{} }

func (d *LocalDockerCompose) Down() ExecError { return ExecError{} }
"""
NODE: Final = {
    "num.partitions": "4",
    "broker.rack": "RACK1",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
"""What the suite's own node has."""


def run(server: str, folder: Path, protocol: str = "classic") -> Results:
    """Run the suite, with consumers of the `classic` or the `consumer` protocol."""
    module = go_module(MODULE, VERSION, folder)
    (module / "go.mod").write_text(MODULES)
    (module / "go.sum").unlink()
    (module / "compose").mkdir()
    (module / "compose" / "go.mod").write_text(f"module {COMPOSE}\n")
    (module / "compose" / "compose.go").write_text(CONTAINERS)
    source, program = module / "kafka", folder / "confluent.test"
    helpers = source / "testhelpers_test.go"
    text = helpers.read_text()
    assert text.count(SECONDS) == 1, "the suite's names of topics have changed"
    helpers.write_text(text.replace(SECONDS, NANOSECONDS))
    go_test(source, program, "-mod=mod")
    with one_secured(server, folder, NODE) as (plain, access):
        settings = {
            "Brokers": plain,
            "BrokersSasl": access.in_the_clear,
            "SaslUsername": USER,
            "SaslPassword": PASSWORD,
            "SaslMechanism": "PLAIN",
            "TopicName": "test",
            "GroupID": "testgroup",
        }
        (source / "testconf.json").write_text(json.dumps(settings))
        done = subprocess.run(
            [str(program), "-test.v", f"-test.timeout={TIME_OUT_S}s"],
            env={**os.environ, "TEST_CONSUMER_GROUP_PROTOCOL": protocol},
            cwd=source,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    results = Results().read_go(done.stdout, methods=True)
    if "panic: " in done.stdout:
        results.failed["the program"] = done.stdout[-2000:]
    return results
