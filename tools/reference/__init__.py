"""The generated pages of `docs/reference`: resources, command lines, metrics.

    python -m tools.reference [--check]

Each page follows from the source that the programs themselves use: the models of the custom resources, the argument
parsers, the names of metrics. `tests/tidy` compares the pages with what this package writes.
"""
