"""Random members of one group against its laws, with reloads in between.

The model's clients are honest but forgetful: they join, fetch assignments, send heartbeats, commit, leave, or stop
sending. Time passes, the broker may restart, and its writes may be slow to commit.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraft_protocol.errors import ErrorCode
from tests.tiers import examples
from tests.unit.coordinators.harness import Node, subscription

CLIENTS = st.integers(0, 4)
STATIC = {3: "static-3", 4: "static-4"}


class Client:
    """One consumer: its id, the generation that it believes in, and its pending requests."""

    def __init__(self, number):
        self.number = number
        self.instance = STATIC.get(number)
        self.member = ""
        self.generation = -1
        self.join = None
        self.sync = None
        self.assignment = None

    def forget(self):
        self.member, self.generation, self.join, self.sync, self.assignment = "", -1, None, None, None


class Groups(RuleBasedStateMachine):
    @initialize(delay=st.sampled_from([0, 500]))
    def begin(self, delay):
        self.node = Node(initial_rebalance_delay_ms=delay)
        self.clients = [Client(i) for i in range(5)]
        self.acknowledged = {}
        self.generations = {}

    # -- what clients do

    @rule(i=CLIENTS, topics=st.sampled_from([("t",), ("t", "u")]))
    def join(self, i, topics):
        client = self.clients[i]
        client.sync, client.assignment = None, None
        meta = subscription(*topics)
        client.join = self.node.join(
            member=client.member,
            instance=client.instance,
            protocols={"range": meta, "sticky": meta},
            session=3_000 + 1_000 * i,
            rebalance=5_000,
        )
        self.settle()

    @rule(i=CLIENTS)
    def sync(self, i):
        client = self.clients[i]
        if client.generation < 0 or client.join is not None or client.sync is not None:
            return
        assignments = {}
        if self.generations[client.generation]["leader"] == client.member:
            members = self.generations[client.generation]["members"]
            assignments = {m: f"{client.generation}/{m}".encode() for m in members}
        client.sync = self.node.sync(client.member, client.generation, assignments, instance=client.instance)
        self.settle()

    @rule(i=CLIENTS)
    def heartbeat(self, i):
        client = self.clients[i]
        if client.generation < 0 or client.join is not None:
            return
        error = self.node.heartbeat(client.member, client.generation, instance=client.instance)
        if error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            client.forget()
        elif error in {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}:
            client.generation, client.assignment = -1, None

    @rule(i=CLIENTS)
    def leave(self, i):
        client = self.clients[i]
        if client.member:
            self.node.leave((client.member, client.instance))
            client.forget()

    @rule(i=CLIENTS)
    def die(self, i):
        self.clients[i].forget()

    @rule(who=st.sets(CLIENTS, min_size=1), rounds=st.integers(1, 6))
    def work(self, who, rounds):
        """Some clients do what consumers do: join, fetch the assignment, then heartbeats."""
        for _ in range(rounds):
            for i in sorted(who):
                client = self.clients[i]
                if client.join is not None or client.sync is not None:
                    continue
                if client.generation < 0:
                    self.join(i, ("t",))
                elif client.assignment is None:
                    self.sync(i)
                else:
                    self.heartbeat(i)
            self.time_passes(500)

    @rule(i=CLIENTS, partition=st.integers(0, 3), offset=st.integers(0, 1_000))
    def commit(self, i, partition, offset):
        client = self.clients[i]
        call = self.node.commit(
            {("t", partition): offset}, member=client.member, generation=client.generation, instance=client.instance
        )
        if call.answered and call.response.topics[0].partitions[0].error_code == 0:
            self.acknowledged[partition] = offset

    # -- faults

    @rule(ms=st.sampled_from([1, 400, 1_500, 4_000, 8_000]))
    def time_passes(self, ms):
        self.node.time.advance(ms)
        self.settle()

    @rule()
    def restart(self):
        shard = self.node.coordinator.shards[0]
        before = shard.groups.get("g")
        known = None
        if before is not None and before.state.value in {"Stable", "Empty"}:
            known = snapshot(before)
        offsets = self.node.offsets()
        self.node.coordinator.shutdown()
        self.settle()
        for client in self.clients:
            client.join = client.sync = None
        self.node.start()
        assert self.node.offsets() == offsets, "offsets survive a reload"
        after = self.node.coordinator.shards[0].groups.get("g")
        if known is not None and after is not None:
            assert snapshot(after) == known, "a settled group is the same after a reload"

    # -- answers

    def settle(self):
        for client in self.clients:
            if client.join is not None and client.join.answered:
                self.joined(client, client.join)
                client.join = None
            if client.sync is not None and client.sync.answered:
                if client.sync.error is ErrorCode.NONE:
                    client.assignment = client.sync.response.assignment
                    if client.assignment and client.instance is None:
                        assert client.assignment == f"{client.generation}/{client.member}".encode()
                elif client.sync.error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
                    client.forget()
                else:
                    client.generation = -1
                client.sync = None

    def joined(self, client, call):
        response = call.response
        if call.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member = response.member_id
            return
        if call.error is not ErrorCode.NONE:
            client.forget()
            return
        client.member, client.generation = response.member_id, response.generation_id
        known = self.generations.setdefault(
            client.generation, {"protocol": response.protocol_name, "leader": response.leader, "members": set()}
        )
        assert known["protocol"] == response.protocol_name, "one generation has one protocol"
        if response.members:
            assert response.leader == client.member, "only the leader sees the members"
            known["leader"], known["members"] = response.leader, {m.member_id for m in response.members}
            assert client.member in known["members"]

    # -- laws

    @precondition(lambda self: hasattr(self, "node"))
    @invariant()
    def counters_tell_the_truth(self):
        shard = self.node.coordinator.shards[0]
        for group in shard.groups.values():
            waiting = [m for m in group.members.values() if m.join is not None]
            assert group.members_joining == len(waiting)
            assert set(group.static_members.values()) <= set(group.members)
            assert group.pending_syncs <= set(group.members)
            assert not set(group.pending_members) & set(group.members)
            assert (group.leader in group.members) == bool(group.members)
            everyone = len(group.members)
            for member in group.members.values():
                assert any(group.supported[p] == everyone for p in member.protocols)
            state = group.state.value
            if state == "Empty":
                assert not group.members
            if state in {"Stable", "Empty"}:
                assert not waiting, f"nobody waits for a rebalance in {state}"
            if state == "PreparingRebalance":
                assert group.join_timer is not None, "a rebalance that is being prepared ends some day"
            for member in group.members.values():
                assert member.timer is not None or member.is_waiting, "every member can be found dead"
            if state == "CompletingRebalance":
                assert group.sync_timer is not None or not group.pending_syncs

    @precondition(lambda self: hasattr(self, "node"))
    @invariant()
    def assignments_are_of_this_generation(self):
        group = self.node.coordinator.shards[0].groups.get("g")
        if group is not None and group.state.value == "Stable":
            for member in group.members.values():
                if member.assignment:
                    assert member.assignment.startswith(f"{group.generation}/".encode()), "of this generation only"

    @precondition(lambda self: hasattr(self, "node"))
    @invariant()
    def acknowledged_offsets_are_there(self):
        found = self.node.offsets()
        for partition, offset in self.acknowledged.items():
            assert found[("t", partition)] == offset


def snapshot(group):
    return (
        group.state,
        group.generation,
        group.protocol,
        group.protocol_type,
        group.leader,
        {m.member_id: (m.instance_id, m.assignment, m.session_timeout_ms) for m in group.members.values()},
    )


Groups.TestCase.settings = settings(
    max_examples=examples(120), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGroups = Groups.TestCase
