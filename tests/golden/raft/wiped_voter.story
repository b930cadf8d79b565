# Its disk was found empty under a known id: it may have voted and forgotten. It helps nobody to be elected and stands
# for nothing until it has what was committed when it came back.
voters: 1 2 3
disk: wiped
> start
    Send(number=1 node_id=3 request=FetchRequest(epoch=0 replica=1/A offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=500))
    LeaderChanged(leader_id=-1 epoch=0)
    SetTimer(at_ms=1500)
> asked-vote t1 from=3 epoch=7 log=0:0
    WriteQuorumState(state=QuorumState(epoch=7 leader_id=-1 voted=-1))
    LeaderChanged(leader_id=-1 epoch=7)
> state-written
    Respond(token=t1 reply=VoteReply(error=0 epoch=7 leader_id=-1 granted=False))
    Send(number=2 node_id=3 request=FetchRequest(epoch=7 replica=1/A offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=500))
@ 3000
> tick
    SetTimer(at_ms=3020)
> asked-begin t2 epoch=7 leader=2
    WriteQuorumState(state=QuorumState(epoch=7 leader_id=2 voted=-1))
    LeaderChanged(leader_id=2 epoch=7)
> state-written
    Respond(token=t2 reply=BeginQuorumEpochReply(error=0 epoch=7 leader_id=2))
    Send(number=3 node_id=2 request=FetchRequest(epoch=7 replica=1/A offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=500))
> fetch-answer 2 epoch=7 leader=2 batches=0-8-6 hw=20
    AppendFetched(offset=0 next_offset=8 records=bytes)
    Committed(high_watermark=8)
    Flush(offset=8)
> flushed 8
    Send(number=4 node_id=2 request=FetchRequest(epoch=7 replica=1/A offset=8 last_epoch=6 max_bytes=1048576 max_wait_ms=500 high_watermark=8))
> asked-vote t3 from=3 epoch=8 log=6:30
    WriteQuorumState(state=QuorumState(epoch=8 leader_id=-1 voted=-1))
    LeaderChanged(leader_id=-1 epoch=8)
    SetTimer(at_ms=4500)
> state-written
    Respond(token=t3 reply=VoteReply(error=0 epoch=8 leader_id=-1 granted=False))
    Send(number=5 node_id=3 request=FetchRequest(epoch=8 replica=1/A offset=8 last_epoch=6 max_bytes=1048576 max_wait_ms=500 high_watermark=8))
> asked-begin t4 epoch=8 leader=2
    WriteQuorumState(state=QuorumState(epoch=8 leader_id=2 voted=-1))
    LeaderChanged(leader_id=2 epoch=8)
    SetTimer(at_ms=5000)
> state-written
    Respond(token=t4 reply=BeginQuorumEpochReply(error=0 epoch=8 leader_id=2))
    Send(number=6 node_id=2 request=FetchRequest(epoch=8 replica=1/A offset=8 last_epoch=6 max_bytes=1048576 max_wait_ms=500 high_watermark=8))
> fetch-answer 2 epoch=8 leader=2 batches=8-25-7 hw=21
    AppendFetched(offset=8 next_offset=25 records=bytes)
    Committed(high_watermark=21)
    Flush(offset=25)
> flushed 25
    Send(number=7 node_id=2 request=FetchRequest(epoch=8 replica=1/A offset=25 last_epoch=7 max_bytes=1048576 max_wait_ms=500 high_watermark=21))
> asked-vote t5 from=3 epoch=9 log=7:30
    WriteQuorumState(state=QuorumState(epoch=9 leader_id=-1 voted=-1))
    WriteQuorumState(state=QuorumState(epoch=9 leader_id=-1 voted=3))
    LeaderChanged(leader_id=-1 epoch=9)
    SetTimer(at_ms=4500)
> state-written
    Respond(token=t5 reply=VoteReply(error=0 epoch=9 leader_id=-1 granted=True))
    Send(number=8 node_id=3 request=FetchRequest(epoch=9 replica=1/A offset=25 last_epoch=7 max_bytes=1048576 max_wait_ms=500 high_watermark=21))
