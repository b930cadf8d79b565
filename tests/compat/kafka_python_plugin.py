"""A pytest plugin for a pytest of its own: it lets kafka-python's integration suite run from its source distribution.

The distribution leaves out `test/__init__.py`, without which the standard library's `test` is found first, and
`test/service.py`, of which a run against an outside broker needs one name only. Loaded with `-p` by
`test_kafka_python_suite.py`; outcomes go as JSON lines to the file of the environment variable OUTCOMES.
"""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path

import pytest

REPORT = Path(os.environ["OUTCOMES"])

package = types.ModuleType("test")
package.__path__ = [str(Path.cwd() / "test")]
sys.modules["test"] = package


class ExternalService:
    """A broker that somebody else starts and stops."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def stop(self) -> None:
        """Not ours to stop."""


service = types.ModuleType("test.service")
service.ExternalService = service.SpawnedService = ExternalService  # type: ignore[attr-defined]
sys.modules["test.service"] = service


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One line a test that ended, and one more where its clean-up failed."""
    if report.when == "call" or not report.passed:
        line = {"id": report.nodeid, "outcome": report.outcome, "text": report.longreprtext[-4000:]}
        with REPORT.open("a") as out:
            out.write(json.dumps(line) + "\n")
