"""The cost of an idle partition: memory and restart of one node with many partitions, without the comparison.

`python -m bench.measurements.idle_partitions [PARTITIONS]` runs the scenario `partitions-100k` on this node alone, by
default with 20,000 partitions, and prints its figures. Compare two commits by turns on the same machine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final, TypeVar

from bench.runs.row import Step
from bench.scenarios.partitions import PARTITIONS, partitions
from bench.servers.server import SERVERS

T = TypeVar("T")

DEFAULT: Final = 20_000
FULL_TOPICS: Final = 1000
"""The scenario's size for a measurement."""


class Fewer(Step):
    """The scenario's step with another number of topics."""

    topics = 0

    def size(self, full: T, quick: T) -> T:
        """`topics` in place of the scenario's number of topics; any other size as the scenario has it."""
        return type(full)(self.topics) if full == FULL_TOPICS else super().size(full, quick)


def main(count: int) -> None:
    """Measure a node with `count` partitions."""
    with tempfile.TemporaryDirectory() as folder:
        step = Fewer(SERVERS["ours"], Path(folder) / "node", quick=False)
        object.__setattr__(step, "topics", max(1, count // PARTITIONS))
        for name, figure in partitions(step).figures.items():
            print(f"{figure:10.3f}  {name.partition(': ')[2]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
