# The leader deletes the snapshot while a follower reads it: the follower waits, fetches, and learns of the newest one.
voters: 1 2 3
state: 5 leader=2
log: 1:0
end: 4
> start
    message: Send(number=1 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=4 last_epoch=1 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=2 epoch=5)
    timer_ms: 250
> fetch-answer 2 epoch=5 leader=2 snapshot=100:4
    message: Send(number=2 node_id=2 request=FetchSnapshotRequest(epoch=5 replica=1/A snapshot=SnapshotId(end_offset=100 epoch=4) position=0 max_bytes=1048576))
> snapshot-answer 2 epoch=5 leader=2 snapshot=100:4 size=1500 at=0 bytes=1000
    part: SnapshotPart(snapshot=SnapshotId(end_offset=100 epoch=4) position=0 data=1000 bytes)
    message: Send(number=3 node_id=2 request=FetchSnapshotRequest(epoch=5 replica=1/A snapshot=SnapshotId(end_offset=100 epoch=4) position=1000 max_bytes=1048576))
> snapshot-answer 2 epoch=5 leader=2 snapshot=100:4 size=0 at=1000 error=98
    message: Send(number=4 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=4 last_epoch=1 max_bytes=1048576 max_wait_ms=500))
    timer_ms: 20
> fetch-answer 2 epoch=5 leader=2 snapshot=200:5
@ 20
> tick
    message: Send(number=5 node_id=2 request=FetchSnapshotRequest(epoch=5 replica=1/A snapshot=SnapshotId(end_offset=200 epoch=5) position=0 max_bytes=1048576))
    timer_ms: 270
> snapshot-answer 2 epoch=5 leader=2 snapshot=200:5 size=500 at=0 bytes=500
    part: SnapshotPart(snapshot=SnapshotId(end_offset=200 epoch=5) position=0 data=500 bytes)
    whole: SnapshotId(end_offset=200 epoch=5)
    timer_ms: 2000
