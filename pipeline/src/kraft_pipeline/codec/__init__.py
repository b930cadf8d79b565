"""Record batches (format v2, KIP-98) to Arrow columns and back, without Spark and without a loop over records.

The records of a partition in a Fetch response go through four steps, each in its own module:

1. `batches` reads the headers batch by batch and checks CRC-32C. It omits control batches and (read_committed) batches
   of aborted transactions. It puts the decompressed bytes of the records into one buffer.
2. `starts` finds where each record begins. Records are a chain, because each record has only its own length. The chain
   is walked at many places at once: a step of NumPy handles a record of *all* batches. Large batches are cut at places
   that look like the beginning of a record. A wrong cut is always detected, because walks must meet exactly.
3. `varints` decodes the fields of all records at once. Every length is checked against its record before use.
4. `decode` lets Arrow copy keys and values out of the buffer, and computes the other columns.

`encode` is the inverse for the sink: it turns Arrow into batches for Produce requests, with the sequence numbers of an
idempotent producer.

`arrays` wraps NumPy arrays as Arrow arrays, `partitioning` chooses partitions of keys, `errors` has the errors.

Used by the data source, the sink and jobs. It must not import Spark or sockets.
"""

from kraft_pipeline.codec.batches import Batch, scan
from kraft_pipeline.codec.decode import COLUMNS, Decoder
from kraft_pipeline.codec.errors import CodecError, CorruptBatch, UnsupportedBatch

__all__ = ["COLUMNS", "Batch", "CodecError", "CorruptBatch", "Decoder", "UnsupportedBatch", "scan"]
