"""A simulated disk (`base.env.Disk`).

Fault model. A write is in the page cache at once, so a killed process loses nothing. A power loss keeps fsynced data.
Each later write of a file is kept, lost, or torn at a sector boundary, as drawn from the seed. Missing bytes read as
before or, beyond the old end, as zeros. Name changes (create, rename, remove) are durable after `fsync_dir` of the
directory; of the others, a prefix in their order survives. A removed file keeps its space while the process has it
open (`pinned`). `fail` makes any operation fail with the error that it returns (EIO on fsync or syncfs, ENOSPC on
write). A failed write has not happened, and a failed fsync has made nothing durable. `full`: no file grows; a write
succeeds within the file's old length, then fails with ENOSPC. `dead`: every operation in that directory fails with
EIO; unsynced data there may be gone when it works again (`revive`). `die_after` ends the process at one of its
operations, before the operation takes effect; operations during the unwinding do not reach the disk. `short`: the
process has no free descriptor. `eviction`: files leave the page cache. Only `flip` changes a stored byte otherwise,
for tests of bit rot.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, TypeAlias
from weakref import WeakSet

from kraft_node.base.env import DirtyRoom
from kraft_node.testing.disks.handles import SimFile, SimFileSystem, SimLock
from kraft_node.testing.disks.inode import Inode
from kraft_node.testing.disks.load import DirtyMemory, Eviction, Spent
from kraft_protocol.ids import METADATA_TOPIC_NAME

DISK_BYTES: Final = 1 << 40
OPEN_MAX: Final = 2048
NAME_BYTES: Final = 40
"""The bytes that a name adds to the size of its directory."""
OFFSET_CHECKPOINT: Final = "-offset-checkpoint"
"""The suffix of checkpoint files in a log directory."""


class Dir:
    """A directory: its names as the process sees them, and the durable names."""

    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node: TypeAlias = Inode | Dir
Change: TypeAlias = tuple[tuple[Dir, str, Node | None], ...]
"""The name changes of one call: (directory, name, new node or None)."""


class SimDisk:
    """One machine's disk."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.rng = rng
        self.now_ms = now_ms
        self.locks: set[str] = set()
        self.opened: WeakSet[SimFile] = WeakSet()
        """Files that the process has open; an unreferenced file counts as closed, as with real files."""
        self.open_max = OPEN_MAX
        self.relief: Callable[[], bool] | None = None
        self.short = False
        """Whether the process has no free descriptor: operations that need a descriptor fail with EMFILE."""
        self.fail: Callable[[str, str], OSError | None] | None = None
        """Called before every (operation, path); an error that it returns is raised."""
        self.full = False
        self.dead: str | None = None
        """A directory that has failed."""
        self.boots = 1
        """How often the machine has booted."""
        self.operations = 0
        """The number of changes so far: the crash points of a trace."""
        self.spent = Spent()
        """The cost of the current event on the loop; a lane's job replaces it by its own."""
        self.on_death: Callable[[], BaseException] | None = None
        """Makes the exception that `die_after` raises."""
        self._dies_at = -1
        self.memory = DirtyMemory(now_ms)
        self.eviction = self.no_wait = Eviction()
        self._root = Dir()
        self._pending: list[Change] = []
        """Name changes that are not yet durable, in order."""

    def about_to(self, operation: str, path: str) -> None:
        """Count a change, and raise the error that a test has set up."""
        self.operations += 1
        self.spent.fsyncs += operation == "fsync"
        self.spent.checkpoints += operation == "fsync" and OFFSET_CHECKPOINT in path
        if 0 <= self._dies_at < self.operations and self.on_death is not None:
            raise self.on_death()
        if self.full and operation in ("create", "link", "mkdir"):
            raise OSError(errno.ENOSPC, "no space left on device", path)
        self.reach(path)
        if self.fail is not None:
            error = self.fail(operation, path)
            if error is not None:
                raise error

    def may_wait(self) -> AbstractContextManager[None]:
        """A context in which reads may wait, also inside `no_wait`."""
        return self.eviction.suspended()

    def reach(self, path: str) -> None:
        """Count an operation; raise EIO for a path in a dead directory."""
        self.spent.operations += 1
        if self.dead is not None and f"{_clean(path)}/".startswith(f"{self.dead}/"):
            raise OSError(errno.EIO, "input/output error", path)

    def room(self, inode: Inode, position: int, length: int) -> int:
        """The number of bytes of a write that fit."""
        return length if not self.full else max(0, min(length, len(inode.data) - position))

    # -- faults

    def revive(self, path: str) -> None:
        """Make a dead directory work again; unsynced changes below it are kept, lost or torn."""
        self.dead = None
        _restore_data(self._dir(path), self.rng)

    def die_after(self, operations: int) -> None:
        """End the process after `operations` more operations; every later operation fails, too."""
        self._dies_at = self.operations + operations

    def kill_process(self) -> None:
        """End the process: locks are released, its files are closed, the page cache stays."""
        self.locks.clear()
        self.opened = WeakSet()
        self.short = False
        self._dies_at = -1

    def lose_power(self) -> None:
        """Cut the power: unsynced data and names survive by the fault model."""
        self.kill_process()
        self.boots += 1
        for change in self._pending[: self.rng.randrange(len(self._pending) + 1)]:
            _make_durable(change)
        self._pending.clear()
        self.memory.clear()
        _restore(self._root, self.rng)

    def sync_all(self) -> None:
        """Make everything durable, as after a long uptime."""
        for change in self._pending:
            _make_durable(change)
        self._pending.clear()
        for node in _below(self._root):
            if isinstance(node, Inode):
                node.sync()

    def flip(self, path: str, position: int, bit: int) -> None:
        """Flip a stored bit."""
        inode = self._inode(path)
        inode.data[position] ^= 1 << bit
        inode.durable[:] = inode.data

    def copy(self) -> SimDisk:
        """The same contents, all durable, on another disk: to try a crash point without changing this disk."""
        other = SimDisk(random.Random(self.rng.random()), self.now_ms)
        _copy(self._root, other._root, {})
        return other

    # -- base.env.Disk

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimFile:
        """Open a file, or make it if `create`. Raises FileNotFoundError, IsADirectoryError, OSError."""
        path = _clean(path)
        self.reach(path)
        self._take_descriptor(path)
        found = self._find(path)
        if isinstance(found, Dir):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if found is not None:
            return SimFile(self, path, found, is_writable=not read_only)
        if not create or read_only:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        parent, name = self._parent(path)
        self.about_to("create", path)
        inode = Inode()
        inode.mtime_ms = self.now_ms()
        self._change((parent, name, inode))
        return SimFile(self, path, inode)

    def exists(self, path: str) -> bool:
        """Answers in a dead directory, too; `is_dir`, `size` and `mtime_ms` do the same."""
        self.reach(path)
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        """Whether the path is a directory."""
        return self.exists(path) and isinstance(self._find(path), Dir)

    def size(self, path: str) -> int:
        """The length of a file in bytes; for a directory, NAME_BYTES for each name in it."""
        self.reach(path)
        found = self._find(path)
        return NAME_BYTES * len(found.names) if isinstance(found, Dir) else len(self._inode(path).data)

    def mtime_ms(self, path: str) -> int:
        """Time of the file's last change, in ms of simulated wall time. Raises FileNotFoundError."""
        self.reach(path)
        return self._inode(path).mtime_ms

    def _take_descriptor(self, path: str) -> None:
        """Raise EMFILE if the process is `short`; closed files do not help, because other parts take all descriptors.

        A lane waits for a descriptor before it fsyncs a directory.
        """
        if self.short and METADATA_TOPIC_NAME not in path:  # its few files stay open
            if self.relief is not None:
                self.relief()
            raise OSError(errno.EMFILE, "too many open files", path)

    def listdir(self, path: str) -> list[str]:
        """The sorted names in a directory. Raises FileNotFoundError, OSError (EMFILE, EIO)."""
        self.reach(path)
        self._take_descriptor(path)
        return self.names(path)

    def mkdir(self, path: str, *, new: bool = False) -> None:
        """Make a directory and its missing parents. Raises FileExistsError for a file, or if `new` exists."""
        if new and self.exists(path):
            raise FileExistsError(errno.EEXIST, "is there", _clean(path))
        at = self._root
        made = ""
        for name in _parts(path):
            made += "/" + name
            node = at.names.get(name)
            if node is None:
                self.about_to("mkdir", made)
                node = Dir()
                self._change((at, name, node))
            elif not isinstance(node, Dir):
                raise FileExistsError(errno.EEXIST, "is a file", made)
            at = node

    def link(self, path: str, new: str) -> None:
        """Give a file a second name. Raises FileExistsError, FileNotFoundError."""
        inode = self._inode(path)
        parent, name = self._parent(new)
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, "is there", _clean(new))
        self.about_to("link", _clean(new))
        self._change((parent, name, inode))

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a directory, and replace the target. Raises FileNotFoundError."""
        node = self._find(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", _clean(old))
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        self.about_to("rename", _clean(old))
        self._change((source, old_name, None), (target, new_name, node))

    def remove(self, path: str) -> None:
        """Remove a name of a file. Raises FileNotFoundError."""
        inode = self._inode(path)
        parent, name = self._parent(path)
        self.about_to("remove", _clean(path))
        self.memory.cleaned(inode)
        self._change((parent, name, None))

    def rmtree(self, path: str) -> None:
        """Remove a file or a directory, each name as one operation: a crash may leave a part of the tree."""
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", _clean(path))
        if isinstance(node, Dir):
            for name in sorted(node.names, reverse=True):
                self.rmtree(f"{path}/{name}")
        parent, name = self._parent(path)
        self.about_to("remove", _clean(path))
        self._change((parent, name, None))

    def fsync_dir(self, path: str) -> None:
        """Make all changes of the directory's names durable; a rename then also in the other directory."""
        directory = self._dir(path)
        self.about_to("fsync_dir", _clean(path))
        rest = []
        for change in self._pending:
            if any(part[0] is directory for part in change):
                _make_durable(change)
            else:
                rest.append(change)
        self._pending = rest

    def lock(self, path: str) -> SimLock:
        """Lock a file, which is made if it is missing. Raises BlockingIOError if it is locked."""
        path = _clean(path)
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        if not self.exists(path):
            self.open(path, create=True).close()
        self.locks.add(path)
        return SimLock(self, path)

    def dirty_room(self) -> DirtyRoom | None:
        """The bytes that may be written before a write waits; None if the disk does not report it."""
        return self.memory.room()

    def file_system(self, path: str) -> SimFileSystem:
        """The file system of a path, for one fsync of all its files."""
        return SimFileSystem(self, _clean(path))

    def identity(self, path: str) -> str:
        """The normalized path: no simulated directory is ever a copy."""
        return _clean(path)

    def free_bytes(self, path: str) -> int:  # noqa: ARG002
        """Half of `total_bytes`, less the bytes of all files and of removed files that are still open."""
        used = {id(node): len(node.data) for node in _below(self._root) if isinstance(node, Inode)}
        return DISK_BYTES // 2 - sum(used.values()) - sum(self.pinned().values())

    def total_bytes(self, path: str) -> int:  # noqa: ARG002
        """The size of the disk in bytes."""
        return DISK_BYTES

    def names(self, path: str) -> list[str]:
        """Like `listdir`, for observers of the disk: not counted, without simulated faults."""
        return sorted(self._dir(path).names)

    def pinned(self) -> dict[str, int]:
        """The size in bytes of removed files that the process has open, by their former path."""
        named = {id(node) for node in _below(self._root)}
        return {file.path: len(file.inode.data) for file in self.opened if id(file.inode) not in named}

    # -- names

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in _parts(path):
            if not isinstance(node, Dir):
                return None
            node = node.names.get(name)
        return node

    def _dir(self, path: str) -> Dir:
        found = self._find(path)
        if not isinstance(found, Dir):
            raise FileNotFoundError(errno.ENOENT, "no such directory", _clean(path))
        return found

    def _parent(self, path: str) -> tuple[Dir, str]:
        head, _, name = _clean(path).rpartition("/")
        return self._dir(head), name

    def _inode(self, path: str) -> Inode:
        found = self._find(path)
        if not isinstance(found, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", _clean(path))
        return found

    def _change(self, *parts: tuple[Dir, str, Node | None]) -> None:
        for directory, name, node in parts:
            _set(directory.names, name, node)
        self._pending.append(parts)


def _make_durable(change: Change) -> None:
    for directory, name, node in change:
        _set(directory.durable, name, node)


def _set(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _below(directory: Dir) -> Iterator[Node]:
    """All nodes that the process can reach."""
    for node in directory.names.values():
        yield node
        if isinstance(node, Dir):
            yield from _below(node)


def _restore(directory: Dir, rng: random.Random) -> None:
    """Restore the durable state when the power is back."""
    directory.names = dict(directory.durable)
    for node in directory.names.values():
        if isinstance(node, Dir):
            _restore(node, rng)
        else:
            node.lose_power(rng)


def _restore_data(directory: Dir, rng: random.Random) -> None:
    """Restore file data only: the names have survived."""
    for node in directory.names.values():
        if isinstance(node, Dir):
            _restore_data(node, rng)
        else:
            node.lose_power(rng)


def _copy(source: Dir, target: Dir, files: dict[Inode, Inode]) -> None:
    """Copy a directory. `files`: the copies made so far, because a file may have several names."""
    for name, node in source.names.items():
        made: Node
        if isinstance(node, Dir):
            made = Dir()
            _copy(node, made, files)
        elif node in files:
            made = files[node]
        else:
            made = files[node] = Inode()
            made.data, made.durable = bytearray(node.data), bytearray(node.data)
        target.names[name] = target.durable[name] = made


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]


def _clean(path: str) -> str:
    return "/" + "/".join(_parts(path))
