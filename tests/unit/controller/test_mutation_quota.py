"""controller_mutation_rate (KIP-599): each client's bucket, the cost of mutations, and refusals."""

from __future__ import annotations

import pytest

from kraft_node.base.request import RequestContext
from kraft_node.controller import mutation_quota
from kraft_node.controller.mutation_quota import KEY, UNBOUNDED, MutationQuotas, Permission
from kraft_node.metadata.client_quotas import Entity
from kraft_node.metadata.image import MetadataImage
from kraft_protocol.errors import ErrorCode, KafkaError
from tests.stopped_time import StoppedTime

STRICT = 6
WINDOW_S = 11
USER, CLIENT, BOTH = (("user", "u"),), (("client-id", "c"),), (("client-id", "c"), ("user", "u"))


class Rig:
    def __init__(self) -> None:
        self.time = StoppedTime(now=1_000)
        self.image = MetadataImage()
        self.quotas = MutationQuotas(self.image, self.time, WINDOW_S)

    def limit(self, entity: Entity, rate: float | None) -> None:
        if rate is None:
            self.image.quotas.remove(entity)
        else:
            self.image.quotas.put(entity, {KEY: rate})

    def of(self, client: str | None = "c", user: str = "u", version: int = STRICT) -> Permission:
        ctx = RequestContext(19, version, 1, client, "h", "L", f"User:{user}", None, 0, lambda _ctx, _message: None)
        return self.quotas.of(ctx, STRICT)

    def refused(self, partitions: int, client: str | None = "c", user: str = "u") -> int:
        """The throttle time of a refusal, 0 if it is allowed."""
        quota = self.of(client, user)
        try:
            quota.record(partitions)
        except KafkaError as e:
            assert e.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert quota.throttle_ms > 0
        return quota.throttle_ms


def test_without_a_quota_mutations_are_unbounded() -> None:
    rig = Rig()
    assert rig.of() is UNBOUNDED
    rig.limit(CLIENT, 1.0)
    assert rig.of("other") is UNBOUNDED
    rig.image.quotas.put(USER, {"producer_byte_rate": 5.0})
    assert rig.of("other") is UNBOUNDED


@pytest.mark.parametrize("rate", [5e-324, 1e-300])
def test_the_pause_for_the_smallest_rates_fits_an_answer(rate: float) -> None:
    rig = Rig()
    rig.limit(CLIENT, rate)
    assert rig.refused(1) == 0
    assert rig.refused(1) == mutation_quota.THROTTLE_MS_MAX


def test_a_window_may_be_used_at_once_and_exceeded_by_one_change() -> None:
    rig = Rig()
    rig.limit(CLIENT, 2.0)
    assert rig.refused(20) == 0
    assert rig.refused(10) == 0  # two tokens were left: eight are owed now
    assert rig.refused(1) == 4000
    rig.time.advance(3999)
    assert rig.refused(1) == 1
    rig.time.advance(1)
    assert rig.refused(1) == 0
    rig.time.advance(60_000)
    assert rig.refused(22) == 0  # never more than the window
    assert rig.refused(1) == 0
    assert rig.refused(1) == 500


def test_old_versions_are_carried_out_and_throttled() -> None:
    rig = Rig()
    rig.limit(CLIENT, 1.0)
    first, second = rig.of(version=STRICT - 1), rig.of(version=STRICT - 1)
    first.record(21)
    second.record(5)
    assert (first.throttle_ms, second.throttle_ms) == (10_000, 15_000)


def test_several_changes_of_one_request_count_one_by_one() -> None:
    rig = Rig()
    rig.limit(CLIENT, 1.0)
    quota = rig.of()
    quota.record(11)
    quota.record(1)
    with pytest.raises(KafkaError):
        quota.record(1)
    assert quota.throttle_ms == 1000


@pytest.mark.parametrize(
    ("entity", "shared_by_clients", "shared_by_users"),
    [
        (BOTH, False, False),
        ((("client-id", None), ("user", "u")), False, False),
        (USER, True, False),
        ((("client-id", "c"), ("user", None)), False, False),
        ((("client-id", None), ("user", None)), False, False),
        ((("user", None),), True, False),
        (CLIENT, False, True),
        ((("client-id", None),), False, True),
    ],
)
def test_clients_and_users_share_the_bucket_of_their_entity(
    entity: Entity, *, shared_by_clients: bool, shared_by_users: bool
) -> None:
    rig = Rig()
    rig.limit(entity, 1.0)
    assert rig.refused(100) == 0
    assert rig.refused(1) > 0
    for client, user, shared in (("d", "u", shared_by_clients), ("c", "v", shared_by_users)):
        if rig.of(client, user) is not UNBOUNDED:
            assert (rig.refused(1, client, user) > 0) == shared


def test_the_most_particular_quota_wins() -> None:
    rig = Rig()
    order: list[Entity] = [
        (("client-id", None),), CLIENT, (("user", None),), (("client-id", None), ("user", None)),
        (("client-id", "c"), ("user", None)), USER, (("client-id", None), ("user", "u")), BOTH,
    ]  # fmt: skip
    for number, entity in enumerate(order, 1):
        rig.limit(entity, float(number))
        rig.quotas.clear()
        rig.refused(100 + WINDOW_S * number)
        assert rig.refused(1) == round(100 / number * 1000)


def test_clients_without_a_name_have_the_quotas_of_their_user_only() -> None:
    rig = Rig()
    rig.limit((("client-id", None),), 1.0)
    assert rig.of(None) is UNBOUNDED
    rig.limit(USER, 1.0)
    assert rig.refused(100, None) == 0
    assert rig.refused(1, "") > 0


def test_a_new_rate_applies_at_once_and_idle_time_clears_debt() -> None:
    rig = Rig()
    rig.limit(CLIENT, 0.01)
    rig.refused(100)
    slow = rig.refused(1)
    rig.limit(CLIENT, 100.0)
    assert 0 < rig.refused(1) < slow / 1000
    rig.limit(CLIENT, 0.001)
    assert rig.refused(1) > 3_600_000
    rig.time.advance(3_600_000)
    assert rig.refused(1) == 0


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_quota, "BUCKETS_MAX", 3)
    rig = Rig()
    rig.limit((("client-id", None),), 0.01)
    for name in ("a", "b", "c"):
        rig.refused(10, name)
    rig.refused(1, "a")
    rig.refused(10, "d")
    assert rig.refused(1, "a") > 0
    assert rig.refused(1, "b") == 0  # the least recently used bucket was dropped
