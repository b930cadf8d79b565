# It led epoch 4. It must not lead that epoch again, so it begins the next.
state: 4 leader=1 voted=1/A
log: 1:0,4:20
end: 30
> start
    state: QuorumState(epoch=5 leader_id=-1 voted=1/A)
    leader_changed: LeaderChanged(leader_id=-1 epoch=5)
> state-written
    append: AppendLeaderChange(offset=30 epoch=5 voters=[1] granting=[1])
    releases: True
    state: QuorumState(epoch=5 leader_id=1 voted=1/A)
    flush: 31
    leader_changed: LeaderChanged(leader_id=1 epoch=5)
> state-written
    releases: True
> flushed 31
    committed: 31
    became_leader: 5
