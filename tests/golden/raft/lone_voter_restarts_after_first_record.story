# Voted for itself in epoch 2, and its LeaderChange got to the disk though not the state that says it leads. Leading
# epoch 2 again could put another record in that place.
state: 2 voted=1/A
log: 1:0,2:10
end: 11
> start
    WriteQuorumState(state=QuorumState(epoch=3 leader_id=-1 voted=1/A))
    LeaderChanged(leader_id=-1 epoch=3)
    SetTimer(at_ms=1500)
> state-written
    WriteQuorumState(state=QuorumState(epoch=3 leader_id=1 voted=1/A))
    AppendLeaderChange(offset=11 epoch=3 voters=[1] granting=[1])
    Flush(offset=12)
    LeaderChanged(leader_id=1 epoch=3)
    SetTimer()
> flushed 12
    Committed(high_watermark=12)
    BecameLeader(epoch=3)
