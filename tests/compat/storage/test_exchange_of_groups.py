"""Live members of consumer groups (KIP-848) go on when the other server takes over the data directory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compat.clients.test_consumer_groups import create, members, produce, shared, until
from tests.compat.storage.test_exchange import as_clients_do
from tests.compat.targets import Target

CLIENT = "Data directories, written by one server and served by the other"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("exchange")]


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param("kraftcluster", "apache", marks=pytest.mark.slow), ("apache", "kraftcluster")]
)
def test_members_keep_their_partitions_when_the_server_changes(
    make_target: Callable[..., Target], first: str, second: str
) -> None:
    one = make_target(first, "one").start()
    create(one, 4, "t")
    with (
        members(one, "g", ["t"], {}, {"group.instance.id": "i"}) as (a, b),
        members(one, "p", ["^t.*"], {}) as (c,),
    ):
        until(lambda: shared(4, "t", a, b) and len(c.assigned) == 4, a, b, c)
        before = set(a.assigned), set(b.assigned)
        produce(one, "t", 4, 2)
        until(lambda: len(a.messages) + len(b.messages) == 8 and len(c.messages) == 8, a, b, c)
        a.consumer.commit(asynchronous=False)
        one.stop()
        other = make_target(second, "other", **{"log.dirs": str(one.folder / "data")})
        other.port, other.controller_port = one.port, one.controller_port
        other.start()
        produce(other, "t", 4, 1)
        until(lambda: len(a.messages) + len(b.messages) == 12 and len(c.messages) == 12, a, b, c)
        assert (a.assigned, b.assigned) == before, "nobody was rebalanced"
        as_clients_do(lambda: a.consumer.commit(asynchronous=False))
