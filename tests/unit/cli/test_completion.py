"""The Tab key at the prompt of `kafka-metadata-shell`."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.cli import metadata_shell
from kraft_node.cli.metadata_shell import Shell
from kraft_node.metadata.image import MetadataImage


@pytest.mark.parametrize(
    ("about", "binding"), [("GNU readline", "tab: complete"), ("Uses libedit readline.", "bind ^I rl_complete")]
)
def test_the_tab_key_completes_with_either_library(monkeypatch: pytest.MonkeyPatch, about: str, binding: str) -> None:
    """Python on macOS has libedit, which ignores a binding in the form of GNU readline."""
    source: Any = SimpleNamespace(image=MetadataImage())
    shell = Shell(source, print, interactive=True)
    library: Any = SimpleNamespace(__doc__=about, bindings=[])
    library.parse_and_bind = library.bindings.append
    library.set_completer_delims = lambda _: None
    library.set_completer = lambda function: setattr(library, "completer", function)
    library.get_line_buffer, library.get_begidx = lambda: "ls im", lambda: 3
    monkeypatch.setitem(sys.modules, "readline", library)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shell, "talk", lambda _: None)
    metadata_shell._interact(shell)
    assert library.bindings == [binding]
    assert [library.completer("im", state) for state in (0, 1)] == ["image/", None]
