# It had voted for itself in epoch 2, and the machine stopped before it led: nothing of epoch 2 is in the log.
state: 2 voted=1/A
log: 1:0
end: 10
> start
    WriteQuorumState(state=QuorumState(epoch=2 leader_id=1 voted=1/A))
    AppendLeaderChange(offset=10 epoch=2 voters=[1] granting=[1])
    Flush(offset=11)
    LeaderChanged(leader_id=1 epoch=2)
> state-written
> flushed 11
    Committed(high_watermark=11)
    BecameLeader(epoch=2)
