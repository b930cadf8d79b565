"""Derives `wire/schemas/` and the type stubs from the JSON schemas inside Apache Kafka's jars.

    python tools/import_schemas.py [--version V | --jars FOLDER] [--out FOLDER]

For a new Kafka release, run this command with its version and look at the difference. Maven fetches the jars. Default:
the release that we are compatible with. Only facts are taken over: names, numbers, types, versions, defaults. The APIs
by which a controller steers brokers of ZooKeeper clusters come from the last release that has them (`STEERING`).
`kraft_protocol.wire.schema` describes the notation. Each API and each family of stored records (named by the jar) has
a file. `index.txt` lists the messages with file and first line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "protocol" / "src")]

from kraft_protocol.wire import stubs  # noqa: E402  # found through the line above when run as a script
from kraft_protocol.wire.schema import snake_case  # noqa: E402
from tools import peers  # noqa: E402

WIRE = ROOT / "protocol" / "src" / "kraft_protocol" / "wire"
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
STEERING = {4: "4-7", 5: "3-4", 6: "5-8", 7: "2-3"}
"""API key -> versions that brokers with topic ids or later use. Kafka 4.0 removed these APIs (KIP-866)."""


def load(text: str) -> Json:
    """Parse a schema: JSON with // comments."""
    parsed: Json = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return parsed


def read_schemas(folder: Path, modules: tuple[str, ...] = STORED_JARS) -> dict[str, tuple[str, Json]]:
    """Schema name -> (jar, schema), from the Kafka jars of `modules` in `folder`."""
    found: dict[str, tuple[str, Json]] = {}
    for module in modules:
        (jar,) = sorted(folder.glob(f"kafka-{module}-[0-9]*.jar"))
        with zipfile.ZipFile(jar) as archive:
            for entry in sorted(archive.namelist()):
                if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", entry):
                    schema = load(archive.read(entry).decode())
                    assert schema["name"] not in found, f"{schema['name']} is in two jars: classes need other names"
                    found[schema["name"]] = (module, schema)
    return found


def read_all(folder: Path, last_with_zookeeper: Path) -> dict[str, tuple[str, Json]]:
    """The schemas of the jars in `folder`, with those of `STEERING` from the other folder."""
    found = read_schemas(folder)
    for name, (module, schema) in read_schemas(last_with_zookeeper, ("clients",)).items():
        versions = STEERING.get(schema.get("apiKey", -1))
        if versions is not None and schema["type"] in API_TYPES:
            found[name] = (module, {**schema, "validVersions": versions})
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
    """The lines of a message's fields, with nested structs two spaces deeper."""
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
        if item.get("default") is not None:  # a JSON null means no default; the text "null" is a default
            default = item["default"]
            words += ["default", default if isinstance(default, str) and default else json.dumps(default)]
        lines.append("  " * depth + " ".join(words))
        lines += fields(item.get("fields", []), depth + 1)
    return lines


def file_of(module: str, schema: Json) -> str:
    """The file for a message."""
    if schema["type"] in API_TYPES:
        return snake_case(schema["name"].removesuffix("Request").removesuffix("Response"))
    return module.replace("-", "_") + "_records"


def files(schemas: dict[str, tuple[str, Json]]) -> dict[str, str]:
    """File name -> text, for all files of `wire/schemas`."""
    parts: dict[str, list[str]] = {}
    index = []
    for _, (module, schema) in sorted(schemas.items(), key=lambda kv: (kv[1][1].get("apiKey", -1), kv[0])):
        file = file_of(module, schema)
        notated = notate(module, schema)
        parts.setdefault(file, []).append(notated)
        first_line = notated.split("\n", 1)[0]
        index.append(f"{file} {first_line}\n")
    written = {f"{name}.ks": "\n\n".join(blocks) + "\n" for name, blocks in sorted(parts.items())}
    return {"index.txt": "".join(index), **written}


def write(folder: Path, texts: dict[str, str]) -> None:
    """Replace the notation in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.ks"), *folder.glob("*.txt")]:
        old.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text)


def main() -> int:
    """Write the notation, then the stubs from it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--version", default=peers.VERSION, help="fetch the jars of this release, unless they are here")
    source.add_argument("--jars", type=Path, help="a folder with a release's jars")
    parser.add_argument("--out", type=Path, help="write the notation into this folder, and no stubs")
    options = parser.parse_args()
    for version in {options.version, peers.LAST_WITH_ZOOKEEPER}:
        if not peers.installed(version) and not (options.jars and version == options.version):
            peers.install(version)
    folder = options.jars or peers.lib(options.version)
    schemas = read_all(folder, peers.lib(peers.LAST_WITH_ZOOKEEPER))
    texts = files(schemas)
    write(options.out or WIRE / "schemas", texts)
    print(f"{len(schemas)} messages in {len(texts) - 1} files")
    if options.out is None:
        for group in ("messages", "stored"):
            (WIRE / f"{group}.pyi").write_text(stubs.stub(group))
    return 0


if __name__ == "__main__":
    sys.exit(main())
