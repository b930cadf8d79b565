"""Commits of offsets, which show a group's lag, never wait long."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_protocol.client import groups
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.errors import BrokerError, ClientError


def test_an_unreachable_coordinator_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(cluster: Cluster, group: str) -> Any:
        raise BrokerError(15, f"coordinator of group {group}")

    monkeypatch.setattr(Cluster, "coordinator", away)
    monkeypatch.setattr(groups, "PATIENCE_S", 0.1)
    monkeypatch.setattr(Cluster, "topics", lambda *_: {})
    with (
        Cluster(Settings("a:1", retry_s=600)) as cluster,
        pytest.raises(ClientError, match=r"group g: COORDINATOR_NOT_AVAILABLE \(15\) \(tried for 0.1 s\)"),
    ):
        groups.commit_offsets(cluster, "g", {("t", 0): 1})
