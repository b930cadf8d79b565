"""The permissions that each API of the broker requires: a guard in front of every handler (see `security`).

| file | APIs |
|-|-|
| `topics` | Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers |
| `metadata` | Metadata, DescribeTopicPartitions |
| `groups` | all APIs with a consumer group, FindCoordinator |
| `cluster` | APIs of the broker or the cluster, configurations |
| `transactions` | producer ids, transactions |
| `gate` | (what all guards share) |

`broker.broker` uses it for its handler table, only on a node with an authorizer. Guards keep no state. For a topic that
the client may not describe, the answer is TOPIC_AUTHORIZATION_FAILED, whether it exists or not, as in Kafka.

Forwarded requests have no guard here: the controller checks them with the client's principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from kraft_node.broker.authorization import cluster, groups, metadata, topics, transactions
from kraft_node.broker.authorization.gate import Gate, Guard
from kraft_node.broker.forward import FORWARDED
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.request import Handler

GUARDS: Final[Mapping[ApiKey, Guard]] = {
    **topics.GUARDS,
    **metadata.GUARDS,
    **groups.GUARDS,
    **cluster.GUARDS,
    **transactions.GUARDS,
}

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
"""APIs without a check here: telemetry, and delegation tokens, whose handlers check the tokens' owners."""


def guarded(table: Mapping[ApiKey, Handler], gate: Gate) -> dict[ApiKey, Handler]:
    """The handlers behind their guards."""
    unguarded = table.keys() - GUARDS.keys() - OPEN - set(FORWARDED)
    assert not unguarded, f"law: every API has a guard, is open or is forwarded; {unguarded} are not"
    return {key: partial(GUARDS[key], gate, handler) if key in GUARDS else handler for key, handler in table.items()}
