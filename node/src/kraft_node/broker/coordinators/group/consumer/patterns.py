"""Resolves the regular expressions of groups, in turns of the loop: which existing topics they match.

All expressions of a group are resolved together: if one is not resolved yet, if topics have been made since, or after
`group.consumer.regex.refresh.interval.ms`; never more often than every `MIN_INTERVAL_MS`. The topics are limited to
topics that the member may describe. This is the member with the heartbeat that started the resolution.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.broker.coordinators.group.consumer.changes import (
    ConsumerChange,
    EpochChange,
    GroupEpoch,
    PatternChange,
)
from kraft_node.broker.coordinators.group.consumer.heartbeat import hash_of
from kraft_node.broker.coordinators.group.consumer.member import Resolved
from kraft_node.broker.coordinators.regex.program import Pattern
from kraft_node.broker.coordinators.regex.syntax import PatternError

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
    from kraft_node.broker.coordinators.group.consumer.services import ConsumerServices
    from kraft_node.broker.coordinators.group.shard_state import ShardState
    from kraft_protocol.errors import KafkaError

log = logging.getLogger(__name__)

MIN_INTERVAL_MS: Final = 10_000
NAMES_A_STEP: Final = 100

Permitted: TypeAlias = Callable[[list[str]], Collection[str]]
"""The given names that the client may describe."""


class PatternResolver:
    """The resolutions of one shard's groups."""

    __slots__ = ("_running", "_services", "_shard", "_started_ms")

    def __init__(self, shard: ShardState, services: ConsumerServices) -> None:
        self._shard = shard
        self._services = services
        self._running: set[str] = set()
        self._started_ms: dict[str, int] = {}

    def consider(self, group: ConsumerGroup, permitted: Permitted) -> None:
        """Resolve the group's expressions if it is time."""
        group_id = group.group_id
        if not group.patterns or group_id in self._running:
            return
        now = self._shard.clock.monotonic_ms()
        last = self._started_ms.get(group_id)
        if (last is not None and now - last < MIN_INTERVAL_MS) or not self._is_due(group):
            return
        self._started_ms[group_id] = now
        self._running.add(group_id)
        steps = self._resolve(group, permitted)
        self._services.turns.add(lambda: next(steps, False))

    def forget(self, group_id: str) -> None:
        """Drop the state of a deleted group."""
        self._running.discard(group_id)
        self._started_ms.pop(group_id, None)

    def _is_due(self, group: ConsumerGroup) -> bool:
        found = [group.resolved.get(pattern) for pattern in group.patterns]
        resolved = [one for one in found if one is not None]
        if len(resolved) < len(found):
            return True
        topics = self._services.topics
        if topics.created_at is None:  # unknown: topics may have been made while another broker led
            topics.created_at = topics.offset()
        if any(one.version < topics.created_at for one in resolved):
            return True
        oldest = min(one.timestamp_ms for one in resolved)
        return self._shard.clock.wall_ms() - oldest > self._services.config.regex_refresh_interval_ms

    def _resolve(self, group: ConsumerGroup, permitted: Permitted) -> Generator[bool, None, None]:
        try:
            version = self._services.topics.offset()
            found = yield from self._matches(group, permitted)
        finally:
            self._running.discard(group.group_id)
        if self._shard.consumers.get(group.group_id) is group:
            self._store(group, version, found)

    def _matches(self, group: ConsumerGroup, permitted: Permitted) -> Generator[bool, None, dict[str, set[str]]]:
        names = self._services.topics.names()
        found: dict[str, set[str]] = {}
        compiled = []
        for text in list(group.patterns):
            found[text] = set()
            try:
                compiled.append(Pattern(text))
            except PatternError as error:  # accepted by another release
                log.error("regular expression is ignored group=%s pattern=%r error=%s", group.group_id, text, error)
            yield True
        for start in range(0, len(names), NAMES_A_STEP):
            some = names[start : start + NAMES_A_STEP]
            for pattern in compiled:
                matching = [name for name in some if pattern.matches(name)]
                if matching:
                    found[pattern.text].update(permitted(matching))
                yield True
        return found

    def _store(self, group: ConsumerGroup, version: int, found: dict[str, set[str]]) -> None:
        """Write the topics, and the next epoch if they have changed."""
        now = self._shard.clock.wall_ms()
        name = group.group_id
        changes: list[ConsumerChange] = []
        after: dict[str, Resolved] = dict(group.resolved)
        changed = False
        for pattern, matched in found.items():
            if pattern in group.patterns:
                resolved = after[pattern] = Resolved(frozenset(matched), version, now)
                before = group.resolved.get(pattern)
                changed = changed or resolved.topics != (frozenset() if before is None else before.topics)
                changes.append(PatternChange(name, pattern, resolved))
        if not changes:
            return
        if changed:
            names = set(group.subscribed).union(*(after[p].topics for p in group.patterns if p in after))
            hashed = hash_of(names, self._services.topics)
            changes.append(EpochChange(name, GroupEpoch(group.epoch + 1, hashed)))

        def done(error: KafkaError | None) -> None:
            if error is not None:
                log.warning("resolved regular expressions were not written group=%s error=%s", name, error)

        self._shard.write(changes, done)
