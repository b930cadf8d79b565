# Told by the resigning leader that it is the first to stand.
voters: 1 2 3
state: 6 leader=2
log: 6:0
end: 3
> start
    message: Send(number=1 node_id=2 request=FetchRequest(epoch=6 replica=1/A offset=3 last_epoch=6 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=2 epoch=6)
    timer_ms: 250
> asked-end t1 epoch=6 leader=2 successors=1/A,3
    message: Respond(token=t1 reply=EndQuorumEpochReply(error=0 epoch=6 leader_id=2))
    message: Send(number=2 node_id=2 request=VoteRequest(epoch=6 candidate=1/A last_epoch=6 end_offset=3 pre_vote=True voter=2))
    message: Send(number=3 node_id=3 request=VoteRequest(epoch=6 candidate=1/A last_epoch=6 end_offset=3 pre_vote=True voter=3))
> vote-answer 3 grants epoch=6
    state: QuorumState(epoch=7 leader_id=-1 voted=1/A)
    leader_changed: LeaderChanged(leader_id=-1 epoch=7)
    timer_ms: None
> state-written
    releases: True
    message: Send(number=4 node_id=2 request=VoteRequest(epoch=7 candidate=1/A last_epoch=6 end_offset=3 voter=2))
    message: Send(number=5 node_id=3 request=VoteRequest(epoch=7 candidate=1/A last_epoch=6 end_offset=3 voter=3))
    timer_ms: 250
> vote-answer 3 grants epoch=7
    append: AppendLeaderChange(offset=3 epoch=7 voters=[1 2 3] granting=[1 3])
    state: QuorumState(epoch=7 leader_id=1 voted=1/A)
    after_state: Send(number=6 node_id=2 request=BeginQuorumEpochRequest(epoch=7 leader_id=1 voter=2))
    after_state: Send(number=7 node_id=3 request=BeginQuorumEpochRequest(epoch=7 leader_id=1 voter=3))
    flush: 4
    leader_changed: LeaderChanged(leader_id=1 epoch=7)
