"""Checks every byte of replicas, to find corruption by disks or machines before a consumer does.

A replica is checked by itself and against the others:

1. `layout` says what replicas there are: from log directories (several brokers' where their disks can be reached), with
   the checkpoints of a directory: high watermarks, log starts, leader epochs, what has been compacted. `wire` reads
   replicas from brokers instead, each from the broker that has it (KIP-392 lets any replica answer consumers).
2. `scanner` walks the batches of a segment once: CRC-32C, lengths, offsets that follow one another, leader epochs as
   the checkpoint has them. After a batch whose length cannot be trusted it finds the next one by its offset, so that
   one damage never hides another. It leaves a digest of each batch.
3. `compare` holds the digests of all replicas against one another below their high watermarks. Logs that have been
   compacted differ in their batches; there records are compared by offset.
4. `locate` says which bits: from a healthy replica, or, without one, from what a single flipped bit does to a CRC.

`job` makes of it two steps of Spark (segments to digests, digests of a partition to findings); `findings` is the
schema of what comes out. Logs may be in use meanwhile: what lies above the high watermark that was on disk when the
scrub began is only checked as far as it is whole.

Segments' files are checked, not their indexes: those are made again from them by every broker that misses them.
"""
