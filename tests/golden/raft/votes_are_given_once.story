# What is asked by others while this node knows no leader.
voters: 1 2 3
state: 3
log: 1:0,3:5
end: 9
> start
    message: Send(number=1 node_id=2 request=VoteRequest(epoch=3 candidate=1/A last_epoch=3 end_offset=9 pre_vote=True voter=2))
    message: Send(number=2 node_id=3 request=VoteRequest(epoch=3 candidate=1/A last_epoch=3 end_offset=9 pre_vote=True voter=3))
    leader_changed: LeaderChanged(leader_id=-1 epoch=3)
    timer_ms: 250
> asked-vote t1 from=2 epoch=2 log=1:20
    message: Respond(token=t1 reply=VoteReply(error=74 epoch=3 leader_id=-1 granted=False))
> asked-vote t2 from=2 epoch=4 log=4:20
    message: Respond(token=t2 reply=VoteReply(error=42 epoch=3 leader_id=-1 granted=False))
# A log that is behind ours gets nothing; one that is not, gets the vote once it is on disk.
> asked-vote t3 from=2 epoch=4 log=3:8
    state: QuorumState(epoch=4 leader_id=-1 voted=-1)
    after_state: Respond(token=t3 reply=VoteReply(error=0 epoch=4 leader_id=-1 granted=False))
    after_state: Send(number=3 node_id=3 request=FetchRequest(epoch=4 replica=1/A offset=9 last_epoch=3 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=-1 epoch=4)
> asked-vote t4 from=2 epoch=4 log=3:9
    state: QuorumState(epoch=4 leader_id=-1 voted=2)
    after_state: Respond(token=t4 reply=VoteReply(error=0 epoch=4 leader_id=-1 granted=True))
> state-written
    releases: True
> asked-vote t5 from=3 epoch=4 log=3:12
    message: Respond(token=t5 reply=VoteReply(error=0 epoch=4 leader_id=-1 granted=False))
> asked-vote t6 from=2 epoch=4 log=3:9
    message: Respond(token=t6 reply=VoteReply(error=0 epoch=4 leader_id=-1 granted=True))
# A pre-vote promises nothing.
> asked-vote t7 pre from=3 epoch=4 log=3:12
    message: Respond(token=t7 reply=VoteReply(error=0 epoch=4 leader_id=-1 granted=True))
# Meant for another directory.
> asked-vote t8 from=3 epoch=5 log=3:12 to=1/Z
    state: QuorumState(epoch=5 leader_id=-1 voted=-1)
    after_state: Respond(token=t8 reply=VoteReply(error=125 epoch=5 leader_id=-1 granted=False))
    after_state: Send(number=4 node_id=3 request=FetchRequest(epoch=5 replica=1/A offset=9 last_epoch=3 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=-1 epoch=5)
> state-written
    releases: True
