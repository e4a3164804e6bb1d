"""An agent for tests of plans and processes: quick, random, and able to fail on demand.

Run as a program, this file is the command line with that agent registered.
"""

import os
import signal
import time
from pathlib import Path

import numpy as np

from bellmanifold.agents.registry import AGENTS, AgentKind, Option, positive
from bellmanifold.errors import UnsupportedError


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


def make_toy(model, options):
    trap = options.get("trap") or ""
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
    return Toy(model, float(options.get("pause", 0.0)))


def anything(value):
    return True


OPTIONS = {"epsilon": positive(0.1), "pause": Option(0.0, anything, ""), "trap": Option(None, anything, "")}
TOY = AgentKind("toy", "a toy", OPTIONS, make_toy, needs_laws=False)
PLAIN = AgentKind("plain", "a toy without options", {}, make_toy, needs_laws=False)

if __name__ == "__main__":
    from toy_agents import PLAIN, TOY

    from bellmanifold.cli import main

    AGENTS.update({"toy": TOY, "plain": PLAIN})
    main()
