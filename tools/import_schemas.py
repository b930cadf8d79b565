"""Derives `wire/schemas/*.ks` and the type stubs from the JSON schemas inside Apache Kafka's jars.

    python tools/import_schemas.py [JAR_FOLDER]     (default: the peer that `tools/peers.py install` brought)

A new Kafka release is this one command, and a look at the difference. Only facts are taken over: names, numbers, types,
versions, defaults. The notation is described in `kraft_node.wire.schema`.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "node" / "src")]

from tools import peers  # noqa: E402  # found through the line above when run as a script

SCHEMAS = ROOT / "node" / "src" / "kraft_node" / "wire" / "schemas"
API_TYPES = {"request", "response"}
STORED_JARS = (
    "metadata",
    "clients",
    "raft",
    "group-coordinator",
    "transaction-coordinator",
    "share-coordinator",
    "storage",
)
Json = dict[str, Any]


def load(text: str) -> Json:
    """A schema: JSON with // comments."""
    parsed: Json = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return parsed


def read_schemas(folder: Path) -> dict[str, tuple[str, Json]]:
    """Schema name -> (which jar, schema), of all jars of Kafka in `folder`."""
    found: dict[str, tuple[str, Json]] = {}
    for module in STORED_JARS:
        (jar,) = sorted(folder.glob(f"kafka-{module}-[0-9]*.jar"))
        with zipfile.ZipFile(jar) as archive:
            for entry in sorted(archive.namelist()):
                if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", entry):
                    schema = load(archive.read(entry).decode())
                    found[schema["name"]] = (module, schema)
    return found


def notate(module: str, schema: Json) -> str:
    """One message in our notation."""
    kind = schema["type"] if module != "metadata" else "metadata"
    head = [kind, str(schema.get("apiKey", "-")), schema["name"], schema["validVersions"]]
    head += ["flexible", schema.get("flexibleVersions", "none")]
    if "listeners" in schema:
        head += ["listeners", ",".join(schema["listeners"])]
    if schema.get("latestVersionUnstable"):
        head.append("unstable")
    lines = [" ".join(head)]
    for common in schema.get("commonStructs", []):
        lines.append(f"  struct {common['name']} {common.get('versions', '0+')}")
        lines += fields(common["fields"], 2)
    lines += fields(schema.get("fields", []), 1)
    return "\n".join(lines)


def fields(items: list[Json], depth: int) -> list[str]:
    lines = []
    for item in items:
        words = [item["name"], item["type"], item.get("versions", item.get("taggedVersions", "0+"))]
        if "nullableVersions" in item:
            words += ["null", item["nullableVersions"]]
        if "tag" in item:
            words += ["tag", str(item["tag"]), item["taggedVersions"]]
        if "flexibleVersions" in item:
            words += ["flexible", item["flexibleVersions"]]
        if item.get("ignorable"):
            words.append("ignorable")
        if item.get("default") is not None:  # a JSON null is no default; the text "null" is
            words += ["default", json.dumps(item["default"]) if item["default"] == "" else str(item["default"])]
        lines.append("  " * depth + " ".join(words))
        lines += fields(item.get("fields", []), depth + 1)
    return lines


def main() -> int:
    """Write the notation, then the stubs from it."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else peers.lib()
    schemas = read_schemas(folder)
    parts: dict[str, list[str]] = {"messages": [], "stored": []}
    for _, (module, schema) in sorted(schemas.items(), key=lambda kv: (kv[1][1].get("apiKey", -1), kv[0])):
        parts["messages" if schema["type"] in API_TYPES else "stored"].append(notate(module, schema))
    for name, blocks in parts.items():
        (SCHEMAS / f"{name}.ks").write_text("\n\n".join(blocks) + "\n")
        print(f"{name}.ks: {len(blocks)} messages")

    from kraft_node.wire import stubs  # noqa: PLC0415  # reads what was just written

    for name in parts:
        (SCHEMAS.parent / f"{name}.pyi").write_text(stubs.stub(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
