"""Ctrl-C in the middle of a computation.

Compiled code may swallow KeyboardInterrupt and go on with half of its tables (SciPy's Sobol points do), so that wrong
numbers come out as if nothing had happened. Work that is guarded here remembers that there was an interrupt: whatever
came of it is dropped, and the user is told how to go on. Callbacks of the garbage collector, of which JAX has one,
cannot raise anything: Python prints what they raised and goes on. An interrupt that is lost there comes again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bellmanifold.errors import StoppedError

AGAIN = 0.05
"""Seconds after which an interrupt that was lost comes again."""


@contextmanager
def interruptible(how_to_go_on: str | Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Guard a computation; hands over a function that raises if there was an interrupt, to call before keeping a part.

    Raises:
        StoppedError: saying how to go on, if there was an interrupt, when it comes or at the latest at the end, also if
            something else failed in consequence of it.
    """
    noticed = False

    def notice(number: int, frame: object) -> None:
        nonlocal noticed
        noticed = True
        raise KeyboardInterrupt

    def require_none() -> None:
        if noticed:
            raise KeyboardInterrupt

    def again() -> None:
        if signal.getsignal(signal.SIGINT) is notice:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def lost(what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            threading.Timer(AGAIN, again).start()
        else:
            others(what)

    before, others = signal.getsignal(signal.SIGINT), sys.unraisablehook
    ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, notice)
        sys.unraisablehook = lost
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
            sys.unraisablehook = others
