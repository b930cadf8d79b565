"""`kraftcluster migrate`: from a cluster with ZooKeeper to one of ours, and back until the last step (KIP-866).

- `check` reads the running cluster and names what blocks the migration.
- `start` writes the configurations of controllers and brokers.
- `status` follows the migration at the controllers' `http.listener`.
- `finalize` ends it once all brokers are without ZooKeeper; `revert` gives ZooKeeper back to its brokers before that.
- `survey` runs the program that reads ZooKeeper.

That program belongs to the node (`kraft_node.cli.migration_survey`) and runs in a process of its own.
"""

from __future__ import annotations

import click

from kraft_cli.migration.check import check
from kraft_cli.migration.finalize import finalize
from kraft_cli.migration.revert import revert
from kraft_cli.migration.start import start
from kraft_cli.migration.status import status


def migrate(group: click.Group) -> None:
    """Add the commands to `group`."""

    @group.group(name="migrate")
    def commands() -> None:
        """Migrate a cluster from ZooKeeper: check, start, status, finalize. To go back before finalize: revert."""

    for command in (check, start, status, finalize, revert):
        commands.add_command(command)
