# It had voted for itself in epoch 2, and the machine stopped before it led: nothing of epoch 2 is in the log.
state: 2 voted=1/A
log: 1:0
end: 10
> start
    append: AppendLeaderChange(offset=10 epoch=2 voters=[1] granting=[1])
    state: QuorumState(epoch=2 leader_id=1 voted=1/A)
    flush: 11
    leader_changed: LeaderChanged(leader_id=1 epoch=2)
> state-written
    releases: True
> flushed 11
    committed: 11
    became_leader: 2
