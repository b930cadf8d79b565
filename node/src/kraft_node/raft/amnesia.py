"""A voter whose disk was found empty under a known id: what it may have promised, and until when it helps nobody.

It may have voted, and acknowledged records, and remembers neither. So until it has caught up for sure it

- grants no vote and stands for nothing;
- fetches as a mere reader (replica -1): its acknowledgements of old may have committed records that a leader of an
  older epoch knows nothing of, so it must not help such a leader to commit others, nor to believe in its majority;
- writes no quorum-state: a restart finds it as it is, empty under a known id.

It is a voter again when one of these is certain:

- *The quorum is new.* Every other voter has said, after this one's start, that it is in epoch 0: nobody has ever
  stood, so there is nothing to be forgotten. That is how the first election of a new quorum comes about.
- *It has caught up with a leader that leads.* A fetch found the end of a leader's log after this one's start; records
  beyond it were then committed in the same epoch, without this voter: a majority of the others followed that leader
  after the start, and any older acknowledgement of ours is known to one of them. And whoever stood before the start,
  and may count a vote of ours, has given up, on the slowest of clocks. To ask all other voters what epoch they are in
  would be quicker, but while static voters are changed (decision 4) one may stand of whom this voter does not know.

So a voter of a new quorum that has missed that it is new is one some seconds later.

With `n` voters and a majority of `m`, the quorum loses nothing as long as no more than `n - m` voters are in that state
or lose their disks at the same time (design decision 10; simulated in `testing.raft`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.raft.messages import FetchReply, FetchRequest
from kraft_node.raft.quorum import NOBODY, ReplicaKey

if TYPE_CHECKING:
    from kraft_node.raft.transitions import RaftReplica

READER: Final = ReplicaKey(NOBODY)

ELECTIONS_PAST: Final = 4
"""Election time-outs after which nobody counts a vote given before the start: an election lasts two at most, and the
clocks of two machines differ by less than that again."""


class Amnesia:
    """What has been learned since the start about the time before it."""

    __slots__ = ("_end", "_epoch", "_new", "_started_ms")

    def __init__(self, now_ms: int) -> None:
        self._started_ms = now_ms
        self._new: set[int] = set()
        """Voters that have said since that they are in epoch 0."""
        self._epoch = -1
        self._end = -1
        """Where the log of the leader of that epoch ended, some time after the start."""

    def heard(self, node: RaftReplica, voter_id: int, epoch: int) -> bool:
        """A voter has said what epoch it is in; whether the quorum is certainly new."""
        if epoch == 0 and voter_id in node.voters:
            self._new.add(voter_id)
        others = (other for other in node.voters.ids if other != node.local.id)
        return node.epoch == 0 and all(other in self._new for other in others)

    def seeks_end(self, epoch: int) -> bool:
        """Whether the end of the leader's log is yet to be found.

        Such a fetch must not wait: where a record is appended every half second, as controllers do, one that waits
        is answered with that record, always, and never finds the end.
        """
        return self._epoch != epoch or self._end < 0

    def fetched(self, node: RaftReplica, request: FetchRequest, reply: FetchReply) -> bool:
        """The leader has answered a fetch, which has been taken in; whether that ends the amnesia."""
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
