"""File and directory names in a log directory: Kafka's, and two of our own."""

from __future__ import annotations

from typing import Final

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
PRODUCER_SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
REPLICATION_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
BOOT: Final = ".kraft_boot"
"""Ours, not Kafka's: the boot of the machine on which all logs were known to be undamaged."""
QUARANTINED: Final = ".kraft_quarantined"
"""Ours: quarantined logs and unproven copies, which a clean stop did not close; one per line."""
LOCK: Final = ".lock"
META_PROPERTIES: Final = "meta.properties"

DELETE_DIR: Final = "-delete"
FUTURE_DIR: Final = "-future"
STRAY_DIR: Final = "-stray"
DIR_NAME_MAX: Final = 255
"""Bytes of a file name on every common file system."""


def offset_name(offset: int, suffix: str) -> str:
    """The name of a segment's file: its base offset in 20 digits."""
    return f"{offset:020d}{suffix}"


def parse_offset(name: str) -> int | None:
    """The offset in a file name; None if it is not a segment's file."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and digits.isascii() and digits.isdigit() else None


def partition_dir(topic: str, partition: int) -> str:
    """The usual name of a partition's directory, as in Kafka."""
    return f"{topic}-{partition}"


def partition_path(directory: str, topic: str, partition: int) -> str:
    """The usual path of a log in a log directory."""
    return f"{directory}/{topic}-{partition}"


def parse_partition_dir(name: str) -> tuple[str, int] | None:
    """Topic and partition of a plain partition directory's name; None for other names."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        return None
    return topic, int(number)


def suffixed_dir(topic: str, partition: int, unique: str, suffix: str) -> str:
    """The name of a directory that is being deleted (`topic-partition.<unique>-delete`), truncated to the maximum
    length.
    """
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: DIR_NAME_MAX - len(tail)] + tail


def future_dir(topic: str, partition: int, unique: str) -> str:
    """The name of a copy in another log directory. Never truncated, because it must contain the topic."""
    return f"{topic}-{partition}.{unique}{FUTURE_DIR}"


def unique_of(path: str) -> str:
    """The unique part in the name of a copy or of a directory that is being deleted."""
    return path.rpartition(".")[2].partition("-")[0]


def parse_suffixed_dir(name: str, suffix: str) -> tuple[str, int] | None:
    """Topic and partition of a directory named by `suffixed_dir`."""
    if not name.endswith(suffix):
        return None
    plain, dot, _ = name[: -len(suffix)].rpartition(".")
    return parse_partition_dir(plain) if dot else None
