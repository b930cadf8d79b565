# A snapshot of its own is done only after a downloaded one has taken the place of the log: it counts for nothing.
voters: 1 2 3
state: 5 leader=2
log: 1:0
end: 40
> start
    message: Send(number=1 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=40 last_epoch=1 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=2 epoch=5)
    timer_ms: 250
> fetch-answer 2 epoch=5 leader=2 hw=40
    message: Send(number=2 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=40 last_epoch=1 max_bytes=1048576 max_wait_ms=500 high_watermark=40))
    committed: 40
> fetch-answer 2 epoch=5 leader=2 snapshot=100:4
    message: Send(number=3 node_id=2 request=FetchSnapshotRequest(epoch=5 replica=1/A snapshot=SnapshotId(end_offset=100 epoch=4) position=0 max_bytes=1048576))
> snapshot-answer 2 epoch=5 leader=2 snapshot=100:4 size=500 at=0 bytes=500
    part: SnapshotPart(snapshot=SnapshotId(end_offset=100 epoch=4) position=0 data=500 bytes)
    whole: SnapshotId(end_offset=100 epoch=4)
    timer_ms: 2000
> snapshot-stored 100:4
    flush: 100
    committed: 100
> snapshot-stored 30:1
    stale: [SnapshotId(end_offset=30 epoch=1)]
