"""How many partitions a client may create and delete per second: the quota controller_mutation_rate (KIP-599).

Each quota has a token bucket. It fills at the quota's rate up to a window of `controller.quota.window.num` times
`controller.quota.window.size.seconds`. A change takes one token per partition, also from an empty bucket. While the
bucket is negative, the newest request versions are refused (`strict`) and older versions are carried out. In both
cases the answer contains the time until the bucket is no longer negative. The broker that forwarded the request reads
nothing from that client for this time.

Kafka's ClientQuotaManager defines which quota applies to a client and which clients share a bucket. Only the active
controller counts; it starts with full buckets.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.base.rates import THROTTLE_MS_MAX
from kraft_node.metadata.client_quotas import quota_of
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Clock
    from kraft_node.base.request import RequestContext
    from kraft_node.metadata.client_quotas import Share
    from kraft_node.metadata.image import MetadataView

KEY: Final = "controller_mutation_rate"
CREATE_TOPICS_STRICT: Final = 6
DELETE_TOPICS_STRICT: Final = 5
CREATE_PARTITIONS_STRICT: Final = 3
"""The first versions with clients that know THROTTLING_QUOTA_EXCEEDED (KIP-599); older clients are only slowed
down."""
BUCKETS_MAX: Final = 10_000
"""Maximum of tracked clients. Beyond it, the longest idle client starts with a full bucket again. A bucket takes some
200 bytes, and no cluster has so many clients that administer topics."""
FORGOTTEN_MS: Final = 3_600_000
"""After an hour without use, a bucket is full again, however slowly it fills. Kafka does the same."""


class Bucket:
    """A bucket that gains `rate` tokens per second, up to `burst`."""

    __slots__ = ("_at_ms", "_tokens")

    def __init__(self, burst: float, now_ms: int) -> None:
        self._tokens = burst
        self._at_ms = now_ms

    def fill(self, rate: float, burst: float, now_ms: int) -> float:
        """The tokens in the bucket now; less than 0 if tokens are owed."""
        self._tokens = min(burst, self._tokens + rate * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        return self._tokens

    def take(self, tokens: float) -> float:
        """Take tokens. Returns the rest."""
        self._tokens -= tokens
        return self._tokens

    def is_forgotten(self, now_ms: int) -> bool:
        """Whether the bucket was not filled for `FORGOTTEN_MS`: a new, full bucket replaces it then."""
        return now_ms - self._at_ms >= FORGOTTEN_MS


class MutationQuota:
    """The quota for one request."""

    __slots__ = ("_bucket", "_burst", "_clock", "_rate", "_strict", "throttle_ms")

    def __init__(self, bucket: Bucket, rate: float, burst: float, clock: Clock, *, strict: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._strict = strict
        self.throttle_ms = 0
        """How long the broker must not read from the client after the answer."""

    def record(self, partitions: int) -> None:
        """Count partitions that are about to be created or deleted. Raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
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
        self.throttle_ms = round(min(THROTTLE_MS_MAX, -tokens / self._rate * 1000)) if self._rate else THROTTLE_MS_MAX


class Unbounded:
    """No quota applies."""

    __slots__ = ()
    throttle_ms: Final = 0

    def record(self, partitions: int) -> None:
        """Do nothing."""


UNBOUNDED: Final = Unbounded()
Permission: TypeAlias = MutationQuota | Unbounded


class MutationQuotas:
    """The buckets of all clients. The quotas come from the committed image."""

    __slots__ = ("_buckets", "_clock", "_image", "_window_s")

    def __init__(self, image: MetadataView, clock: Clock, window_s: int) -> None:
        self._image = image
        self._clock = clock
        self._window_s = window_s
        """Seconds of the rate that an idle client may use at once."""
        self._buckets: OrderedDict[Share, Bucket] = OrderedDict()

    def clear(self) -> None:
        """Start again with full buckets."""
        self._buckets.clear()

    def of(self, ctx: RequestContext, strict_since: int) -> Permission:
        """The quota for the client of `ctx`. Above it, requests of version `strict_since` and later are refused."""
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
