"""The base of all layers: identifiers, error codes, units and the interfaces of the outside world.

Nothing here opens a file, reads a clock or draws a random number. `env` declares the interfaces, `runtime` provides
the real implementations, `testing` the simulated implementations.
"""
