"""The link to the active controller: its choice of a controller, retries, envelopes, reports."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kraft_node.base.request import RequestContext
from kraft_node.base.turns import Turns
from kraft_node.broker.controller_link import (
    CALLS_MAX,
    RETRY_MAX_MS,
    ActiveControllerLink,
    envelope,
    is_not_controller,
)
from kraft_node.controller.envelope import Envelopes
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    EnvelopeRequest,
    EnvelopeResponse,
)
from tests.unit.broker.world import Loop, make_env
from tests.unit.server.quorum.raft_world import World


class Asked:
    """One controller that keeps its requests and answers on command."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any]] = []
        self.timeouts: list[int] = []

    def send(self, request: Any, version: Any, done: Any, timeout_ms: int, *, on_behalf_of: Any = None) -> None:
        self.calls.append((request, on_behalf_of, done))
        self.timeouts.append(timeout_ms)

    def answer(self, answer: Any, index: int = -1) -> None:
        self.calls[index][2](answer)


class Case:
    """A link of node 1, which has its own controller, in a quorum with 2 and 3; 9 cannot be reached."""

    def __init__(self) -> None:
        self.world = World()
        self.nodes = {1: Asked(), 2: Asked(), 3: Asked()}
        self.forwarded: dict[int, Asked] | None = None
        """Other ways to 2 and 3, for what clients ask."""
        self.dropped: list[int] = []
        self.answers: list[Any] = []
        self.link = ActiveControllerLink(
            self.world,  # type: ignore[arg-type]
            1,
            self.nodes[1],
            self.nodes.get,
            forwards=self._forwards,
            drop=self.dropped.append,
            explain=lambda: "2@b:9093 (Connection refused)",
        )

    def _forwards(self, node_id: int) -> Asked | None:
        return (self.nodes if self.forwarded is None else self.forwarded).get(node_id)

    def heartbeat(self, timeout_ms: int = 4_000) -> None:
        self.link.send(BrokerHeartbeatRequest(broker_id=7), None, self.answers.append, timeout_ms)

    def counts(self) -> list[int]:
        return [len(node.calls) for node in self.nodes.values()]


def client(principal: str = "User:alice", host: str = "10.1.2.3") -> RequestContext:
    return RequestContext(
        int(ApiKey.CREATE_TOPICS), 7, 42, "admin-1", host, "PLAINTEXT", principal, None, 0, lambda _ctx, _message: None
    )


def test_requests_of_the_broker_do_not_wait_behind_requests_of_clients() -> None:
    """A controller handles the requests of a connection one after the other. AddRaftVoter for a node that is down
    delayed heartbeats until they timed out. Retried requests were carried out twice, the second time late.
    """
    case = Case()
    case.forwarded = {2: Asked(), 3: Asked()}
    case.link.leader_changed(2)
    case.link.send(CreateTopicsRequest(), 7, case.answers.append, 4_000, on_behalf_of=client())
    case.heartbeat()
    assert case.counts() == [0, 1, 0]
    assert isinstance(case.nodes[2].calls[0][0], BrokerHeartbeatRequest)
    assert [isinstance(call[0], EnvelopeRequest) for call in case.forwarded[2].calls] == [True]
    case.link.leader_changed(3)
    assert case.dropped == [2], "both ways"
    assert len(case.forwarded[3].calls) == 1


def not_controller() -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)


def test_a_request_without_a_leader_is_sent_when_one_is_known() -> None:
    case = Case()
    case.heartbeat()
    case.world.run(1000)
    assert case.counts() == [0, 0, 0]
    case.link.leader_changed(2)
    assert case.counts() == [0, 1, 0]
    assert case.nodes[2].timeouts == [3000]
    case.nodes[2].answer(BrokerHeartbeatResponse(is_fenced=False))
    assert [type(answer).__name__ for answer in case.answers] == ["BrokerHeartbeatResponse"]


@pytest.mark.parametrize(
    "failure",
    [ConnectionResetError("gone"), TimeoutError("slow"), KafkaError(ErrorCode.NOT_CONTROLLER), not_controller()],
)
def test_a_request_is_sent_again_after_not_controller_or_an_error(failure: Any) -> None:
    case = Case()
    case.link.leader_changed(2)
    case.heartbeat()
    for attempt in range(1, 6):
        assert case.counts() == [0, attempt, 0]
        case.nodes[2].answer(failure)
        assert case.counts() == [0, attempt, 0]
        case.world.run(RETRY_MAX_MS)
    case.link.leader_changed(3)
    assert case.counts() == [0, 6, 1]
    case.nodes[3].answer(BrokerHeartbeatResponse())
    assert len(case.answers) == 1


def test_pauses_grow_until_another_leader_is_known() -> None:
    case = Case()
    case.link.leader_changed(2)
    case.heartbeat(60_000)
    asked_ms = []
    for _ in range(8):
        case.nodes[2].answer(not_controller())
        before = len(case.nodes[2].calls)
        while len(case.nodes[2].calls) == before:
            case.world.run(1)
        asked_ms.append(case.world.now)
    pauses = [b - a for a, b in pairwise(asked_ms)]
    assert pauses == [40, 80, 160, 320, 500, 500, 500]
    case.nodes[2].answer(not_controller())
    case.link.leader_changed(1)
    assert case.counts()[0] == 1


def test_unanswered_requests_go_to_the_next_leader_and_late_answers_are_ignored() -> None:
    case = Case()
    case.link.leader_changed(2)
    case.heartbeat()
    case.link.leader_changed(-1)
    case.world.run(100)
    assert case.counts() == [0, 1, 0]
    assert case.dropped == []
    case.link.leader_changed(3)
    assert case.dropped == [2]
    assert case.counts() == [0, 1, 1]
    case.nodes[2].answer(ConnectionAbortedError("closed"))
    case.nodes[2].answer(BrokerHeartbeatResponse(is_fenced=True))
    case.world.run(1000)
    assert case.answers == []
    case.nodes[3].answer(BrokerHeartbeatResponse(is_fenced=False))
    assert [answer.is_fenced for answer in case.answers] == [False]


def test_the_former_leader_may_answer_until_a_new_one_is_known() -> None:
    case = Case()
    case.link.leader_changed(2)
    case.heartbeat()
    case.link.leader_changed(-1)
    case.nodes[2].answer(BrokerHeartbeatResponse())
    assert len(case.answers) == 1


def test_a_request_that_times_out_names_the_controllers_tried() -> None:
    case = Case()
    case.heartbeat()
    case.world.run(4_000)
    (answer,) = case.answers
    assert isinstance(answer, TimeoutError)
    assert str(answer) == "no active controller is known; asked 2@b:9093 (Connection refused)"
    case.link.leader_changed(2)
    assert case.counts() == [0, 0, 0]


def test_a_request_waits_for_the_address_of_the_leader() -> None:
    case = Case()
    case.link.leader_changed(9)
    case.heartbeat()
    case.world.run(1000)
    case.nodes[9] = Asked()
    case.world.run(RETRY_MAX_MS)
    assert len(case.nodes[9].calls) == 1


def test_requests_of_clients_are_forwarded_in_an_envelope() -> None:
    case = Case()
    case.link.leader_changed(2)
    request = CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("t", 3, 1)])
    ctx = client()
    case.link.send(request, 7, case.answers.append, 4_000, on_behalf_of=ctx)
    sealed, on_behalf_of, _ = case.nodes[2].calls[0]
    assert isinstance(sealed, EnvelopeRequest)
    assert on_behalf_of is None

    seen: list[Any] = []

    def create(inner: RequestContext, message: Any) -> Any:
        seen.append((inner.api_version, inner.client_id, inner.client_host, inner.principal, message))
        return CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult("t")])

    controller = Envelopes({ApiKey.CREATE_TOPICS: create}, lambda: True, Turns(make_env(Loop())))
    case.nodes[2].answer(controller.handle(client("User:broker"), sealed))
    assert seen == [(7, "admin-1", "10.1.2.3", "User:alice", request)]
    (answer,) = case.answers
    assert answer.topics[0].name == "t"


def test_a_request_made_for_a_client_has_its_own_api_and_version() -> None:
    """A topic created for a Metadata or FindCoordinator request was sent in that request's version, which failed."""
    case = Case()
    case.link.leader_changed(2)
    for key, version in ((ApiKey.METADATA, 13), (ApiKey.FIND_COORDINATOR, 2)):
        ctx = client()
        ctx.api_key, ctx.api_version = key, version
        case.link.send(CreateTopicsRequest(), None, case.answers.append, 4_000, on_behalf_of=ctx)
        create = CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult("t")])
        controller = Envelopes(
            {ApiKey.CREATE_TOPICS: lambda _ctx, _request, answer=create: answer}, lambda: True, Turns(make_env(Loop()))
        )
        case.nodes[2].answer(controller.handle(client("User:broker"), case.nodes[2].calls[-1][0]))
        assert case.answers.pop().topics[0].name == "t"


def test_a_local_controller_is_called_without_an_envelope() -> None:
    case = Case()
    case.link.leader_changed(1)
    request, ctx = CreateTopicsRequest(), client()
    case.link.send(request, 7, case.answers.append, 4_000, on_behalf_of=ctx)
    assert case.nodes[1].calls[0][:2] == (request, ctx)


def test_an_envelope_is_retried_at_another_controller_but_other_errors_are_returned() -> None:
    case = Case()
    case.link.leader_changed(2)
    for code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION):
        case.link.send(CreateTopicsRequest(), 7, case.answers.append, 4_000, on_behalf_of=client())
        case.nodes[2].answer(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
        case.world.run(RETRY_MAX_MS)
        case.nodes[2].answer(EnvelopeResponse(error_code=code))
    case.link.send(CreateTopicsRequest(), 7, case.answers.append, 4_000, on_behalf_of=client())
    case.nodes[2].answer(EnvelopeResponse(response_data=b"\x00"))
    codes = [answer.code for answer in case.answers]
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes == [unknown, ErrorCode.UNSUPPORTED_VERSION, unknown]


def test_addresses_in_envelopes_are_bytes() -> None:
    for host, expected in (("127.0.0.1", b"\x7f\x00\x00\x01"), ("::1", bytes(15) + b"\x01"), ("?", bytes(4))):
        assert envelope(client(host=host), CreateTopicsRequest(), 7).client_host_address == expected


def test_not_controller_is_found_anywhere_in_a_response() -> None:
    result = CreateTopicsResponse.CreatableTopicResult
    wrong = CreateTopicsResponse(topics=[result("t", error_code=ErrorCode.NOT_CONTROLLER)])
    assert is_not_controller(wrong)
    assert not is_not_controller(CreateTopicsResponse(topics=[result("t")]))
    assert not is_not_controller(CreateTopicsResponse())
    assert is_not_controller(not_controller())
    assert not is_not_controller(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))


def test_too_many_calls_are_refused_and_a_closed_link_answers_nothing() -> None:
    case = Case()
    for _ in range(CALLS_MAX):
        case.heartbeat()
    refused: list[Any] = []
    case.link.send(BrokerHeartbeatRequest(), None, refused.append, 100)
    case.world.run()
    assert [answer.code for answer in refused] == [ErrorCode.REQUEST_TIMED_OUT]
    case.link.close()
    case.link.leader_changed(2)
    case.heartbeat()
    case.world.run(10_000)
    assert case.answers == []
    assert case.counts() == [0, 0, 0]
