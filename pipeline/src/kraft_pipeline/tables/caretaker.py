"""Maintenance of a running table, in a thread beside the batches, one pass at a time.

On Spark the jobs of a pass use a scheduler pool of their own, so they share the cores with batches. A lock (`gate`)
serializes commits of a pass and of batches, so a compaction never invalidates a merge by key.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.engines.engine import Engine
from kraft_pipeline.tables.errors import ConflictError, panics_explained
from kraft_pipeline.tables.specs.table_spec import TableSpec
from kraft_pipeline.tables.stores.intents import Work

_LOG: Final = logging.getLogger(__name__)


class Caretaker:
    """Maintains the table of a run. `failures` counts failed passes; `error` is the last pass's error, or None."""

    def __init__(self, spec: TableSpec, engine: Engine, wait: Callable[[str], None]) -> None:
        """`wait` receives a message if a pass fails."""
        self._spec, self._engine, self._wait = spec, engine, wait
        self._last, self._is_over = time.monotonic(), False
        self._thread: threading.Thread | None = None
        self._ended: list[tuple[float, Work, frozenset[str]]] = []
        """Merges whose tasks have ended, but may still have attempts that run: when, and the files that stay."""
        self.gate = threading.Lock()
        """Held while a batch or a merged file is committed."""
        self.failures = 0
        self.error: str | None = None

    def look(self) -> None:
        """Start a pass if `maintenance.every` has passed and no pass is running."""
        if self._thread is not None and self._thread.is_alive():
            return
        if 0 < self._spec.care_every_s <= time.monotonic() - self._last:
            self._is_over = False
            self._thread = threading.Thread(target=self._pass, name="maintenance", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Wait for the current step and cancel the rest of the pass."""
        self._is_over = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def settle_late(self, patience_s: float) -> None:
        """Remove files that attempts of tasks have written after their merge. Records go after `patience_s` seconds."""
        now = time.monotonic()
        for one in list(self._ended):
            at, work, kept = one
            work.settle(kept.copy, forget=now - at >= patience_s)
            if now - at >= patience_s:
                self._ended.remove(one)

    def _settle(self, work: Work, kept: Collection[str]) -> None:
        there = frozenset(kept)
        if self._engine.outlives:
            self._ended.append((time.monotonic(), work, there))
        work.settle(there.copy, forget=not self._engine.outlives)

    def _pass(self) -> None:
        try:
            with panics_explained(), self._engine.beside():
                done = maintenance.care(self._spec, self._engine, self.gate, lambda: self._is_over, self._settle)
            self.error = None
        except ConflictError as e:  # another process maintains the table
            self.error, done = None, str(e)
        except Exception as e:  # batches do not need maintenance, and the next pass retries
            _LOG.warning("maintenance failed: %s", e, exc_info=True)
            self.error = f"{e}" or type(e).__name__
            self.failures += 1
            self._wait(f"maintenance failed, batches continue: {e}")
            return
        finally:
            self._last = time.monotonic()
        if done:
            _LOG.info("maintenance: %s", done)
