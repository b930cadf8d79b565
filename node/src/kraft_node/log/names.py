"""File and directory names inside a log directory, Kafka's but for one."""

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
"""Ours, not Kafka's: on which boot of the machine all logs were known to be sound."""
QUARANTINED: Final = ".kraft_quarantined"
"""Ours: which logs were quarantined at a clean stop, so not closed; a line each."""
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
    """The offset that a file name begins with; None when it is no segment's."""
    digits, dot, _ = name.partition(".")
    return int(digits) if dot and digits.isascii() and digits.isdigit() else None


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_dir(name: str) -> tuple[str, int] | None:
    """Topic and partition of a plain partition directory's name; None for every other name."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        return None
    return topic, int(number)


def suffixed_dir(topic: str, partition: int, unique: str, suffix: str) -> str:
    """The name of a directory that is going (`topic-partition.<unique>-delete`), cut to what file systems allow."""
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: DIR_NAME_MAX - len(tail)] + tail


def future_dir(topic: str, partition: int, unique: str) -> str:
    """The name of a copy on its way to another log directory. Never cut: the name must tell the topic."""
    return f"{topic}-{partition}.{unique}{FUTURE_DIR}"


def parse_suffixed_dir(name: str, suffix: str) -> tuple[str, int] | None:
    """Topic and partition of a directory named by `suffixed_dir`."""
    if not name.endswith(suffix):
        return None
    plain, dot, _ = name[: -len(suffix)].rpartition(".")
    return parse_partition_dir(plain) if dot else None
