"""Requests of very many rows are handled in pieces; the answers of the pieces form one response."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.request import ANONYMOUS, RequestContext
from kraft_node.base.turns import STEPS_A_TURN, Turns
from kraft_node.broker.pieces import IN_STEPS, OLDER, PARTITIONS, PLACEMENTS, ROWS, SHAPES, TOPICS, USERS, in_pieces
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.error_response import error_response
from kraft_protocol.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kraft_protocol.wire.sizes import LONG
from tests.unit.server.connections.fakes import World

COUNT = 7 * ROWS + 3
CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Rig:
    """Handlers that answer at once, later, or with a failure."""

    def __init__(self, key: ApiKey, version: int) -> None:
        self.world = World({})
        self.key, self.version = key, version
        self.sizes: list[int] = []
        self.late: list[tuple[RequestContext, Any]] = []
        self.answers: list[Any] = []
        self.closed = False

    def ask(self, request: Any, handle: Any) -> Any:
        context = RequestContext(
            self.key,
            self.version,
            1,
            "c",
            "host",
            "L",
            ANONYMOUS,
            self,
            0,
            lambda _, answer: self.answers.append(answer),
        )
        return in_pieces(Turns(self.world.env), {self.key: handle})[self.key](context, request)

    def answer(self, ctx: RequestContext, request: Any) -> Any:
        self.sizes.append(sum(len(topic.partitions) for topic in request.topics))
        return error_response(request, ctx.api_version, CODE, None)

    def turn(self) -> None:
        soon, self.world.scheduler.soon = self.world.scheduler.soon, []
        for function, args in soon:
            function(*args)


def list_offsets(topics: dict[str, int]) -> Any:
    row = ListOffsetsRequest.ListOffsetsPartition
    return ListOffsetsRequest(
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(name, [row(i) for i in range(count)]) for name, count in topics.items()
        ]
    )


@pytest.mark.parametrize(
    "topics",
    [
        {"one": COUNT},
        {f"t{i}": 1 for i in range(COUNT)},
        {"a": 3, "b": COUNT, "c": 0, "d": ROWS - 2, "e": 5},
        {f"t{i}": i % 90 for i in range(90)},
    ],
)
def test_the_answer_in_pieces_equals_the_whole(topics: dict[str, int]) -> None:
    rig = Rig(ApiKey.LIST_OFFSETS, 7)
    request = list_offsets(topics)
    assert rig.ask(request, rig.answer) is None
    assert not rig.sizes, "nothing is handled at once"
    rig.world.scheduler.run()
    assert rig.answers == [error_response(request, 7, CODE, None)]
    assert max(rig.sizes) <= ROWS
    assert sum(rig.sizes) == sum(topics.values())


def test_few_rows_are_handled_at_once() -> None:
    rig = Rig(ApiKey.LIST_OFFSETS, 7)
    request = list_offsets({"a": ROWS // 2, "b": ROWS // 2})
    assert rig.ask(request, rig.answer) == error_response(request, 7, CODE, None)


def test_pieces_share_the_loop() -> None:
    rig = Rig(ApiKey.LIST_OFFSETS, 7)
    rig.ask(list_offsets({"one": 3 * STEPS_A_TURN * ROWS}), rig.answer)
    for turn in range(1, 4):
        rig.turn()
        assert len(rig.sizes) == turn * STEPS_A_TURN
    rig.world.scheduler.run()
    assert len(rig.answers) == 1


def test_pieces_may_be_answered_later_or_fail() -> None:
    rig = Rig(ApiKey.LIST_OFFSETS, 7)

    def handle(ctx: RequestContext, request: Any) -> Any:
        number = len(rig.sizes)
        answer = rig.answer(ctx, request)
        if number == 1:
            rig.late.append((ctx, answer))
            return None
        if number == 2:
            raise KafkaError(CODE)
        if number == 3:
            raise RuntimeError("a defect")
        return answer

    request = list_offsets({"one": COUNT})
    rig.ask(request, handle)
    rig.world.scheduler.run()
    assert len(rig.sizes) == 2, "the next piece waits for the answer"
    ctx, answer = rig.late[0]
    ctx.respond(answer)
    rig.world.scheduler.run()
    codes = [row.error_code for row in rig.answers[0].topics[0].partitions]
    assert len(codes) == COUNT
    assert codes.count(ErrorCode.UNKNOWN_SERVER_ERROR) == PARTITIONS
    assert codes.count(CODE) == COUNT - PARTITIONS


def test_an_error_of_the_whole_request_stops_its_pieces() -> None:
    rig = Rig(ApiKey.OFFSET_DELETE, 0)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    row = OffsetDeleteRequest.OffsetDeleteRequestPartition
    requested = 0

    def handle(ctx: RequestContext, request: Any) -> Any:
        nonlocal requested
        requested += 1
        return OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR)

    rig.ask(OffsetDeleteRequest("g", [topic("t", [row(i) for i in range(COUNT)])]), handle)
    rig.world.scheduler.run()
    assert requested == 1
    assert rig.answers == [OffsetDeleteResponse(error_code=ErrorCode.NOT_COORDINATOR)]


def test_pieces_of_a_disconnected_client_stop() -> None:
    rig = Rig(ApiKey.LIST_OFFSETS, 7)
    rig.ask(list_offsets({"one": 5 * STEPS_A_TURN * ROWS}), rig.answer)
    rig.turn()
    rig.closed = True
    rig.world.scheduler.run()
    assert len(rig.sizes) == STEPS_A_TURN
    assert not rig.answers


def offsets_of(request: Any) -> Any:
    answer = OffsetFetchResponse
    groups = []
    for group in request.groups:
        topics = [
            answer.OffsetFetchResponseTopics(
                t.name, partitions=[answer.OffsetFetchResponsePartitions(i, i) for i in t.partition_indexes]
            )
            for t in group.topics or ()
        ]
        groups.append(answer.OffsetFetchResponseGroup(group.group_id, topics))
    return answer(groups=groups)


def test_offsets_of_many_groups_and_of_a_large_one() -> None:
    group, topic = OffsetFetchRequest.OffsetFetchRequestGroup, OffsetFetchRequest.OffsetFetchRequestTopics
    large = group("large", topics=[topic("a", partition_indexes=list(range(ROWS))), topic("b", partition_indexes=[1])])
    huge = group(
        "huge", topics=[topic("a", partition_indexes=list(range(COUNT))), topic("b", partition_indexes=[1, 2])]
    )
    every = group("all", topics=None)
    small = [group(f"g{i}", topics=[topic("a", partition_indexes=[i])]) for i in range(ROWS)]
    request = OffsetFetchRequest(groups=[every, large, *small, huge, every])
    rig = Rig(ApiKey.OFFSET_FETCH, 8)
    sizes = []

    def handle(ctx: RequestContext, piece: Any) -> Any:
        sizes.append(sum(len(t.partition_indexes) for g in piece.groups for t in g.topics or ()))
        return offsets_of(piece)

    rig.ask(request, handle)
    rig.world.scheduler.run()
    assert rig.answers == [offsets_of(request)]
    assert max(sizes) <= ROWS


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_group_whose_piece_fails_gets_the_error_and_no_offsets(failing: int) -> None:
    """A consumer takes a partition without a row for one without an offset, and would start anew there."""
    group, topic = OffsetFetchRequest.OffsetFetchRequestGroup, OffsetFetchRequest.OffsetFetchRequestTopics
    small = group("small", topics=[topic("a", partition_indexes=[1])])
    large = group("large", topics=[topic("a", partition_indexes=list(range(3 * PARTITIONS)))])
    rig = Rig(ApiKey.OFFSET_FETCH, 8)
    handled = 0

    def handle(ctx: RequestContext, piece: Any) -> Any:
        nonlocal handled
        response = offsets_of(piece)
        if piece.groups[0].group_id == "large":
            if handled == failing:
                error = OffsetFetchResponse.OffsetFetchResponseGroup("large", [], ErrorCode.STALE_MEMBER_EPOCH)
                response = OffsetFetchResponse(groups=[error])
            handled += 1
        return response

    rig.ask(OffsetFetchRequest(groups=[small, large, small]), handle)
    rig.world.scheduler.run()
    assert handled == 3
    found = {each.group_id: (each.error_code, sum(len(t.partitions) for t in each.topics)) for each in groups_of(rig)}
    assert found == {"small": (ErrorCode.NONE, 1), "large": (ErrorCode.STALE_MEMBER_EPOCH, 0)}


def groups_of(rig: Rig) -> list[Any]:
    (answer,) = rig.answers
    return list(answer.groups)


def test_the_longest_throttle_time_of_the_pieces_counts() -> None:
    topic = CreateTopicsRequest.CreatableTopic
    rig = Rig(ApiKey.CREATE_TOPICS, 6)
    times = iter([0, 0, 700, 300])

    def handle(ctx: RequestContext, piece: Any) -> Any:
        response = error_response(piece, 6, ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
        response.throttle_time_ms = next(times, 0)
        return response

    rig.ask(CreateTopicsRequest(topics=[topic(f"t{i}", 1, 1) for i in range(ROWS + 1)]), handle)
    rig.world.scheduler.run()
    assert rig.answers[0].throttle_time_ms == 700


def test_long_lists_of_group_names_are_cut_into_pieces() -> None:
    rig = Rig(ApiKey.DESCRIBE_GROUPS, 5)
    request = DescribeGroupsRequest(groups=[f"g{i}" for i in range(COUNT)])
    rig.ask(request, lambda ctx, piece: error_response(piece, 5, CODE, None))
    rig.world.scheduler.run()
    assert rig.answers == [error_response(request, 5, CODE, None)]


def test_very_many_new_topics_are_refused_as_a_whole() -> None:
    topic = CreateTopicsRequest.CreatableTopic
    requested: list[int] = []

    def handle(ctx: RequestContext, piece: Any) -> Any:
        requested.append(len(piece.topics))
        return error_response(piece, 5, CODE, None)

    for partitions, expected in ((9, CODE), (10, CODE), (11, ErrorCode.POLICY_VIOLATION)):
        rig = Rig(ApiKey.CREATE_TOPICS, 5)
        rig.ask(CreateTopicsRequest(topics=[topic(f"t{i}", partitions, 1) for i in range(1000)]), handle)
        rig.world.scheduler.run()
        assert {row.error_code for row in rig.answers[0].topics} == {expected}
        assert len(rig.answers[0].topics) == 1000
    assert requested == [PLACEMENTS] * 100


def test_topics_of_an_older_version_are_cut() -> None:
    rig = Rig(ApiKey.DELETE_TOPICS, 5)
    request = DeleteTopicsRequest(topic_names=[f"t{i}" for i in range(COUNT)])
    rig.ask(request, lambda ctx, piece: error_response(piece, 5, CODE, None))
    rig.world.scheduler.run()
    assert rig.answers == [error_response(request, 5, CODE, None)]


def test_every_shape_matches_its_messages() -> None:
    older = [(key, shape) for key, (_, shape) in OLDER.items()]
    for key, shape in [*SHAPES.items(), *older]:
        for schema, path in (
            (API[key].request.SCHEMA, shape.request_path),
            (API[key].response.SCHEMA, shape.response_path),
        ):
            struct = schema.top
            for name in path:
                field = next(field for field in struct.fields if field.name == name)
                assert field.array
                struct = field.struct or struct


def test_no_api_is_without_a_budget() -> None:
    """An API that is neither split nor handled in steps is refused beyond some thousand items."""
    handled: list[Any] = []
    for key in API:
        if key in SHAPES or key in IN_STEPS or "broker" not in API[key].listeners:
            continue
        request = API[key].request()
        fields = [f for f in API[key].request.SCHEMA.top.fields if f.array and (f.struct or f.type == "string")]
        for field in fields:
            many: list[Any] = [None] * (LONG + 1)
            handlers = in_pieces(Turns(World({}).env), {ApiKey(key): lambda ctx, m: handled.append(m)})
            setattr(request, field.name, many)
            with pytest.raises(KafkaError) as refused:
                handlers[ApiKey(key)](None, request)  # type: ignore[arg-type]
            assert refused.value.code == ErrorCode.INVALID_REQUEST
            setattr(request, field.name, [])
    assert handled == []


def scram(deletions: list[str], upsertions: list[str]) -> Any:
    message = AlterUserScramCredentialsRequest
    return message(
        deletions=[message.ScramCredentialDeletion(name, 1) for name in deletions],
        upsertions=[message.ScramCredentialUpsertion(name, 1, 4096, b"s", b"p") for name in upsertions],
    )


def test_all_changes_of_a_user_are_in_the_same_piece() -> None:
    rig = Rig(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0)
    names = [f"u{i}" for i in range(COUNT)]
    seen: list[list[str]] = []

    def handle(ctx: RequestContext, piece: Any) -> Any:
        requested = [entry.name for entry in (*piece.deletions, *piece.upsertions)]
        seen.append(requested)
        result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
        return AlterUserScramCredentialsResponse(results=[result(user=name) for name in dict.fromkeys(requested)])

    rig.ask(scram(names[:-7], [names[5], *names[-7:], names[-1]]), handle)
    assert not seen, "nothing is handled at once"
    rig.world.scheduler.run()
    assert [row.user for row in rig.answers[0].results] == names
    assert max(map(len, seen)) <= USERS + 3
    [with_both] = [requested for requested in seen if "u5" in requested]
    assert with_both.count("u5") == 2
    [last] = [requested for requested in seen if names[-1] in requested]
    assert last.count(names[-1]) == 2


def test_a_user_named_very_often_costs_three_entries() -> None:
    rig = Rig(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0)
    seen: list[Any] = []

    def handle(ctx: RequestContext, piece: Any) -> Any:
        seen.append(piece)
        return AlterUserScramCredentialsResponse()

    rig.ask(scram(["u"] * COUNT, ["u"] * COUNT), handle)
    rig.world.scheduler.run()
    assert [(len(piece.deletions), len(piece.upsertions)) for piece in seen] == [(3, 3)]


def metadata(names: list[str]) -> Any:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])


def test_each_topic_is_authorized_and_described_once_in_pieces() -> None:
    rig = Rig(ApiKey.METADATA, 9)
    names = [f"t{i}" for i in range(COUNT)]
    seen: list[int] = []

    def handle(ctx: RequestContext, piece: Any) -> Any:
        seen.append(len(piece.topics))
        row = MetadataResponse.MetadataResponseTopic
        return MetadataResponse(topics=[row(name=topic.name) for topic in piece.topics])

    rig.ask(metadata(names * 2), handle)
    rig.world.scheduler.run()
    assert [topic.name for topic in rig.answers[0].topics] == names
    assert max(seen) == TOPICS


def test_assignments_of_very_many_replicas_are_cut() -> None:
    rig = Rig(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0)
    requested, reported = AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
    sizes: list[int] = []

    def partitions(count: int) -> list[Any]:
        return [requested.PartitionData(i) for i in range(count)]

    def handle(ctx: RequestContext, piece: Any) -> Any:
        sizes.append(sum(len(topic.partitions) for directory in piece.directories for topic in directory.topics))
        return answer(piece)

    def answer(request: Any) -> Any:
        return reported(
            directories=[
                reported.DirectoryData(
                    d.id,
                    [
                        reported.TopicData(
                            t.topic_id, [reported.PartitionData(p.partition_index) for p in t.partitions]
                        )
                        for t in d.topics
                    ],
                )
                for d in request.directories
            ]
        )

    one, two = Uuid(b"1" * 16), Uuid(b"2" * 16)
    request = requested(
        broker_id=1,
        directories=[
            requested.DirectoryData(
                one, [requested.TopicData(one, partitions(COUNT)), requested.TopicData(two, partitions(3))]
            ),
            requested.DirectoryData(two, [requested.TopicData(one, partitions(ROWS))]),
        ],
    )
    rig.ask(request, handle)
    rig.world.scheduler.run()
    assert rig.answers == [answer(request)]
    assert max(sizes) <= ROWS


def test_a_topic_is_described_once_whatever_names_stand_beside_its_id() -> None:
    asked: list[list[Any]] = []

    def handle(ctx: RequestContext, request: Any) -> Any:
        asked.append([(topic.name, topic.topic_id) for topic in request.topics])
        return MetadataResponse(topics=[])

    rig = Rig(ApiKey.METADATA, 12)
    named = MetadataRequest.MetadataRequestTopic
    ids = [Uuid(number.to_bytes(16)) for number in range(1, ROWS + 2)]
    by_id = [named(name=f"n{time}", topic_id=one) for time in range(2) for one in ids]
    rig.ask(MetadataRequest(topics=[*by_id, named(name="ignored")]), handle)
    rig.world.scheduler.run()
    assert [row for rows in asked for row in rows] == [("n0", one) for one in ids]
    assert max(map(len, asked)) == TOPICS
