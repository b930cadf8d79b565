"""Creation of topics on first use: `auto.create.topics.enable`, and internal topics.

The broker sends CreateTopics to the controller with the client's principal; for internal topics with its own. No
request waits for the answer: clients retry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.metadata_cache import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kraft_protocol.errors import ErrorCode, KafkaError, error_name
from kraft_protocol.wire.messages import CreateTopicsRequest

if TYPE_CHECKING:
    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.controller_link import Answer, ControllerLink

log = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 1000
"""Maximum of names that are being created; further names are created when they are requested again."""
_EXPECTED: Final = frozenset((ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT))


class AutoTopics:
    """Creates topics, each at most once at a time."""

    def __init__(self, config: BrokerConfig, controller: ControllerLink) -> None:
        self._config = config
        self._controller = controller
        self._in_flight: set[str] = set()

    def create(self, names: Iterable[str], ctx: RequestContext | None) -> None:
        """Start creating the topics among `names` that are not being created yet, with the principal of a client or of
        the broker."""
        wanted = [name for name in names if name not in self._in_flight]
        wanted = wanted[: IN_FLIGHT_MAX - len(self._in_flight)]
        if not wanted:
            return
        self._in_flight.update(wanted)
        timeout_ms = self._config.int("request.timeout.ms")
        request = CreateTopicsRequest(topics=[self._topic(name) for name in wanted], timeout_ms=timeout_ms)
        self._controller.send(request, None, partial(self._answered, wanted), timeout_ms, on_behalf_of=ctx)

    def create_internal(self, name: str, ctx: RequestContext) -> None:
        """Start creating an internal topic with its own settings and the principal of the broker. The client's
        permissions do not matter."""
        del ctx
        self.create((name,), None)

    def _topic(self, name: str) -> Any:
        config = self._config
        if name == CONSUMER_OFFSETS:
            return _creatable(
                name,
                config.int("offsets.topic.num.partitions"),
                config.int("offsets.topic.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.int("offsets.topic.segment.bytes")),
                },
            )
        if name == TRANSACTION_STATE:
            return _creatable(
                name,
                config.int("transaction.state.log.num.partitions"),
                config.int("transaction.state.log.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.int("transaction.state.log.min.isr")),
                    "segment.bytes": str(config.int("transaction.state.log.segment.bytes")),
                    "unclean.leader.election.enable": "false",
                },
            )
        if name == SHARE_GROUP_STATE:
            return _creatable(
                name,
                config.int("share.coordinator.state.topic.num.partitions"),
                config.int("share.coordinator.state.topic.replication.factor"),
                {
                    "cleanup.policy": "delete",
                    "compression.type": "producer",
                    "min.insync.replicas": str(config.int("share.coordinator.state.topic.min.isr")),
                    "retention.ms": "-1",
                    "segment.bytes": str(config.int("share.coordinator.state.topic.segment.bytes")),
                },
            )
        return _creatable(name, config.int("num.partitions"), config.int("default.replication.factor"), {})

    def _answered(self, names: list[str], answer: Answer) -> None:
        self._in_flight.difference_update(names)
        if isinstance(answer, OSError | KafkaError):
            log.warning("topics were not created names=%s error=%s", ", ".join(names), answer)
            return
        for topic in answer.topics:
            if topic.error_code not in _EXPECTED:
                log.warning(
                    "topic was not created name=%s error=%s message=%s",
                    topic.name,
                    error_name(topic.error_code),
                    topic.error_message,
                )


def _creatable(name: str, partitions: int, replicas: int, configs: dict[str, str]) -> Any:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreateTopicsRequest.CreatableTopicConfig(key, value) for key, value in configs.items()],
    )
