"""Parses the options of the source, with the names, defaults and checks of Spark's `kafka` source."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from kraft_pipeline.codec import COLUMNS
from kraft_pipeline.sources.security import FILE, PREFIX, security_of
from kraft_protocol.client.cluster import Settings
from kraft_protocol.client.fetch import FETCH_BYTES
from kraft_protocol.client.properties import KEYS
from kraft_protocol.client.requests import EARLIEST, LATEST

SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
NOT_FOR_READERS: Final = (
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
)
"""Options that Spark's `kafka` source refuses, too, because they would have no effect."""
KNOWN: Final = (
    *SUBSCRIPTIONS,
    *(f"{side}{what}" for side in ("starting", "ending") for what in ("Offsets", "Timestamp", "OffsetsByTimestamp")),
    *("startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "columns"),
    *("includeHeaders", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets", "topic"),
    *("kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms", "kafkaConsumer.pollTimeoutMs"),
    *("kafka.isolation.level", "kafka.max.partition.fetch.bytes", "kafka.group.id", FILE),
    *sorted(f"{PREFIX}{key}" for key in KEYS),
    *(
        "kafka.client.rack",
        "kafka.compression.type",
        "kafka.batch.size",
        "kafka.acks",
        "groupIdPrefix",
        "isolation.level",
    ),
)
"""Options of readers and writers that have an effect. Others belong to Spark or Kafka and are ignored."""
SIMILAR: Final = 0.88
"""Similarity from which an unknown option counts as a misspelt known option."""
TASK_BYTES_MAX: Final = 64 * 1024 * 1024
MAX_TRIGGER_DELAY_S: Final = 15 * 60.0
_UNITS: Final = {"us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends: offsets by partition, a time, or one of EARLIEST and LATEST for all of them."""

    everywhere: int | None = None
    timestamp_ms: int | None = None
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Values may be EARLIEST or LATEST, too."""
    timestamps_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options of a reader. Times are in seconds, sizes in bytes; 0 means no limit."""

    settings: Settings
    topics: tuple[str, ...] | None
    pattern: str | None
    assigned: tuple[tuple[str, int], ...] | None
    columns: tuple[str, ...]
    starting: Bound
    ending: Bound
    latest_where_no_time: bool
    """Whether a partition without records after its starting time is read from its end; otherwise it is an error."""
    fail_on_data_loss: bool
    committed: bool
    min_partitions: int
    max_records_per_partition: int
    max_offsets_per_trigger: int
    min_offsets_per_trigger: int
    max_trigger_delay_s: float
    fetch_bytes: int
    commit_group: str | None
    """The consumer group to which a stream commits its offsets, for monitoring; None for no commits."""


class _Options:
    """Options by name, ignoring case. Methods raise ValueError with the option's name for wrong values."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.all = {name.lower(): value for name, value in options.items()}
        """The options; their names are in lower case."""

    def text(self, name: str) -> str | None:
        return self.all.get(name.lower())

    def number(self, name: str, default: int, least: int = 1) -> int:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise ValueError(f"option {name}: {value!r} is not an integer of at least {least}")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        value = (self.text(name) or str(default)).lower()
        if value not in {"true", "false"}:
            raise ValueError(f"option {name}: {value!r} is not true or false")
        return value == "true"

    def seconds(self, name: str, default: float) -> float:
        value = self.text(name)
        if value is None:
            return default
        found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
        unit = _UNITS.get(found[2] or "ms") if found else None
        if found is None or unit is None:
            raise ValueError(f"option {name}: {value!r} is not a duration; write it like 30s or 15m")
        return int(found[1]) * unit

    def by_partition(self, name: str, least: int) -> dict[tuple[str, int], int]:
        """Parse {"topic": {"0": 5}}."""
        text = self.text(name) or ""
        try:
            parsed = json.loads(text)
            found = {(t, int(p)): int(value) for t, values in parsed.items() for p, value in values.items()}
        except (ValueError, AttributeError, TypeError):
            raise ValueError(f'option {name}: {text!r} is not of the form {{"topic": {{"0": 5, "1": 7}}}}') from None
        for (topic, partition), value in found.items():
            if value < least:
                raise ValueError(f"option {name}: {value} of {topic}-{partition} is less than {least}")
        return found


def refuse(options: Mapping[str, str], names: Collection[str], why: str) -> None:
    """Raise ValueError with the reason `why` if one of `names` is given."""
    given = {name.lower() for name in options}
    for name in names:
        if name in given:
            raise ValueError(f"option {name}: {why}")


def _check_spelling(options: Mapping[str, str]) -> None:
    """Raise ValueError for an option that is similar to a known option."""
    known = {name.lower(): name for name in KNOWN}
    for name in options:
        near = get_close_matches(name.lower(), known, 1, SIMILAR)
        if name.lower() not in known and near:
            raise ValueError(f"option {name}: unknown option; did you mean {known[near[0]]}?")


def settings_of(options: Mapping[str, str]) -> Settings:
    """How to reach the cluster. Raises ValueError for missing, misspelt and wrong options."""
    _check_spelling(options)
    read = _Options(options)
    servers = read.text("kafka.bootstrap.servers")
    if not servers:
        raise ValueError("option kafka.bootstrap.servers is missing: host:port, several with commas")
    settings = Settings(
        servers,
        client_id=read.text("kafka.client.id") or "kraft-pipeline",
        rack=read.text("kafka.client.rack") or "",
        request_s=read.number("kafka.request.timeout.ms", 30_000) / 1000,
        retry_s=read.number("kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
        security=security_of(read.all),
    )
    settings.servers()
    return settings


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns to read, in the order of `COLUMNS`. Raises ValueError for an unknown column."""
    read = _Options(options)
    wanted = read.text("columns")
    if wanted is None:
        return COLUMNS if read.flag("includeHeaders", default=False) else COLUMNS[:-1]
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"option columns: no column {name!r}, there are {', '.join(COLUMNS)}")
    if not names:
        raise ValueError("option columns: no column is named")
    return tuple(name for name in COLUMNS if name in names)


def parse(options: Mapping[str, str], *, streaming: bool) -> Options:
    """Parse the options of a batch read or a stream. Raises ValueError with the name of the wrong option."""
    read = _Options(options)
    refuse(options, NOT_FOR_READERS, "is not for readers of Spark, which keep offsets themselves and hand out bytes")
    topics, pattern, assigned = _subscription(read)
    limit_name = "kafka.max.partition.fetch.bytes"
    isolation = read.text("isolation.level") or read.text("kafka.isolation.level") or "read_uncommitted"
    if isolation not in {"read_committed", "read_uncommitted"}:
        raise ValueError(f"option kafka.isolation.level: {isolation!r} is neither read_committed nor read_uncommitted")
    strategy = read.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy not in {"error", "latest"}:
        raise ValueError(f"option startingOffsetsByTimestampStrategy: {strategy!r} is neither error nor latest")
    starting = _bound(read, "starting", LATEST if streaming else EARLIEST)
    ending = _bound(read, "ending", LATEST)
    if not streaming and LATEST in {starting.everywhere, *starting.offsets.values()}:
        raise ValueError("option startingOffsets: a batch from latest has no records")
    if EARLIEST in {ending.everywhere, *ending.offsets.values()}:
        raise ValueError("option endingOffsets: a range that ends at earliest has no records")
    _check_order("Offsets", starting.offsets, ending.offsets)
    _check_order("OffsetsByTimestamp", starting.timestamps_ms, ending.timestamps_ms)
    if streaming and any(read.text(f"ending{kind}") for kind in ("Offsets", "Timestamp", "OffsetsByTimestamp")):
        raise ValueError("option endingOffsets: a stream has no end")
    least, most = read.number("minOffsetsPerTrigger", 0), read.number("maxOffsetsPerTrigger", 0)
    if most and least > most:
        raise ValueError(f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}")
    return Options(
        settings=settings_of(options),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        columns=columns_of(options),
        starting=starting,
        ending=ending,
        latest_where_no_time=strategy == "latest",
        fail_on_data_loss=read.flag("failOnDataLoss", default=True),
        committed=isolation == "read_committed",
        min_partitions=read.number("minPartitions", 1),
        max_records_per_partition=read.number("maxRecordsPerPartition", 0),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_s=read.seconds("maxTriggerDelay", MAX_TRIGGER_DELAY_S),
        commit_group=_commit_group(read, streaming=streaming),
        fetch_bytes=min(read.number(limit_name, FETCH_BYTES), TASK_BYTES_MAX),
    )


def _check_order(kind: str, starting: Mapping[tuple[str, int], int], ending: Mapping[tuple[str, int], int]) -> None:
    for (topic, partition), first in starting.items():
        last = ending.get((topic, partition), first)
        if 0 <= last < first:
            raise ValueError(f"option starting{kind}: {first} of {topic}-{partition} is more than ending{kind}, {last}")


def _commit_group(read: _Options, *, streaming: bool) -> str | None:
    if not read.flag("commitOffsets", default=False):
        return None
    group = read.text("kafka.group.id")
    if not group:
        raise ValueError("option commitOffsets: set kafka.group.id to name the group")
    if not streaming:
        raise ValueError("option commitOffsets: only streams commit offsets")
    return group


def _subscription(
    read: _Options,
) -> tuple[tuple[str, ...] | None, str | None, tuple[tuple[str, int], ...] | None]:
    given = [name for name in SUBSCRIPTIONS if read.text(name)]
    if len(given) != 1:
        raise ValueError(f"exactly one of the options {', '.join(SUBSCRIPTIONS)} must be given, not {len(given)}")
    text = read.text(given[0]) or ""
    if given[0] == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in text.split(",") if topic.strip()}))
        if not topics:
            raise ValueError("option subscribe: no topic is named")
        return topics, None, None
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as e:
            raise ValueError(f"option subscribePattern: {text!r} is not a regular expression: {e}") from None
        return None, text, None
    return None, None, _assigned(text)


def _assigned(text: str) -> tuple[tuple[str, int], ...]:
    try:
        parsed: dict[str, Any] = json.loads(text)
        found = sorted({(topic, int(p)) for topic, partitions in parsed.items() for p in partitions})
    except (ValueError, AttributeError, TypeError):
        found = []
    if not found:
        raise ValueError(f'option assign: {text!r} is not of the form {{"topic": [0, 1]}}')
    return tuple(found)


def _bound(read: _Options, side: str, default: int) -> Bound:
    """The bound from the first given option: a time for all partitions, times by partition, or offsets."""
    if read.text(f"{side}Timestamp") is not None:
        return Bound(timestamp_ms=read.number(f"{side}Timestamp", 0, 0))
    if read.text(f"{side}OffsetsByTimestamp") is not None:
        return Bound(timestamps_ms=read.by_partition(f"{side}OffsetsByTimestamp", 0))
    text = read.text(f"{side}Offsets")
    if text is None:
        return Bound(everywhere=default)
    names = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in names:
        return Bound(everywhere=names[text.strip().lower()])
    return Bound(offsets=read.by_partition(f"{side}Offsets", EARLIEST))
