"""Runs each test alone: in its own process, forked after the collection and before the first test.

`python -m pytest -p tests.alone …`, or `make test-alone`. A test sees nothing in memory that another test left. Every
fixture is made anew for each test, also fixtures of modules and of the session.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports(item: pytest.Item) -> list[pytest.TestReport]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run(item, writing)
    os.close(writing)
    status = None
    try:
        with open(reading, "rb") as pipe:
            reported = pipe.read()
        status = os.waitpid(child, 0)[1]
    except BaseException as e:  # pytest-timeout raises here
        return [_failed(item, f"{type(e).__name__}: {e}")]
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if not reported:
        return [_failed(item, f"the process of the test ended with status {status}")]
    hook = item.config.hook
    return [hook.pytest_report_from_serializable(config=item.config, data=data) for data in json.loads(reported)]


def _run(item: pytest.Item, writing: int) -> NoReturn:
    reported: list[Any] = []
    with suppress(BaseException):
        hook = item.config.hook
        reports = runtestprotocol(item, log=False, nextitem=None)
        reported = [hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
    with suppress(BaseException), open(writing, "w") as pipe:
        json.dump(reported, pipe, default=str)
    os._exit(0)


def _failed(item: pytest.Item, text: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
