"""What the node reads of its configuration for its directories."""

from __future__ import annotations

import pytest

from kraft_node.log.manager.timing import STRAY_DELAY_MS
from tests.kip.cluster import Cluster


@pytest.mark.parametrize(("text", "delay_ms"), [("", STRAY_DELAY_MS), ("-1", -1), ("5000", 5_000)])
def test_the_delay_of_strays_is_configured(text: str, delay_ms: int) -> None:
    cluster = Cluster(combined=1, overrides={"stray.log.delete.delay.ms": text})
    assert cluster.node("k1").storage.logs.timing.stray_delay_ms == delay_ms


def test_a_wrong_delay_refuses_the_start() -> None:
    cluster = Cluster(combined=1, overrides={"stray.log.delete.delay.ms": "soon"}, start=False)
    cluster["k1"].start()
    cluster.until(lambda: cluster["k1"].broken is not None)
    assert cluster["k1"].broken == (
        "start refused: stray.log.delete.delay.ms must be milliseconds, or -1 for never, not 'soon'"
    )
