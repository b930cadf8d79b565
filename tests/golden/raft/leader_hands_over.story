# The leader goes; the most caught-up voter is named first and stands at once.
voters: 1 2 3
state: 6 voted=1/A
log: 1:0
end: 3
> start
    message: Send(number=1 node_id=2 request=VoteRequest(epoch=6 candidate=1/A last_epoch=1 end_offset=3 voter=2))
    message: Send(number=2 node_id=3 request=VoteRequest(epoch=6 candidate=1/A last_epoch=1 end_offset=3 voter=3))
    leader_changed: LeaderChanged(leader_id=-1 epoch=6)
    timer_ms: 250
> vote-answer 2 grants epoch=6
    append: AppendLeaderChange(offset=3 epoch=6 voters=[1 2 3] granting=[1 2])
    state: QuorumState(epoch=6 leader_id=1 voted=1/A)
    after_state: Send(number=3 node_id=2 request=BeginQuorumEpochRequest(epoch=6 leader_id=1 voter=2))
    after_state: Send(number=4 node_id=3 request=BeginQuorumEpochRequest(epoch=6 leader_id=1 voter=3))
    flush: 4
    leader_changed: LeaderChanged(leader_id=1 epoch=6)
> state-written
    releases: True
> flushed 4
> begin-answer 2 epoch=6 leader=1
> begin-answer 3 epoch=6 leader=1
> asked-fetch t1 from=3 epoch=6 offset=4 last=6
    committed: 4
    became_leader: 6
> shutdown
    message: Respond(token=t1 reply=FetchReply(error=8 epoch=6 leader_id=1))
    message: Send(number=5 node_id=2 request=EndQuorumEpochRequest(epoch=6 leader_id=1 successors=[3 2]))
    message: Send(number=6 node_id=3 request=EndQuorumEpochRequest(epoch=6 leader_id=1 successors=[3 2]))
    lost_leadership: 6
    leader_changed: LeaderChanged(leader_id=-1 epoch=6)
> end-answer 3 epoch=6 leader=1
> end-answer 2 epoch=6 leader=1
    is_shut_down: True
