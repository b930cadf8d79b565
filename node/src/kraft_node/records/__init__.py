"""Record batches, format v2: the unit in which Kafka sends, stores and replicates data (KIP-98, KIP-110).

A batch is a 61-byte header followed by records, compressed as one piece or not at all. The broker's fast path looks
at headers only: `batch.check_batch` proves lengths, CRC-32C and offset deltas, the log patches base offset and leader
epoch (both lie outside the CRC) and appends the bytes. Records are decoded by those who need their values: the
coordinators when they load their topics, the metadata loader, lookups by timestamp, compaction, and produce to topics
whose configuration asks for a check of every record.

- `batch`: headers, checks, reading and building batches.
- `varint`: zig-zag and unsigned varints.
- `compression`: gzip, snappy (xerial framing), lz4 frames, zstd; decompression has a bound on its output.
- `control`: control records (KIP-98 markers; KIP-595, KIP-630, KIP-853 control records of the metadata log).

Old formats (magic 0 and 1) left Kafka in 4.0; they are recognised only to be refused (`UnsupportedMagic`).

Nothing here does input or output, and nothing keeps state. The package must not import anything above `base` and
`wire`.
"""
