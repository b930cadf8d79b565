"""Kafka's protocol, shared by the node, the operator and the pipeline. It imports none of them.

`wire` has the messages and their codec, `records` record batches, `client` the client side, `sasl` and `tls` the
security of connections, `configs` the configuration keys. `errors` has the error codes, `ids` the UUIDs, `buffers` the
types of bytes. Only modules of `client`, `sasl` and `tls` use sockets, files of users, clocks or random numbers.
"""
