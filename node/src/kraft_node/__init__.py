"""The node: Kafka's quorum controller, broker and Raft metadata log in one program.

Layers, lowest first: `base`, `records` and `wire`, `raft`, `log` and `metadata`, `controller` and `partition`,
`broker`, `server`, `runtime`, `cli`. A layer imports only layers below it; import-linter enforces this.
"""

from kraft_node.base import version

__version__ = version.VERSION
