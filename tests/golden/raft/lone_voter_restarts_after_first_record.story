# Voted for itself in epoch 2, and its LeaderChange got to the disk though not the state that says it leads. Leading
# epoch 2 again could put another record in that place.
state: 2 voted=1/A
log: 1:0,2:10
end: 11
> start
    state: QuorumState(epoch=3 leader_id=-1 voted=1/A)
    leader_changed: LeaderChanged(leader_id=-1 epoch=3)
> state-written
    append: AppendLeaderChange(offset=11 epoch=3 voters=[1] granting=[1])
    releases: True
    state: QuorumState(epoch=3 leader_id=1 voted=1/A)
    flush: 12
    leader_changed: LeaderChanged(leader_id=1 epoch=3)
> flushed 12
    committed: 12
    became_leader: 3
