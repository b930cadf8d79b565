# A voter that cannot be elected, and knows no pre-votes, begins one epoch after the other. Ours, whose log is longer,
# stands when its own wait is over, not an election time-out after the last of those epochs (simulator, seed 283).
id: 2/A
voters: 1 2 3
state: 4
log: 3:0
end: 9
> start
    message: Send(number=1 node_id=3 request=FetchRequest(epoch=4 replica=2/A offset=9 last_epoch=3 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=-1 epoch=4)
    timer_ms: 50
@ 60
> tick
    message: Send(number=2 node_id=1 request=VoteRequest(epoch=4 candidate=2/A last_epoch=3 end_offset=9 pre_vote=True voter=1))
    message: Send(number=3 node_id=3 request=VoteRequest(epoch=4 candidate=2/A last_epoch=3 end_offset=9 pre_vote=True voter=3))
    timer_ms: 250
@ 800
> asked-vote t1 from=1 epoch=5 log=2:7
    state: QuorumState(epoch=5 leader_id=-1 voted=-1)
    after_state: Respond(token=t1 reply=VoteReply(error=0 epoch=5 leader_id=-1 granted=False))
    after_state: Send(number=4 node_id=3 request=FetchRequest(epoch=5 replica=2/A offset=9 last_epoch=3 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=-1 epoch=5)
    timer_ms: 1050
> state-written
    releases: True
@ 1400
> asked-vote t2 from=1 epoch=6 log=2:7
    state: QuorumState(epoch=6 leader_id=-1 voted=-1)
    after_state: Respond(token=t2 reply=VoteReply(error=0 epoch=6 leader_id=-1 granted=False))
    after_state: Send(number=5 node_id=3 request=FetchRequest(epoch=6 replica=2/A offset=9 last_epoch=3 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=-1 epoch=6)
    timer_ms: 1560
> state-written
    releases: True
@ 1560
> tick
    message: Send(number=6 node_id=1 request=VoteRequest(epoch=6 candidate=2/A last_epoch=3 end_offset=9 pre_vote=True voter=1))
    message: Send(number=7 node_id=3 request=VoteRequest(epoch=6 candidate=2/A last_epoch=3 end_offset=9 pre_vote=True voter=3))
    timer_ms: 1650
