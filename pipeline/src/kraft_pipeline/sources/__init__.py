"""The `kraft` data source: topics as DataFrames, read in batches and as streams, and written (`kraft_pipeline.sinks`).

    from kraft_pipeline.sources.kraft import register
    register(spark)
    spark.readStream.format("kraft").option("kafka.bootstrap.servers", "host:9092").option("subscribe", "orders")

Options and schema are those of Spark's own `kafka` source, so that a query changes its format and nothing else;
`columns` (a list with commas) leaves out what is not wanted before it is decoded. What is read by the driver is
metadata and offsets only: `options` says what is wanted, `offsets` turns that into ranges of offsets, `planning` cuts
these into tasks and into micro-batches. Tasks fetch and decode on the executors (`kraft`).

`kraft` is the only file here that imports Spark.
"""
