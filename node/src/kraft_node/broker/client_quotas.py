"""Quotas of clients: producer_byte_rate, consumer_byte_rate, request_percentage.

As in Kafka (KIP-13, 55, 124, 219), a client may use more than its share of bytes or of the loop's time. It then gets
its answer at once, with the time for which it must pause. Its connection is not read for that time. A consumer gets
this answer without records and must fetch them again. `metadata.client_quotas` decides which quota applies to a client
and which clients share it.

`server.connections.connection` charges every answer except the answer to a Fetch. The fetch handler charges fetches,
because the answer depends on the quota. Followers and other replication requests are free. If the cluster has no
quotas, `is_active` is False and no other check is made.

Time is measured in whole milliseconds, which is right on average: a quota covers some thousand requests.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.rates import Rate
from kraft_node.metadata.client_quotas import quota_of
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.config.view import ConfigView
    from kraft_node.base.env import Clock
    from kraft_node.base.request import RequestContext
    from kraft_node.metadata.client_quotas import Share
    from kraft_node.metadata.image import MetadataView

PRODUCED: Final = "producer_byte_rate"
FETCHED: Final = "consumer_byte_rate"
REQUESTED: Final = "request_percentage"
KEYS: Final = (PRODUCED, FETCHED, REQUESTED)
CLIENTS_MAX: Final = 20_000
"""Maximum of tracked clients; beyond it, the longest idle client starts again. A rate takes some 2 KiB if its windows
are full, and nodes are sized for twice as many idle clients."""
FORGOTTEN_MS: Final = 3_600_000
"""After an hour without use a rate starts again, as in Kafka."""
PERCENT_A_MS: Final = 0.1
"""The percentage of a second that a millisecond is."""


class _Quota:
    """One quota key: its shares, and their use."""

    __slots__ = ("_clock", "_found", "_image", "_rates", "_window_ms", "_windows", "is_set", "key")

    def __init__(self, key: str, image: MetadataView, clock: Clock, windows: int, window_ms: int) -> None:
        self.key = key
        self.is_set = False
        self._image = image
        self._clock = clock
        self._windows = windows
        self._window_ms = window_ms
        self._found: dict[tuple[str, str | None], tuple[Share, float] | None] = {}
        """Cached look-ups, by principal and client id."""
        self._rates: OrderedDict[Share, Rate] = OrderedDict()

    def changed(self) -> None:
        self.is_set = any(self.key in values for _, values in self._image.quotas.items())
        self._found.clear()
        if not self.is_set:
            self._rates.clear()

    def of(self, ctx: RequestContext) -> tuple[Share, float] | None:
        """The share and the limit of the client's quota."""
        if not self.is_set:
            return None
        who = (ctx.principal, ctx.client_id)
        if who not in self._found:
            if len(self._found) >= CLIENTS_MAX:
                self._found.clear()
            user = ctx.principal.partition(":")[2]
            self._found[who] = quota_of(self._image.quotas, self.key, user, ctx.client_id or "")
        return self._found[who]

    def record(self, ctx: RequestContext, value: float) -> int:
        """Record the use. Returns for how many milliseconds the client must pause."""
        found = self.of(ctx)
        if found is None:
            return 0
        share, limit = found
        now_ms = self._clock.monotonic_ms()
        rate = self._rates.pop(share, None)
        if rate is None or now_ms - rate.used_ms >= FORGOTTEN_MS:
            rate = Rate(self._windows, self._window_ms)
            if len(self._rates) >= CLIENTS_MAX:
                self._rates.popitem(last=False)
        self._rates[share] = rate
        rate.record(value, now_ms)
        return rate.throttle_ms(limit, now_ms)


class ClientQuotas:
    """The quotas of one broker. Call `changed` when the metadata's quotas have changed."""

    __slots__ = ("_clock", "_fetched", "_produced", "_requested", "_window_ms", "_windows", "is_active")

    def __init__(self, image: MetadataView, clock: Clock, config: ConfigView) -> None:
        self.is_active = False
        """Whether any quota exists."""
        self._clock = clock
        self._windows = config.int("quota.window.num")
        self._window_ms = config.int("quota.window.size.seconds") * 1000
        self._produced, self._fetched, self._requested = (
            _Quota(key, image, clock, self._windows, self._window_ms) for key in KEYS
        )

    def changed(self) -> None:
        """Drop cached limits and update `is_active`. Measured rates stay while any quota of their kind exists."""
        for quota in (self._produced, self._fetched, self._requested):
            quota.changed()
        self.is_active = self._produced.is_set or self._fetched.is_set or self._requested.is_set

    def charge(self, ctx: RequestContext, response: Any) -> int:
        """Count an answer (None: no answer), and set its throttle time. Returns that time in milliseconds."""
        if ctx.api_key == ApiKey.FETCH:
            return 0
        throttle_ms = 0
        if ctx.api_key == ApiKey.PRODUCE:
            throttle_ms = self._produced.record(ctx, ctx.received_bytes)
        if response is not None:
            throttle_ms = max(throttle_ms, self._time_of(ctx))
            if throttle_ms > 0 and "throttle_time_ms" in response._fields:
                response.throttle_time_ms = max(throttle_ms, response.throttle_time_ms)
        return throttle_ms

    def fetch_bytes_max(self, ctx: RequestContext) -> int | None:
        """The maximum size of one fetch answer, so that a single answer does not exceed the quota."""
        found = self._fetched.of(ctx)
        return None if found is None else int(found[1] * (self._windows - 1) * self._window_ms / 1000)

    def fetched(self, ctx: RequestContext, size: int) -> int:
        """A consumer is about to get `size` bytes. Returns how long it must pause instead, without getting them."""
        time_ms = self._time_of(ctx)
        throttle_ms = max(time_ms, self._fetched.record(ctx, size))
        if throttle_ms > 0:
            self._fetched.record(ctx, -size)
        return throttle_ms

    def _time_of(self, ctx: RequestContext) -> int:
        """Record the time that the request has taken. Returns the throttle time in milliseconds."""
        spent_ms = ctx.spent_ms
        if spent_ms < 0:  # it is being handled
            spent_ms = self._clock.monotonic_ms() - ctx.handled_ms
        return min(self._window_ms, self._requested.record(ctx, spent_ms * PERCENT_A_MS))
