# A leader whose process ends closes its connections: its followers need not wait for the fetch time-out.
voters: 1 2 3
state: 5 leader=2
log: 5:0
end: 4
> start
    message: Send(number=1 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=4 last_epoch=5 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=2 epoch=5)
    timer_ms: 250
> fetch-answer 2 epoch=5 leader=2 hw=4
    message: Send(number=2 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=4 last_epoch=5 max_bytes=1048576 max_wait_ms=500 high_watermark=4))
    committed: 4
@ 50
> disconnected 2
    message: Send(number=3 node_id=2 request=VoteRequest(epoch=5 candidate=1/A last_epoch=5 end_offset=4 pre_vote=True voter=2))
    message: Send(number=4 node_id=3 request=VoteRequest(epoch=5 candidate=1/A last_epoch=5 end_offset=4 pre_vote=True voter=3))
