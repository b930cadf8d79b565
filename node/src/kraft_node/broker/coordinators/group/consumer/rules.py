"""The inputs of operations on consumer groups besides the group itself: topics, settings, checks of requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kraft_node.broker.coordinators.group.consumer.member import JOINING, LEAVING, LEAVING_FOR_A_WHILE, NO_TIMEOUT
from kraft_node.broker.coordinators.regex.program import Pattern
from kraft_node.broker.coordinators.regex.syntax import PatternError
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.group.consumer.assignors.own import OwnAssignor
    from kraft_protocol.ids import Uuid
    from kraft_protocol.wire.messages import ConsumerGroupHeartbeatRequest

FIRST_VERSION_WITH_MEMBER_ID_OF_CLIENT: Final = 1


class GroupTopicsView(Protocol):
    """The topics of the metadata image; calls cost O(1), but for racks and a topic's first hash."""

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic; None if it does not exist."""
        ...

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of the topic with the id; None if no topic has it."""
        ...

    def partition_count(self, name: str) -> int | None:
        """The number of partitions; None if the topic does not exist."""
        ...

    def partition_racks(self, name: str) -> Iterable[Sequence[str]]:
        """The racks of the replicas of each partition."""

    def topic_hash(self, name: str) -> int | None:
        """See `topic_hashes`; None if the topic does not exist."""


class Rules(NamedTuple):
    """The settings of one group, and the topics."""

    topics: GroupTopicsView
    assignors: Sequence[str]
    """group.consumer.assignors: the first one is the default."""
    own_assignors: Mapping[str, OwnAssignor]
    """The own assignors among them."""
    max_size: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    least_heartbeat_interval_ms: int = 0
    """See `services.GroupTimes`."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raise KafkaError for a heartbeat that is invalid for any group."""
    epoch = request.member_epoch
    if version >= FIRST_VERSION_WITH_MEMBER_ID_OF_CLIENT or epoch > JOINING or epoch == LEAVING:
        _not_empty(request.member_id, "MemberId")
    _not_empty(request.group_id, "GroupId")
    _not_empty(request.instance_id, "InstanceId")
    _not_empty(request.rack_id, "RackId")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == NO_TIMEOUT:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVING_FOR_A_WHILE:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_FOR_A_WHILE:
        raise _invalid("MemberEpoch is invalid.")
    name = request.server_assignor
    if name is not None and name not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {name} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def check_pattern(text: str) -> None:
    """Raise KafkaError INVALID_REGULAR_EXPRESSION for a pattern that cannot be used."""
    try:
        Pattern(text)
    except PatternError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}.",
        ) from None


def _not_empty(text: str | None, what: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{what} can't be empty.")


def _invalid(words: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, words)
