"""One file per API of the broker's listeners. A handler takes the context and the decoded request (see `base.request`).

A handler gets the parts of the broker that it needs, never the broker itself, so no handler imports `broker.broker`.
Simple handlers are functions: first these parts, which `Broker` binds, then context and request. Handlers with state or
many parts (Produce, Fetch, Metadata, DescribeLogDirs) are objects.
`KafkaError` becomes the error response of the API; any other exception is a defect. Handlers read the metadata image
and the replicas. They must not block, and must not keep bytes of a request after they return.
"""
