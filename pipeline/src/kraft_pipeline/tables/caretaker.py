"""Maintenance of a running table as a job of its own: in a thread beside the batches, one pass at a time.

On Spark the jobs of a pass are in a scheduler pool of their own, so that they share the cores with batches. A pass and
a batch commit one after the other (`gate`): a merge by key is never done in vain because of a compaction.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.committer import ConflictError
from kraft_pipeline.tables.engine import Engine
from kraft_pipeline.tables.spec import TableSpec

_LOG: Final = logging.getLogger(__name__)


class Caretaker:
    """Looks after the table of a run. `failures` and `error` are of the passes so far, and of the last one."""

    def __init__(self, spec: TableSpec, engine: Engine, wait: Callable[[str], None]) -> None:
        """`wait` is told of a pass that failed."""
        self._spec, self._engine, self._wait = spec, engine, wait
        self._last, self._is_over = time.monotonic(), False
        self._thread: threading.Thread | None = None
        self.gate = threading.Lock()
        """Held while a batch or a merged file is committed."""
        self.failures = 0
        self.error: str | None = None

    def look(self) -> None:
        """Begin a pass if `maintenance.every` has passed and none is under way."""
        if self._thread is not None and self._thread.is_alive():
            return
        if 0 < self._spec.care_every_s <= time.monotonic() - self._last:
            self._is_over = False
            self._thread = threading.Thread(target=self._pass, name="maintenance", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Wait for the step that is under way; the rest of the pass is left out."""
        self._is_over = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _pass(self) -> None:
        try:
            with self._engine.beside():
                done = maintenance.care(self._spec, self._engine, self.gate, lambda: self._is_over)
            self.error = None
        except ConflictError as e:  # another process looks after the table
            self.error, done = None, str(e)
        except Exception as e:  # batches need none of it; the next pass tries again
            _LOG.warning("maintenance failed: %s", e, exc_info=True)
            self.error = f"{e}" or type(e).__name__
            self.failures += 1
            self._wait(f"maintenance failed, batches go on: {e}")
            return
        finally:
            self._last = time.monotonic()
        if done:
            _LOG.info("maintenance: %s", done)
