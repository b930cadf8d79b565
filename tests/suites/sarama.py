"""sarama's functional tests (github.com/IBM/sarama): five brokers behind toxiproxy, which the tests cut and stop.

Tests that run programs inside containers skip themselves or fail.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.suites.clusters import PROXY_API, PROXY_PORT, five_proxied
from tests.suites.fetching import go_module, go_program, go_test
from tests.suites.results import Results
from tests.suites.securing import PASSWORD, USER

MODULE, VERSION = "github.com/IBM/sarama", "v1.61.1"
TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
TIME_OUT_S: Final = 1200
KNOWN: Final[dict[str, str]] = {}
KNOWN_SECURED: Final = {
    "TestFuncProducingNoResponse": "it counts responses, and SASL adds two to each connection (6 for 2, 3 for 1)"
}


SECURED: Final = """//go:build functional

package sarama

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// withSecurity makes every client of the functional tests use SASL over TLS.
func withSecurity(config *Config) *Config {
	pem, err := os.ReadFile(os.Getenv("SUITE_AUTHORITY"))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		panic("no certificate of an authority")
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = SASLTypePlaintext
	config.Net.SASL.User = os.Getenv("SUITE_USER")
	config.Net.SASL.Password = os.Getenv("SUITE_PASSWORD")
	return config
}
"""
OPTIONS: Final = "func NewFunctionalTestConfig() *Config {\n\tconfig := NewConfig()\n"


def run(server: str, folder: Path, *, secured: bool = False) -> Results:
    """Run the suite. `secured`: with PLAIN over TLS; sarama itself has no SCRAM."""
    source = go_module(MODULE, VERSION, folder)
    if secured:
        (source / "secured_functional_test.go").write_text(SECURED)
        path = source / "functional_test.go"
        text = path.read_text()
        assert text.count(OPTIONS) == 1, "the suite's options of clients have changed"
        path.write_text(text.replace(OPTIONS, OPTIONS + "\twithSecurity(config)\n"))
    for path in source.glob("*_test.go"):
        text = path.read_text()
        if "29090+i" in text:  # the ports may be in use
            path.write_text(text.replace("29090+i", f"{PROXY_PORT}+i"))
    program = folder / "sarama.test"
    go_test(source, program, "-tags", "functional")
    go_program(TOXIPROXY, folder)
    with five_proxied(server, folder, folder / "server", secured=secured) as shim:
        settings = {
            "TOXIPROXY_ADDR": PROXY_API,
            "KAFKA_VERSION": "4.3.1",
            "PATH": f"{shim}:{os.environ['PATH']}",
            "SUITE_AUTHORITY": str(folder / "certificates" / "authority.pem"),
            "SUITE_USER": USER,
            "SUITE_PASSWORD": PASSWORD,
        }
        done = subprocess.run(
            [str(program), "-test.v", "-test.run", "^TestFunc", f"-test.timeout={TIME_OUT_S}s"],
            env={**os.environ, **settings},
            cwd=source,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    results = Results().read_go(done.stdout)
    if "panic: " in done.stdout:
        results.failed["the program"] = done.stdout[-2000:]
    return results
