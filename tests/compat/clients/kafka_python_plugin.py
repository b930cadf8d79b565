"""A pytest plugin that runs kafka-python's integration suite from its source distribution, in a pytest of its own.

The distribution lacks two files. Without `test/__init__.py` Python finds the standard library's `test` first. Of
`test/service.py` a run against an outside broker needs one name only. `test_kafka_python_suite.py` loads the plugin
with `-p`. Outcomes go as JSON lines to the file that the environment variable OUTCOMES names.
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
    """A broker that is started and stopped elsewhere."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def stop(self) -> None:
        """Does nothing: the broker is stopped elsewhere."""


service = types.ModuleType("test.service")
service.ExternalService = service.SpawnedService = ExternalService  # type: ignore[attr-defined]
sys.modules["test.service"] = service


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write a line for each test that ended, and another if its clean-up failed."""
    if report.when == "call" or not report.passed:
        line = {"id": report.nodeid, "outcome": report.outcome, "text": report.longreprtext[-4000:]}
        with REPORT.open("a") as out:
            out.write(json.dumps(line) + "\n")
