"""`kraft-pipeline`: the pipelines from the command line. `main` finds the command, each other file has one group.

A group's module has `add(commands)`, which adds its parsers, and each parser a default `run(options) -> int`. Heavy
imports belong into `run`, so that `--help` is there at once.
"""
