"""Lag of a streaming query by its progress, in the metrics of Spark's own `kafka` source.

PySpark's data sources cannot add metrics to a progress. They report the latest offset, which is enough:

    print(behind_latest(query.lastProgress))
"""

from __future__ import annotations

import json
from typing import Any

from kraft_pipeline.sources.positions import Position


def behind_latest(progress: Any) -> list[dict[str, float]]:
    """`minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest` of each `kraft` source.

    Takes a `StreamingQueryProgress` or its JSON. A source is left out if its progress has no latest offset.
    """
    if progress is None:
        return []
    if not isinstance(progress, dict):
        progress = json.loads(progress if isinstance(progress, str) else progress.json)
    return [lag for lag in map(_of_source, progress.get("sources", ())) if lag]


def _of_source(source: dict[str, Any]) -> dict[str, float]:
    try:
        end, latest = (Position.from_json(source[name]) for name in ("endOffset", "latestOffset"))
    except (KeyError, TypeError, ValueError):  # another source's, or none yet
        return {}
    lags = [max(0, offset - end.offsets.get(key, 0)) for key, offset in latest.offsets.items()]
    if not lags:
        return {}
    return {
        "minOffsetsBehindLatest": min(lags),
        "maxOffsetsBehindLatest": max(lags),
        "avgOffsetsBehindLatest": sum(lags) / len(lags),
    }
