"""Playing units on a Dask cluster.

The same units are submitted to the scheduler as tasks, all at once. Results are sent back and written by this process:
workers need no shared disk, but the same versions of this package and its libraries. Dask itself reassigns the unit of
a worker that died (three times, unless the scheduler's `allowed-failures` says otherwise).
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bellmanifold._util.stderr import remark
from bellmanifold.errors import BadInputError, BellmanifoldError, printable, quote
from bellmanifold.learning.environment import use_one_thread
from bellmanifold_lab.sweeps.units import Answer, Failure, Played, Unit, attempt, worth_another

PATIENCE, PATIENCE_WITH_WORKERS = 20.0, 30.0


def play_on_cluster(
    units: Sequence[Unit], address: str, patience: float = PATIENCE, without_workers: float = PATIENCE_WITH_WORKERS
) -> Generator[Played, None, None]:
    """Play units on the workers of a Dask scheduler; answers are yielded as they become ready.

    Raises an error if the scheduler does not answer within `patience` seconds; a remark is printed if it has no
    worker after `without_workers` seconds.
    """
    import distributed  # sets the levels of its loggers, so import it before changing them

    with _quiet(distributed.__name__):
        client = connect(address, patience)
        try:
            with _looking_for_workers(client, address, without_workers):
                yield from _play(client, units)
        finally:
            client.close()


@contextmanager
def _looking_for_workers(client: Any, address: str, patience: float) -> Iterator[None]:
    """Print a remark if the scheduler has no worker after `patience` seconds: it would keep us waiting forever."""

    def look() -> None:
        if client.status == "running" and not client.scheduler_info()["workers"]:
            remark(f"--dask: waiting for a worker: start one with `dask worker {printable(address)}`")

    timer = threading.Timer(patience, look)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silence the loggers of a library and its submodules: errors are reported once, by us."""
    known = [logger for logger in logging.root.manager.loggerDict if logger.startswith(f"{name}.")]
    loggers = [logging.getLogger(logger) for logger in (name, *known)]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def connect(address: str, patience: float = PATIENCE) -> Any:
    """A client of the scheduler at this address."""
    from distributed import Client

    try:
        return Client(address, timeout=patience, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        what = " ".join(str(error).split())[:200]
    gc.collect()  # close the failed client now, not at some later time when Dask may hold the lock that this takes
    raise BadInputError(f"--dask: no scheduler answers at {quote(address)} ({what}): start one with `dask scheduler`")


def _play(client: Any, units: Sequence[Unit]) -> Generator[Played, None, None]:
    from distributed import as_completed

    jobs = {client.submit(_attempt, unit, pure=False): (unit, 1) for unit in units}
    queue = as_completed(list(jobs), loop=client.loop)
    try:
        for future in queue:
            unit, tries = jobs.pop(future)
            answer = _answer(future)
            future.release()
            if worth_another(answer, tries):
                again = client.submit(_attempt, unit, pure=False)
                jobs[again] = unit, tries + 1
                queue.add(again)
            else:
                yield unit, answer
    finally:
        if jobs and client.status == "running":
            client.cancel(list(jobs))


def _attempt(unit: Unit) -> Answer:
    """Play a unit on a worker of the cluster."""
    use_one_thread()
    return attempt(unit)


def _answer(future: Any) -> Answer:
    """A task's answer, or Dask's error as a failure."""
    if future.status == "finished":
        answer: Answer = future.result()
        return answer
    if future.status == "cancelled":
        raise BellmanifoldError("the Dask scheduler has gone: finished runs are kept, run the same command again")
    error = future.exception()
    return Failure(f"{type(error).__name__}: {error}", details=repr(error), final=True)
