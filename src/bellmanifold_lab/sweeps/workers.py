"""Playing units in processes of this machine.

Processes are spawned, never forked: a forked child that uses JAX hangs. Each worker is given one unit at a time
through its own pipe, so that when a worker dies, its pipe closes and it is known which unit it was playing.

Workers ignore Ctrl-C, which a terminal sends to all processes of a program: the parent decides when to end them. If the
parent itself is killed, they notice and exit at once. A worker uses a single thread
(`bellmanifold.learning.environment`).
"""

from __future__ import annotations

import faulthandler
import multiprocessing as mp
import os
import signal
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bellmanifold.errors import BellmanifoldError
from bellmanifold.learning.environment import ONE_THREAD
from bellmanifold_lab.sweeps.units import Answer, Failure, Played, Unit, attempt, worth_another

READY = "ready"


def play_in_processes(units: Sequence[Unit], workers: int) -> Generator[Played, None, None]:
    """Play units in a number of processes; answers are yielded as they become ready.

    A unit whose worker dies is given to another one, once; if that one dies, too, the answer is a `Failure`.
    """
    waiting = deque((unit, 1) for unit in units)
    with tempfile.TemporaryDirectory(prefix="bellmanifold-") as notes:
        pool = WorkerPool(Path(notes), min(workers, len(units)))
        try:
            while waiting or pool.busy:
                pool.give(waiting)
                for unit, tries, answer in pool.answers():
                    if worth_another(answer, tries):
                        waiting.appendleft((unit, tries + 1))
                    else:
                        yield unit, answer
        finally:
            pool.end()


class Worker:
    """A worker process, its pipe, and the unit it is playing."""

    def __init__(self, note: Path) -> None:
        context = mp.get_context("spawn")
        self.note = note
        self.job: tuple[Unit, int] | None = None
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=serve, args=(theirs, str(note)), daemon=True)
        _start(self.process)
        theirs.close()

    def give(self, unit: Unit, tries: int) -> None:
        self.job = unit, tries
        with suppress(BrokenPipeError, ConnectionResetError):  # if it is dead, reading from the pipe will say so
            self.connection.send(unit)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()

    def last_words(self) -> Failure:
        """What is known about a worker that died."""
        self.process.join(5)
        code = self.process.exitcode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        words = self.note.read_text(errors="replace") if self.note.exists() else ""
        return Failure(f"its worker process died ({how})", details=words)


class WorkerPool:
    """A fixed number of workers; dead ones are replaced."""

    def __init__(self, notes: Path, size: int) -> None:
        self.notes, self.hired, self.reported = notes, 0, 0
        self.workers = [self._hire() for _ in range(size)]

    def _hire(self) -> Worker:
        self.hired += 1
        return Worker(self.notes / str(self.hired))

    @property
    def busy(self) -> bool:
        return any(worker.job is not None for worker in self.workers)

    def give(self, waiting: deque[tuple[Unit, int]]) -> None:
        """Give a waiting unit to every idle worker."""
        for worker in self.workers:
            if worker.job is None and waiting:
                worker.give(*waiting.popleft())

    def answers(self) -> Iterator[tuple[Unit, int, Answer]]:
        """Wait until some worker answers or dies."""
        by_pipe: dict[Any, int] = {worker.connection: k for k, worker in enumerate(self.workers) if worker.job}
        for ready in wait(list(by_pipe)):
            worker = self.workers[by_pipe[ready]]
            assert worker.job is not None, "only workers with a unit are listened to"
            try:
                heard = worker.connection.recv()
            except (EOFError, OSError):
                heard = self._replace(by_pipe[ready])
            if heard == READY:
                self.reported += 1
                continue
            job, worker.job = worker.job, None
            yield *job, heard

    def _replace(self, k: int) -> Failure:
        dead = self.workers[k]
        failure = dead.last_words()
        dead.end()
        if not self.reported and self.hired >= 2 * len(self.workers):
            raise BellmanifoldError(f"no worker process can start: {failure.message} {failure.details}".strip())
        self.workers[k] = self._hire()
        return failure

    def end(self) -> None:
        for worker in self.workers:
            worker.end()


def serve(connection: Connection, note: str) -> None:
    """The main loop of a worker: play units from the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(note, "w") as words:
        faulthandler.enable(words)
        connection.send(READY)
        while True:
            try:
                unit = connection.recv()
            except EOFError:
                return
            connection.send(attempt(unit))


def _end_with_parent() -> None:
    parent = mp.parent_process()
    assert parent is not None, "a worker has a parent"
    parent.join()
    os._exit(1)


def _start(process: BaseProcess) -> None:
    """Start a single-threaded process with Ctrl-C blocked, so that no interrupted import prints a traceback."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        process.start()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
