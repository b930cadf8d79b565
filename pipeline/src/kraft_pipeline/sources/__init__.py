"""The `kraft` data source: topics as DataFrames, read in batches and as streams, and written (`kraft_pipeline.sinks`).

    from kraft_pipeline.sources.kraft import register
    register(spark)
    spark.readStream.format("kraft").option("kafka.bootstrap.servers", "host:9092").option("subscribe", "orders")

Options and schema are the same as in Spark's own `kafka` source, so a query changes only its format. The option
`columns` (a list with commas) skips the decoding of other columns. The driver reads only metadata and offsets.
`options` parses the options, `offsets` resolves them to offsets, and `positions` compares them with the logs.
`security` parses the options of secured connections. `planning` splits ranges into tasks and limits micro-batches.
Tasks fetch and decode on the executors (`kraft`). `lag` computes a query's lag.

`kraft` is the only file here that imports Spark.
"""
