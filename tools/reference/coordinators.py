"""The page of coordinators: APIs and versions, keys of configuration, metrics, differences.

Versions, defaults and ranges come from the definitions, metrics and differences from their own pages. The meanings of
keys are in `coordinators.yaml`; a key that acts without a meaning, or a meaning without a key, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import yaml

from kraft_node.base.config import effects
from kraft_node.base.config.definitions import BROKER, GROUP, GROUP_SYNONYMS, ConfigKey
from kraft_protocol.wire.api import API, ApiKey
from tools.reference.metrics import MEANINGS as METRICS
from tools.reference.text import cell, code, generated, table

PAGE: Final = "docs/reference/coordinators.md"
MEANINGS: Final = Path(__file__).parent / "coordinators.yaml"
DIFFERENCES: Final = "docs/differences.md"
PREFIXES: Final = ("group.", "offsets.", "offset.", "transaction.", "transactional.")
OF_METRICS: Final = ("kafka_coordinator_", "coordinator_metrics_", "kraft_group_")

LOCATING: Final = (ApiKey.FIND_COORDINATOR,)
GROUPS: Final = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
)
TRANSACTIONS: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_PRODUCERS,
)
INTRODUCTION: Final = """\
A coordinator keeps shared state of clients in an internal topic. The leader of a partition coordinates the groups or
transactional ids whose hash is the partition. [Coordinators](../explanation/coordinators.md) explains how they work,
[Consumer groups](../explanation/consumer-groups.md) the protocol of KIP-848.

| coordinator | topic | feature | clients |
|---|---|---|---|
| groups, classic | `__consumer_offsets` | none | consumers, Kafka Connect, Kafka Streams |
| groups, consumer (KIP-848) | `__consumer_offsets` | `group.version` 1 | consumers with `group.protocol=consumer` |
| transactions | `__transaction_state` | `transaction.version` 0 to 2 | producers, Streams' `exactly_once_v2` |

`kafka-features.sh` changes the level of a feature. Level 0 of `group.version` turns consumer groups off. At level 2 of
`transaction.version` each transaction has its own epoch (KIP-890). Share groups and streams groups are not served.

"""


def pages(root: Path) -> dict[str, str]:
    """Path -> text. Raises ValueError for a key without a meaning, or a meaning without a key."""
    text = generated("Coordinators", "the definitions of APIs, keys, metrics and differences") + INTRODUCTION
    text += "## APIs\n\n"
    text += table(("API", "versions", "coordinator"), _apis())
    text += "\n## Configuration\n\nThe names, defaults and ranges are Apache Kafka's.\n"
    for title, rows in _keys().items():
        text += f"\n### {title}\n\n"
        text += table(("key", "default", "at run time", "meaning"), rows)
    text += "\n### Configuration of one group\n\n"
    text += "`kafka-configs.sh --entity-type groups` sets these keys. Without a value the broker's key acts.\n\n"
    text += table(("key", "broker's key"), _group_keys())
    text += (
        "\n## Metrics\n\nOperations run at once on the event loop, so Kafka's metrics of event queues are missing.\n\n"
    )
    text += table(("metric", "meaning"), _metrics())
    text += "\n## Differences from Apache Kafka\n\n"
    text += f"[Differences](../{Path(DIFFERENCES).name}) has all of them.\n\n"
    text += table(("request", "Apache Kafka", "kraftcluster"), _differences((root / DIFFERENCES).read_text()))
    return {PAGE: text}


def _apis() -> Iterator[tuple[str, str, str]]:
    for keys, whose in ((LOCATING, "both"), (GROUPS, "groups"), (TRANSACTIONS, "transactions")):
        for key in keys:
            api = API[key]
            versions = dict.fromkeys((str(api.min_version), str(api.max_version)))
            yield code(_camel(key)), " to ".join(versions), whose


def _camel(key: ApiKey) -> str:
    return key.name.title().replace("_", "")


def _keys() -> dict[str, list[tuple[str, str, str, str]]]:
    meanings: dict[str, dict[str, str]] = yaml.safe_load(MEANINGS.read_text())
    acting = {name for name in BROKER if name.startswith(PREFIXES) and effects.reason(name) is None}
    named = {name for rows in meanings.values() for name in rows}
    if acting != named:
        raise ValueError(
            f"tools/reference/coordinators.yaml: no meaning for {sorted(acting - named)}, "
            f"no key that acts for {sorted(named - acting)}"
        )
    return {title: [_row(BROKER[name], meaning) for name, meaning in rows.items()] for title, rows in meanings.items()}


def _row(key: ConfigKey, meaning: str) -> tuple[str, str, str, str]:
    mode = "no" if key.update_mode == "read-only" else key.update_mode
    return code(key.name), code(key.default_text or ""), mode, cell(meaning)


def _group_keys() -> Iterator[tuple[str, str]]:
    for name in GROUP:
        if name.startswith("consumer."):
            yield code(name), code(GROUP_SYNONYMS[name])


def _metrics() -> Iterator[tuple[str, str]]:
    groups: dict[str, dict[str, str]] = yaml.safe_load(METRICS.read_text())
    for rows in groups.values():
        for name, meaning in sorted(rows.items()):
            if any(part in name for part in OF_METRICS):
                yield code(name), cell(meaning)


def _differences(page: str) -> Iterable[tuple[str, str, str]]:
    """The rows of the table whose request is an API of coordinators."""
    names = [_camel(key) for key in (*LOCATING, *GROUPS, *TRANSACTIONS)]
    spoken = re.compile(rf"\b({'|'.join(names)})\b|transactional|consumer group")
    for line in page.split("\n"):
        row = [part.strip() for part in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(row) >= 4 and spoken.search(row[1]):
            yield row[1], row[2], row[3]
