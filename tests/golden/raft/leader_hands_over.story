# The leader goes; the most caught-up voter is named first and stands at once.
voters: 1 2 3
state: 6 voted=1/A
log: 1:0
end: 3
> start
    Send(number=1 node_id=2 request=VoteRequest(epoch=6 candidate=1/A last_epoch=1 end_offset=3 voter=2))
    Send(number=2 node_id=3 request=VoteRequest(epoch=6 candidate=1/A last_epoch=1 end_offset=3 voter=3))
    LeaderChanged(leader_id=-1 epoch=6)
    SetTimer(at_ms=250)
> vote-answer 2 grants epoch=6
    WriteQuorumState(state=QuorumState(epoch=6 leader_id=1 voted=1/A))
    AppendLeaderChange(offset=3 epoch=6 voters=[1 2 3] granting=[1 2])
    Flush(offset=4)
    LeaderChanged(leader_id=1 epoch=6)
> state-written
    Send(number=3 node_id=2 request=BeginQuorumEpochRequest(epoch=6 leader_id=1 voter=2))
    Send(number=4 node_id=3 request=BeginQuorumEpochRequest(epoch=6 leader_id=1 voter=3))
> flushed 4
> begin-answer 2 epoch=6 leader=1
> begin-answer 3 epoch=6 leader=1
> asked-fetch t1 from=3 epoch=6 offset=4 last=6
    Committed(high_watermark=4)
    BecameLeader(epoch=6)
> shutdown
    LostLeadership(epoch=6)
    Respond(token=t1 reply=FetchReply(error=8 epoch=6 leader_id=1))
    Send(number=5 node_id=2 request=EndQuorumEpochRequest(epoch=6 leader_id=1 successors=[3 2]))
    Send(number=6 node_id=3 request=EndQuorumEpochRequest(epoch=6 leader_id=1 successors=[3 2]))
    LeaderChanged(leader_id=-1 epoch=6)
> end-answer 3 epoch=6 leader=1
> end-answer 2 epoch=6 leader=1
    ShutdownComplete()
