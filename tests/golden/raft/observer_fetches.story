# A broker follows the log of a lone voter.
> start
    state: QuorumState(epoch=1 leader_id=-1 voted=1/A)
    leader_changed: LeaderChanged(leader_id=-1 epoch=1)
> state-written
    append: AppendLeaderChange(offset=0 epoch=1 voters=[1] granting=[1])
    releases: True
    state: QuorumState(epoch=1 leader_id=1 voted=1/A)
    flush: 1
    leader_changed: LeaderChanged(leader_id=1 epoch=1)
> state-written
    releases: True
> flushed 1
    committed: 1
    became_leader: 1
> propose a epoch=1
    append: Append(offset=1 epoch=1 records=[a])
    flush: 2
    proposed: Proposed(first_offset=1 last_offset=1)
> flushed 2
    committed: 2
# From the beginning, then waiting for news.
> asked-fetch t1 from=7/B epoch=1 offset=0
    message: ReadLog(token=t1 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=2 log_start_offset=0) offset=0 max_bytes=1000)
> asked-fetch t2 from=7/B epoch=1 offset=2 last=1
    timer_ms: 500
> propose b epoch=1
    append: Append(offset=2 epoch=1 records=[b])
    message: ReadLog(token=t2 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=2 log_start_offset=0) offset=2 max_bytes=1000)
    flush: 3
    proposed: Proposed(first_offset=2 last_offset=2)
    timer_ms: None
# With version 18 a higher high watermark is news, too.
> asked-fetch t3 from=7/B epoch=1 offset=3 last=1 hw=2
    timer_ms: 500
> flushed 3
    message: Respond(token=t3 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=3 log_start_offset=0))
    committed: 3
    timer_ms: None
# Nothing for 500 ms.
@ 100
> asked-fetch t4 from=7/B epoch=1 offset=3 last=1
    timer_ms: 600
@ 600
> tick
    message: Respond(token=t4 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=3 log_start_offset=0))
# Wrong epochs, an end beyond ours, an epoch that never was.
> asked-fetch t5 from=7/B epoch=0 offset=3 last=0
    message: Respond(token=t5 reply=FetchReply(error=74 epoch=1 leader_id=1))
> asked-fetch t6 from=7/B epoch=2 offset=3 last=1
    message: Respond(token=t6 reply=FetchReply(error=75 epoch=1 leader_id=1))
> asked-fetch t7 from=7/B epoch=1 offset=9 last=1
    message: Respond(token=t7 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=3 log_start_offset=0 diverging=EpochEnd(epoch=1 end_offset=3)))
> asked-fetch t8 from=7/B epoch=1 offset=2 last=0
    message: Respond(token=t8 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=3 log_start_offset=0 diverging=EpochEnd(epoch=0 end_offset=0)))
# A snapshot, and the log before it gone: who is behind is sent there.
> snapshot-stored 2:1
> snapshots-dropped 2:1 start=2
> asked-fetch t9 from=8 epoch=1 offset=0
    message: Respond(token=t9 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=3 log_start_offset=2 snapshot=SnapshotId(end_offset=2 epoch=1)))
> asked-fetch t10 from=8 epoch=1 offset=1 last=1
    message: Respond(token=t10 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=3 log_start_offset=2 snapshot=SnapshotId(end_offset=2 epoch=1)))
> asked-snapshot t11 from=8 epoch=1 snapshot=2:1
    message: ReadSnapshot(token=t11 reply=FetchSnapshotReply(error=0 epoch=1 leader_id=1 snapshot=SnapshotId(end_offset=2 epoch=1) size=0 position=0) snapshot=SnapshotId(end_offset=2 epoch=1) position=0 max_bytes=1000)
> asked-snapshot t12 from=8 epoch=1 snapshot=1:1
    message: Respond(token=t12 reply=FetchSnapshotReply(error=98 epoch=1 leader_id=1 snapshot=SnapshotId(end_offset=1 epoch=1) size=0 position=0))
> asked-fetch t13 from=8 epoch=1 offset=2 last=1
    message: ReadLog(token=t13 reply=FetchReply(error=0 epoch=1 leader_id=1 high_watermark=3 log_start_offset=2) offset=2 max_bytes=1000)
