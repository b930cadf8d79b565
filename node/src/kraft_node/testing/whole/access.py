"""An operator who changes ACLs, and a guest: a client whose requests they decide.

Laws:

- `forbidden`  a request that no ACL ever allowed is never served. It holds always
- `access`     a broker's answer to the guest agrees with the ACLs of the broker's metadata. It holds for a request
               during which neither the process nor its ACLs changed
- `granted`    after all faults, every broker shows the guest its topic if and only if the last acknowledged changes of
               ACLs allow it. It holds for changes whose outcome is known
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kraft_node.security.names import Operation, PatternType, Permission, ResourceType
from kraft_node.testing.client import Security
from kraft_node.testing.whole.operators import ChangesOperator, Remembered
from kraft_node.testing.workloads.producer import RETRIABLE
from kraft_node.testing.workloads.session import METADATA_VERSION, PAUSE_MS, ClusterSession
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.sasl.client import PlainCredentials
from kraft_protocol.sasl.login import SaslLogin
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    import random

    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster, SimMachine

GUEST: Final = ("dave", "of-guests")
PRINCIPAL: Final = f"User:{GUEST[0]}"
GUARDED, FORBIDDEN = "guarded", "forbidden"
TOPICS: Final[dict[str, tuple[int, dict[str, str]]]] = {GUARDED: (1, {}), FORBIDDEN: (1, {})}
KEYS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:client;User:carol",
}
"""Of nodes with an authorizer."""
CREATE, DELETE, PRODUCE = 3, 3, 9
"""API versions."""
CHANGES_MS: Final = 700.0
PRODUCES_MS: Final = 400.0


class Rule(NamedTuple):
    """An ACL for the guest."""

    name: str
    pattern: int
    operation: int
    permission: int

    @property
    def of(self) -> tuple[int, str, int, str, str, int, int]:
        """As requests name it."""
        return ResourceType.TOPIC, self.name, self.pattern, PRINCIPAL, "*", self.operation, self.permission


RULES: Final = (
    Rule(GUARDED, PatternType.LITERAL, Operation.WRITE, Permission.ALLOW),
    Rule("guar", PatternType.PREFIXED, Operation.ALL, Permission.ALLOW),
    Rule(GUARDED, PatternType.LITERAL, Operation.ALL, Permission.DENY),
)


class AclOperator(ChangesOperator):
    """Adds and removes ACLs."""

    def __init__(self, cluster: SimCluster, name: str, rng: random.Random) -> None:
        super().__init__(cluster, name, rng, CHANGES_MS)
        self._known: Remembered[Rule, bool] = Remembered()

    async def change(self) -> None:
        """Add or remove one."""
        rule, is_there = self._rng.choice(RULES), self._rng.random() < 0.5
        self._known.sent(rule, is_there)
        self._answered(rule, is_there, await self.ask(*_request(rule, is_there=is_there)))

    def _answered(self, rule: Rule, is_there: bool, code: ErrorCode | None) -> None:
        outcome = "no answer" if code is None else code.name
        self.session.note(f"{'adds' if is_there else 'removes'} {rule}: {outcome}")
        self._known.answered(rule, is_there, code)

    async def restore(self) -> None:
        """Decide each ACL a last time."""
        for rule in RULES:
            is_there = self._rng.random() < 0.5
            self._known.sent(rule, is_there)
            self._answered(rule, is_there, await self.ask_surely(*_request(rule, is_there=is_there)))

    def is_allowed(self) -> bool | None:
        """Whether the guest may see the guarded topic; None if it is not known."""
        held = {}
        for rule in RULES:
            if self._known.may_be(rule, value=True, first=False) and self._known.may_be(rule, value=False, first=False):
                return None
            held[rule] = self._known.may_be(rule, value=True, first=False)
        return _decided({rule for rule, is_there in held.items() if is_there})


def _decided(rules: set[Rule]) -> bool:
    permissions = {rule.permission for rule in rules}
    return Permission.ALLOW in permissions and Permission.DENY not in permissions


def _request(rule: Rule, *, is_there: bool) -> tuple[ApiKey, int, Any, Any]:
    if is_there:
        created = m.CreateAclsRequest(creations=[m.CreateAclsRequest.AclCreation(*rule.of)])
        return ApiKey.CREATE_ACLS, CREATE, created, lambda answer: answer.results[0].error_code
    deleted = m.DeleteAclsRequest(filters=[m.DeleteAclsRequest.DeleteAclsFilter(*rule.of)])
    return ApiKey.DELETE_ACLS, DELETE, deleted, lambda answer: answer.filter_results[0].error_code


class Guest:
    """Writes to the guarded topic and to one that it may never use."""

    def __init__(self, cluster: SimCluster, checker: Checker, name: str, rng: random.Random) -> None:
        self.session = ClusterSession(cluster, name)
        """Of an ordinary client, to find leaders."""
        self.stopping = False
        self.served = self.refused = 0
        self._cluster, self._checker, self._rng = cluster, checker, rng
        ordinary = cluster.security
        cluster.security = Security(lambda: SaslLogin(PlainCredentials(*GUEST), "host"), lambda: cluster.world.now_ms)
        self._own = ClusterSession(cluster, f"{name}.own")
        cluster.security = ordinary

    async def run(self) -> None:
        """Write until stopped."""
        while not self.stopping:
            await self._write(self._rng.choice((GUARDED, GUARDED, FORBIDDEN)))
            await self.session.sleep(self._rng.random() * PRODUCES_MS)

    async def _write(self, topic: str) -> None:
        leader = await self.session.leader(topic, 0)
        await self._own.refresh([])
        machine = self._machine(leader)
        if not self._own.knows(leader):
            return
        before = _generation(machine)
        timestamp = START_WALL_MS + int(self.session.world.now_ms)
        data = m.ProduceRequest.PartitionProduceData(index=0, records=build_batch([(b"k", b"v")], timestamp=timestamp))
        of_topic = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        request = m.ProduceRequest(acks=1, timeout_ms=2000, topic_data=[of_topic])
        answer = await self._own.request(leader, ApiKey.PRODUCE, PRODUCE, request)
        if answer is None:
            self.session.forget_leader(topic, 0)
            return
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.refused += 1
        else:
            self.session.expect(code, ErrorCode.NONE, *sorted(RETRIABLE), what=f"produce of the guest to {topic}")
            self.session.forget_leader(topic, 0)
        self.served += code == ErrorCode.NONE
        self._judge(machine, topic, code, before)

    def _judge(self, machine: SimMachine, topic: str, code: ErrorCode, before: tuple[int, int] | None) -> None:
        if topic == FORBIDDEN and code == ErrorCode.NONE:
            self._checker.broken("forbidden", machine.name, f"has served a produce request of {PRINCIPAL} to {topic}")
        if topic == FORBIDDEN or before is None or before != _generation(machine):
            return
        allowed = _decided(_rules(machine))
        if (code == ErrorCode.NONE and not allowed) or (code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and allowed):
            text = f"has answered {code.name}, its metadata {'allows' if allowed else 'does not allow'} the request"
            self._checker.broken("access", machine.name, text)

    def _machine(self, node_id: int) -> SimMachine:
        return next(machine for machine in self._cluster.brokers if machine.config.node_id == node_id)

    async def judge(self, operator: AclOperator) -> None:
        """Look at the topics through every broker, once all have all metadata."""
        allowed = operator.is_allowed()
        for node in await operator.broker_ids():
            while not self._own.knows(node):
                await self._own.refresh([])
                await self._own.sleep(PAUSE_MS)
            answer: Any = None
            while answer is None:
                wanted = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in (GUARDED, FORBIDDEN)]
                request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
                answer = await self._own.request(node, ApiKey.METADATA, METADATA_VERSION, request)
            codes = {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}
            if codes[FORBIDDEN] != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._checker.broken("forbidden", f"broker {node}", f"shows {FORBIDDEN}: {codes[FORBIDDEN].name}")
            if allowed is not None and (codes[GUARDED] == ErrorCode.NONE) != allowed:
                text = f"shows {GUARDED} with {codes[GUARDED].name}, the guest is {'' if allowed else 'not '}allowed"
                self._checker.broken("granted", f"broker {node}", text)


def _generation(machine: SimMachine) -> tuple[int, int] | None:
    """The process of a broker and the state of its ACLs; None if it does not decide yet."""
    authorizer = None if machine.node is None else machine.node.authorizer
    if authorizer is None or not authorizer.is_ready:
        return None
    return machine.starts, authorizer.generation


def _rules(machine: SimMachine) -> set[Rule]:
    """The ACLs in the metadata of a broker."""
    assert machine.node is not None and machine.node.broker is not None
    entries = list(machine.node.broker.image.acls.values())
    return {
        Rule(entry.resource_name, entry.pattern_type, entry.operation, entry.permission_type)
        for entry in entries
        if entry.principal == PRINCIPAL
    }


__all__ = ["FORBIDDEN", "GUARDED", "GUEST", "KEYS", "TOPICS", "AclOperator", "Guest"]
