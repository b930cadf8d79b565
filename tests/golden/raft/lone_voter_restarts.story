# It led epoch 4. It must not lead that epoch again, so it begins the next.
state: 4 leader=1 voted=1/A
log: 1:0,4:20
end: 30
> start
    WriteQuorumState(state=QuorumState(epoch=5 leader_id=-1 voted=1/A))
    LeaderChanged(leader_id=-1 epoch=5)
    SetTimer(at_ms=1500)
> state-written
    WriteQuorumState(state=QuorumState(epoch=5 leader_id=1 voted=1/A))
    AppendLeaderChange(offset=30 epoch=5 voters=[1] granting=[1])
    Flush(offset=31)
    LeaderChanged(leader_id=1 epoch=5)
    SetTimer()
> state-written
> flushed 31
    Committed(high_watermark=31)
    BecameLeader(epoch=5)
