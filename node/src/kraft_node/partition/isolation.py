"""The isolation of a read: how far into the log it may see (Kafka's FetchIsolation)."""

from __future__ import annotations

from typing import Final

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
READ_LOG_END: Final = 2
