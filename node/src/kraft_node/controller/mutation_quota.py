"""How many partitions a client may create and delete in a second: the quota controller_mutation_rate (KIP-599).

Each quota has a token bucket, which fills at its rate up to what a window of `controller.quota.window.num` times
`controller.quota.window.size.seconds` allows. A change takes its partitions out of the bucket whatever is in it; while
less than nothing is in it, the newest versions of the requests are refused (`strict`), older ones carried out. Either
way the answer says how long until the bucket has made good for it, and the broker that has forwarded the request reads
nothing more from that client for so long.

Which quota applies to a client, and which clients share a bucket, is decided as in Kafka's ClientQuotaManager. Who
leads the quorum counts, from full buckets; standbys do not.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.metadata.client_quotas import quota_of

if TYPE_CHECKING:
    from kraft_node.base.env import Clock
    from kraft_node.base.request import RequestContext
    from kraft_node.metadata.client_quotas import Share
    from kraft_node.metadata.image import MetadataView

KEY: Final = "controller_mutation_rate"
BUCKETS_MAX: Final = 10_000
"""Clients whose use is remembered; beyond that the one that has been quiet for longest begins anew. A bucket takes some
200 bytes, and as many clients that administer topics nobody has."""
FORGOTTEN_MS: Final = 3_600_000
"""A bucket that nobody has asked for an hour is full again, however slowly it fills: so are Kafka's."""
THROTTLE_MS_MAX: Final = 2**31 - 1


class Bucket:
    """Tokens that flow in at `rate` a second, at most `burst`."""

    __slots__ = ("_at_ms", "_tokens")

    def __init__(self, burst: float, now_ms: int) -> None:
        self._tokens = burst
        self._at_ms = now_ms

    def fill(self, rate: float, burst: float, now_ms: int) -> float:
        """What is in it now, less than 0 for what is owed."""
        self._tokens = min(burst, self._tokens + rate * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        return self._tokens

    def take(self, tokens: float) -> float:
        """What is left."""
        self._tokens -= tokens
        return self._tokens

    def is_forgotten(self, now_ms: int) -> bool:
        return now_ms - self._at_ms >= FORGOTTEN_MS


class MutationQuota:
    """The quota as one request meets it."""

    __slots__ = ("_bucket", "_burst", "_clock", "_rate", "_strict", "throttle_ms")

    def __init__(self, bucket: Bucket, rate: float, burst: float, clock: Clock, *, strict: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._strict = strict
        self.throttle_ms = 0
        """For how long the client is to be silent after the answer."""

    def record(self, partitions: int) -> None:
        """So many partitions are about to be created or deleted. Raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
        tokens = self._bucket.fill(self._rate, self._burst, self._clock.monotonic_ms())
        if self._strict:
            if tokens < 0:
                self._throttle(tokens)
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            self._bucket.take(partitions)
            return
        tokens = self._bucket.take(partitions)
        if tokens < 0:
            self._throttle(tokens)

    def _throttle(self, tokens: float) -> None:
        self.throttle_ms = min(THROTTLE_MS_MAX, round(-tokens / self._rate * 1000)) if self._rate else THROTTLE_MS_MAX


class Unbounded:
    """No quota."""

    __slots__ = ()
    throttle_ms: Final = 0

    def record(self, partitions: int) -> None:
        """Anything goes."""


UNBOUNDED: Final = Unbounded()
Permission: TypeAlias = MutationQuota | Unbounded


class MutationQuotas:
    """The buckets of all clients; quotas are those of the committed image."""

    __slots__ = ("_buckets", "_clock", "_image", "_window_s")

    def __init__(self, image: MetadataView, clock: Clock, window_s: int) -> None:
        self._image = image
        self._clock = clock
        self._window_s = window_s
        """Seconds at the rate that a quiet client may use at once."""
        self._buckets: OrderedDict[Share, Bucket] = OrderedDict()

    def clear(self) -> None:
        """Begin anew with full buckets."""
        self._buckets.clear()

    def of(self, ctx: RequestContext, strict_since: int) -> Permission:
        """What the client of `ctx` may do; requests of version `strict_since` and later are refused beyond it."""
        if not len(self._image.quotas):
            return UNBOUNDED
        found = quota_of(self._image.quotas, KEY, ctx.principal.partition(":")[2], ctx.client_id or "")
        if found is None:
            return UNBOUNDED
        share, rate = found
        burst = rate * self._window_s
        bucket = self._bucket(share, burst)
        return MutationQuota(bucket, rate, burst, self._clock, strict=ctx.api_version >= strict_since)

    def _bucket(self, share: Share, burst: float) -> Bucket:
        buckets, now_ms = self._buckets, self._clock.monotonic_ms()
        bucket = buckets.pop(share, None)
        if bucket is None or bucket.is_forgotten(now_ms):
            bucket = Bucket(burst, now_ms)
            if len(buckets) >= BUCKETS_MAX:
                buckets.popitem(last=False)
        buckets[share] = bucket
        return bucket
