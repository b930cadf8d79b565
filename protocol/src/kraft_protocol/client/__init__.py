"""The client side of Kafka's protocol: cores without I/O, and drivers that have the sockets.

- `session`: one connection: version negotiation (KIP-511), headers, correlation of responses with requests.
- `aio`: the driver on asyncio, for the operator.

Only drivers import sockets and clocks; no core imports a driver.
"""
