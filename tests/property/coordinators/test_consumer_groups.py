"""Random members of a consumer group against its laws, with reloads, lost responses and slow commits in between.

The clients are honest: a client uses a partition from the response that assigns it, until it has given it up, which may
take time. Then its heartbeats no longer report it. Laws: at most one client uses a partition; a quiet group becomes
stable, and then one subscriber uses every partition of a subscribed topic.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kraft_protocol.errors import ErrorCode
from tests.tiers import examples
from tests.unit.coordinators.harness import Node, Topics

CLIENTS = st.integers(0, 3)
TOPICS = st.sampled_from([("t",), ("t",), ("u",), ("t", "u")])
SLOW = st.sampled_from([True, True, False])
SESSION_MS = 45_000
REBALANCE_MS = 20_000


class Client:
    """One consumer: what it believes, and what it uses."""

    def __init__(self, number):
        self.instance = f"i{number}" if number == 3 else None
        self.lives = 0
        self.number = number
        self.epoch = None
        self.topics = ()
        self.using = {}
        self.assigned = {}
        """What it uses as soon as it has given up the rest."""
        self.alive_until = 0
        self.give_up_by = None
        """When the broker removes it, unless it reports by then that it has given up partitions."""

    @property
    def member(self):
        return f"c{self.number}-{self.lives}"

    @property
    def parts(self):
        return {(topic, number) for topic, numbers in self.using.items() for number in numbers}

    def forget(self):
        self.epoch, self.using, self.assigned, self.give_up_by = None, {}, {}, None

    def ends_at(self):
        return self.alive_until if self.give_up_by is None else min(self.alive_until, self.give_up_by)

    def take(self, assigned, *, slow):
        """A new assignment; a slow client goes on to use what it must give up."""
        self.assigned = assigned
        gone = [t for t, numbers in self.using.items() if not set(numbers) <= set(assigned.get(t, ()))]
        if not (slow and gone):
            self.using = assigned


class ConsumerGroups(RuleBasedStateMachine):
    @initialize(interval=st.sampled_from([0, 1_000]))
    def begin(self, interval):
        self.node = Node(topics=Topics(t=5, u=3), consumer_times=(SESSION_MS, 5_000, interval))
        self.clients = [Client(i) for i in range(4)]

    def send(self, client, epoch, *, full=False, lost=False, slow=False):
        """A heartbeat; its answer reaches the client unless it is lost."""
        now, reported = self.node.time.now, client.parts
        call = self.node.beat(
            client.member,
            epoch,
            *(client.topics if epoch == 0 or full else ()),
            owned=client.using if epoch > 0 else None,
            instance_id=client.instance,
            **({"rebalance_timeout_ms": REBALANCE_MS} if full else {}),
        )
        assert call.answered
        give_up_by = client.give_up_by or now + REBALANCE_MS
        if lost or call.error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            client.give_up_by = give_up_by  # the response may have taken partitions
            return
        if call.error is not ErrorCode.NONE:
            client.forget()
            return
        client.epoch = call.response.member_epoch
        client.alive_until = now + SESSION_MS
        found = self.node.assigned(call)
        if found is not None:
            client.take(found, slow=slow)
        assigned = {(topic, number) for topic, numbers in client.assigned.items() for number in numbers}
        client.give_up_by = None if reported <= assigned else give_up_by

    # -- what clients do

    @rule(i=CLIENTS, topics=TOPICS)
    def join(self, i, topics):
        if self.clients[i].epoch is None:
            self.join_as(self.clients[i], topics)

    def join_as(self, client, topics):
        client.lives += 1
        client.topics = topics
        self.send(client, 0)

    @rule(i=CLIENTS, full=st.booleans(), lost=st.booleans(), slow=SLOW)
    def beat(self, i, full, lost, slow):
        client = self.clients[i]
        if client.epoch is None:
            self.join_as(client, ("t",))
        else:
            self.send(client, client.epoch, full=full or lost, lost=lost, slow=slow)

    @rule(i=CLIENTS)
    def give_up(self, i):
        self.clients[i].using = self.clients[i].assigned

    @rule(i=CLIENTS, topics=TOPICS)
    def subscribe(self, i, topics):
        client = self.clients[i]
        if client.epoch is not None:
            client.topics = topics
            self.send(client, client.epoch, full=True)

    @rule(i=CLIENTS)
    def rejoin(self, i):
        """With the same id, as after an error: the client has given up everything."""
        client = self.clients[i]
        if client.epoch is not None:
            client.using = client.assigned = {}
            self.send(client, 0)

    @rule(i=CLIENTS, for_a_while=st.booleans())
    def leave(self, i, for_a_while):
        client = self.clients[i]
        if client.epoch is not None:
            client.using = {}
            self.send(client, -2 if for_a_while and client.instance else -1)
            client.forget()

    @rule(i=CLIENTS)
    def die(self, i):
        """Without a word; it uses nothing any more."""
        self.clients[i].forget()

    # -- what happens around them

    @rule(ms=st.sampled_from([10, 1_000, 5_000, 19_000]))
    def wait(self, ms):
        self.node.wait(ms)
        for client in self.clients:
            if client.epoch is not None and client.ends_at() <= self.node.time.now:
                client.forget()  # a client ends its session by itself, and so does one that is late to give up

    @rule()
    def reload(self):
        self.node.restart()

    @rule(more=st.integers(1, 2))
    def extend(self, more):
        if self.node.topics.counts["t"] < 12:
            self.node.topics.counts["t"] += more
            self.node.topics_changed("t")

    @rule(i=CLIENTS)
    def fail(self, i):
        """The log refuses the records of a heartbeat."""
        client = self.clients[i]
        if client.epoch is not None:
            self.node.logs.fail = ErrorCode.NOT_ENOUGH_REPLICAS
            self.send(client, client.epoch, full=True)
            self.node.logs.fail = None

    @rule()
    def settle(self):
        """All behave for a while: the group becomes stable, and complete."""
        for _ in range(80):
            self.node.wait(1_000)
            for client in self.clients:
                client.using = client.assigned
                if client.epoch is not None:
                    self.send(client, client.epoch, full=True)
        group = self.node.consumer_group()
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        live = [client for client in self.clients if client.epoch is not None]
        assert group.group_state == ("Stable" if live else "Empty")
        assert {m.member_id for m in group.members} == {client.member for client in live}
        wanted = {topic for client in live for topic in client.topics}
        used = sorted(part for client in live for part in client.parts)
        assert used == sorted((t, n) for t in wanted for n in range(self.node.topics.counts[t]))
        for client in live:
            assert set(client.using) <= set(client.topics)

    # -- laws

    @invariant()
    def a_partition_is_used_by_one_client_at_most(self):
        used = [part for client in getattr(self, "clients", ()) for part in client.parts]
        assert len(used) == len(set(used)), {c.member: c.using for c in self.clients}


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
