"""A voter that found its disk empty under a known id: its restrictions, and when it may vote again.

Before its disk was emptied, the voter may have voted and acknowledged records. It remembers neither. Until it has
certainly caught up, it

- grants no vote and does not campaign;
- fetches as a plain reader (replica -1). Its old acknowledgements may have committed records that the leader of an
  older epoch does not have. So it must not help that leader to commit others or to count a majority;
- writes no quorum-state: after a restart the voter is in the same state, empty under a known id.

It is a voter again when one of these facts is certain:

- *The quorum is new.* Since this voter's start, every other voter has reported epoch 0. Then no election was ever
  held, and the voter has forgotten no promise. The first election of a new quorum happens this way.
- *It has caught up with an active leader.* After this voter's start, a fetch of it reached the end of the leader's
  log. Then records beyond that end were committed in the same epoch without this voter. So a majority of the other
  voters followed that leader after the start, and a member of this majority knows every record that this voter
  acknowledged before. In addition, every candidate from before the start that may hold a vote of this voter has given
  up, even on the slowest clock. A request to all other voters for their epoch would be quicker. But while static
  voters are being changed (docs/decisions/0004), a candidate may exist that this voter does not know.

A voter of a new quorum that has missed that the quorum is new therefore becomes a voter some seconds later.

With `n` voters and a majority of `m`, at most `n - m` voters may be in this state or lose their disks at the same
time. Then the quorum loses no committed record (simulated in `testing.raft`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.raft.membership.quorum import NO_NODE, ReplicaKey
from kraft_node.raft.messages import FetchReply, FetchRequest

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica

READER: Final = ReplicaKey(NO_NODE)

ELECTIONS_PAST: Final = 4
"""Election time-outs after which no candidate counts a vote granted before the start. An election lasts at most two,
and the clocks of two machines differ by less than two more."""


class Amnesia:
    """The knowledge of a voter with an emptied disk, since its start, about the time before."""

    __slots__ = ("_end", "_epoch", "_new", "_started_ms")

    def __init__(self, now_ms: int) -> None:
        self._started_ms = now_ms
        self._new: set[int] = set()
        """Voters that have reported epoch 0 since the start."""
        self._epoch = -1
        self._end = -1
        """An end of the log of that epoch's leader, reported after the start."""

    def note_epoch(self, node: RaftReplica, voter_id: int, epoch: int) -> bool:
        """Note the epoch that a voter reports. Returns whether the quorum is certainly new."""
        if epoch == 0 and voter_id in node.voters:
            self._new.add(voter_id)
        others = (other for other in node.voters.ids if other != node.local.id)
        return node.epoch == 0 and all(other in self._new for other in others)

    def seeks_end(self, epoch: int) -> bool:
        """Whether the voter must still find the end of the leader's log.

        This fetch must not wait at the leader. Controllers append a record every half second, so a waiting fetch is
        always answered with that record and never finds the end.
        """
        return self._epoch != epoch or self._end < 0

    def fetched(self, node: RaftReplica, request: FetchRequest, reply: FetchReply) -> bool:
        """Note the leader's answer to a fetch, after it was appended. Returns whether the amnesia is over."""
        if self._epoch != node.epoch:
            self._epoch, self._end = node.epoch, -1
        if self._end < 0:
            if not reply.batches and reply.diverging is None and reply.snapshot is None:
                self._end = request.offset
            return False
        caught_up = self._end < reply.high_watermark <= node.log.end_offset
        if not caught_up:
            return False
        return node.now_ms >= self._started_ms + ELECTIONS_PAST * node.config.election_timeout_ms
