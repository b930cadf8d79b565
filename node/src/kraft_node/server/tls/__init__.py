"""TLS on the node's loop.

`tls_transport` encrypts one connection, and `handshakes` runs handshakes in the background. `listener_tls` holds the
certificates of one listener. `node_tls` makes them by the configuration and exchanges them at run time.

A connection never sees TLS, and a transport never sees Kafka. Nodes without TLS never import this package.
"""
