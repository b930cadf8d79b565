"""What clients may send, be sent and have done for them: producer_byte_rate, consumer_byte_rate, request_percentage.

As in Kafka (KIP-13, 55, 124, 219): who uses more than its share of bytes or of the loop's time is answered at once,
told for how long to be silent, and not read from for so long. A consumer is told without the records, which it then has
to ask for again. Which quota a client has, and with whom it shares it, is `metadata.client_quotas`.

`server.connection` charges every answer, but for that of a Fetch, which the fetch handler charges, as what it says
depends on it. Followers and everything else by which brokers replicate are free. Without a quota anywhere in the
cluster `is_active` is false, and nothing else is looked at.

Time is measured in whole milliseconds, which is right on average: a quota looks at some thousand requests at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.rates import Rate
from kraft_node.metadata.client_quotas import quota_of
from kraft_node.wire.api import ApiKey

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
"""Clients whose use is remembered; beyond that the one that has been quiet for longest begins anew. A rate takes some
2 KiB when its windows are full, and twice as many idle clients is what a node is sized for."""
FORGOTTEN_MS: Final = 3_600_000
"""What has been quiet for an hour begins anew: so does Kafka's."""
PERCENT_A_MS: Final = 0.1
"""A millisecond is so many percent of a second."""


class _Quota:
    """One of the keys: who has it, and what they have used."""

    __slots__ = ("_clock", "_found", "_image", "_rates", "_window_ms", "_windows", "is_set", "key")

    def __init__(self, key: str, image: MetadataView, clock: Clock, windows: int, window_ms: int) -> None:
        self.key = key
        self.is_set = False
        self._image = image
        self._clock = clock
        self._windows = windows
        self._window_ms = window_ms
        self._found: dict[tuple[str, str | None], tuple[Share, float] | None] = {}
        """What was looked up, by principal and client id."""
        self._rates: OrderedDict[Share, Rate] = OrderedDict()

    def changed(self) -> None:
        self.is_set = any(self.key in values for _, values in self._image.quotas.items())
        self._found.clear()
        if not self.is_set:
            self._rates.clear()

    def of(self, ctx: RequestContext) -> tuple[Share, float] | None:
        """Who shares the client's quota, and how much it is."""
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
        """So much has been used; for how many milliseconds the client is to be silent."""
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
    """Of one broker. `changed` when the metadata's quotas have."""

    __slots__ = ("_clock", "_fetched", "_produced", "_requested", "_window_ms", "_windows", "is_active")

    def __init__(self, image: MetadataView, clock: Clock, config: ConfigView) -> None:
        self.is_active = False
        """Whether anybody has a quota."""
        self._clock = clock
        self._windows = config.int("quota.window.num")
        self._window_ms = config.int("quota.window.size.seconds") * 1000
        self._produced, self._fetched, self._requested = (
            _Quota(key, image, clock, self._windows, self._window_ms) for key in KEYS
        )

    def changed(self) -> None:
        for quota in (self._produced, self._fetched, self._requested):
            quota.changed()
        self.is_active = self._produced.is_set or self._fetched.is_set or self._requested.is_set

    def charge(self, ctx: RequestContext, response: Any) -> int:
        """Count an answer (None for none), note in it for how long the client is to be silent; that in milliseconds."""
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
        """What one fetch may be answered with at most, so that it does not exceed the quota by itself."""
        found = self._fetched.of(ctx)
        return None if found is None else int(found[1] * (self._windows - 1) * self._window_ms / 1000)

    def fetched(self, ctx: RequestContext, size: int) -> int:
        """A consumer is about to be sent `size` bytes; for how long it is to be silent instead, not having got them."""
        time_ms = self._time_of(ctx)
        throttle_ms = max(time_ms, self._fetched.record(ctx, size))
        if throttle_ms > 0:
            self._fetched.record(ctx, -size)
        return throttle_ms

    def _time_of(self, ctx: RequestContext) -> int:
        spent_ms = ctx.spent_ms
        if spent_ms < 0:  # it is being handled
            spent_ms = self._clock.monotonic_ms() - ctx.handled_ms
        return min(self._window_ms, self._requested.record(ctx, spent_ms * PERCENT_A_MS))
