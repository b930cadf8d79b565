"""A file system that loses power: the simulator's disk (`kraft_node.testing.disk`), mounted by FUSE.

    python -m tests.crash.lossy FOLDER SEED

So a real process meets the fault model of the simulator: a power loss keeps fsynced data; each later write is kept,
lost or torn; names are durable after an fsync of their directory. The process is controlled by extended attributes of
the mounted folder (`Lossy`). Unmount the folder to end it.

FUSE does not pass syncfs(2) on, so a node on it must do without (`node_command`).
"""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from kraft_node.testing.disk import SimDisk
from kraft_node.testing.disks.handles import SimFile

CUT, RESTORE, STATE = "user.cut", "user.restore", "user.state"
"""Attributes: write a number of changes after which the power goes; write anything to bring it back; read
`changes is_off`."""
READY_S = 20.0
END_S = 5.0
HIDDEN = ".fuse_hidden"
MODE_OF_FILES = stat.S_IFREG | 0o644
MODE_OF_FOLDERS = stat.S_IFDIR | 0o755
NODE = (
    "import pathlib, sys, kraft_node.runtime.disk as disk, kraft_node.runtime.env as env; "
    "disk._find_syncfs = lambda: None; env.BOOT_ID = pathlib.Path(sys.argv.pop(1)); "
    "from kraft_node.cli import server_start; sys.exit(server_start.main(sys.argv[1:]))"
)


def node_command(boot_id: Path, properties: Path) -> list[str]:
    """Starts a node on the lossy disk.

    It fsyncs every file in place of syncfs, as on kernels before 5.8, and reads the id of the machine's boot from a
    file: it changes with each loss of power. Otherwise the node would trust a page cache that is gone.
    """
    return [sys.executable, "-c", NODE, str(boot_id), str(properties)]


class Lossy:
    """A mounted file system of its own process. Use it in `with`. Raises OSError if nothing can be mounted here."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.lossy", str(folder), str(seed)], stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Lossy:
        self._wait_until_mounted()
        return self

    def _wait_until_mounted(self) -> None:
        deadline = time.monotonic() + READY_S
        while not os.path.ismount(self.folder):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                _, words = self._process.communicate()
                raise OSError(f"cannot mount {self.folder}: {words.strip()[-300:]}")
            time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=False)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def cut_power_after(self, changes: int) -> None:
        """Cut the power after so many more writes, fsyncs and changes of names."""
        os.setxattr(self.folder, CUT, str(changes).encode())

    def restore_power(self) -> None:
        """Lose what the fault model loses, and mount it again: the kernel must forget all names, sizes and bytes.

        Processes with open files on it must have ended.
        """
        os.setxattr(self.folder, RESTORE, b"")
        subprocess.run(["umount", str(self.folder)], check=True)
        self._wait_until_mounted()

    @property
    def changes(self) -> int:
        """The number of changes so far."""
        return int(os.getxattr(self.folder, STATE).split()[0])

    @property
    def is_off(self) -> bool:
        """Whether the power is off: every change fails with EIO."""
        return os.getxattr(self.folder, STATE).split()[1] == b"1"


class _Disk(SimDisk):
    """The simulated disk with a rename in two calls."""

    def replace_removed(self, old: str, new: str) -> None:
        """Rename `old` to a path that the last change has removed: both changes are one, as in rename(2)."""
        removal = self._pending.pop()
        self.rename(old, new)  # if the power is off, the removal has not happened, either
        self._pending[-1] = removal + self._pending[-1]


class _Mounted:
    """The operations of FUSE on the simulated disk. One thread calls them."""

    use_ns = True

    def __init__(self, seed: int) -> None:
        self._disk = _Disk(random.Random(seed), lambda: time.time_ns() // 1_000_000)
        self._disk.fail = self._fail
        self._files: dict[int, SimFile] = {}
        self._removed: dict[str, SimFile] = {}
        """Removed files that are still open, by the names that libfuse gives them. The disk has no such names."""
        self._hidden = "", -1
        """The path that was removed last, and the number of changes after that."""
        self._last = 0
        self._cut_at = -1
        self.is_restored = False

    def _fail(self, _operation: str, path: str) -> OSError | None:
        return OSError(errno.EIO, "the power is off", path) if self._is_off else None

    @property
    def _is_off(self) -> bool:
        return 0 <= self._cut_at < self._disk.operations

    # Control.

    def setxattr(self, _path: str, name: str, value: bytes, _options: int, _position: int = 0) -> int:
        if name == CUT:
            self._cut_at = self._disk.operations + int(value)
        elif name == RESTORE:
            self._cut_at = -1
            self._disk.lose_power()
            self.is_restored = True
        else:
            raise OSError(errno.ENOTSUP, "no such attribute", name)
        return 0

    def getxattr(self, _path: str, name: str, _position: int = 0) -> bytes:
        if name != STATE:
            raise OSError(errno.ENODATA, "no such attribute", name)
        return f"{self._disk.operations} {int(self._is_off)}".encode()

    # Names.

    def getattr(self, path: str, _fh: int | None = None) -> dict[str, Any]:
        disk = self._disk
        if removed := self._removed.get(path):
            return _attributes(MODE_OF_FILES, removed.size(), removed.inode.mtime_ms)
        if disk.is_dir(path) or path == "/":
            return _attributes(MODE_OF_FOLDERS, 0, 0)
        if not disk.exists(path):
            raise OSError(errno.ENOENT, "no such file", path)
        return _attributes(MODE_OF_FILES, disk.size(path), disk.mtime_ms(path))

    def readdir(self, path: str, _fh: int) -> list[str]:
        return [".", "..", *self._disk.names(path)]

    def mkdir(self, path: str, _mode: int) -> int:
        self._disk.mkdir(path, new=True)
        return 0

    def rmdir(self, path: str) -> int:
        if self._disk.names(path):
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._disk.rmtree(path)
        return 0

    def unlink(self, path: str) -> int:
        if self._removed.pop(path, None) is None:
            self._disk.remove(path)
        return 0

    def rename(self, old: str, new: str) -> int:
        if new.rpartition("/")[2].startswith(HIDDEN):
            # How libfuse removes an open file; or replaces it, if the next call renames another file to its path.
            self._removed[new] = self._disk.open(old)
            self._disk.remove(old)
            self._hidden = old, self._disk.operations
        elif self._hidden == (new, self._disk.operations):
            self._disk.replace_removed(old, new)
        else:
            self._disk.rename(old, new)
        return 0

    def link(self, target: str, source: str) -> int:
        self._disk.link(source, target)
        return 0

    def fsyncdir(self, path: str, _datasync: int, _fh: int) -> int:
        self._disk.fsync_dir(path)
        return 0

    def chmod(self, _path: str, _mode: int) -> int:
        return 0

    def chown(self, _path: str, _uid: int, _gid: int) -> int:
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        if times is not None and path not in self._removed and not self._disk.is_dir(path):
            self._disk.open(path).inode.mtime_ms = times[1] // 1_000_000
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        block = 4096
        total, free = self._disk.total_bytes(path) // block, self._disk.free_bytes(path) // block
        return {"f_bsize": block, "f_frsize": block, "f_blocks": total, "f_bfree": free, "f_bavail": free}

    # Files.

    def create(self, path: str, _mode: int, _flags: int) -> int:
        return self._keep(self._disk.open(path, create=True))

    def open(self, path: str, _flags: int) -> int:
        return self._keep(self._disk.open(path))

    def _keep(self, file: SimFile) -> int:
        self._last += 1
        self._files[self._last] = file
        return self._last

    def read(self, _path: str, size: int, offset: int, fh: int) -> bytes:
        return self._files[fh].pread(offset, size)

    def write(self, _path: str, data: bytes, offset: int, fh: int) -> int:
        self._files[fh].pwrite(offset, [data])
        return len(data)

    def truncate(self, path: str, length: int, _fh: int | None = None) -> int:
        file = self._removed.get(path) or self._disk.open(path)
        file.truncate(length)
        return 0

    def fsync(self, _path: str, _datasync: int, fh: int) -> int:
        self._files[fh].fsync()
        return 0

    def release(self, _path: str, fh: int) -> int:
        self._files.pop(fh).close()
        return 0


def _attributes(mode: int, size: int, mtime_ms: int) -> dict[str, Any]:
    mtime_ns = mtime_ms * 1_000_000
    times = {"st_mtime": mtime_ns, "st_ctime": mtime_ns, "st_atime": mtime_ns}
    return {"st_mode": mode, "st_nlink": 1, "st_size": size, "st_uid": os.getuid(), "st_gid": os.getgid(), **times}


def main() -> int:
    """Mount, and serve until the folder is unmounted; again if the power was restored."""
    import mfusepy

    folder, seed = sys.argv[1], int(sys.argv[2])
    operations = _Mounted(seed)
    is_needed = True
    while is_needed:
        operations.is_restored = False
        mfusepy.FUSE(operations, folder, foreground=True, nothreads=True)
        is_needed = operations.is_restored
    return 0


if __name__ == "__main__":
    sys.exit(main())
