"""Log lines of the operator: in the nodes' format, or as one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any


class TextFormatter(logging.Formatter):
    """Time, level, logger, message."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """The line, followed by the lines of an exception's trace. Times are UTC with milliseconds."""
        seconds = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        name = record.name.removeprefix("kraft_operator.")
        text = f"{seconds}.{int(record.msecs):03d}Z {record.levelname:<5} {name} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(TextFormatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON: time, level, logger, message, and the trace of an exception."""
        fields: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name.removeprefix("kraft_operator."),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure(level: str, *, as_json: bool) -> None:
    """Log to standard output. kopf and its probes log from WARNING on only."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in ("kopf", "aiohttp.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
