"""The state that a stopping operator leaves to the next leader."""

from __future__ import annotations

import pytest

from kraft_operator.kube.client import ApiError
from tests.unit.operator.pipelines.test_pipelines import World


def test_a_stopping_operator_starts_no_write_of_a_pipeline() -> None:
    """A whole pass began or continued, and wrote when the next leader might already work."""
    world = World("KafkaTable")
    writes: list[str] = []

    def refuse(verb: str, kind: str, _: str) -> None:
        writes.append(f"{verb} {kind}")
        world.pipelines.stop()

    world.api.before = refuse
    with pytest.raises(ApiError, match="stops"):
        world.run()
    assert writes == ["apply ConfigMap"], "the write at hand ends"
    assert world.run() is not None
    assert writes == ["apply ConfigMap"]
