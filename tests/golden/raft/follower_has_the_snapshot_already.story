# The leader tells this replica to take a snapshot that it has: it waits for a moment before it asks again.
voters: 1 2 3
state: 5 leader=2
start: 100
end: 100
snapshots: 100:4
> start
    message: Send(number=1 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=100 last_epoch=4 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=2 epoch=5)
    timer_ms: 250
> fetch-answer 2 epoch=5 leader=2 snapshot=100:4
    timer_ms: 20
@ 100
> tick
    message: Send(number=2 node_id=2 request=FetchRequest(epoch=5 replica=1/A offset=100 last_epoch=4 max_bytes=1048576 max_wait_ms=500))
    timer_ms: 350
