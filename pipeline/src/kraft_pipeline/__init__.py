"""Moves and analyses the data of a cluster with Spark.

`codec` turns record batches into Arrow columns and back without Spark; `client` speaks the wire protocol as far as the
pipeline needs it; `sources` and `sinks` make both a Spark data source, `format("kraft")`. Nothing in here imports the
node or the operator: the pipeline works against any cluster that speaks the protocol, and its own reading of the
formats is checked against theirs in tests. Nothing in here loops over records on Spark's driver.
"""
