"""What every layer may use: identifiers, error codes, units and the protocols of the outside world.

Nothing here opens a file, reads a clock or draws a random number: `env` declares how such things look, `runtime`
provides the real ones and `testing` the simulated ones.
"""
