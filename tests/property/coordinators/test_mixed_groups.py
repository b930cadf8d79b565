"""A consumer group with members of both protocols that come, go, and change their protocol.

One member of the new protocol always stays, so the group never becomes a classic one. Laws: no partition is used by two
members; a quiet group becomes stable, and then its members use every partition.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_protocol.errors import ErrorCode
from tests.tiers import examples
from tests.unit.coordinators.group_clients import Classic, Modern
from tests.unit.coordinators.harness import Node, Topics

PLACES = 4
ACTIONS = st.sampled_from(
    [*["step"] * 3, *["slow"] * 3, "classic", "cooperative", "modern", "leave", "die", "wait", "reload"]
)
SESSION_MS = {Classic: 10_000, Modern: 45_000}


class Group:
    """The clients by place; place 0 is the member that stays."""

    def __init__(self):
        self.node = Node(topics=Topics(t=7), consumer_times=(45_000, 5_000, 0))
        self.clients = {0: Modern(self.node, "anchor")}
        self.seen = {}
        self.lives = 0

    def step(self, place, *, slow=False):
        client = self.clients[place]
        if slow and isinstance(client, Modern):
            client.step(slow=True)
        else:
            client.step()
        self.seen[place] = self.node.time.now

    def put(self, place, client):
        if place and place not in self.clients:
            self.clients[place] = client
            if isinstance(client, Modern):
                self.step(place)
            elif client.join() is ErrorCode.NONE:
                client.sync()
            self.seen[place] = self.node.time.now

    def leave(self, place):
        client = self.clients.pop(place)
        if isinstance(client, Modern):
            self.node.beat(client.member, -1)
        else:
            self.node.leave((client.member, None))

    def do(self, place, action):
        node = self.node
        if action == "wait":
            self.pass_time(3_000)
        elif action == "reload":
            node.restart()
        elif action == "modern":
            self.lives += 1
            self.put(place, Modern(node, f"m{self.lives}"))
        elif action in {"classic", "cooperative"}:
            self.put(place, Classic(node, eager=action == "classic"))
        elif place in self.clients:
            if action in {"step", "slow"}:
                self.step(place, slow=action == "slow")
            elif place and action == "leave":
                self.leave(place)
            elif place:
                del self.clients[place]  # it uses nothing any more, and says nothing

    def pass_time(self, ms):
        self.node.wait(ms)
        self.step(0)
        for place, client in list(self.clients.items()):
            if self.node.time.now - self.seen[place] >= SESSION_MS[type(client)] - 3_000:
                self.step(place)  # no honest client is silent for longer

    def check(self):
        used = [p for client in self.clients.values() for p in client.parts.get("t", ())]
        assert len(used) == len(set(used)), {place: c.parts for place, c in self.clients.items()}
        return sorted(used)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, PLACES - 1), ACTIONS), min_size=20, max_size=40))
def test_members_of_both_protocols_share_without_overlap(steps):
    group = Group()
    group.step(0)
    for place, action in steps:
        group.do(place, action)
        group.check()
    for _ in range(70):
        group.node.wait(1_000)
        for place in list(group.clients):
            group.step(place)
            group.check()
    assert group.check() == list(range(7)), {place: c.parts for place, c in group.clients.items()}
    assert group.node.listed()["g"] == ("Stable", "consumer", "consumer")
    assert len(group.node.consumer_group().members) == len(group.clients)
