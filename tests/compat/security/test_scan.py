"""A scanner of TLS servers finds no weak protocol, cipher suite or known fault with the defaults of a listener."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.certificates import Authority
from tests.compat.security.secured import lone
from tests.peer import missing
from tools import peers

CLIENT = "sslyze"
SCANS = (
    "sslv2", "sslv3", "tlsv1", "tlsv1_1", "tlsv1_2", "tlsv1_3", "heartbleed", "openssl_ccs", "compression",
    "reneg", "robot", "elliptic_curves",
)  # fmt: skip
WEAK = ("ssl_2_0_cipher_suites", "ssl_3_0_cipher_suites", "tls_1_0_cipher_suites", "tls_1_1_cipher_suites")


def test_sslyze_finds_nothing_weak_by_default(tmp_path: Path) -> None:
    sslyze = peers.sslyze()
    if not sslyze.exists():
        missing("sslyze", "run `make peers`")
    authority = Authority(tmp_path / "certificates")
    overrides = {
        **authority.issue("CN=node,O=Example").stores(),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    server = lone("kraftcluster", tmp_path / "node", ["PLAIN"], overrides)
    server.target.start()
    try:
        report = tmp_path / "report.json"
        scans = [f"--{name}" for name in SCANS]
        command = [str(sslyze), *scans, "--mozilla_config", "disable", "--json_out", str(report), server.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert report.exists(), done.stdout + done.stderr
    finally:
        server.target.stop()
    (scan,) = json.loads(report.read_text())["server_scan_results"]
    assert scan["connectivity_status"] == "COMPLETED", scan

    def found(name: str) -> Any:
        row = scan["scan_result"][name]
        assert row["status"] == "COMPLETED", (name, row)
        return row["result"]

    def suites(name: str) -> set[str]:
        return {row["cipher_suite"]["name"] for row in found(name)["accepted_cipher_suites"]}

    for name in WEAK:
        assert suites(name) == set(), name
    assert suites("tls_1_3_cipher_suites") == {
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_GCM_SHA256",
    }
    older = suites("tls_1_2_cipher_suites")
    assert older and all(
        name.startswith("TLS_ECDHE_ECDSA_WITH_") and ("GCM" in name or "CHACHA20" in name) for name in older
    )
    assert not found("heartbleed")["is_vulnerable_to_heartbleed"]
    assert not found("openssl_ccs_injection")["is_vulnerable_to_ccs_injection"]
    assert not found("tls_compression")["supports_compression"]
    assert not found("session_renegotiation")["is_vulnerable_to_client_renegotiation_dos"]
    assert found("robot")["robot_result"].startswith("NOT_VULNERABLE")
    curves = {curve["name"] for curve in found("elliptic_curves")["supported_curves"] or ()}
    assert curves and not {name for name in curves if "160" in name or "192" in name or "t163" in name}
