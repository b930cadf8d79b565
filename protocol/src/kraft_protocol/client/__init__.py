"""The client side of Kafka's protocol: cores without I/O, and drivers that have the sockets.

- `session`: one connection: version negotiation (KIP-511), headers, correlation of responses with requests.
- `requests`: requests of clients that read and write records, and what their responses say.
- `backoff`: pauses between attempts, until a time-out.
- `aio`: the driver on asyncio, for the operator.
- `blocking`, `cluster`: the driver with blocking sockets, for Spark's workers; brokers, leaders and retries.

Only drivers import sockets and clocks; no core imports a driver.
"""
