"""What must hold in every simulated migration. A broken law is an AssertionError that begins with its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Final, TypeAlias

from kraft_node.metadata.image import MetadataImage
from kraft_node.migration.entities import ImageReader, of_image
from kraft_node.migration.passwords import PasswordEncoder
from kraft_node.migration.reading import MetadataReader
from kraft_node.migration.tree import paths
from kraft_node.migration.tree.values import ZnodeError, read_migration
from kraft_node.migration.zookeeper import Delete, Operation, SetData
from kraft_node.testing.zookeeper import SimZooKeeper

SPOILED: Final = "/kafka-acl/Topic/spoiled"
"""A znode that scenarios damage and mend from outside."""

Contents: TypeAlias = dict[str, str]
"""Entity -> its state, as text that can be compared."""

_COUNTED = [0]


def _numbered(count: int) -> bytes:
    """Different ids for the ACLs of one reading; no law looks at them."""
    _COUNTED[0] += 1
    return _COUNTED[0].to_bytes(count, "big")


def contents_of(image: MetadataImage) -> Contents:
    """All entities of an image."""
    wanted = ImageReader(image).wanted(of_image(image))
    found = {f"topic {name}": f"{topic.value} {topic.states}" for name, topic in wanted.topics.items() if topic}
    found |= {f"config {path}": str(sorted(values.items())) for path, values in wanted.configs.items() if values}
    found |= {f"acls {resource}": str(sorted(entries)) for resource, entries in wanted.acls.items() if entries}
    found |= {f"token {name}": repr(record) for name, record in wanted.tokens.items() if record}
    if wanted.producer_block is not None:
        found["producer ids"] = str(wanted.producer_block.last)
    return found


def contents_in(servers: SimZooKeeper) -> Contents | None:
    """All entities in ZooKeeper; None if a znode is malformed."""
    session = SimZooKeeper(nodes=servers.nodes).session()
    rng = SimpleNamespace(random_bytes=_numbered, randrange=lambda _: 0)
    image = MetadataImage()
    try:
        for batch in MetadataReader(session, PasswordEncoder(None, rng), rng).batches():
            for record in batch:
                image.replay(record)
    except ZnodeError:
        return None
    return contents_of(image)


class MigrationLaws:
    """Looks at each transaction of ZooKeeper and each commit of the log."""

    def __init__(self, servers: SimZooKeeper) -> None:
        self._servers = servers
        self.history: list[Contents] = []
        """The contents after each committed offset."""
        self.holder: object = None
        """Who claimed ZooKeeper last."""
        self.is_final = False
        self._claimed_with: Mapping[str, bytes] = {}
        self._offset = -1
        self.migrations = 0
        self.undone = 0
        self.moves = 0

    def committed(self, image: MetadataImage, offset: int, *, is_migrated: bool) -> None:
        """The log has grown up to `offset`; `is_migrated`: the migration was committed just now."""
        contents = contents_of(image)
        while len(self.history) <= offset:
            self.history.append(contents)
        if is_migrated:
            self.migrations += 1
            assert contents == contents_in(self._servers), "migrated: the log lacks what ZooKeeper has"

    def written(self, owner: object, operations: Sequence[Operation]) -> None:
        """A transaction of `owner` was carried out."""
        assert not self.is_final, f"final: a write after the migration is over: {operations}"
        if any(isinstance(one, SetData) and one.path == paths.CONTROLLER_EPOCH for one in operations):
            self.holder = owner
            self._claimed_with = self._metadata()
            return
        assert owner == self.holder, f"one writer: {owner} writes while {self.holder} holds ZooKeeper: {operations}"
        if any(isinstance(one, Delete) and one.path == paths.MIGRATION for one in operations):
            self.undone += 1
            assert self._metadata() == self._claimed_with, "undone: ZooKeeper is not as it was"
            left = {paths.CONTROLLER, paths.MIGRATION} & self._servers.data().keys()
            assert not left, f"undone: no broker can become the controller beside {left}"
        for one in operations:
            if isinstance(one, SetData) and one.path == paths.MIGRATION:
                self._moved(read_migration(one.path, one.data).offset)

    @contextmanager
    def others_write(self) -> Iterator[None]:
        """Around a write of a broker. ZooKeeper keeps it if the claim is undone."""
        before = self._metadata()
        yield
        changed = {path: data for path, data in self._metadata().items() if before.get(path) != data}
        self._claimed_with = {**self._claimed_with, **changed}

    def _metadata(self) -> dict[str, bytes]:
        ours = (paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.MIGRATION, SPOILED)
        return {path: data for path, data in self._servers.data().items() if path not in ours}

    def _moved(self, offset: int) -> None:
        """Each entity must be as at this offset, or as it became later."""
        self.moves += 1
        assert offset >= self._offset, f"forward: ZooKeeper went back from offset {self._offset} to {offset}"
        self._offset = offset
        found = contents_in(self._servers)
        later = self.history[max(offset, 0) :]
        assert found is not None and later, f"order: offset {offset} of {len(self.history)}"
        for name in {name for contents in (*later, found) for name in contents}:
            allowed = {contents.get(name) for contents in later}
            assert found.get(name) in allowed, (
                f"order: ZooKeeper says offset {offset}, but {name} is {found.get(name)}, not {allowed}"
            )

    def settled(self, image: MetadataImage, offset: int) -> None:
        """Without faults, ZooKeeper has everything that is committed."""
        assert contents_in(self._servers) == contents_of(image), "settled: ZooKeeper differs from the log"
        assert self.history[offset] == self.history[-1], f"settled: offset {offset} is stated"
