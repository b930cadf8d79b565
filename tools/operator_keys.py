"""Write the operator's copy of the node's configuration keys: `python -m tools.operator_keys`.

The operator does not import the node. It keeps name, type and constraint of each key, so that it can report an error in
`spec.config` before it restarts anything. A test compares the copy with the node's tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kraft_node.base.config import tables
from kraft_node.base.config.node import LISTENER_PREFIX, OWN_DEFAULTS, PLUGIN_KEYS

FILE: Final = Path(__file__).parents[1] / "operator/src/kraft_operator/specs/config_keys.py"
HEADER: Final = '''\
"""Configuration keys of nodes and topics: name, type, constraint. Written by `python -m tools.operator_keys`.

Constraints are in the notation of the node's tables; `specs.config_check` reads them.
"""

from __future__ import annotations

from typing import Final

'''


def rows(*parts: str) -> str:
    """Name, type and constraint, sorted by name; `listn:` and similar notation is kept."""
    found = {line.split(" ")[0]: line.split(" ") for part in parts for line in part.splitlines()}
    return "".join(f"{name} {words[1]} {words[3]}\n" for name, words in sorted(found.items()))


def module() -> str:
    """The text of the generated module."""
    own = "".join(f"{name} string ~ - l\n" for name in sorted({*OWN_DEFAULTS, *PLUGIN_KEYS}))
    broker = rows(tables.BROKER, tables.BROKER_DYNAMIC_ONLY, own)
    text = HEADER + f'LISTENER_PREFIX: Final = "{LISTENER_PREFIX}"\n"""Prefix of keys for a single listener."""\n\n'
    text += f'BROKER: Final = """\\\n{broker}"""\n\nTOPIC: Final = """\\\n{rows(tables.TOPIC)}"""\n'
    return text


if __name__ == "__main__":
    FILE.write_text(module())
