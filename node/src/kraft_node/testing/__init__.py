"""A world in which a single seed decides everything, for running whole nodes and their clients deterministically.

`world` is the event loop with simulated time; `disk` and `net` are the fault models, each documented at its top;
`client` is a small client that speaks the wire protocol over simulated links; `sim` runs scenarios under many seeds and
prints the one command that replays a failure. The node under test is the same code that `runtime` runs.

Nothing of the product imports this package. It is part of the product all the same: who changes a core runs it.
"""
