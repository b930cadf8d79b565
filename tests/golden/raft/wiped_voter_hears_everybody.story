# Its disk was found empty under a known id, and both others have told their epochs since: whoever stood before did so in
# an epoch that is not newer, in which this voter votes for nobody. So it counts again as soon as it has caught up.
voters: 1 2 3
disk: wiped
> start
    Send(number=1 node_id=2 request=FetchRequest(epoch=0 replica=-1 offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=0))
    Send(number=2 node_id=3 request=FetchRequest(epoch=0 replica=-1 offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=0))
    LeaderChanged(leader_id=-1 epoch=0)
    SetTimer(at_ms=250)
@ 100
> fetch-answer 2 error=6 epoch=7 leader=3
    Send(number=3 node_id=3 request=FetchRequest(epoch=7 replica=-1 offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=0))
    LeaderChanged(leader_id=3 epoch=7)
    SetTimer(at_ms=350)
> fetch-answer 3 epoch=7 leader=3 batches=0-8-6 hw=8
    AppendFetched(offset=0 next_offset=8 records=bytes)
    Committed(high_watermark=8)
    Flush(offset=8)
    SetTimer(at_ms=2100)
> flushed 8
    Send(number=4 node_id=3 request=FetchRequest(epoch=7 replica=-1 offset=8 last_epoch=6 max_bytes=1048576 max_wait_ms=0 high_watermark=8))
    SetTimer(at_ms=350)
> fetch-answer 3 epoch=7 leader=3 hw=8
    Send(number=5 node_id=3 request=FetchRequest(epoch=7 replica=-1 offset=8 last_epoch=6 max_bytes=1048576 max_wait_ms=500 high_watermark=8))
> fetch-answer 3 epoch=7 leader=3 batches=8-9-7 hw=8
    AppendFetched(offset=8 next_offset=9 records=bytes)
    Flush(offset=9)
    SetTimer(at_ms=2100)
> flushed 9
    Send(number=6 node_id=3 request=FetchRequest(epoch=7 replica=-1 offset=9 last_epoch=7 max_bytes=1048576 max_wait_ms=500 high_watermark=8))
    SetTimer(at_ms=350)
> fetch-answer 3 epoch=7 leader=3 hw=9
    Committed(high_watermark=9)
    WriteQuorumState(state=QuorumState(epoch=7 leader_id=3 voted=-1))
> state-written
    Send(number=7 node_id=3 request=FetchRequest(epoch=7 replica=1/A offset=9 last_epoch=7 max_bytes=1048576 max_wait_ms=500 high_watermark=9))
# Nobody gets its vote in that epoch, also when the leader is gone.
> disconnected 3
    Send(number=8 node_id=2 request=VoteRequest(epoch=7 candidate=1/A last_epoch=7 end_offset=9 pre_vote=True voter=2))
    Send(number=9 node_id=3 request=VoteRequest(epoch=7 candidate=1/A last_epoch=7 end_offset=9 pre_vote=True voter=3))
> asked-vote t1 from=2 epoch=7 log=7:9
    Respond(token=t1 reply=VoteReply(error=42 epoch=7 leader_id=3 granted=False))
> asked-vote t2 from=2 epoch=8 log=7:9
    WriteQuorumState(state=QuorumState(epoch=8 leader_id=-1 voted=-1))
    WriteQuorumState(state=QuorumState(epoch=8 leader_id=-1 voted=2))
    LeaderChanged(leader_id=-1 epoch=8)
> state-written
    Respond(token=t2 reply=VoteReply(error=0 epoch=8 leader_id=-1 granted=True))
    Send(number=10 node_id=3 request=FetchRequest(epoch=8 replica=1/A offset=9 last_epoch=7 max_bytes=1048576 max_wait_ms=500 high_watermark=9))
