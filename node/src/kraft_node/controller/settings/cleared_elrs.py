"""What happens to eligible leader replicas (KIP-966) when `min.insync.replicas` changes.

Eligibility was judged by the old minimum: with a lower one, a leader may commit without the others. So a change clears
the ELR, as in Apache Kafka. A partition without a leader commits nothing. Without its ELR nothing could be elected when
a broker returns, so it keeps the candidates that the new minimum allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from kraft_node.base.config.resources import TOPIC_RESOURCE
from kraft_node.controller.settings.features import MIN_ISR
from kraft_node.controller.state.controller_state import RECORDS_PER_USER_OPERATION_MAX, ControllerState
from kraft_node.metadata.partitions import Brokers, PartitionState
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.stored import ClearElrRecord, ConfigRecord, PartitionChangeRecord

UNKNOWN: Final = 1
"""The minimum after an override was removed: the lowest possible is always safe."""


def cleared_elrs(cluster: ControllerState, records: Sequence[ConfigRecord]) -> list[Any]:
    """The records that follow configuration records. Raises POLICY_VIOLATION while very many partitions are without a
    leader."""
    if not cluster.elr_enabled:
        return []
    minimums = {
        record.resource_name if record.resource_type == TOPIC_RESOURCE else "": _minimum(record.value)
        for record in records
        if record.name == MIN_ISR
    }
    if not minimums:
        return []
    kept = list(islice(_kept(cluster, minimums), RECORDS_PER_USER_OPERATION_MAX + 1))
    if len(kept) > RECORDS_PER_USER_OPERATION_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{MIN_ISR} cannot change while more than {RECORDS_PER_USER_OPERATION_MAX} partitions have no leader: "
            "their eligible replicas would be lost",
        )
    return [*(ClearElrRecord(topic_name=name) for name in minimums), *kept]


def _minimum(value: str | None) -> int:
    return UNKNOWN if value is None else int(value)


def _kept(cluster: ControllerState, minimums: dict[str, int]) -> Iterator[PartitionChangeRecord]:
    """Records that restore the candidates of leaderless partitions. `minimums`: by topic; "" for all topics."""
    for topic_id, numbers in cluster.index.leaderless():
        topic = cluster.view.topics.by_id(topic_id)
        if topic is None or not minimums.keys() & {topic.name, ""}:
            continue
        own = (cluster.view.configs.get((TOPIC_RESOURCE, topic.name)) or {}).get(MIN_ISR)
        minimum = minimums.get(topic.name) or (minimums[""] if own is None else int(own))
        for number in numbers:
            state = topic.partition(number)
            if state is not None and (state.elr or state.last_known_elr):
                yield PartitionChangeRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    eligible_leader_replicas=list(_eligible(state, minimum)),
                    last_known_elr=list(state.last_known_elr),
                )


def _eligible(state: PartitionState, minimum: int) -> Brokers:
    """The replicas that may be elected although the partition's next leader may commit with `minimum` replicas."""
    minimum = min(minimum, len(state.replicas))
    if len(state.isr) >= minimum:
        return ()
    if minimum > 1:
        return state.elr
    # The first that is elected commits alone, so the others may not be elected after it.
    last = [broker for broker in state.last_known_elr if broker in state.elr] or state.elr
    return tuple(last[:1])
