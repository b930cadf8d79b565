"""Users of the APIs of transactions, groups and delegation tokens: what they may do, and by which way they log in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kraft_node.security.names import Operation, PatternType, Permission, ResourceType
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.certificates import Authority
from tests.golden.broker.batches import batch, produce
from tests.golden.broker.pair import Side
from tests.golden.controller import coordinating as requests
from tests.golden.controller import principals as who

Entry = tuple[ResourceType, str, PatternType, Operation, Permission]
PLAIN, SCRAM_256, SCRAM_512, MAPPED, WHOLE, TOKEN, GRANTED = WAYS = (
    "plain", "scram-256", "scram-512", "mapped", "whole", "token", "granted",
)  # fmt: skip
"""Ways to log in. `mapped` and `whole`: a certificate with a mapped name, or with its whole subject as the name.
`token`: a delegation token that its owner made. `granted`: one that the super user made for an owner."""

_L, _P = PatternType.LITERAL, PatternType.PREFIXED
_ALLOW, _DENY = Permission.ALLOW, Permission.DENY
_ID, _GROUP, _TOPIC, _CLUSTER, _USER, _TOKEN = (
    ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.USER,
    ResourceType.DELEGATION_TOKEN,
)  # fmt: skip
_O = Operation
_ALL: Final = tuple((kind, "*", _L, _O.ALL, _ALLOW) for kind in (_ID, _GROUP, _TOPIC))
SUPER: Final = "super, though denied"
ENTRIES: Final[dict[str, tuple[Entry, ...]]] = {
    **{
        name: tuple((kind, what, how, operation, _ALLOW) for kind, what, how, operation in rights)
        for name, rights in requests.RIGHTS.items()
    },
    SUPER: (
        *((kind, "*", _L, _O.ALL, _DENY) for kind in (_ID, _GROUP, _TOPIC)),
        (_CLUSTER, "kafka-cluster", _L, _O.ALL, _DENY),
    ),
    "everything": (*_ALL, (_CLUSTER, "kafka-cluster", _L, _O.ALL, _ALLOW)),
    "everything by prefixes": tuple(
        (kind, what, _P, _O.ALL, _ALLOW) for kind, what in ((_ID, "t"), (_GROUP, "g"), (_TOPIC, "mi"))
    ),
    "denied one id": (*_ALL, (_ID, "t-open", _L, _O.WRITE, _DENY)),
    "denied ids by a prefix": (*_ALL, (_ID, "t-", _P, _O.ALL, _DENY)),
    "denied to see an id": (*_ALL, (_ID, "t-open", _L, _O.DESCRIBE, _DENY)),
    "denied groups by a prefix": (*_ALL, (_GROUP, "g-", _P, _O.READ, _DENY)),
    "denied to see a group": ((*requests.READ_GROUP, _ALLOW), (_GROUP, "g-848", _L, _O.DESCRIBE, _DENY)),
    "denied a topic": (*_ALL, *((_TOPIC, "mine", _L, operation, _DENY) for operation in (_O.READ, _O.WRITE))),
    "denied to see topics by a prefix": (*_ALL, (_TOPIC, "mi", _P, _O.DESCRIBE, _DENY)),
    "denied parts of the cluster": (
        (_CLUSTER, "kafka-cluster", _L, _O.ALL, _ALLOW),
        *((_CLUSTER, "kafka-cluster", _L, op, _DENY) for op in (_O.IDEMPOTENT_WRITE, _O.CLUSTER_ACTION)),
    ),
}
FOR_ALL: Final[tuple[Entry, ...]] = (
    (_ID, "t-missing", _L, _O.DESCRIBE, _DENY),
    (_ID, "h", _L, _O.DESCRIBE, _ALLOW),
    (_GROUP, "g-none", _L, _O.DESCRIBE, _DENY),
    (_GROUP, "h", _L, _O.DESCRIBE, _ALLOW),
)
"""For the principal User:*; the super users are exempt from those that deny."""

OWNER, RENEWER, OTHER = "owner", "renewer", "nobody-else"
_OWNERS: Final = f"User:{OWNER}"
TOKEN_ENTRIES: Final[dict[str, tuple[Entry, ...]]] = {
    "creates tokens for the owner": ((_USER, _OWNERS, _L, _O.CREATE_TOKENS, _ALLOW),),
    "creates tokens by a prefix": ((_USER, "User:own", _P, _O.CREATE_TOKENS, _ALLOW),),
    "denied to create for the owner": (
        (_USER, "*", _L, _O.ALL, _ALLOW), (_USER, _OWNERS, _L, _O.CREATE_TOKENS, _DENY),
    ),
    "sees tokens of the owner": ((_USER, _OWNERS, _L, _O.DESCRIBE_TOKENS, _ALLOW),),
    "sees tokens by a prefix": ((_USER, "User:o", _P, _O.DESCRIBE_TOKENS, _ALLOW),),
    "sees tokens by their ids": ((_TOKEN, "*", _L, _O.DESCRIBE, _ALLOW),),
    "denied to see tokens of the owner": (
        (_USER, "*", _L, _O.DESCRIBE_TOKENS, _ALLOW), (_USER, _OWNERS, _L, _O.DESCRIBE_TOKENS, _DENY),
    ),
    "alters the cluster": ((_CLUSTER, "kafka-cluster", _L, _O.ALL, _ALLOW),),
}  # fmt: skip


class User(NamedTuple):
    """A user with the rights of one row, who logs in by one way."""

    row: str
    number: int
    way: str

    @property
    def name(self) -> str:
        return f"u{self.number}-{self.way}"

    @property
    def subject(self) -> str:
        """Of the user's certificate; "" without one."""
        if self.way == MAPPED:
            return f"CN={self.name.upper()},OU=Ops,O=Example"
        return f"CN={self.name},OU=Guests,O=Elsewhere" if self.way == WHOLE else ""

    @property
    def principal(self) -> str:
        return f"User:{self.subject if self.way == WHOLE else self.name}"

    def __str__(self) -> str:
        return f"{self.row}, {self.way}"


ROWS: Final = (*ENTRIES, *TOKEN_ENTRIES)
USERS: Final = [User(row, number, way) for number, row in enumerate(ROWS) for way in WAYS]
PASSWORD_USERS: Final = (OWNER, RENEWER, OTHER)
MECHANISMS: Final = {
    **who.MECHANISMS,
    **dict.fromkeys(PASSWORD_USERS, "PLAIN"),
    **{
        user.name: {PLAIN: "PLAIN", SCRAM_256: "SCRAM-SHA-256"}.get(user.way, "SCRAM-SHA-512")
        for user in USERS
        if user.way in (PLAIN, SCRAM_256, SCRAM_512, TOKEN)
    },
}


def everyday(user: User) -> bool:
    """Each row every day with one way to log in; every way with several rows."""
    return user.way == WAYS[user.number % len(WAYS)]


def super_users() -> str:
    return ";".join(user.principal for user in USERS if user.row == SUPER)


def certificates(authority: Authority) -> dict[str, dict[str, str]]:
    """The stores of users with certificates."""
    return {user.name: authority.issue(user.subject, file=user.name).stores() for user in USERS if user.subject}


def acls() -> list[m.CreateAclsRequest]:
    rows: list[Any] = [(kind, what, how, "User:*", op, permission) for kind, what, how, op, permission in FOR_ALL]
    for user in USERS:
        entries = (ENTRIES | TOKEN_ENTRIES)[user.row]
        rows += [(kind, what, how, user.principal, op, permission) for kind, what, how, op, permission in entries]
    return [who.create_acls(tuple(rows[at : at + 100])) for at in range(0, len(rows), 100)]


def make_token(side: who.User, user: User) -> None:
    """Make the delegation token by which the user logs in."""
    create = m.CreateDelegationTokenRequest
    if user.way == TOKEN:
        side.become(user.name)
        answer = side.ask(create(None, None, [], -1), 3)
    else:
        side.become(who.SUPER)
        kind, _, name = user.principal.partition(":")
        answer = side.ask(create(kind, name, [], -1), 3)
    assert answer.error_code == ErrorCode.NONE, (side, answer)
    side.tokens[user.name] = answer.token_id, who.token_password(answer.hmac)


def living(side: Side, name: str) -> Iterator[tuple[Any, Any]]:
    """Two whole transactions with offsets of a group, as clients before and after KIP-890 make them.

    `side.memory["answer"]` is the answer to the request before.
    """
    add, commit, fetch = m.AddPartitionsToTxnRequest, m.TxnOffsetCommitRequest, m.OffsetFetchRequest
    offsets = [commit.TxnOffsetCommitRequestTopic(topic, [commit.TxnOffsetCommitRequestPartition(0, 5)])
               for topic in requests.TOPICS]  # fmt: skip
    for is_new, committed in ((False, True), (True, True), (True, False)):
        transactional_id, group = f"t-{name}-{is_new:d}{committed:d}", f"g-{name}"
        yield m.InitProducerIdRequest(transactional_id, requests.TIMEOUT_MS), 5 if is_new else 2
        ids = side.memory["answer"].producer_id, side.memory["answer"].producer_epoch
        if not is_new:
            for topics in (requests.TOPICS, requests.TOPICS[:1]):
                yield add([], transactional_id, *ids, [add.AddPartitionsToTxnTopic(topic, [0]) for topic in topics]), 3
            yield m.AddOffsetsToTxnRequest(transactional_id, *ids, group), 3
        for some in (offsets, offsets[:1]):
            yield commit(transactional_id, group, *ids, topics=some), 5 if is_new else 3
        for topic in requests.TOPICS:
            data = batch(producer_id=ids[0], producer_epoch=ids[1], base_sequence=0, transactional=True)
            yield produce(topic, (0, data), transactional_id=transactional_id)(side), 12 if is_new else 11
        yield m.DescribeTransactionsRequest([transactional_id]), None
        yield m.EndTxnRequest(transactional_id, *ids, committed), 5 if is_new else 3
        wanted = fetch.OffsetFetchRequestGroup(group, None, -1, None)
        yield fetch("", groups=[wanted], require_stable=True), 9
        yield m.DescribeTransactionsRequest([transactional_id]), None


def of_tokens(side: Side) -> Iterator[tuple[Any, Any]]:
    """Requests about delegation tokens: of the user, of the owner, and unknown ones.

    `side.memory["token"]` is the HMAC of a token of the owner, `side.memory["own"]` of one of the user.
    """
    create, describe = m.CreateDelegationTokenRequest, m.DescribeDelegationTokenRequest
    renewers = [create.CreatableRenewers("User", RENEWER)]
    yield create(None, None, renewers, 7_200_000), None
    side.memory["own"] = bytes(getattr(side.memory["answer"], "hmac", b""))
    for name in (OWNER, OTHER, ""):
        yield create("User", name, [], -1), 3
    yield create("Group", OWNER, [], -1), 3
    yield create(None, None, [create.CreatableRenewers("Group", "x")], -1), None
    for owners in (None, [], [OWNER], [RENEWER, OTHER], ["nothing"]):
        named = None if owners is None else [describe.DescribeDelegationTokenOwner("User", name) for name in owners]
        yield describe(named), None
    for hmac in (b"x", b"", side.memory["token"], side.memory["own"]):
        yield m.RenewDelegationTokenRequest(hmac, -1), None
        yield m.RenewDelegationTokenRequest(hmac, 3_600_000), None
        yield m.ExpireDelegationTokenRequest(hmac, 7_200_000), None
    yield m.ExpireDelegationTokenRequest(side.memory["own"], -1), 2  # once: Kafka forgets the token a moment later
    yield describe(None), None
