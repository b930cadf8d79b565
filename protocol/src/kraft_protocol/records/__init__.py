"""Record batches, format v2: Kafka's unit of sending, storing and replicating data (KIP-98, KIP-110).

A batch is a 61-byte header followed by records, compressed as one piece or not at all. The broker's fast path reads
headers only. `batch.check_batch` checks lengths, CRC-32C and offset deltas; the log sets base offset and leader epoch
(both outside the CRC) and appends the bytes. These decode records: the coordinators when they load their topics, the
metadata loader, look-ups by timestamp, and compaction. Produce decodes records if the configuration of the topic
requires a check of every record.

- `batch`: headers, checks, reading and building batches.
- `varint`: zig-zag and unsigned varints.
- `compression`: gzip, snappy (xerial framing), lz4 frames, zstd; decompression limits its output.
- `control`: control records (KIP-98 markers; KIP-595, KIP-630, KIP-853 control records of the metadata log).
- `pairs`: batches of keys and values, for coordinators. `places`: timestamps and offsets, for look-ups.
- `shapes`: the outlines of records; `runs` and `alike`: of many equal records at once; `keys`: for compaction.
- `errors`: errors of batches.

Kafka 4.0 removed the old formats (magic 0 and 1). They are recognised and refused (`UnsupportedMagic`).

Nothing here does I/O or keeps state. The package imports nothing of `wire`.
"""
