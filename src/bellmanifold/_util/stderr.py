"""Messages on stderr: progress and errors.

If they can no longer be written (the disk of a log is full, the reader of a pipe has exited), the work continues
without them: a sweep of days must not end, nor an exit code change, because a line of a log could not be written.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def remark(text: str) -> None:
    """Print a line on stderr, if that is possible."""
    if sys.stderr is None:  # closed before the program began; print would use stdout instead
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        with suppress(OSError, ValueError):  # flushing the rest of the buffer would fail again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
