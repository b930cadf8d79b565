"""The APIs that the operator uses, each in one flexible version that Apache Kafka 4.0 and later serve."""

from __future__ import annotations

from typing import Final, NamedTuple

from kraft_operator.kafka.codec import Codec, codec


class Api(NamedTuple):
    """One API in one version."""

    name: str
    key: int
    version: int
    request: Codec
    response: Codec


def _api(name: str, key: int, version: int, request: str, response: str) -> Api:
    return Api(name, key, version, codec(request), codec(response))


METADATA: Final = _api(
    "Metadata", 3, 12,
    "topics:[id:uuid name:str?]? auto_create:bool operations:bool",
    "throttle_ms:i32 brokers:[id:i32 host:str port:i32 rack:str?] cluster_id:str? controller:i32"
    " topics:[error:i16 name:str? id:uuid internal:bool"
    " partitions:[error:i16 index:i32 leader:i32 epoch:i32 replicas:[i32] isr:[i32] offline:[i32]] operations:i32]",
)  # fmt: skip
# Versions before 4 leave out features whose range begins at 0, such as kraft.version (KIP-1022).
API_VERSIONS: Final = _api(
    "ApiVersions", 18, 4,
    "software:str software_version:str",
    "error:i16 apis:[key:i16 least:i16 most:i16] throttle_ms:i32"
    " #0supported:[name:str least:i16 most:i16] #1epoch:i64 #2finalized:[name:str most:i16 least:i16]",
)  # fmt: skip
CREATE_TOPICS: Final = _api(
    "CreateTopics", 19, 7,
    "topics:[name:str partitions:i32 replicas:i16 assignments:[index:i32 brokers:[i32]] configs:[name:str value:str?]]"
    " timeout_ms:i32 validate_only:bool",
    "throttle_ms:i32 topics:[name:str id:uuid error:i16 message:str? partitions:i32 replicas:i16"
    " configs:[name:str value:str? read_only:bool source:i8 sensitive:bool]?]",
)  # fmt: skip
DELETE_TOPICS: Final = _api(
    "DeleteTopics", 20, 6,
    "topics:[name:str? id:uuid] timeout_ms:i32",
    "throttle_ms:i32 topics:[name:str? id:uuid error:i16 message:str?]",
)  # fmt: skip
DESCRIBE_CONFIGS: Final = _api(
    "DescribeConfigs", 32, 4,
    "resources:[type:i8 name:str keys:[str]?] synonyms:bool documentation:bool",
    "throttle_ms:i32 results:[error:i16 message:str? type:i8 name:str configs:[name:str value:str? read_only:bool"
    " source:i8 sensitive:bool synonyms:[name:str value:str? source:i8] type:i8 documentation:str?]]",
)  # fmt: skip
ALTER_LOG_DIRS: Final = _api(
    "AlterReplicaLogDirs", 34, 2,
    "dirs:[path:str topics:[name:str partitions:[i32]]]",
    "throttle_ms:i32 results:[name:str partitions:[index:i32 error:i16]]",
)  # fmt: skip
DESCRIBE_LOG_DIRS: Final = _api(
    "DescribeLogDirs", 35, 4,
    "topics:[name:str partitions:[i32]]?",
    "throttle_ms:i32 error:i16 results:[error:i16 path:str"
    " topics:[name:str partitions:[index:i32 size:i64 lag:i64 future:bool]] total:i64 usable:i64]",
)  # fmt: skip
CREATE_PARTITIONS: Final = _api(
    "CreatePartitions", 37, 3,
    "topics:[name:str count:i32 assignments:[brokers:[i32]]?] timeout_ms:i32 validate_only:bool",
    "throttle_ms:i32 topics:[name:str error:i16 message:str?]",
)  # fmt: skip
ELECT_LEADERS: Final = _api(
    "ElectLeaders", 43, 2,
    "type:i8 topics:[name:str partitions:[i32]]? timeout_ms:i32",
    "throttle_ms:i32 error:i16 topics:[name:str partitions:[index:i32 error:i16 message:str?]]",
)  # fmt: skip
INCREMENTAL_ALTER_CONFIGS: Final = _api(
    "IncrementalAlterConfigs", 44, 1,
    "resources:[type:i8 name:str configs:[name:str operation:i8 value:str?]] validate_only:bool",
    "throttle_ms:i32 responses:[error:i16 message:str? type:i8 name:str]",
)  # fmt: skip
ALTER_REASSIGNMENTS: Final = _api(
    "AlterPartitionReassignments", 45, 0,
    "timeout_ms:i32 topics:[name:str partitions:[index:i32 replicas:[i32]?]]",
    "throttle_ms:i32 error:i16 message:str? topics:[name:str partitions:[index:i32 error:i16 message:str?]]",
)  # fmt: skip
LIST_REASSIGNMENTS: Final = _api(
    "ListPartitionReassignments", 46, 0,
    "timeout_ms:i32 topics:[name:str partitions:[i32]]?",
    "throttle_ms:i32 error:i16 message:str?"
    " topics:[name:str partitions:[index:i32 replicas:[i32] adding:[i32] removing:[i32]]]",
)  # fmt: skip
DESCRIBE_QUORUM: Final = _api(
    "DescribeQuorum", 55, 2,
    "topics:[name:str partitions:[index:i32]]",
    "error:i16 message:str? topics:[name:str partitions:[index:i32 error:i16 message:str? leader:i32 epoch:i32"
    " high_watermark:i64 voters:[id:i32 directory:uuid end:i64 fetched:i64 caught_up:i64]"
    " observers:[id:i32 directory:uuid end:i64 fetched:i64 caught_up:i64]]]"
    " nodes:[id:i32 listeners:[name:str host:str port:u16]]",
)  # fmt: skip
UPDATE_FEATURES: Final = _api(
    "UpdateFeatures", 57, 1,
    "timeout_ms:i32 features:[name:str level:i16 type:i8] validate_only:bool",
    "throttle_ms:i32 error:i16 message:str? features:[name:str error:i16 message:str?]",
)  # fmt: skip
DESCRIBE_CLUSTER: Final = _api(
    "DescribeCluster", 60, 2,
    "operations:bool endpoints:i8 fenced:bool",
    "throttle_ms:i32 error:i16 message:str? endpoints:i8 cluster_id:str controller:i32"
    " brokers:[id:i32 host:str port:i32 rack:str? fenced:bool] operations:i32",
)  # fmt: skip
UNREGISTER_BROKER: Final = _api(
    "UnregisterBroker", 64, 0,
    "id:i32",
    "throttle_ms:i32 error:i16 message:str?",
)  # fmt: skip
ADD_VOTER: Final = _api(
    "AddRaftVoter", 80, 0,
    "cluster_id:str? timeout_ms:i32 id:i32 directory:uuid listeners:[name:str host:str port:u16]",
    "throttle_ms:i32 error:i16 message:str?",
)  # fmt: skip
REMOVE_VOTER: Final = _api(
    "RemoveRaftVoter", 81, 0,
    "cluster_id:str? id:i32 directory:uuid",
    "throttle_ms:i32 error:i16 message:str?",
)  # fmt: skip
