"""The cost of CreateAcls and DeleteAcls among many entries: proportional to the request, or in steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraft_node.metadata.sections import OverlaySection
from kraft_node.security import acl_filter
from kraft_protocol.wire.messages import CreateAclsRequest, DeleteAclsRequest
from tests.unit.controller.harness import Quorum

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LITERAL, PREFIXED = 3, 4
ANY, MATCH = 1, 2


def creation(name: str, pattern: int = LITERAL, **fields: Any) -> CreateAclsRequest.AclCreation:
    named = {"resource_type": 2, "resource_name": name, "resource_pattern_type": pattern, "principal": "User:alice"}
    return CreateAclsRequest.AclCreation(**{**named, "host": "*", "operation": 3, "permission_type": 3, **fields})


def meant(name: str | None, pattern: int = LITERAL, **fields: Any) -> DeleteAclsRequest.DeleteAclsFilter:
    of_name = {"resource_type_filter": 2, "resource_name_filter": name, "pattern_type_filter": pattern}
    anybody = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    return DeleteAclsRequest.DeleteAclsFilter(**{**of_name, **anybody, **fields})


@pytest.fixture
def quorum() -> Quorum:
    made = Quorum(authorizer_class_name=AUTHORIZER)
    for start in range(0, 5000, 500):
        made.respond(CreateAclsRequest(creations=[creation(f"t{number}") for number in range(start, start + 500)]))
    assert len(made.image.acls) == 5000
    return made


def deny_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(_: Any) -> Iterator[Any]:
        raise AssertionError("all entries are read")

    for name in ("items", "values", "__iter__"):
        monkeypatch.setattr(OverlaySection, name, scan)


def test_creating_entries_does_not_scan_existing_ones(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    deny_scans(monkeypatch)
    results = quorum.respond(CreateAclsRequest(creations=[creation("t7"), creation("new"), creation("new")])).results
    assert [result.error_code for result in results] == [0, 0, 0]
    assert len(quorum.image.acls) == 5001


@pytest.mark.parametrize(
    ("name", "pattern", "gone"),
    [
        ("t7", LITERAL, ["t7"]),
        ("t7", ANY, ["t7", "t7"]),
        ("t7", PREFIXED, ["t7"]),
        ("t70", MATCH, ["*", "t7", "t70"]),
        ("no", MATCH, ["*"]),
    ],
)
def test_deleting_entries_of_a_resource_reads_only_that_resource(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch, name: str, pattern: int, gone: list[str]
) -> None:
    quorum.respond(CreateAclsRequest(creations=[creation("t7", PREFIXED), creation("*")]))
    deny_scans(monkeypatch)
    answered = quorum.respond(DeleteAclsRequest(filters=[meant(name, pattern), meant("t8", host_filter="1.2.3.4")]))
    assert sorted(acl.resource_name for acl in answered.filter_results[0].matching_acls) == gone
    assert not answered.filter_results[1].matching_acls
    assert len(quorum.image.acls) == 5002 - len(gone)


def test_a_filter_without_a_name_searches_in_steps(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_node.controller.settings.acls.ENTRIES_A_STEP", 100)
    assert acl_filter.ENTRIES_A_STEP == 1000
    waiting = quorum.ask(DeleteAclsRequest(filters=[meant(None, principal_filter="User:alice")]))
    assert not waiting.given
    quorum.respond(CreateAclsRequest(creations=[creation("meanwhile")]))
    assert not waiting.given, "another request had its turn"
    while not waiting.given:
        quorum.pass_time(0)
    assert len(waiting.response.filter_results[0].matching_acls) == 5000
    assert [entry.resource_name for entry in quorum.image.acls.values()] == ["meanwhile"]


def test_entries_deleted_by_two_requests_are_deleted_once(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_node.controller.settings.acls.ENTRIES_A_STEP", 100)
    everything = DeleteAclsRequest(filters=[meant(None)])
    waiting = [quorum.ask(everything), quorum.ask(everything)]
    while not all(each.given for each in waiting):
        quorum.pass_time(0)
    assert [len(each.response.filter_results[0].matching_acls) for each in waiting] == [5000, 0]
    assert not len(quorum.image.acls)
