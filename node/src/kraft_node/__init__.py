"""The node: Kafka's quorum controller, broker and Raft metadata log in one program.

Layers, lowest first: `base`; `raft`; `log` and `metadata`; `controller`, `partition`, `security` and `migration`;
`broker`; `server`; `runtime`; `cli`; `testing`. A layer imports only layers below it; import-linter enforces this.
Messages and record batches are in `kraft_protocol`.
"""

from kraft_node.base import version

__version__ = version.VERSION
