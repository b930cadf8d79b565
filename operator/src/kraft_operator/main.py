"""The operator as a process: `python -m kraft_operator`, with settings from its environment (`settings`).

SIGTERM stops it: the current steps end, the Lease is released, and the exit code is 0. If the Lease is lost or an error
needs a restart, the exit code is 1. If the environment is invalid, the exit code is 2.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys

import kopf

from kraft_operator import loglines
from kraft_operator.handlers import register
from kraft_operator.leader import Operator
from kraft_operator.settings import Settings


async def run(settings: Settings) -> int:
    """Run the operator until a signal or a failure. Returns the exit code."""
    operator, registry = Operator(settings), kopf.OperatorRegistry()
    register(registry, operator, settings)
    await kopf.operator(
        registry=registry,
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=settings.health_endpoint if settings.health_port else None,
    )
    return 1 if operator.failed else 0


def main() -> int:
    """Run the process. Returns the exit code."""
    try:
        settings = Settings.of(os.environ)
    except ValueError as error:
        print(f"kraft-operator: {error}", file=sys.stderr)  # noqa: T201
        return 2
    loglines.configure(settings.level, as_json=settings.as_json)
    gc.freeze()
    return asyncio.run(run(settings))
