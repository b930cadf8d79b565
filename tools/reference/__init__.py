"""The generated pages of `docs/reference`: resources, command lines, metrics.

    python -m tools.reference [--check]

Each page is generated from the source that the programs use: the models of the custom resources, the argument parsers,
the metric names. `tests/tidy` compares the pages with this package's output.
"""
