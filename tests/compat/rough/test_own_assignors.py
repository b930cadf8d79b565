"""Assignors of the operator's own choice on a real node: the one of the guide, and one that never returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_protocol.wire.messages import ApiVersionsRequest
from tests.compat.clients.test_consumer_groups import Member, create, members, until
from tests.compat.matrix import OURS
from tests.compat.targets import Target
from tests.golden.broker.pair import Side

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "own-assignor.md"
ENDLESS = """
import pathlib

class Endless:
    name = "endless"

    def assign(self, members, topics):
        pathlib.Path(__file__).with_suffix(".runs").touch()
        while True:
            pass
"""
TOPIC = "own"


@pytest.fixture
def node(make_target: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A node with the assignor of the guide and one that never returns."""
    example = GUIDE.read_text().partition("```python\n")[2].partition("```")[0]
    (tmp_path / "my_assignors.py").write_text(example + ENDLESS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    own = "my_assignors:ByRack,my_assignors:Endless"
    target = make_target(OURS, **{"group.consumer.assignors": f"uniform,{own}", "broker.rack": "r1"}).start()
    create(target, 4, TOPIC)
    return target


def test_members_of_a_rack_get_its_partitions(node: Target) -> None:
    own = {"group.remote.assignor": "by-rack"}
    whole = {(TOPIC, number) for number in range(4)}
    with members(node, "racks", [TOPIC], {**own, "client.rack": "r2"}) as (far,):
        until(lambda: far.assigned == whole, far)
        near = Member(node, "racks", [TOPIC], **own, **{"client.rack": "r1"})
        try:
            until(lambda: near.assigned == whole and not far.assigned, far, near)
        finally:
            near.consumer.close()
        until(lambda: far.assigned == whole, far)


def test_an_assignor_without_end_does_not_stop_the_node(node: Target, tmp_path: Path) -> None:
    endless = {"group.remote.assignor": "endless"}
    with members(node, "stuck", [TOPIC], endless) as (stuck,), members(node, "good", [TOPIC], {}) as (good,):
        until((tmp_path / "my_assignors.runs").exists, stuck, good)
        until(lambda: len(good.assigned) == 4, stuck, good)
        assert stuck.assigned == set()
        side = Side("ours", node)
        for _ in range(20):
            assert side.ask(ApiVersionsRequest("parity", "1"), 3).error_code == 0
        side.close()
    assert node.stop() == 0
