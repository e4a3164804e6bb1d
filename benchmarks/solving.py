"""`solve` on slippery grid worlds: against SciPy's HiGHS on the same problem, and against QuantEcon.

QuantEcon cannot do discount 1, so both solve the problem with discount 0.999; it is an optional extra (`pip install
'bellmanifold[bench]'`), and its row says so where it is absent. `check` and `solve` of 100,000 pairs follow (`check`
also with random costs, where loops differ), `solve` of 40,000 pairs whose chains are hard on linear solvers
(`slow_chains.py`), and of a million.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from measuring import Goal, Row, report, timed
from scipy.optimize import linprog
from scipy.sparse import csr_array
from slow_chains import PROBLEMS

import bellmanifold as bm
from bellmanifold._util.limits import SIZE
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.ssp import Description

DISCOUNT = 0.999


def random_problem(states: int, actions: int = 4, successors: int = 4, seed: int = 0) -> bm.SSP:
    """A problem with random successors, all moves costing: an expander, the opposite of a grid."""
    rng = np.random.default_rng(seed)
    pairs = states * actions
    return assemble(
        Description(
            state_names=[str(s) for s in range(states + 1)],
            action_names=[str(a) for a in range(actions)],
            goals=[states],
            initial_state=[0],
            initial_prob=[1.0],
            pair_state=np.repeat(np.arange(states), actions),
            pair_action=np.tile(np.arange(actions), states),
            reward=-rng.random(pairs) - 0.01,
            next_start=np.arange(pairs + 1) * successors,
            next_state=rng.integers(0, states + 1, pairs * successors),
            next_prob=rng.dirichlet(np.ones(successors), pairs).ravel(),
            name=f"random-{states}",
        )
    )


def with_random_costs(model: bm.SSP, seed: int = 0) -> bm.SSP:
    """The same moves with costs between 0.01 and 1.01: the best mean reward of its loops has to be looked for."""
    return replace(model, reward=-np.random.default_rng(seed).random(model.n_pairs) - 0.01)


def law_matrix(model: bm.SSP, columns: int) -> csr_array:
    """Transition probabilities, one row a pair; the goal is the last column if there is room for it."""
    kept = model.next_state < columns
    shape = (model.n_pairs, columns)
    return csr_array((model.next_prob[kept], (model.next_pair[kept], model.next_state[kept])), shape=shape)


def by_highs(model: bm.SSP) -> np.ndarray:
    """Optimal values by linear programming: least V with V(s) >= r(s, a) + sum p V."""
    n = model.n_states
    own = csr_array((np.ones(model.n_pairs), (np.arange(model.n_pairs), model.pair_state)), shape=(model.n_pairs, n))
    inequality = law_matrix(model, n) - own
    found = linprog(np.ones(n), A_ub=inequality, b_ub=-model.reward, bounds=(None, None), method="highs")
    return np.asarray(found.x)


def by_quantecon(model: bm.SSP) -> Callable[[], np.ndarray] | None:
    """QuantEcon's modified policy iteration, or None if it is not installed; the goal is a state that pays 0."""
    try:
        from quantecon.markov import DiscreteDP
    except ImportError:
        return None
    from scipy.sparse import csr_matrix, vstack

    n = model.n_states
    stay = csr_array(([1.0], ([0], [n])), shape=(1, n + 1))
    law = csr_matrix(vstack([law_matrix(model, n + 1), stay]))
    state, reward = np.append(model.pair_state, n), np.append(model.reward, 0.0)
    action = np.append(np.arange(model.n_pairs) - model.pair_start[model.pair_state], 0)

    def job() -> np.ndarray:
        problem = DiscreteDP(reward, law, DISCOUNT, state, action)
        return np.asarray(problem.solve(method="modified_policy_iteration", epsilon=1e-8).v[:n])

    return job


def compared(model: bm.SSP, name: str, repeats: int) -> Iterator[Row]:
    """A problem against both peers."""
    ours = timed("solve", lambda: bm.solve(model), repeats)
    peer = timed("SciPy HiGHS", lambda: by_highs(model), max(1, repeats - 2))
    gap = float(np.abs(bm.solve(model).value - by_highs(model)).max())
    yield Row(f"solve: {name}, against HiGHS", ours, peer, notes=f"largest difference of values {gap:.1g}")
    ours = timed("solve, discounted", lambda: bm.solve(model, discount=DISCOUNT), repeats)
    job = by_quantecon(model)
    title = f"solve: {name}, discount {DISCOUNT}, against QuantEcon"
    if job is None:
        yield Row(title, ours, notes="peer absent: pip install 'bellmanifold[bench]'")
        return
    values = job()  # Numba compiles
    gap = float(np.abs(bm.solve(model, discount=DISCOUNT).value - values).max())
    peer = timed("QuantEcon, modified policy iteration", job, repeats)
    note = f"largest difference of values {gap:.1g}; the peer's compilation left out; ours checks Assumption 2 too"
    yield Row(title, ours, peer, goal=Goal(ratio=1 / 1.5), notes=note)


def of_size(pairs: int, seconds: float, repeats: int) -> Iterator[Row]:
    """All kinds of problems of one size, each to be solved within some seconds."""
    side = round((pairs / 4) ** 0.5)
    made: dict[str, Callable[[], bm.SSP]] = {
        "slippery grid": lambda: bm.envs.grid(side, side, slip=0.2),
        "random successors": lambda: random_problem(pairs // 4),
    }
    made |= {name: lambda build=build: build(pairs // 2) for name, build in PROBLEMS.items()}
    for name, build in made.items():
        model = build()
        times = timed("solve", lambda model=model: bm.solve(model), repeats)
        yield Row(f"solve: {name}, {model.n_pairs:,} pairs", times, goal=Goal(seconds=seconds))


def rows(quick: bool) -> Iterator[Row]:
    """Peers, then sizes."""
    yield from compared(bm.envs.grid(20, 20, slip=0.1), "slippery 20 x 20 grid", 5)
    if not quick:
        yield from compared(bm.envs.grid(60, 60, slip=0.1), "slippery 60 x 60 grid", 3)
    large = [("slippery grid", bm.envs.grid(158, 158, slip=0.2)), ("random successors", random_problem(25_000))]
    for name, model in large:
        for job in (bm.check, bm.solve):
            times = timed(job.__name__, lambda job=job, model=model: job(model), 1 if quick else 3)
            yield Row(f"{job.__name__}: {name}, {model.n_pairs:,} pairs", times, goal=Goal(seconds=5.0))
    model = with_random_costs(bm.envs.grid(158, 158, slip=0.2))
    times = timed("check", lambda: bm.check(model), 1 if quick else 3)
    yield Row(f"check: slippery grid with random costs, {model.n_pairs:,} pairs", times, goal=Goal(seconds=5.0))
    yield from of_size(40_000, 1.0, 1 if quick else 3)
    if not quick:
        os.environ[SIZE.variable] = str(10_000_000)
        yield from of_size(1_000_000, 15.0, 1)


if __name__ == "__main__":
    report(rows)
