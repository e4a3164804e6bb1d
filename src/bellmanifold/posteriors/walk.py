"""Walking a posterior: Markov chains where importance weights are too uneven, or a problem is too large for them.

Chains of slice steps move in the posterior's standard coordinates, where the prior is N(0, I) and the weight is the
likelihood. `walker_of` makes the walker (`bellmanifold.posteriors.walker`) that suits a problem, for posteriors and for
agents alike. If it leaves out improper parameters, a posterior is refused, and an agent reports it in its diagnostics.

`by_walk` is the engine. Each chain counts its own greedy policies, so the spread *between* chains gives standard errors
without an autocorrelation estimate; R-hat and effective sample size (ArviZ) of the state values show whether the
chains agree.
"""

from __future__ import annotations

import numpy as np

from bellmanifold._util.progress import expect
from bellmanifold.chart.batch import BatchChart
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.batch_walk import BatchWalker
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.convergence import doubt, have_mixed
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import missed_by_walks, needs_cut
from bellmanifold.posteriors.most_probable import largest_error
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.sparse_walk import KEPT_EVERY, SparseWalker
from bellmanifold.posteriors.system import chart_of
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.trace import Trace
from bellmanifold.posteriors.walker import Walker

CHAINS, FEWEST_CHAINS, ROUND = 256, 32, 250
"""Number of chains, the smallest number where steps take long, and steps per round; one unrecorded round is warm-up."""
END_ROUNDS = 2
"""Rounds before the ends of the chains are used as draws; more, up to the budget's, if they have not mixed."""
HOPELESS = 4
"""Walks that would take more than this many times the work allowed are refused."""
SWEEPS, POLICIES = 16, 6
"""Typical numbers of sweeps and of policies until a block converges."""
SPARSE_CHAINS = 4
MOST_LOST = 0.05
"""If a larger share of the chains finds no point of positive likelihood, the others are not trusted either."""


def walker_of(
    coordinates: Coordinates,
    chart: BatchChart | None,
    rng: np.random.Generator,
    chains: int,
    before: Walker | None = None,
) -> Walker:
    """Chains in a chart, or on sparse systems without one; they continue chains of the same kind with fewer data."""
    if chart is not None:
        return BatchWalker(coordinates, chart, rng, chains, before if isinstance(before, BatchWalker) else None)
    return SparseWalker(coordinates, rng, chains, before if isinstance(before, SparseWalker) else None)


def fresh_walker(
    target: Target, chart: BatchChart | None, budget: Budget, chains: int
) -> tuple[Walker, np.random.Generator]:
    """New chains for a posterior, in centred coordinates where the chart needs a cut, and their random generator."""
    coordinates = Coordinates(target, centred=chart is not None and needs_cut(target, budget.cut))
    rng = np.random.default_rng(budget.seed)
    return walker_of(coordinates, chart, rng, chains), rng


def by_walk(target: Target, budget: Budget, why: str) -> Result:
    """The posterior by slice chains in a chart."""
    chart = chart_of(target, budget.chart)
    chains, most = bounds(chart, budget)
    walker, rng = fresh_walker(target, chart, budget, chains)
    coordinates = walker.coordinates
    rounds = 1 if budget.samples is None else max(1, budget.samples // (chains * ROUND))
    expect("steps", ROUND * (1 + rounds))
    walker.advance(rng, ROUND)
    missed = "" if coordinates.centred else missed_by_walks(target, batch=True, most=budget.cut)
    parts: list[Trace] = []
    while True:
        expect("steps", ROUND * (1 + rounds), ROUND * (1 + len(parts)))
        parts += [walker.record(rng, ROUND) for _ in range(rounds - len(parts))]
        result = _result(coordinates, Trace.joined(parts), f"{why}: slice chains instead").doubted(missed)
        if missed or budget.samples is not None or rounds >= most:
            return result
        if (
            result.trustworthy
            and largest_error(target.model, result.table, budget.top, budget.accuracy) <= budget.accuracy
        ):
            return result
        rounds *= 2


def bounds(chart: BatchChart, budget: Budget) -> tuple[int, int]:
    """The number of chains and the largest number of rounds, chosen so that large problems finish, too.

    If even the fewest chains would take far too long, the walk is refused, unless the budget gives a number of samples.
    """
    work = work_of(chart)
    steps = budget.walked // work
    chains = CHAINS
    while chains > FEWEST_CHAINS and chains * 2 * ROUND > steps:
        chains //= 2
    if chains * 2 * ROUND > HOPELESS * steps and budget.samples is None:
        minutes = chains * 2 * ROUND * work / budget.walked
        raise UnsupportedError(
            f"a walk through {chart.model.n_pairs} pairs would take about {minutes:.0f} minutes: "
            f"use --samples {chains * ROUND} to run it anyway, or look at a smaller problem"
        )
    allowed = max(1, steps // (chains * ROUND) - 1)
    return chains, min(budget.rounds, 1 << (allowed.bit_length() - 1))  # rounds double


def work_of(chart: BatchChart) -> int:
    """Approximate number of operations per point, including those of sweeps and eliminations."""
    total, successors = 0, int(chart.layout.successor.shape[1])
    for block, narrow in zip(chart.layout.blocks, chart.layout.narrow, strict=True):
        states, once = block.end - block.begin, (block.pairs[1] - block.pairs[0]) * successors
        if block.way == "sweeps":
            total += SWEEPS * once
        elif block.way == "policies":
            products = states**3 // 3 if narrow is None else states * int(narrow.near.shape[1]) ** 2
            total += POLICIES * (products + once)
        else:
            total += once
    return total


def walked_chains(target: Target, chart: BatchChart, budget: Budget) -> Walker | None:
    """Chains that have run long enough for their ends to be draws; None if they have not mixed."""
    walker, rng = fresh_walker(target, chart, budget, CHAINS)
    walker.advance(rng, ROUND)
    parts: list[Trace] = []
    for _ in range(max(END_ROUNDS, budget.rounds)):
        expect("steps", None, ROUND * (1 + len(parts)))
        parts.append(walker.record(rng, ROUND))
        if len(parts) & (len(parts) - 1) or len(parts) < END_ROUNDS:  # judged after 2, 4, 8, ... rounds
            continue
        if _result(walker.coordinates, Trace.joined(parts), "").trustworthy:
            return walker
    return None


def by_sparse_walk(target: Target, budget: Budget, why: str) -> Result:
    """The posterior by slice chains on sparse linear systems, for large cyclic problems."""
    check_sparse(target, why)
    steps = max(1, (budget.sparse_steps if budget.samples is None else budget.samples) // SPARSE_CHAINS)
    walker, rng = fresh_walker(target, None, budget, SPARSE_CHAINS)
    expect("steps", SPARSE_CHAINS * (steps // 4 + steps))
    walker.advance(rng, steps // 4)
    few = SPARSE_CHAINS * steps * target.model.n_pairs <= KEPT_EVERY * budget.kept
    trace = walker.record(rng, steps, keeps=few)
    result = _result(walker.coordinates, trace, f"{why}: slice chains on sparse systems instead")
    return result.doubted(missed_by_walks(target, batch=False))


def check_sparse(target: Target, why: str) -> None:
    """Refuse improper parameters, which sparse walks cannot cover."""
    if target.improper_loops and not target.proper_only:
        exact = " or --epsilon 0" if target.epsilon else ""
        raise UnsupportedError(
            f"{why}; chains on sparse systems cannot cover improper parameters: use --proper-only{exact}"
        )


def check_found(chains: int) -> None:
    """Raise if none of the chains has found a point of positive likelihood."""
    if not chains:
        raise UnsupportedError(
            "no chain found a parameter that fits the data: check the rewards, or use a larger --epsilon"
        )


def _result(coordinates: Coordinates, trace: Trace, reason: str) -> Result:
    target, chains = coordinates.target, len(trace.row)
    check_found(chains)
    r_hat, effective = trace.diagnose()
    q_mean, q_sd = trace.estimate(target, effective)
    few_lost = trace.lost <= MOST_LOST * (trace.lost + chains)
    eta = trace.value[:, :, trace.value.shape[2] - trace.scales :]
    counted = {} if trace.evaluations is None else {"evaluations_per_step": trace.evaluations}
    return Result(
        table=trace.table(target.coupled, coordinates.stand_in, effective),
        q_mean=q_mean,
        q_sd=q_sd,
        noise_scale=(float(eta.mean()), float(eta.std())) if trace.scales else None,
        laws=trace.moments.laws(target),
        engine="chart",
        reason=reason,
        dimension=coordinates.dimension,
        effective_sample_size=effective,
        doubts=() if few_lost and have_mixed(r_hat, effective) else (doubt(r_hat, effective),),
        diagnostics={
            "chains": chains,
            "lost_chains": trace.lost,
            "steps": trace.row.shape[1],
            "r_hat": r_hat,
            "coordinates": coordinates.way,
            **counted,
        },
        points=trace.points,
    )
