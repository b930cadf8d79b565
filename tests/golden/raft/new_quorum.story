# Nobody has a quorum-state yet. Once all others have said that they are in epoch 0, there is nothing to be forgotten.
# It stands a little later, so that they find out as well: while they have not, they cannot vote.
voters: 1 2 3
disk: wiped
> start
    message: Send(number=1 node_id=2 request=FetchRequest(epoch=0 replica=-1 offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=0))
    message: Send(number=2 node_id=3 request=FetchRequest(epoch=0 replica=-1 offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=0))
    leader_changed: LeaderChanged(leader_id=-1 epoch=0)
    timer_ms: 250
> fetch-answer 2 error=6 epoch=0
    timer_ms: 20
> asked-vote t1 pre from=2 epoch=0 log=0:0
    message: Respond(token=t1 reply=VoteReply(error=0 epoch=0 leader_id=-1 granted=False))
> asked-vote t2 pre from=3 epoch=0 log=0:0
    state: QuorumState(epoch=0 leader_id=-1 voted=-1)
    after_state: Respond(token=t2 reply=VoteReply(error=0 epoch=0 leader_id=-1 granted=True))
> state-written
    releases: True
@ 200
> tick
    message: Send(number=3 node_id=2 request=VoteRequest(epoch=0 candidate=1/A last_epoch=0 end_offset=0 pre_vote=True voter=2))
    message: Send(number=4 node_id=3 request=VoteRequest(epoch=0 candidate=1/A last_epoch=0 end_offset=0 pre_vote=True voter=3))
    timer_ms: 250
