"""Ctrl-C in the middle of a computation.

Compiled code may swallow KeyboardInterrupt and continue with half-filled tables (SciPy's Sobol points do), so that
wrong numbers are returned silently. Computations guarded here remember that there was an interrupt: their result is
discarded, and the error says how to continue. Exceptions in callbacks of the garbage collector (JAX has one) are
printed by Python and then ignored; an interrupt that is lost there is sent again.
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
"""Seconds after which a lost interrupt is sent again."""


@contextmanager
def interruptible(how_to_go_on: str | Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Guard a computation; yields a function that raises after an interrupt, to be called before a part is kept.

    Raises:
        StoppedError: after an interrupt, immediately or at the end at the latest, even if the interrupt caused another
            error; the message says how to continue.
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
