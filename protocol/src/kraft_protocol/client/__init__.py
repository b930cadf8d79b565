"""The client side of Kafka's protocol: cores without I/O, and drivers that have the sockets.

- `session`: one connection: version negotiation (KIP-511), headers, correlation of responses with requests.
- `requests`: requests of clients that read and write records, and the readers of their responses.
- `topology`: brokers, leaders of partitions and coordinators, from Metadata and FindCoordinator responses.
- `idempotence`: sequence numbers, and batches of an idempotent producer until they are acknowledged (KIP-98).
- `fetch_session`: the id and epoch of a fetch session, and its partitions (KIP-227).
- `security`: TLS and SASL of a client's connections; `properties` makes it from Kafka's client properties.
- `backoff`: pauses between attempts, until a time-out.
- `aio`: the driver on asyncio, for the operator.
- `blocking`: the driver with blocking sockets, for command lines and Spark's workers. It serves `cluster` (brokers,
  leaders and retries), `fetch` (ranges as whole responses), `produce` (whole batches) and `groups` (offsets).
- `transactions`: a transaction on `cluster`. `redirects`: HTTP without credentials for other origins.
- `errors`: errors of clients, and how to treat Kafka's error codes.

The node's channels (`kraft_node.server.channels.channel`) are the driver on the node's loop.

Only drivers import sockets and clocks; no core imports a driver.
"""
