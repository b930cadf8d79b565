"""The pictures of the documentation, as SVG files that need no script and follow the reader's light or dark theme.

    python -m tools.diagrams [--check]

`draw` has boxes and arrows, `pictures` the diagrams. `roles` draws Raft's roles from the table in `raft.roles.states`.
"""
