"""Converts values to columns: JSON, Avro, Protocol Buffers, envelopes of change events, schemas of a registry."""
