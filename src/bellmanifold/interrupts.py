"""Ctrl-C in the middle of a computation.

Compiled code may swallow KeyboardInterrupt and go on with half of its tables (SciPy's Sobol points do), so that wrong
numbers come out as if nothing had happened. Work that is guarded here remembers that there was an interrupt: whatever
came of it is dropped, and the user is told how to go on.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bellmanifold.errors import StoppedError


@contextmanager
def interruptible(how_to_go_on: str | Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Guard a computation; hands over a function that raises if there was an interrupt, to call before keeping a part.

    Args:
        how_to_go_on: what the message says after "interrupted: ".

    Raises:
        StoppedError: if there was an interrupt, when it comes or at the latest at the end, also if something else
            failed in consequence of it.
    """
    noticed = False

    def notice(number: int, frame: object) -> None:
        nonlocal noticed
        noticed = True
        raise KeyboardInterrupt

    def require_none() -> None:
        if noticed:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, notice)
    try:
        yield require_none
        require_none()
    except BaseException as error:
        if not noticed and not isinstance(error, KeyboardInterrupt):
            raise
        words = how_to_go_on if isinstance(how_to_go_on, str) else how_to_go_on()
        raise StoppedError(f"interrupted: {words}") from None
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
