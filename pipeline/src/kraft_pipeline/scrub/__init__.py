"""Checks every byte of replicas, to find corruption by disks or machines before a consumer does.

A replica is checked by itself and against the others:

1. `layout` lists replicas from log directories (of several brokers, if their disks can be reached). It adds the
   checkpoints of the directories: high watermarks, log starts, leader epochs, compaction. `wire` reads replicas from
   brokers instead, each from its own broker (with KIP-392, any replica answers consumers).
2. `scanner` checks the batches of a segment in one pass: CRC-32C, lengths, consecutive offsets, leader epochs of the
   checkpoint. If the length of a batch cannot be trusted, it finds the next batch by its offset, so that a damage never
   hides another. It returns a digest of each batch.
3. `compare` compares the digests of all replicas below their high watermarks. Compacted logs may differ in their
   batches; there, records are compared by offset.
4. `locate` finds the wrong bits: by a healthy replica or, without one, by the effect of a single flipped bit on the
   CRC.

`job` runs this as two steps of Spark (segments to digests, digests of a partition to findings); `findings` has the
schema of the result. `run` runs a scrub by its `spec`, and `history` keeps summaries of earlier scrubs. Logs may be in
use meanwhile: above the high watermark that was on disk when the scrub began, only complete batches are checked.

Indexes are not checked, because a broker rebuilds missing indexes from the segments.
"""
