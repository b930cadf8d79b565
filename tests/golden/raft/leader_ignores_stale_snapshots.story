# Node 1 downloaded the snapshot (1000, 5) and crashed before it deleted its own (500, 4) and the bootstrap one. It leads
# epoch 6. The deposed leader of epoch 4 has uncommitted records up to 1050: it takes the snapshot, rather than keep
# 700 to 999 of epoch 4. A replica that has taken the snapshot fetches on from its end.
voters: 1 2 3
state: 5 leader=3
start: 1000
end: 1000
snapshots: 0:0,500:4,1000:5
> start
    stale: [SnapshotId(end_offset=500 epoch=4)]
    message: Send(number=1 node_id=3 request=FetchRequest(epoch=5 replica=1/A offset=1000 last_epoch=5 max_bytes=1048576 max_wait_ms=500))
    leader_changed: LeaderChanged(leader_id=3 epoch=5)
    timer_ms: 250
@ 3000
> tick
    message: Send(number=2 node_id=2 request=VoteRequest(epoch=5 candidate=1/A last_epoch=5 end_offset=1000 pre_vote=True voter=2))
    message: Send(number=3 node_id=3 request=VoteRequest(epoch=5 candidate=1/A last_epoch=5 end_offset=1000 pre_vote=True voter=3))
    timer_ms: 3020
> vote-answer 2 grants epoch=5
    state: QuorumState(epoch=6 leader_id=-1 voted=1/A)
    leader_changed: LeaderChanged(leader_id=-1 epoch=6)
    timer_ms: None
> state-written
    releases: True
    message: Send(number=4 node_id=2 request=VoteRequest(epoch=6 candidate=1/A last_epoch=5 end_offset=1000 voter=2))
    message: Send(number=5 node_id=3 request=VoteRequest(epoch=6 candidate=1/A last_epoch=5 end_offset=1000 voter=3))
    timer_ms: 3250
> vote-answer 2 grants epoch=6
    append: AppendLeaderChange(offset=1000 epoch=6 voters=[1 2 3] granting=[1 2])
    state: QuorumState(epoch=6 leader_id=1 voted=1/A)
    after_state: Send(number=6 node_id=2 request=BeginQuorumEpochRequest(epoch=6 leader_id=1 voter=2))
    after_state: Send(number=7 node_id=3 request=BeginQuorumEpochRequest(epoch=6 leader_id=1 voter=3))
    flush: 1001
    leader_changed: LeaderChanged(leader_id=1 epoch=6)
> state-written
    releases: True
> flushed 1001
> asked-fetch deposed from=3/C epoch=6 offset=1050 last=4
    message: Respond(token=deposed reply=FetchReply(error=0 epoch=6 leader_id=1 log_start_offset=1000 snapshot=SnapshotId(end_offset=1000 epoch=5)))
> asked-fetch new from=7/G epoch=6 offset=0 last=0
    message: Respond(token=new reply=FetchReply(error=0 epoch=6 leader_id=1 log_start_offset=1000 snapshot=SnapshotId(end_offset=1000 epoch=5)))
> asked-fetch taken from=7/G epoch=6 offset=1000 last=5
    message: ReadLog(token=taken reply=FetchReply(error=0 epoch=6 leader_id=1 log_start_offset=1000) offset=1000 max_bytes=1000)
> asked-snapshot old from=7/G epoch=6 snapshot=500:4
    message: Respond(token=old reply=FetchSnapshotReply(error=98 epoch=6 leader_id=1 snapshot=SnapshotId(end_offset=500 epoch=4) size=0 position=0))
> asked-snapshot bootstrap from=7/G epoch=6 snapshot=0:0
    message: Respond(token=bootstrap reply=FetchSnapshotReply(error=98 epoch=6 leader_id=1 snapshot=SnapshotId(end_offset=0 epoch=0) size=0 position=0))
