# Follows 2, truncates what 2 does not have, fetches only from what is on disk, pre-votes when 2 falls silent.
voters: 1 2 3
state: 5 leader=2
log: 1:0,4:10
end: 15
> start
    message: Send(number=1 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=15 last_epoch=4 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=2 epoch=5)
    timer_ms: 250
> fetch-answer 2 epoch=5 leader=2 diverging=3:12 hw=8
    truncate: 10
    flush: 10
    timer_ms: 2000
> flushed 10
    message: Send(number=2 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=10 last_epoch=1 max_bytes=1048576 max_wait_ms=500))
    timer_ms: 250
> fetch-answer 2 epoch=5 leader=2 batches=10-13-3,13-20-5 hw=11
    append: AppendFetched(offset=10 next_offset=20 records=bytes)
    flush: 20
    committed: 11
    timer_ms: 2000
> flushed 20
    message: Send(number=3 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=20 last_epoch=5 max_bytes=1048576 max_wait_ms=500 high_watermark=11))
    timer_ms: 250
> fetch-answer 2 epoch=5 leader=2 hw=20
    message: Send(number=4 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=20 last_epoch=5 max_bytes=1048576 max_wait_ms=500 high_watermark=20))
    committed: 20
@ 100
> asked-vote t1 pre from=3 epoch=5 log=5:30
    message: Respond(token=t1 reply=VoteReply(error=0 epoch=5 leader_id=2 granted=False))
> fetch-answer 2 fails
    timer_ms: 120
@ 120
> tick
    message: Send(number=5 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=20 last_epoch=5 max_bytes=1048576 max_wait_ms=500 high_watermark=20))
    timer_ms: 370
@ 2000
> tick
    message: Send(number=6 node_id=2 request=VoteRequest(epoch=5 candidate=1/A last_epoch=5 end_offset=20 pre_vote=True voter=2))
    message: Send(number=7 node_id=3 request=VoteRequest(epoch=5 candidate=1/A last_epoch=5 end_offset=20 pre_vote=True voter=3))
    timer_ms: 2120
@ 2600
> vote-answer 3 epoch=5 leader=2
    timer_ms: 2620
