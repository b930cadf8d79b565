# Its disk was found empty under a known id: it may have voted and forgotten. It helps nobody to be elected, stands for
# nothing and fetches as a mere reader.
voters: 1 2 3
disk: wiped
> start
    message: Send(number=1 node_id=2 request=FetchRequest(epoch=0 replica=-1 offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=0))
    message: Send(number=2 node_id=3 request=FetchRequest(epoch=0 replica=-1 offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=0))
    leader_changed: LeaderChanged(leader_id=-1 epoch=0)
    timer_ms: 250
> asked-vote t1 from=3 epoch=7 log=0:0
    message: Respond(token=t1 reply=VoteReply(error=0 epoch=7 leader_id=-1 granted=False))
    message: Send(number=3 node_id=2 request=FetchRequest(epoch=7 replica=-1 offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=0))
    message: Send(number=4 node_id=3 request=FetchRequest(epoch=7 replica=-1 offset=0 last_epoch=0 max_bytes=1048576 max_wait_ms=0))
    leader_changed: LeaderChanged(leader_id=-1 epoch=7)
@ 1000
> asked-begin t2 epoch=7 leader=2
    message: Respond(token=t2 reply=BeginQuorumEpochReply(error=0 epoch=7 leader_id=2))
    leader_changed: LeaderChanged(leader_id=2 epoch=7)
    timer_ms: 2000
> fetch-answer 2 epoch=7 leader=2 batches=0-8-6 hw=20
    append: AppendFetched(offset=0 next_offset=8 records=bytes)
    flush: 8
    committed: 8
> flushed 8
    message: Send(number=5 node_id=2 request=FetchRequest(epoch=7 replica=-1 offset=8 last_epoch=6 max_bytes=1048576 max_wait_ms=0 high_watermark=8))
    timer_ms: 1250
> asked-vote t3 from=3 epoch=7 log=6:30
    message: Respond(token=t3 reply=VoteReply(error=0 epoch=7 leader_id=2 granted=False))
> fetch-answer 2 epoch=7 leader=2 batches=8-25-7 hw=21
    append: AppendFetched(offset=8 next_offset=25 records=bytes)
    flush: 25
    committed: 21
    timer_ms: 2000
> flushed 25
    message: Send(number=6 node_id=2 request=FetchRequest(epoch=7 replica=-1 offset=25 last_epoch=7 max_bytes=1048576 max_wait_ms=0 high_watermark=21))
    timer_ms: 1250
# The fetches before this one do not wait: where something is appended all the time, the end would never be found.
# Here the leader's log ended, after the start.
@ 3600
> fetch-answer 2 epoch=7 leader=2 hw=25
    message: Send(number=7 node_id=2 request=FetchRequest(epoch=7 replica=-1 offset=25 last_epoch=7 max_bytes=1048576 max_wait_ms=500 high_watermark=25))
    committed: 25
    timer_ms: 3620
# What came after it is committed, but somebody might still count a vote given before the start, for four election
# time-outs, be it one of these voters or not (static ones may be in the midst of a change).
> fetch-answer 2 epoch=7 leader=2 batches=25-26-7 hw=26
    append: AppendFetched(offset=25 next_offset=26 records=bytes)
    flush: 26
    committed: 26
> flushed 26
    message: Send(number=8 node_id=2 request=FetchRequest(epoch=7 replica=-1 offset=26 last_epoch=7 max_bytes=1048576 max_wait_ms=500 high_watermark=26))
@ 4100
> fetch-answer 2 epoch=7 leader=2 batches=26-27-7 hw=27
    append: AppendFetched(offset=26 next_offset=27 records=bytes)
    state: QuorumState(epoch=7 leader_id=2 voted=-1)
    flush: 27
    committed: 27
    timer_ms: 6100
> state-written
    releases: True
> flushed 27
    message: Send(number=9 node_id=2 request=FetchRequest(epoch=7 replica=1/A offset=27 last_epoch=7 max_bytes=1048576 max_wait_ms=500 high_watermark=27))
    timer_ms: 4350
> asked-vote t5 from=3 epoch=9 log=7:30
    state: QuorumState(epoch=9 leader_id=-1 voted=3)
    after_state: Respond(token=t5 reply=VoteReply(error=0 epoch=9 leader_id=-1 granted=True))
    after_state: Send(number=10 node_id=3 request=FetchRequest(epoch=9 replica=1/A offset=27 last_epoch=7 max_bytes=1048576 max_wait_ms=500 high_watermark=27))
    leader_changed: LeaderChanged(leader_id=-1 epoch=9)
> state-written
    releases: True
