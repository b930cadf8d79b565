"""How values become columns: JSON, Avro, and the envelopes around them; schemas of a registry."""
