# A voter alone elects itself at once. It counts its vote when that is on disk, and says it leads when its own
# LeaderChange record is committed.
> start
    WriteQuorumState(state=QuorumState(epoch=1 leader_id=-1 voted=1/A))
    LeaderChanged(leader_id=-1 epoch=1)
    SetTimer(at_ms=1500)
> state-written
    WriteQuorumState(state=QuorumState(epoch=1 leader_id=1 voted=1/A))
    AppendLeaderChange(offset=0 epoch=1 voters=[1] granting=[1])
    Flush(offset=1)
    LeaderChanged(leader_id=1 epoch=1)
    SetTimer()
> state-written
> flushed 1
    Committed(high_watermark=1)
    BecameLeader(epoch=1)
# Two appends; the second waits for the running flush and shares the next one with the third.
@ 10
> propose a b epoch=1
    Proposed(first_offset=1 last_offset=2)
    Append(offset=1 epoch=1 records=[a b])
    Flush(offset=3)
> propose c epoch=1
    Proposed(first_offset=3 last_offset=3)
    SetTimer(at_ms=35)
> propose d epoch=1
    Proposed(first_offset=4 last_offset=4)
> flushed 3
    Append(offset=3 epoch=1 records=[c d])
    Flush(offset=5)
    Committed(high_watermark=3)
    SetTimer()
> flushed 5
    Committed(high_watermark=5)
# A disk that takes long: what waits is written when the linger of 25 ms is over.
> propose e epoch=1
    Proposed(first_offset=5 last_offset=5)
    Append(offset=5 epoch=1 records=[e])
    Flush(offset=6)
> propose f epoch=1
    Proposed(first_offset=6 last_offset=6)
    SetTimer(at_ms=35)
@ 35
> tick
    Append(offset=6 epoch=1 records=[f])
> flushed 6
    Flush(offset=7)
    Committed(high_watermark=6)
> flushed 7
    Committed(high_watermark=7)
