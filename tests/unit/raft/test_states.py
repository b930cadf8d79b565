"""The table of transitions."""

from __future__ import annotations

import pytest

from kraft_node.raft.roles.states import TRANSITIONS, IllegalTransition, Role, check_transition
from tools import raft_roles

FORBIDDEN = [(old, new) for old in TRANSITIONS for new in Role if new not in TRANSITIONS[old]]


@pytest.mark.parametrize(("old", "new"), FORBIDDEN)
def test_a_transition_outside_the_table_raises(old: Role | None, new: Role) -> None:
    with pytest.raises(IllegalTransition):
        check_transition(old, new, 3, 4)


def test_only_a_candidate_of_the_epoch_becomes_leader() -> None:
    assert [old for old, after in TRANSITIONS.items() if Role.LEADER in after] == [Role.CANDIDATE]
    check_transition(Role.CANDIDATE, Role.LEADER, 4, 4)
    with pytest.raises(IllegalTransition):
        check_transition(Role.CANDIDATE, Role.LEADER, 4, 5)


def test_a_candidacy_needs_a_new_epoch_and_epochs_never_decrease() -> None:
    check_transition(Role.PROSPECTIVE, Role.CANDIDATE, 4, 5)
    with pytest.raises(IllegalTransition):
        check_transition(Role.PROSPECTIVE, Role.CANDIDATE, 4, 4)
    with pytest.raises(IllegalTransition):
        check_transition(Role.FOLLOWER, Role.UNATTACHED, 4, 3)


def test_the_diagram_in_the_docs_is_drawn_from_the_table() -> None:
    page = raft_roles.PAGE.read_text()
    assert raft_roles.redrawn(page) == page, "python -m tools.raft_roles"
