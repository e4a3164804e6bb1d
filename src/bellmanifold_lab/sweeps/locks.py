"""Locks that show which other processes work in a directory.

A sweep that has not finished its first run has written no results yet, and a sweep of another plan could take over its
directory. So every process that works in a directory holds a shared lock on it (flock) until the work is done; the
kernel releases the lock when a process ends, however it ends, and no lock file is left behind. A process that gets the
lock exclusively knows that no other works there.

The lock is visible on one machine, and on others if the file system propagates it. On a file system without locks every
process seems to be alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Presence:
    """A process's presence in a directory, from construction until `close`.

    Attributes:
        alone: whether no other process holds the lock, so that none can take it before `share`.
    """

    def __init__(self, directory: Path) -> None:
        self._handle = os.open(directory, os.O_RDONLY)
        self.alone = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not self.alone:
            self.share()

    def share(self) -> None:
        """Share the lock. Others may take it before this returns, so exclusive decisions must be checked again."""
        self.alone = False
        self._lock(fcntl.LOCK_SH)

    def close(self) -> None:
        os.close(self._handle)

    def _lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._handle, kind)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is created for this purpose and removed afterwards.

    A process that waited for a file that its holder then removed has a lock on nothing, and tries again.
    """
    handle = _held(path)
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                path.unlink()
            os.close(handle)


def _held(path: Path) -> int | None:
    """The open file, once it is locked and still has this name; None where locks are not supported."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False)):
                return handle
            os.close(handle)
        except FileNotFoundError:
            os.close(handle)
        except OSError:
            os.close(handle)
            return None
