"""Metadata (3), versions 0-13: the cluster's brokers, and topics with their partitions and leaders.

Versions: 1 all topics = null, none = empty (0: empty = all); 4 auto creation can be forbidden; 5 offline replicas; 7
leader epochs; 8-10 authorized operations; 9 flexible; 10 topic ids in the answer, 12 also in the request; 13 top-level
error (REBOOTSTRAP_REQUIRED, never sent).

As in Kafka, clients see a live broker as the controller, because they cannot reach controllers (KIP-590). A topic that
the request creates is still unknown in its answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.long_answers import answer
from kraft_node.broker.metadata_cache import is_internal, topic_name_error
from kraft_node.security.names import ALL_OPERATIONS, ResourceType
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.wire.messages import MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Generator

    from kraft_node.base.config.view import ConfigView
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.auto_topics import AutoTopics
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.metadata.partitions import PartitionState, TopicView

NO_OPERATIONS: Final = -(2**31)
TOPIC_IDS_ASKED_VERSION: Final = 12
OFFLINE_UNREACHABLE_VERSION: Final = 0
LISTENER_ERROR_VERSION: Final = 6
TOPICS_A_STEP: Final = 50
"""Topics that one step of a long answer describes."""


class MetadataHandler:
    """Answers from the image; unknown names may be created (`auto.create.topics.enable`)."""

    def __init__(
        self,
        turns: Turns,
        metadata: MetadataCache,
        config: ConfigView,
        auto_topics: AutoTopics,
        *,
        cluster_id: str,
        node_id: int,
    ) -> None:
        self.turns = turns
        self.metadata = metadata
        self._config = config
        self._auto_topics = auto_topics
        self._cluster_id = cluster_id
        self._node_id = node_id

    def __call__(self, ctx: RequestContext, request: Any) -> Any:
        return answer(self.turns, ctx, request, self._answer(ctx, request))

    def _answer(self, ctx: RequestContext, request: Any) -> Generator[None, None, Any]:
        version = ctx.api_version
        requested = request.topics
        topics: list[Any]
        if requested is None or (version == 0 and not requested):
            topics = yield from self._by_names(ctx, request, [topic.name for topic in self.metadata.image.topics])
        else:
            self._check(requested, version)
            topics = yield from self._requested_topics(ctx, request)
        return MetadataResponse(
            brokers=self._brokers(ctx),
            cluster_id=self._cluster_id,
            controller_id=self.metadata.any_live_broker(self._node_id),
            topics=topics,
            cluster_authorized_operations=(
                ALL_OPERATIONS[ResourceType.CLUSTER] if request.include_cluster_authorized_operations else NO_OPERATIONS
            ),
        )

    def _check(self, requested: list[Any], version: int) -> None:
        for topic in requested:
            if version < TOPIC_IDS_ASKED_VERSION and (topic.name is None or topic.topic_id != ZERO_UUID):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"topics cannot be requested by id in Metadata version {version}"
                )

    def _brokers(self, ctx: RequestContext) -> list[Any]:
        found = []
        for broker in self.metadata.live_brokers():
            endpoint = broker.endpoint(ctx.listener)
            if endpoint is not None:
                found.append(
                    MetadataResponse.MetadataResponseBroker(broker.id, endpoint.host, endpoint.port, broker.rack)
                )
        return found

    def _by_names(self, ctx: RequestContext, request: Any, names: list[str]) -> Generator[None, None, list[Any]]:
        """The topics with those names, except topics that were deleted meanwhile."""
        answers = []
        for number, name in enumerate(names):
            if number % TOPICS_A_STEP == TOPICS_A_STEP - 1:
                yield
            topic = self.metadata.image.topics.by_name(name)
            if topic is not None:
                answers.append(self._topic(ctx, topic, request))
        return answers

    def _requested_topics(self, ctx: RequestContext, request: Any) -> Generator[None, None, list[Any]]:
        ids = dict.fromkeys(requested.topic_id for requested in request.topics if requested.topic_id != ZERO_UUID)
        if ids:  # names are ignored beside ids
            answers = yield from self._by_ids(ctx, request, ids)
            return answers
        answers = []
        missing: list[str] = []
        for number, name in enumerate(dict.fromkeys(requested.name for requested in request.topics)):
            if number % TOPICS_A_STEP == TOPICS_A_STEP - 1:
                yield
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic is requested without a name or an id")
            topic = self.metadata.image.topics.by_name(name)
            if topic is not None:
                answers.append(self._topic(ctx, topic, request))
            elif topic_name_error(name) is None:
                missing.append(name)
            else:
                answers.append(_unknown(request, ErrorCode.INVALID_TOPIC_EXCEPTION, name, ZERO_UUID))
        for start in range(0, len(missing), TOPICS_A_STEP):
            some = missing[start : start + TOPICS_A_STEP]
            answers += [_unknown(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, ZERO_UUID) for name in some]
            if start:
                yield
        if missing and request.allow_auto_topic_creation and self._config.boolean("auto.create.topics.enable"):
            self._auto_topics.create(missing, ctx)
        return answers

    def _by_ids(self, ctx: RequestContext, request: Any, ids: dict[Uuid, None]) -> Generator[None, None, list[Any]]:
        answers = []
        for number, topic_id in enumerate(ids):
            if number % TOPICS_A_STEP == TOPICS_A_STEP - 1:
                yield
            topic = self.metadata.image.topics.by_id(topic_id)
            if topic is None:
                answers.append(_unknown(request, ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
            else:
                answers.append(self._topic(ctx, topic, request))
        return answers

    def _topic(self, ctx: RequestContext, topic: TopicView, request: Any) -> Any:
        version, listener = ctx.api_version, ctx.listener
        return MetadataResponse.MetadataResponseTopic(
            error_code=0,
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=[self._partition(number, state, version, listener) for number, state in topic.partitions()],
            topic_authorized_operations=(
                ALL_OPERATIONS[ResourceType.TOPIC] if request.include_topic_authorized_operations else NO_OPERATIONS
            ),
        )

    def _partition(self, number: int, state: PartitionState, version: int, listener: str) -> Any:
        leader = state.leader
        code = 0
        replicas, isr = list(state.replicas), list(state.isr)
        offline = self.metadata.offline_replicas(state, listener)
        if self.metadata.endpoint(leader, listener) is None:
            known = version >= LISTENER_ERROR_VERSION and self.metadata.is_live(leader)
            code = ErrorCode.LISTENER_NOT_FOUND if known else ErrorCode.LEADER_NOT_AVAILABLE
            leader = -1
        elif version == OFFLINE_UNREACHABLE_VERSION and offline:
            code = ErrorCode.REPLICA_NOT_AVAILABLE
            replicas = [replica for replica in replicas if replica not in offline]
            isr = [replica for replica in isr if replica not in offline]
        return MetadataResponse.MetadataResponsePartition(
            code, number, leader, state.leader_epoch, replicas, isr, offline
        )


def _unknown(request: Any, code: ErrorCode, name: str | None, topic_id: Uuid) -> Any:
    return MetadataResponse.MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name is not None and is_internal(name),
        topic_authorized_operations=(
            ALL_OPERATIONS[ResourceType.TOPIC]
            if request.include_topic_authorized_operations and name is not None
            else NO_OPERATIONS
        ),
    )
