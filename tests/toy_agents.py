"""An agent for tests of plans and processes: quick, random, and able to fail on demand.

Run as a program, this file is the command line with that agent registered.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bellmanifold.agents.registry import AGENTS, AgentKind
from bellmanifold.agents.settings import option, positive
from bellmanifold.errors import UnsupportedError
from bellmanifold.io.models import load_problem
from bellmanifold.learning.record import prepare, record
from bellmanifold.learning.run import play_run
from bellmanifold_lab.sweeps.units import attempt


def play_here(units):
    """Play units in this process, one after the other."""
    for unit in units:
        yield unit, attempt(unit)


def record_run(settings, kind=None):
    """Play one run, perhaps of an agent that is not registered, and record it."""
    problem = prepare(load_problem(settings.model))
    kind = kind or settings.agent
    run = play_run(problem.source, kind, settings.episodes, settings.seed, settings.choices(), problem.optimum)
    return record(settings, problem, run)


class Toy:
    """Plays random policies and keeps the best one for every other episode; `pause` seconds an episode."""

    def __init__(self, model, pause):
        self.pair_start, self.pause = model.pair_start, pause
        self.best, self.most, self.last, self.count = None, -np.inf, None, 0

    def policy(self, rng):
        time.sleep(self.pause)
        self.count += 1
        drawn = rng.integers(self.pair_start[:-1], self.pair_start[1:])
        self.last = self.best if self.best is not None and self.count % 2 == 0 else drawn
        return self.last

    def observe(self, pairs, rewards):
        if rewards.sum() > self.most:
            self.best, self.most = self.last, float(rewards.sum())

    @property
    def diagnostics(self):
        return {"most": self.most}


def anything(value):
    return True


@dataclass(frozen=True)
class PlainSettings:
    """No options."""


@dataclass(frozen=True)
class ToySettings:
    """Seconds an episode takes, and how to fail."""

    epsilon: float = positive(0.1)
    pause: float = option(0.0, anything, "")
    trap: str | None = option(None, anything, "")


def make_toy(model, settings):
    trap = settings.trap or ""
    if trap == "raise":
        raise ZeroDivisionError("the toy is broken")
    if trap == "refuse":
        raise UnsupportedError("the toy cannot play this: use q-learning")
    if trap == "die" or (trap and Path(trap).exists()):
        Path(trap).unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if trap == "crash":
        import faulthandler

        faulthandler._sigsegv()
    return Toy(model, float(settings.pause))


def make_plain(model, settings):
    return Toy(model, 0.0)


TOY = AgentKind("toy", "a toy", ToySettings, make_toy, needs_laws=False)
PLAIN = AgentKind("plain", "a toy without options", PlainSettings, make_plain, needs_laws=False)

if __name__ == "__main__":
    from toy_agents import PLAIN, TOY

    from bellmanifold.cli.main import main

    AGENTS.update({"toy": TOY, "plain": PLAIN})
    main()
