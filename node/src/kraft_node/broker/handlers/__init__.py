"""One file per API of the broker's listeners. A handler takes the context and the decoded request (see `base.request`).

Simple handlers are functions `(broker, ctx, request)`; those with state (Produce, Fetch, Metadata) are objects.
`KafkaError` becomes the error response of the API; any other exception is a defect. Handlers read the metadata image
and the replicas. They must not block, and must not keep bytes of a request after they return.
"""
