"""Moves and analyses the data of a cluster with Spark.

`tables`, `archive` and `scrub` are the pipelines KafkaTable, KafkaMetadataArchive and KafkaScrub; `cli` runs them.
`pod` reads the limits of the container.

`codec` turns record batches into Arrow columns and back without Spark. `sources` and `sinks` make a Spark data source
of it, `format("kraft")`, with the client of `kraft_protocol`. No module imports the node or the operator: the pipeline
works with any cluster that speaks the protocol. Tests compare its readers of the formats with the node. No module
loops over records on Spark's driver.
"""
