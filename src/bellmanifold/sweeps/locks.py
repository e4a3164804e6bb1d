"""Which other processes work in a directory.

A sweep that has not finished its first run has nothing to show for itself, and one of another plan could take its
directory. So every process that works in a directory holds a shared lock of it (flock) until the work is done; the
kernel releases the lock when a program ends, however it ends, and nothing is left behind. A process that gets the lock
exclusively knows that no other works there.

The lock is seen on one machine, and on others as far as the file system tells them. Where it knows no locks, everyone
seems to be alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Presence:
    """A program's presence in a directory, from its construction until `close`.

    Attributes:
        alone: no other process holds the lock, and none can take it before `share`.
    """

    def __init__(self, directory: Path) -> None:
        self._handle = os.open(directory, os.O_RDONLY)
        self.alone = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not self.alone:
            self.share()

    def share(self) -> None:
        """Let others come, too. They may do so before this returns: what only one may decide, check again."""
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
    """Hold the lock of a file of this name, alone, which is made for that and removed afterwards.

    Who waited for a file that its holder then removed holds the lock of nothing, and tries again.
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
    """The open file, once we hold its lock and it is still the one of this name; None where there are no locks."""
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
