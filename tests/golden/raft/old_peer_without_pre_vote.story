# A 3.9 voter does not know pre-votes, and so does not object.
voters: 1 2 3
> start
    message: Send(number=1 node_id=2 request=VoteRequest(epoch=0 candidate=1/A last_epoch=0 end_offset=0 pre_vote=True voter=2))
    message: Send(number=2 node_id=3 request=VoteRequest(epoch=0 candidate=1/A last_epoch=0 end_offset=0 pre_vote=True voter=3))
    leader_changed: LeaderChanged(leader_id=-1 epoch=0)
    timer_ms: 250
> vote-unknown-to 2
    state: QuorumState(epoch=1 leader_id=-1 voted=1/A)
    leader_changed: LeaderChanged(leader_id=-1 epoch=1)
    timer_ms: None
> state-written
    releases: True
    message: Send(number=3 node_id=2 request=VoteRequest(epoch=1 candidate=1/A last_epoch=0 end_offset=0 voter=2))
    message: Send(number=4 node_id=3 request=VoteRequest(epoch=1 candidate=1/A last_epoch=0 end_offset=0 voter=3))
    timer_ms: 250
