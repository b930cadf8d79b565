"""Members of a classic group that rebalance cooperatively (KIP-429), as with the assignors `cooperative-sticky`.

A member keeps its partitions while the group rebalances, and goes on reading them. A partition that must move is left
out of the assignment at first. Its owner commits, gives it up, and joins again: then the leader assigns it.
A member tells the leader what it owns and since which generation, in version 3 of the consumer protocol, or in version
1 with the generation in its user data. It keeps its id if the coordinator moves, or if a heartbeat has no answer.

Laws, besides those of groups (`offsets`, and `owners` and `epoch owner` of `groups.ownership`):

- `handover`   a member may commit until it joins the next generation, but not once another member has its partition.
  The next owner of a partition that was given up in order begins exactly where the former owner has stopped
- `claimed`    in one generation, two members never say that they own the same partition
- `settled`    after all faults, the members share all partitions evenly in one stable generation
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from kraft_node.testing.groups.clients import STABLE_MAX_MS, is_newest, pause_sometimes
from kraft_node.testing.groups.ownership import Ownership, Partition
from kraft_node.testing.groups.stability import coordinating, existing, unstable
from kraft_node.testing.workloads.consumer import LEAVE, Consumer, Rejoin, assignments, fetch_committed
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import codec, stored
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from random import Random

    from kraft_node.testing.checker import Checker
    from kraft_node.testing.cluster_scenario import ClusterScenario
    from kraft_node.testing.machine import SimCluster

GROUP: Final = "cooperative"
OLD_VERSION, VERSION = 1, 3
"""Of the consumer protocol."""
NO_GENERATION: Final = -1
GENERATION_BYTES: Final = 4
LEAVES, DIES = 0.04, 0.03
"""The probabilities of leaving, and of ending without leaving, after a round of fetches."""
LOOKS: Final = 0.3
"""How often the leader looks for new partitions after a round."""
REVOKES_MAX_MS: Final = 300.0
"""How long an application works on partitions that it must give up."""
COMMITS_MAX: Final = 5
"""Attempts to commit before partitions are given up."""
MOVED: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    )
)  # fmt: skip
"""Errors after which a member goes on with its id and its partitions."""


class Again(Rejoin):
    """The request may be repeated by the same member."""


class Claim(NamedTuple):
    """What a member says that it owns."""

    owned: frozenset[Partition]
    generation: int


def written(topics: Iterable[str], claim: Claim, version: int) -> bytes:
    """The subscription of a member."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(claim.owned):
        by_topic.setdefault(topic, []).append(index)
    row = stored.ConsumerProtocolSubscription.TopicPartition
    subscription = stored.ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=claim.generation.to_bytes(GENERATION_BYTES, "big", signed=True) if version == OLD_VERSION else None,
        owned_partitions=[row(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
        generation_id=claim.generation if version == VERSION else NO_GENERATION,
    )
    return version.to_bytes(2, "big") + codec.encode(subscription, version)


def read(metadata: bytes) -> Claim:
    """What a subscription says."""
    version = int.from_bytes(metadata[:2], "big")
    found = codec.decode(stored.ConsumerProtocolSubscription, bytes(metadata[2:]), version)
    owned = frozenset((row.topic, index) for row in found.owned_partitions for index in row.partitions)
    if version == OLD_VERSION:
        return Claim(owned, int.from_bytes(bytes(found.user_data or b""), "big", signed=True))
    return Claim(owned, found.generation_id)


def assigned(claims: Mapping[str, Claim], partitions: Sequence[Partition]) -> dict[str, list[Partition]]:
    """An even assignment in which as many partitions as possible stay with their owners.

    A partition that must move is left out until its owner has given it up.
    """
    owners = {
        partition: member
        for member, claim in sorted(claims.items(), key=lambda entry: entry[1].generation)
        for partition in claim.owned
    }
    least, more = divmod(len(partitions), len(claims))
    found: dict[str, list[Partition]] = {member: [] for member in sorted(claims)}
    for member in sorted(claims, key=lambda each: (-len(claims[each].owned), each)):
        kept = [partition for partition in partitions if owners.get(partition) == member]
        has_more = more > 0 and len(kept) > least
        more -= has_more
        found[member] = kept[: least + has_more]
    placed = {partition for own in found.values() for partition in own}
    for partition in partitions:
        if partition not in placed:
            smallest = min(found, key=lambda each: (len(found[each]), each))
            found[smallest].append(partition)
    return {
        member: [partition for partition in own if owners.get(partition, member) == member]
        for member, own in found.items()
    }


class GivenUp(NamedTuple):
    """Where a member stopped when it gave a partition up."""

    member: str
    offset: int


class LatestOwner(NamedTuple):
    """The generation in which a member got a partition, and the member."""

    generation: int
    member: str


NOBODY: Final = LatestOwner(NO_GENERATION, "")


class Handovers:
    """Partitions that were given up in order, and have no new owner yet."""

    def __init__(self, checker: Checker, group: str) -> None:
        self._checker = checker
        self._group = group
        self._given: dict[Partition, GivenUp] = {}
        self.takes: Counter[Partition] = Counter()
        """How often each partition got an owner."""
        self.owners: dict[Partition, LatestOwner] = {}
        """The owner in the latest generation."""
        self.judged = 0

    def give(self, member: str, positions: Mapping[Partition, int], takes: Mapping[Partition, int]) -> None:
        """The member has committed these positions, and reads these partitions no more.

        `takes`: from the moment at which it stopped. A paused member may be late: then others have had the partition.
        """
        for partition, offset in positions.items():
            if self.takes[partition] == takes.get(partition, 0):
                self._given[partition] = GivenUp(member, offset)

    def give_back(self, unread: Mapping[Partition, GivenUp]) -> None:
        """A member gives up partitions that it has never read."""
        self._given.update(unread)

    def take(self, member: str, generation: int, partitions: Iterable[Partition]) -> dict[Partition, GivenUp]:
        """A member gets partitions. Returns where their former owners stopped. A paused member may be late."""
        self.takes.update(partitions)
        for partition in partitions:
            self.owners[partition] = max(self.owners.get(partition, NOBODY), LatestOwner(generation, member))
        return {partition: self._given.pop(partition) for partition in partitions if partition in self._given}

    def judge(self, member: str, partition: Partition, former: GivenUp, begins: int) -> None:
        """The member, which has been the owner since `take`, begins at that offset."""
        self.judged += 1
        if begins != former.offset:
            text = f"{former.member} gave it up at {former.offset}, {member} begins at {begins}"
            self._checker.broken("handover", partition, f"{self._group}: {text}")


class CooperativeConsumer(Consumer):
    """One member. Its requests to the coordinator have a connection of their own, because a join may wait there."""

    protocol = "cooperative-sticky"

    def __init__(
        self,
        cluster: SimCluster,
        checker: Checker,
        name: str,
        topics: dict[str, int],
        rng: Random,
        ownership: Ownership,
        handovers: Handovers,
        is_newest_now: Callable[[int], bool],
    ) -> None:
        """`is_newest_now(node)`: the node coordinates the group, and no later coordinator was elected."""
        super().__init__(cluster, checker, name, ownership.group, topics, sessions=rng.random() < 0.5)
        self.stays = False
        """Whether it neither leaves nor dies from now on."""
        self.owned: frozenset[Partition] = frozenset()
        self.generation = NO_GENERATION
        """The last generation that it has an assignment of."""
        self._own = rng
        self._version = rng.choice((OLD_VERSION, VERSION))
        self._coordination = ClusterSession(cluster, name, self.session.host)
        self._ownership = ownership
        self._handovers = handovers
        self._is_newest_now = is_newest_now
        self._must_join = True
        self._leads = False
        self._owner = ""
        """The member id with what it owns."""
        self._former: dict[Partition, GivenUp] = {}
        """Where the former owners of partitions that it does not read yet have stopped."""
        self._begun: list[tuple[Partition, GivenUp, int]] = []
        """Partitions that it has begun to read since the last heartbeat."""

    @property
    def is_member(self) -> bool:
        """Whether it follows the assignment of its generation."""
        return not self._must_join

    @property
    def _is_newest(self) -> bool:
        return self._is_newest_now(self._coordinator)

    async def _live(self) -> None:
        self._lose()
        self._coordinator = await self._coordination.coordinator(self.group)
        while not self.stopping:
            try:
                if self._must_join:
                    await self._rebalance()
                elif await self._heartbeat():
                    await self._work()
                    await self.session.sleep(self._rng.random() * 300)
                else:
                    await self._commit()
                    self._must_join = True
            except Again as why:
                self.session.note(f"goes on: {why}")
                await self._look_up()

    async def _look_up(self) -> None:
        await self.session.sleep(PAUSE_MS)
        self._coordinator = await self._coordination.coordinator(self.group)

    def _lose(self) -> None:
        """It is another member from now on, or none: whatever it had may belong to others."""
        self._ownership.ended(self._owner)
        self.owned, self.generation, self._must_join, self._leads = frozenset(), NO_GENERATION, True, False
        self._former, self._begun = {}, []
        self._fetcher.assign({})

    # -- the group

    async def _ask(self, api_key: ApiKey, version: int, request: Any, timeout_ms: float = 3000.0) -> Any:
        asked = self._coordination.request(self._coordinator, api_key, version, request, timeout_ms)
        while api_key == ApiKey.JOIN_GROUP and not asked.happened:
            if self._fetcher.positions:
                await self._fetcher.fetch(max_wait_ms=100)
            await self.session.sleep(50)
        answer = await asked
        if answer is None:
            why = f"no answer to {api_key.name.lower()}"
            raise Again(why) if api_key == ApiKey.HEARTBEAT else Rejoin(why)
        return answer

    def _refused(self, code: int, what: str) -> NoReturn:
        if code in MOVED:
            raise Again(f"{ErrorCode(code).name} for {what}")
        super()._refused(code, what)

    def _subscription(self) -> bytes:
        return written(self.topics, Claim(self.owned, self.generation), self._version)

    async def _rebalance(self) -> None:
        """Join the next generation, take over its assignment, and give up what it takes away."""
        sent_ms = self.session.world.now_ms
        joined = await self._join_group()
        self._owner = self._member
        if self._is_newest:
            self._ownership.confirmed(self._member, sent_ms)
        target = frozenset(await self._sync(joined))
        self._must_join, self._leads, self.generation = False, joined.leader == self._member, self._generation
        counts, before = self._is_newest, self.owned
        if counts:
            self._ownership.assigned_in(self.generation, self._member, before | target)
        self._former |= self._handovers.take(self._member, self.generation, target - before)
        self.owned = before | target
        world = self.session.world
        self._ownership.assigned_to(self._member, self.owned if counts else before, world.now_ms)
        self.session.note(
            f"reads {_listed(target)} in generation {self.generation}, revokes {_listed(before - target)}"
        )
        if before - target:
            await self._revoke(before - target)

    async def _revoke(self, revoked: frozenset[Partition]) -> None:
        """Commit, then give partitions up."""
        await self.session.sleep(self._own.random() * REVOKES_MAX_MS)
        is_committed = await self._commit_surely()
        positions = {at: offset for at, offset in self._fetcher.positions.items() if at in revoked}
        self.owned -= revoked
        self._must_join = True
        self._fetcher.change(self.owned, {})
        self._begun = [each for each in self._begun if each[0] in self.owned]
        unread = {partition: self._former.pop(partition) for partition in revoked if partition in self._former}
        self._ownership.assigned_to(self._member, self.owned, self.session.world.now_ms)
        if is_committed:
            await self._give(positions, unread)

    async def _give(self, positions: Mapping[Partition, int], unread: Mapping[Partition, GivenUp]) -> None:
        """Note where it stopped reading, if it is still a member: then no other member can have had the partitions."""
        takes = Counter(self._handovers.takes)
        await self._heartbeat()
        if self._is_newest:
            self._handovers.give(self._member, positions, takes)
            self._handovers.give_back(
                {at: each for at, each in unread.items() if self._handovers.takes[at] == takes[at]}
            )

    async def _commit_surely(self) -> bool:
        """Commit, in some attempts. Returns whether all positions are committed."""
        for _ in range(COMMITS_MAX):
            codes = await self._commit()
            if not self._fetcher.moved():
                return True
            if codes - MOVED - {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}:
                raise Rejoin(f"cannot commit: {sorted(code.name for code in codes)}")
            await self._look_up()
        return False

    async def _commit(self) -> set[ErrorCode]:
        moved, owners = self._fetcher.moved(), self._handovers.owners
        lost = {at: owners[at].member for at in moved if owners[at].generation > self.generation}
        codes = await super()._commit()
        for partition, owner in sorted(lost.items()):
            if partition not in self._fetcher.moved():
                text = f"{self._member} has committed {moved[partition]} to {self.group}, but {owner} owns it"
                self.checker.broken("handover", partition, text)
        if ErrorCode.REBALANCE_IN_PROGRESS in codes and self._generation == self.generation and self._is_newest:
            text = f"{self._member} owns partitions in generation {self.generation}, and may not commit before it joins"
            self.checker.broken("handover", self.group, text)
        return codes

    def _assign(self, joined: Any) -> list[Any]:
        claims = {member.member_id: read(member.metadata) for member in joined.members}
        if self._is_newest:
            claimed = Counter(partition for claim in claims.values() for partition in claim.owned)
            for partition in sorted(partition for partition, count in claimed.items() if count > 1):
                own = sorted(member for member, claim in claims.items() if partition in claim.owned)
                self.checker.broken("claimed", partition, f"{own} all own it before generation {self._generation}")
        partitions = [(topic, index) for topic, count in sorted(self.topics.items()) for index in range(count)]
        return assignments(assigned(claims, partitions))

    async def _heartbeat(self) -> bool:
        sent_ms, begun = self.session.world.now_ms, self._begun
        goes_on = await super()._heartbeat()
        if self._is_newest:
            self._ownership.confirmed(self._member, sent_ms)
            for partition, former, begins in begun:
                self._handovers.judge(self._member, partition, former, begins)
        self._begun = []
        return goes_on

    async def _leave(self) -> None:
        """Commit, and leave."""
        try:
            if await self._commit_surely():
                await self._give(dict(self._fetcher.positions), {})
        except Rejoin as why:
            self.session.note(f"leaves without a commit: {why}")
        self._lose()
        request = m.LeaveGroupRequest(
            group_id=self.group, members=[m.LeaveGroupRequest.MemberIdentity(member_id=self._member)]
        )
        await self._coordination.request(self._coordinator, ApiKey.LEAVE_GROUP, LEAVE, request)

    # -- work

    async def _work(self) -> None:
        await self._begin()
        await super()._work()
        if self._leads and (self.stays or self._own.random() < LOOKS):
            await self._look_for_partitions()
        if self.stays or self.stopping:
            return
        share = self._own.random()
        if share < LEAVES:
            await self._leave()
            raise Rejoin("has left")
        if share < LEAVES + DIES:
            raise Rejoin("has died")

    async def _begin(self) -> None:
        """Begin to read the partitions that are new, where the group is."""
        added = sorted(self.owned - self._fetcher.positions.keys())
        if not added:
            return
        asked = self.checker.expect_committed(self.group, added)
        found = await fetch_committed(self._coordination, self._coordinator, self.group, added)
        if found is None:
            raise Again("no committed offsets")
        counts = self._is_newest
        self.checker.committed(asked, found, self.session.name, settled=counts)
        begins = {partition: max(offset, 0) for partition, offset in found.items()}
        self._fetcher.change(self.owned, begins)
        for partition, offset in begins.items():
            former = self._former.pop(partition, None)
            if former is not None and counts:
                self._begun.append((partition, former, offset))

    async def _look_for_partitions(self) -> None:
        """Join again if a topic has more partitions: the leader assigns them."""
        answer = await self.session.refresh(sorted(self.topics))
        found = {} if answer is None else {row.name: len(row.partitions) for row in answer.topics if not row.error_code}
        if any(count > self.topics[topic] for topic, count in found.items()):
            self._must_join = True
        self.topics = {topic: max(count, found.get(topic, 0)) for topic, count in self.topics.items()}


class CooperativeClients:
    """All members of the group."""

    def __init__(self, scenario: ClusterScenario, counts: Mapping[str, int]) -> None:
        """`counts`: the partitions of the topics that members read, which may grow."""
        self.ownership = Ownership(scenario.checker, GROUP, has_epochs=True)
        self.handovers = Handovers(scenario.checker, GROUP)
        self.members: list[CooperativeConsumer] = []
        self._scenario = scenario
        self._counts = counts

    def make(self) -> None:
        """Make two to four members."""
        scenario = self._scenario
        rng = random.Random(f"cooperative of {scenario.world.seed}")
        for number in range(rng.randint(2, 4)):
            own = random.Random(f"cooperative{number} of {scenario.world.seed}")
            member = CooperativeConsumer(
                scenario.cluster, scenario.checker, f"co{number}", dict(self._counts), own, self.ownership,
                self.handovers, lambda node_id: is_newest(scenario, node_id, GROUP),
            )  # fmt: skip
            self.members.append(member)

    def pause_some(self) -> None:
        """Pause each member now and then until the faults are over."""
        for member in self.members:
            pause_sometimes(self._scenario, member, member._own)

    def settle(self) -> None:
        """Judge the law `settled`, once all faults are over and while the members work."""
        world, checker = self._scenario.world, self._scenario.checker
        for member in self.members:
            member.stays = True
        reached = world.run(
            lambda: bool(checker.findings) or (world.events % 16 == 0 and self.unsettled() is None), STABLE_MAX_MS
        )
        why = None if checker.findings else self.unsettled()
        if not reached and why is not None:
            checker.broken("settled", "cluster", f"{STABLE_MAX_MS / 1000:.0f} s after all faults {why}")

    def unsettled(self) -> str | None:
        """Why the group is not settled; None if it is."""
        scenario = self._scenario
        image = scenario.troubles._newest_image()
        partitions = {} if image is None else existing(image.topics, self._counts)
        shards = [coordinating(machine, GROUP, scenario.laws.newest_epoch) for machine in scenario.cluster.brokers]
        shard = next((one for one in shards if one is not None), None)
        if shard is None:
            return f"{GROUP} has no coordinator"
        why = unstable(shard.machine, GROUP, partitions)
        if why is not None:
            return why
        generation = shard.machine.groups[GROUP].generation
        owned = {member.session.name: len(member.owned) for member in self.members}
        behind = [each.session.name for each in self.members if each.generation != generation or not each.is_member]
        if behind:
            return f"{behind} of {GROUP} are not in generation {generation}"
        found = sorted(f"{topic}-{index}" for member in self.members for topic, index in member.owned)
        if found != sorted(partitions.values()):
            return f"the members of {GROUP} own {found}, not {sorted(partitions.values())}"
        if max(owned.values()) > min(owned.values()) + 1:
            return f"the members of {GROUP} own {owned} partitions"
        return None


def _listed(partitions: Iterable[Partition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions)) or "nothing"


__all__ = ["GROUP", "Claim", "CooperativeClients", "Handovers", "assigned", "read", "written"]
