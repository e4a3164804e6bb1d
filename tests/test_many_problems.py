"""Many problems of different shapes in one process: what was compiled for them must not pile up.

Every compiled program takes memory maps, of which Linux gives a process 65,530; after some 170 problems of different
shapes a process that keeps them all is killed. The problems are played in a process of its own, and what it holds is
read from the system.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bellmanifold._util import jax_setup

PROGRAM = """
import json, resource, sys
import bellmanifold as bm
from bellmanifold.envs.building import Move, from_moves

def problem(number):
    states, actions, kind = 2 + number % 8, 1 + number // 8 % 8, number // 64 % 5
    moves = {}
    for s in range(states):
        after = f"s{s + 1}" if s + 1 < states else "goal"
        rest = [[], [after, after, "s0"], ["goal"], [f"s{s // 2}"], ["s0", "goal"]][kind]
        leads = {place: [after, *rest].count(place) / (1 + len(rest)) for place in [after, *rest]}
        for a in range(actions):
            moves[f"s{s}", f"a{a}"] = Move(-1.0 - a, leads)
        moves[f"s{s}", "untried"] = Move(0.0, {"goal": 1.0})
    return from_moves(f"problem {number}", moves, start="s0")

def held():
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)

first, count, step = (int(number) for number in sys.argv[1:])
for k in range(count):
    model = problem((first + step * k) % 300)
    seen = [model.pair_name(i) for i in range(model.n_pairs)]
    data = bm.Dataset.from_pairs(model, [(s, a) for s, a in seen if a != "untried"])
    found = bm.posterior(model, data, samples=1000).action_probability
    assert 0.0 <= found.value.min() <= found.value.max() <= 1.0
print(json.dumps({"maps": held(), "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))
"""


def played(count, step):
    """Posteriors of so many problems in one process: the memory maps it has at the end and its peak of GB resident."""
    cache = str(jax.config.jax_compilation_cache_dir)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent / "src"), os.environ.get("PYTHONPATH", "")]),
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "0", str(count), str(step)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


@pytest.mark.slow
def test_twenty_problems():
    """Of all kinds and sizes: 4,000 maps are what the programs of about fifteen of them take (of all: 5,252)."""
    found = played(20, 67)
    assert found["maps"] < 4_000, found


@pytest.mark.slow
def test_three_hundred_problems():
    """All of them differ in shape; a process that forgets nothing dies of them."""
    found = played(300, 1)
    assert found["resident"] < 2.0, found
    assert found["maps"] < 30_000, found


def test_programs_are_dropped_when_there_are_too_many(monkeypatch):
    """Three structures or shapes are one too many for two; what is still in use counts anew."""
    dropped = []
    monkeypatch.setattr(jax, "clear_caches", lambda: dropped.append(True))
    monkeypatch.setattr(jax_setup, "_compiled", set())
    for size, expected in ((1, 0), (2, 0), (1, 0), (3, 1), (1, 1), (3, 1), (2, 2)):
        jax_setup.bound_programs({"x": np.zeros(size)}, most=2)
        assert len(dropped) == expected
    jax_setup.bound_programs({"x": np.zeros(2, dtype=bool)}, most=2)
    assert len(dropped) == 2, "two kinds of numbers are two programs"
    jax_setup.bound_programs({"y": np.zeros(2)}, most=2)
    assert len(dropped) == 3
