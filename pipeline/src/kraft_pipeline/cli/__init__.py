"""`kraft-pipeline`: the pipelines from the command line. `main` dispatches; each other module has a group of commands.

A group's module has `add(commands)`, which adds its parsers. Each parser has a default `run(options) -> int`. Heavy
imports belong in `run`, so that `--help` is fast.
"""
