"""What each API of the broker asks of the client: a guard in front of every handler (see `security`).

| file | APIs |
|-|-|
| `topics` | Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers |
| `metadata` | Metadata, DescribeTopicPartitions |
| `groups` | everything that names a consumer group, FindCoordinator |
| `cluster` | what concerns the broker or the cluster, configurations, producers' ids, transactions |

Called by `broker.broker` when it puts its table together, and only on a node with an authorizer. Guards decide nothing
by themselves and keep nothing; topics that may not be described are answered like unknown ones are by Kafka: with
TOPIC_AUTHORIZATION_FAILED whether they exist or not.

What the controller decides is forwarded unguarded: the controller asks, with the client's principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from kraft_node.broker.authorization import cluster, groups, metadata, topics
from kraft_node.broker.authorization.gate import Gate, Guard
from kraft_node.broker.forward import FORWARDED
from kraft_node.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.request import Handler
    from kraft_node.broker.broker import Broker
    from kraft_node.security.authorizer import Authorizer

GUARDS: Final[Mapping[ApiKey, Guard]] = {**topics.GUARDS, **metadata.GUARDS, **groups.GUARDS, **cluster.GUARDS}

OPEN: Final = frozenset(
    {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)
"""APIs that ask nothing: telemetry, and tokens, which are refused to everybody who has not authenticated."""


def guarded(broker: Broker, table: Mapping[ApiKey, Handler], authorizer: Authorizer) -> dict[ApiKey, Handler]:
    """The handlers behind their guards."""
    unguarded = table.keys() - GUARDS.keys() - OPEN - set(FORWARDED)
    assert not unguarded, f"law: every API says what it asks of clients; {unguarded} do not"
    gate = Gate(broker, authorizer)
    return {key: partial(GUARDS[key], gate, handler) if key in GUARDS else handler for key, handler in table.items()}
