"""Record batches (format v2, KIP-98) to Arrow columns and back, without Spark and without a loop over records.

What a Fetch response carries for a partition goes through four steps, each a file:

1. `batches` reads the headers one batch at a time, checks CRC-32C, leaves out control batches and (read_committed)
   batches of aborted transactions, and lays the records' bytes, decompressed, into one buffer.
2. `starts` finds where each record begins. That is a chain (every record tells only its own length), so it is walked
   at many places at once: one step of NumPy a record of *all* batches, large batches being cut at places that look
   like the beginning of a record. A wrong cut cannot go unnoticed: walks must meet exactly.
3. `varints` decodes the fields of all records at once; every length is held against its record before it is used.
4. `decode` lets Arrow copy keys and values out of the buffer and makes the rest from arithmetic.

`encode` goes the other way for the sink: Arrow in, batches for Produce requests out, with the sequence numbers of an
idempotent producer.

Used by `kraft_pipeline.client` users (data source, jobs). Must not import Spark, sockets or the client.
"""

from kraft_pipeline.codec.batches import Aborted, Batch, scan
from kraft_pipeline.codec.decode import COLUMNS, Decoder
from kraft_pipeline.codec.errors import CodecError, CorruptBatch, UnsupportedBatch

__all__ = ["COLUMNS", "Aborted", "Batch", "CodecError", "CorruptBatch", "Decoder", "UnsupportedBatch", "scan"]
