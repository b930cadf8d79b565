"""One file an API of the broker's listeners. A handler takes the context and the decoded request (see `base.request`).

Simple ones are functions `(broker, ctx, request)`; those with state of their own (Produce, Fetch, Metadata) are
objects. `KafkaError` becomes the error response of the API; whatever else they raise is a defect. They read the
metadata image and the replicas; they must not wait, and keep no bytes of a request beyond their return.
"""
