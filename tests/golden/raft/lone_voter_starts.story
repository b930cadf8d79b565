# A voter alone elects itself at once. It counts its vote when that is on disk, and says it leads when its own
# LeaderChange record is committed.
> start
    state: QuorumState(epoch=1 leader_id=-1 voted=1/A)
    leader_changed: LeaderChanged(leader_id=-1 epoch=1)
> state-written
    append: AppendLeaderChange(offset=0 epoch=1 voters=[1] granting=[1])
    releases: True
    state: QuorumState(epoch=1 leader_id=1 voted=1/A)
    flush: 1
    leader_changed: LeaderChanged(leader_id=1 epoch=1)
> state-written
    releases: True
> flushed 1
    committed: 1
    became_leader: 1
# Two appends; the second waits for the running flush and shares the next one with the third.
@ 10
> propose a b epoch=1
    append: Append(offset=1 epoch=1 records=[a b])
    flush: 3
    proposed: Proposed(first_offset=1 last_offset=2)
> propose c epoch=1
    proposed: Proposed(first_offset=3 last_offset=3)
    timer_ms: 35
> propose d epoch=1
    proposed: Proposed(first_offset=4 last_offset=4)
> flushed 3
    append: Append(offset=3 epoch=1 records=[c d])
    flush: 5
    committed: 3
    timer_ms: None
> flushed 5
    committed: 5
# A disk that takes long: what waits is written when the linger of 25 ms is over.
> propose e epoch=1
    append: Append(offset=5 epoch=1 records=[e])
    flush: 6
    proposed: Proposed(first_offset=5 last_offset=5)
> propose f epoch=1
    proposed: Proposed(first_offset=6 last_offset=6)
    timer_ms: 35
@ 35
> tick
    append: Append(offset=6 epoch=1 records=[f])
> flushed 6
    flush: 7
    committed: 6
> flushed 7
    committed: 7
