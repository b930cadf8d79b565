"""Kafka's protocol, shared by the node, the operator and the pipeline. It imports none of them.

`wire` has the messages and their codec, `records` has record batches. `errors` has the error codes, `ids` the UUIDs,
`buffers` the types of bytes. Nothing here opens a socket or a file, reads a clock or draws a random number.
"""
