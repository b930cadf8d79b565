# Asks at once whether it would be elected: pre-vote, vote, leader; the high watermark waits for a majority past LeaderChange.
voters: 1 2 3
> start
    message: Send(number=1 node_id=2 request=VoteRequest(epoch=0 candidate=1/A last_epoch=0 end_offset=0 pre_vote=True voter=2))
    message: Send(number=2 node_id=3 request=VoteRequest(epoch=0 candidate=1/A last_epoch=0 end_offset=0 pre_vote=True voter=3))
    leader_changed: LeaderChanged(leader_id=-1 epoch=0)
    timer_ms: 250
@ 10
> vote-answer 2 grants epoch=0
    state: QuorumState(epoch=1 leader_id=-1 voted=1/A)
    leader_changed: LeaderChanged(leader_id=-1 epoch=1)
    timer_ms: None
> state-written
    releases: True
    message: Send(number=3 node_id=2 request=VoteRequest(epoch=1 candidate=1/A last_epoch=0 end_offset=0 voter=2))
    message: Send(number=4 node_id=3 request=VoteRequest(epoch=1 candidate=1/A last_epoch=0 end_offset=0 voter=3))
    timer_ms: 260
@ 20
> vote-answer 3 grants epoch=1
    append: AppendLeaderChange(offset=0 epoch=1 voters=[1 2 3] granting=[1 3])
    state: QuorumState(epoch=1 leader_id=1 voted=1/A)
    after_state: Send(number=5 node_id=2 request=BeginQuorumEpochRequest(epoch=1 leader_id=1 voter=2))
    after_state: Send(number=6 node_id=3 request=BeginQuorumEpochRequest(epoch=1 leader_id=1 voter=3))
    flush: 1
    leader_changed: LeaderChanged(leader_id=1 epoch=1)
> state-written
    releases: True
> flushed 1
> begin-answer 2 epoch=1 leader=1
> asked-fetch t1 from=2 epoch=1 offset=0
    message: ReadLog(token=t1 reply=FetchReply(error=0 epoch=1 leader_id=1 log_start_offset=0) offset=0 max_bytes=1000)
> asked-fetch t2 from=2 epoch=1 offset=1 last=1
    committed: 1
    became_leader: 1
> propose a epoch=1
    append: Append(offset=1 epoch=1 records=[a])
    message: ReadLog(token=t2 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=1 log_start_offset=0) offset=1 max_bytes=1000)
    flush: 2
    proposed: Proposed(first_offset=1 last_offset=1)
> asked-fetch t3 from=2 epoch=1 offset=2 last=1
# 3 has it on disk before the leader has: committed once two have.
> asked-fetch t4 from=3 epoch=1 offset=2 last=1
    committed: 2
> flushed 2
# Nobody fetches for 3 s: it resigns, tells the others, and looks on in a new epoch.
@ 3100
> tick
    message: Send(number=7 node_id=2 request=EndQuorumEpochRequest(epoch=1 leader_id=1 successors=[2 3]))
    message: Send(number=8 node_id=3 request=EndQuorumEpochRequest(epoch=1 leader_id=1 successors=[2 3]))
    message: Respond(token=t3 reply=FetchReply(error=6 epoch=1 leader_id=1))
    message: Respond(token=t4 reply=FetchReply(error=6 epoch=1 leader_id=1))
    lost_leadership: 1
    leader_changed: LeaderChanged(leader_id=-1 epoch=1)
    timer_ms: 3120
@ 4700
> tick
    state: QuorumState(epoch=2 leader_id=-1 voted=-1)
    after_state: Send(number=9 node_id=3 request=FetchRequest(epoch=2 replica=1/A offset=2 last_epoch=1 max_bytes=1048576 max_wait_ms=500 high_watermark=2))
    leader_changed: LeaderChanged(leader_id=-1 epoch=2)
    timer_ms: 4950
