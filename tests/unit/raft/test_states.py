"""The table of transitions."""

from __future__ import annotations

import pytest

from kraft_node.raft.roles.states import TRANSITIONS, IllegalTransition, Role, check_transition
from tools import raft_roles

FORBIDDEN = [(old, new) for old in TRANSITIONS for new in Role if new not in TRANSITIONS[old]]


@pytest.mark.parametrize(("old", "new"), FORBIDDEN)
def test_what_the_table_does_not_name_raises(old: Role | None, new: Role) -> None:
    with pytest.raises(IllegalTransition):
        check_transition(old, new, 3, 4)


def test_nobody_becomes_leader_but_a_candidate_of_that_epoch() -> None:
    assert [old for old, after in TRANSITIONS.items() if Role.LEADER in after] == [Role.CANDIDATE]
    check_transition(Role.CANDIDATE, Role.LEADER, 4, 4)
    with pytest.raises(IllegalTransition):
        check_transition(Role.CANDIDATE, Role.LEADER, 4, 5)


def test_a_new_epoch_is_needed_to_stand_and_epochs_never_go_back() -> None:
    check_transition(Role.PROSPECTIVE, Role.CANDIDATE, 4, 5)
    with pytest.raises(IllegalTransition):
        check_transition(Role.PROSPECTIVE, Role.CANDIDATE, 4, 4)
    with pytest.raises(IllegalTransition):
        check_transition(Role.FOLLOWER, Role.UNATTACHED, 4, 3)


def test_the_diagram_in_the_docs_is_drawn_from_the_table() -> None:
    page = raft_roles.PAGE.read_text()
    assert raft_roles.redrawn(page) == page, "python -m tools.raft_roles"
