"""The records of the metadata log and of snapshots in Apache Kafka 4.3.1, as data in a notation of our own.

A line, continued by indented lines: number, name as kafka-dump-log prints it, newest version, then the fields in wire
order. A field is `name type`, optionally followed by `N+` (since version N), `#N` (tagged, omitted at its default) and
`=default`. Types: bool, i8, i16, u16, i32, i64, f64, uuid, string, bytes. `[…]` is an array, and `?` may be null. A
capitalized word is a struct from the lines below. All versions are flexible (KIP-482).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, NamedTuple

_RECORDS: Final = """
0 REGISTER_BROKER_RECORD 4: brokerId i32, isMigratingZkBroker bool 2+, incarnationId uuid, brokerEpoch i64,
  endPoints [Endpoint], features [Feature], rack string?, fenced bool, inControlledShutdown bool 1+, logDirs [uuid]
  3+ #0, cordonedLogDirs [uuid]? 4+ #1
1 UNREGISTER_BROKER_RECORD 0: brokerId i32, brokerEpoch i64
2 TOPIC_RECORD 0: name string, topicId uuid
3 PARTITION_RECORD 2: partitionId i32, topicId uuid, replicas [i32], isr [i32], removingReplicas [i32],
  addingReplicas [i32], leader i32, leaderRecoveryState i8 #0=0, leaderEpoch i32, partitionEpoch i32, directories
  [uuid] 1+, eligibleLeaderReplicas [i32]? 2+ #1, lastKnownElr [i32]? 2+ #2
4 CONFIG_RECORD 0: resourceType i8, resourceName string, name string, value string?
5 PARTITION_CHANGE_RECORD 2: partitionId i32, topicId uuid, isr [i32]? #0, leader i32 #1=-2, replicas [i32]? #2,
  removingReplicas [i32]? #3, addingReplicas [i32]? #4, leaderRecoveryState i8 #5=-1, directories [uuid]? 1+ #8,
  eligibleLeaderReplicas [i32]? 2+ #6, lastKnownElr [i32]? 2+ #7
7 FENCE_BROKER_RECORD 0: id i32, epoch i64
8 UNFENCE_BROKER_RECORD 0: id i32, epoch i64
9 REMOVE_TOPIC_RECORD 0: topicId uuid
10 DELEGATION_TOKEN_RECORD 0: owner string, requester string, renewers [string], issueTimestamp i64, maxTimestamp
  i64, expirationTimestamp i64, tokenId string
11 USER_SCRAM_CREDENTIAL_RECORD 0: name string, mechanism i8, salt bytes, storedKey bytes, serverKey bytes,
  iterations i32
12 FEATURE_LEVEL_RECORD 0: name string, featureLevel i16
14 CLIENT_QUOTA_RECORD 0: entity [Entity], key string, value f64, remove bool
15 PRODUCER_IDS_RECORD 0: brokerId i32, brokerEpoch i64, nextProducerId i64
17 BROKER_REGISTRATION_CHANGE_RECORD 3: brokerId i32, brokerEpoch i64, fenced i8 #0=0, inControlledShutdown i8 1+
  #1=0, logDirs [uuid] 2+ #2, cordonedLogDirs [uuid]? 3+ #3
18 ACCESS_CONTROL_ENTRY_RECORD 0: id uuid, resourceType i8, resourceName string, patternType i8, principal string,
  host string, operation i8, permissionType i8
19 REMOVE_ACCESS_CONTROL_ENTRY_RECORD 0: id uuid
20 NO_OP_RECORD 0:
21 ZK_MIGRATION_STATE_RECORD 0: zkMigrationState i8
22 REMOVE_USER_SCRAM_CREDENTIAL_RECORD 0: name string, mechanism i8
23 BEGIN_TRANSACTION_RECORD 0: name string? #0
24 END_TRANSACTION_RECORD 0:
25 ABORT_TRANSACTION_RECORD 0: reason string? #0
26 REMOVE_DELEGATION_TOKEN_RECORD 0: tokenId string
27 REGISTER_CONTROLLER_RECORD 0: controllerId i32, incarnationId uuid, zkMigrationReady bool, endPoints [Endpoint],
  features [Feature]
28 CLEAR_ELR_RECORD 0: topicName string
"""
_CONTROLS: Final = """
2 LEADER_CHANGE 1: version i16, leaderId i32, voters [VoterId], grantingVoters [VoterId]
3 SNAPSHOT_HEADER 0: version i16, lastContainedLogTimestamp i64
4 SNAPSHOT_FOOTER 0: version i16
5 KRAFT_VERSION 0: version i16, kRaftVersion i16
6 KRAFT_VOTERS 0: version i16, voters [Voter]
"""
_STRUCTS: Final = """
Endpoint: name string, host string, port u16, securityProtocol i16
Feature: name string, minSupportedVersion i16, maxSupportedVersion i16
Entity: entityType string, entityName string?
VoterId: voterId i32, voterDirectoryId uuid 1+
Voter: voterId i32, voterDirectoryId uuid, endpoints [VoterEndpoint], kRaftVersionFeature VoterFeature
VoterEndpoint: name string, host string, port u16
VoterFeature: minSupportedVersion i16, maxSupportedVersion i16
"""

PARTITION: Final = 3
PARTITION_CHANGE: Final = 5

_FIELD: Final = re.compile(r"(\w+) (\[?)(\w+)\]?(\??)(?: (\d+)\+)?(?: #(\d+))?(?:=(-?\d+))?")


class Field(NamedTuple):
    """A field of a record or a struct."""

    name: str
    type: str
    is_array: bool
    nullable: bool
    since: int
    tag: int
    """The tag; -1 for a field without a tag."""
    default: Any


class RecordType(NamedTuple):
    """A type of record."""

    number: int
    name: str
    newest: int
    fields: tuple[Field, ...]

    def at(self, version: int) -> tuple[tuple[Field, ...], dict[int, Field]]:
        """The plain fields and the tagged fields of a version."""
        return fields_at(self.fields, version)


def fields_at(fields: tuple[Field, ...], version: int) -> tuple[tuple[Field, ...], dict[int, Field]]:
    """Select the fields of a version: plain fields in order, and tagged fields by tag."""
    there = [field for field in fields if version >= field.since]
    return tuple(f for f in there if f.tag < 0), {f.tag: f for f in there if f.tag >= 0}


def _fields(text: str) -> tuple[Field, ...]:
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = _FIELD.fullmatch(part)
        assert match is not None, f"{part!r} is not a field"
        name, array, kind, null, since, tag, default = match.groups()
        nothing: Any = None if null else [] if array else 0 if default is None else int(default)
        found.append(Field(name, kind, bool(array), bool(null), int(since or 0), int(tag or -1), nothing))
    return tuple(found)


def _records(text: str) -> dict[int, RecordType]:
    found = {}
    for line in text.strip().replace("\n  ", " ").splitlines():
        head, _, fields = line.partition(":")
        number, name, newest = head.split()
        found[int(number)] = RecordType(int(number), name, int(newest), _fields(fields))
    return found


@cache
def records() -> dict[int, RecordType]:
    """Metadata records by type."""
    return _records(_RECORDS)


@cache
def controls() -> dict[int, RecordType]:
    """Control records by type."""
    return _records(_CONTROLS)


@cache
def structs() -> dict[str, tuple[Field, ...]]:
    """The fields of structs by name."""
    return {name: _fields(fields) for name, _, fields in (s.partition(":") for s in _STRUCTS.strip().splitlines())}
