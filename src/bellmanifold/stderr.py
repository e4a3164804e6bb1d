"""Remarks on stderr: progress, and what went wrong.

If they can no longer be taken down (the disk of a log is full, the reader of a pipe has gone), the work goes on without
them: a sweep of days must not end, nor an exit code change, for want of a line in a log.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def remark(text: str) -> None:
    """Say something on stderr, if anybody can hear it."""
    if sys.stderr is None:  # closed before the program began; print would take stdout instead
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        with suppress(OSError, ValueError):  # what is still in the buffer would fail again when the program ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
