"""A short run of the fuzzer of bytes before authentication; `make fuzz-early` has a million inputs."""

from __future__ import annotations

import logging

import pytest

from tests.fuzz.security import early


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def test_hostile_bytes_before_authentication_are_refused_without_a_trace() -> None:
    outcomes = early.run(6000, seed=20_260)
    assert {"closed", "waits", "alert", "tls waits"} <= outcomes.keys()


def test_the_fuzzer_finds_a_client_that_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_TOKENS", (b"\0ann\0secret",))
    monkeypatch.setattr(early, "_MECHANISMS", ("PLAIN",))
    with pytest.raises(AssertionError, match="was served"):
        early.run(3000, seed=1)
