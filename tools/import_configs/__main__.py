"""Derives `protocol/src/kraft_protocol/configs/kafka.py` from the jars of an Apache Kafka release.

    python tools/import_configs LIB_DIRECTORY [--check]

LIB_DIRECTORY holds the jars (`tools/peers.py` puts them there). Java runs `Dump.java` beside this file, which prints
names, types, defaults, ranges, update modes and synonyms; this program writes them in our own notation. With
`--check` nothing is written: the exit code is 1 when the file differs.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "protocol/src/kraft_protocol/configs/kafka.py"

HEAD = '''"""The configuration keys of Apache Kafka {version}, as facts. Written by `tools/import_configs`: do not edit.

One key a line: name, type, default, constraint, flags. The node's `base.config.definitions` reads it.

- default: `!` no default (the key must be given), `~` null, otherwise `=` and the text.
- constraint: `-` no constraint; `range:A..B` (either may be missing); `in:A,B`; `ci:A,B` (in any case).
  `list:A,B`: a list of these values (of any values if no value is named), without duplicates or empty entries.
  After `list`, `e` means that the list may be empty, `n` that it may be null.
  Another text is the name of a rule in the node's `base.config.validators`.
- flags: `h` `m` `l` the importance. `p`: may change at run time per broker; `c`: for one broker or the whole cluster.
  `i`: internal, not shown by DescribeConfigs.
"""

# ruff: noqa: E501

from __future__ import annotations

from typing import Final

KAFKA_VERSION: Final = "{version}"
'''

# Table names of the dump -> names in the module.
TABLES = {
    "broker": "BROKER",
    "dynamic": "BROKER_DYNAMIC_ONLY",
    "topic": "TOPIC",
    "group": "GROUP",
    "client-metrics": "CLIENT_METRICS",
    "quota": "CLIENT_QUOTA",
    "ip-quota": "IP_QUOTA",
}

MEANINGS = {
    "BROKER": "`server.properties`.",
    "BROKER_DYNAMIC_ONLY": "Broker keys that exist only as dynamic configurations (replication quotas).",
    "TOPIC": "Topic overrides.",
    "GROUP": "Group overrides (KIP-848, KIP-932, KIP-1071).",
    "CLIENT_METRICS": "Client metrics subscriptions (KIP-714).",
    "CLIENT_QUOTA": "Quotas of user and client-id entities.",
    "IP_QUOTA": "Quotas of ip entities.",
}

# Java's validator classes -> the rules in base.config.validators.
NAMED = {
    "ControllerQuorumBootstrapServersValidator": "bootstrap-servers",
    "ControllerQuorumVotersValidator": "voters",
    "NonEmptyString": "non-empty",
    "NonNullValidator": "non-null",
    "ThrottledReplicaListValidator": "throttled-replicas",
    "Validator": "offset-reset",
}
LAMBDAS = {"[1,...,9] or -1": "gzip-level"}


def constraint(text: str) -> str:
    """Our notation for a validator in the dump."""
    kind, _, rest = text.partition(":")
    if kind == "named":
        return NAMED[rest.partition("@")[0]]
    if kind == "lambda":
        return LAMBDAS[rest]
    return text


def key_line(fields: list[str], modes: dict[str, str]) -> str:
    """A line of the notation for a dumped key. Exits if a field has a space."""
    name, kind, default, importance, validator, internal = fields
    mode = {"per-broker": "p", "cluster-wide": "c"}[modes[name]] if name in modes else ""
    flags = importance[0] + mode + ("i" if internal == "true" else "")
    line = f"{name} {kind} {default} {constraint(validator)} {flags}"
    if line.count(" ") != 4:
        raise SystemExit(f"a field with a space, which the notation cannot hold: {line}")
    return line


def render(dump: str, version: str) -> str:
    """The text of the generated module."""
    rows = [line.split("\t") for line in dump.splitlines()]
    modes = {row[1]: row[2] for row in rows if row[0] == "mode"}
    out = [HEAD.format(version=version)]
    for table, constant in TABLES.items():
        lines = [
            key_line(row[2:], modes if table in ("broker", "dynamic") else {})
            for row in rows
            if row[0] == "key" and row[1] == table
        ]
        out.append(f'\n{constant}: Final = """\\\n' + "\n".join(lines) + f'\n"""\n"""{MEANINGS[constant]}"""\n')
    topics = [
        " ".join([row[1], *(f"{name}*{factor}" for name, factor in zip(row[2::2], row[3::2], strict=True))])
        for row in rows
        if row[0] == "topic"
    ]
    groups = [f"{row[1]} {row[2]}" for row in rows if row[0] == "group"]
    synonyms = [" ".join(row[1:]) for row in rows if row[0] == "broker"]
    for constant, lines, meaning in (
        ("TOPIC_SYNONYMS", topics, "Topic key, then the broker keys that provide its default (times the factor)."),
        ("GROUP_SYNONYMS", groups, "Group key, then the broker key that is its default."),
        ("BROKER_SYNONYMS", synonyms, "Broker key, then all spellings of it; the first that is set wins."),
    ):
        out.append(f'\n{constant}: Final = """\\\n' + "\n".join(lines) + f'\n"""\n"""{meaning}"""\n')
    for row in rows:
        if row[0] == "set":
            constant = row[1].replace("-", "_").upper() + "_KEYS"
            out.append(f"\n{constant}: Final = (\n" + "".join(f'    "{value}",\n' for value in row[2:]) + ")\n")
    return "".join(out)


def main() -> int:
    """Write the keys from the jars, or check them."""
    parser = argparse.ArgumentParser(prog="import_configs", description="Import Kafka's configuration definitions.")
    parser.add_argument("lib", type=pathlib.Path, help="the directory of the release's jars")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    args = parser.parse_args()
    versions = [
        p.stem.removeprefix("kafka-clients-") for p in args.lib.glob("kafka-clients-*.jar") if "test" not in p.stem
    ]
    if len(versions) != 1:
        parser.error(f"{args.lib}: one kafka-clients jar wanted, found {versions or 'none'}")
    command = ["java", "-cp", f"{args.lib}/*", str(HERE / "Dump.java")]
    dump = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    text = render(dump, versions[0])
    if args.check:
        if TARGET.read_text(encoding="utf-8") == text:
            return 0
        print(f"{TARGET} differs from Apache Kafka {versions[0]}: run this without --check")
        return 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET}: {text.count(chr(10))} lines from Apache Kafka {versions[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
