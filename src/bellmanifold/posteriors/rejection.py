"""Rejection sampling for the uniform kernel on tiny problems: slow, but too simple to be wrong. An oracle for tests.

With the uniform kernel the posterior is the prior restricted to the set where every observed Bellman residual lies
within its tolerance,

    |theta_i - sum p(s'|i) max_a theta(s', a) - r_i| < scale_i   for every observed pair i.

So draw theta from the prior and keep what lies in the set: the kept draws *are* the posterior, independent of each
other. A fraction P(set) of the draws is kept, and the evidence is that fraction times the product of 1 / (2 scale_i).
The fraction falls like the product of scale_i / prior_scale, which limits the method to a handful of observed pairs;
it says so when too few draws are kept.

Only pairs of coupled states are drawn; the other action values keep their prior. Draws are dealt to independent
replicates, from which standard errors follow as for every engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.errors import UnsupportedError
from bellmanifold.kernels import Uniform
from bellmanifold.posteriors.estimated import Estimate, resolution_of
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.result import Moments, Result
from bellmanifold.posteriors.target import Target

REPLICATES = 32
BATCH_NUMBERS = 2**21


def rejection(
    target: Target, draws: int = 2**22, seed: int = 0, min_accepted: int = 1000, held: int = BATCH_NUMBERS
) -> Result:
    """Draw from the prior and keep what satisfies every observed Bellman equation within its tolerance.

    Args:
        target: a posterior with a uniform kernel of positive width.
        draws: how many draws from the prior.
        seed: of the draws.
        min_accepted: refuse to answer from fewer kept draws.
        held: numbers drawn at a time.

    Raises:
        UnsupportedError: for the exact posterior, another kernel, or too few kept draws.
    """
    unknown = target.noise_scale is not None
    if unknown or not isinstance(target.kernel, Uniform) or np.any(target.scale[target.observed] <= 0):
        raise UnsupportedError(
            "rejection: only a uniform kernel of known positive width can be sampled by rejection: use the chart engine"
        )
    problem = _tiny_problem(target)
    generator = np.random.default_rng(seed)
    each = -(-draws // REPLICATES)
    replicates = [_replicate(problem, each, generator, held) for _ in range(REPLICATES)]
    accepted = sum(len(kept) for kept in replicates)
    if accepted < min_accepted:
        raise UnsupportedError(
            f"rejection: {accepted} of {each * REPLICATES} prior draws satisfy the {len(problem.reward)} observed "
            f"equations, fewer than the {min_accepted} an answer needs: use the chart engine or a larger epsilon"
        )
    return _result(target, problem, replicates, each)


Draws = Float[np.ndarray, "_ own"]
"""Draws of the own pairs' action values; every batch has its own number of them."""


@dataclass(frozen=True, eq=False)
class _TinyProblem:
    """What a draw has to satisfy; pairs are those of coupled states, renumbered.

    Attributes:
        own: pairs of the coupled states, shape (own pairs,).
        start: first own pair of each coupled state, shape (coupled states,).
        observed: the observed own pairs, shape (observed,).
        transition: probability of each coupled state after each observed pair, shape (observed, coupled states).
        reward, scale: of the observed pairs, shape (observed,).
        prior_mean, prior_sd: of the own pairs, shape (own pairs,).
    """

    own: Int[np.ndarray, "own"]
    start: Int[np.ndarray, "coupled"]
    observed: Int[np.ndarray, "observed"]
    transition: Float[np.ndarray, "observed coupled"]
    reward: Float[np.ndarray, "observed"]
    scale: Float[np.ndarray, "observed"]
    prior_mean: Float[np.ndarray, "own"]
    prior_sd: Float[np.ndarray, "own"]


def _tiny_problem(target: Target) -> _TinyProblem:
    model = target.model
    coupled = np.flatnonzero(target.coupled)
    own = target.own
    observed = np.flatnonzero(target.observed)
    transition = np.zeros((len(observed), len(coupled)))
    used = target.observed[model.next_pair] & (model.next_state < model.n_states)
    row = np.searchsorted(observed, model.next_pair[used])
    np.add.at(transition, (row, np.searchsorted(coupled, model.next_state[used])), model.next_prob[used])
    return _TinyProblem(
        own=own,
        start=np.searchsorted(own, model.pair_start[coupled]),
        observed=np.searchsorted(own, observed),
        transition=transition,
        reward=target.reward[observed],
        scale=target.scale[observed],
        prior_mean=target.prior.mean[own],
        prior_sd=target.prior.sd[own],
    )


def _replicate(problem: _TinyProblem, draws: int, generator: np.random.Generator, held: int) -> Draws:
    """The kept ones of some prior draws."""
    batch = max(1, held // max(1, len(problem.own)))
    kept = [np.zeros((0, len(problem.own)))]
    for begin in range(0, draws, batch):
        normal = generator.standard_normal((min(batch, draws - begin), len(problem.own)))
        theta = problem.prior_mean + problem.prior_sd * normal
        kept.append(theta[_satisfied(problem, theta).all(axis=1)])
    return np.concatenate(kept)


def _satisfied(problem: _TinyProblem, theta: Draws) -> np.ndarray:
    """Which observed equations does each draw satisfy?"""
    if len(problem.own) == 0:
        return np.ones((len(theta), 0), dtype=bool)
    value = np.maximum.reduceat(theta, problem.start, axis=1)
    residual = theta[:, problem.observed] - value @ problem.transition.T
    return np.asarray(np.abs(residual - problem.reward) < problem.scale)


def _greedy(problem: _TinyProblem, theta: Draws) -> Int[np.ndarray, "_ coupled"]:
    """The own pair each coupled state plays; ties have probability 0."""
    groups = np.split(theta, problem.start[1:], axis=1)
    columns = [begin + group.argmax(axis=1) for begin, group in zip(problem.start, groups, strict=False)]
    return np.stack(columns, axis=1) if columns else np.zeros((len(theta), 0), dtype=np.int64)


def _result(target: Target, problem: _TinyProblem, replicates: list[Draws], each: int) -> Result:
    count = np.array([len(kept) for kept in replicates], dtype=np.float64)
    theta = np.concatenate(replicates)
    policy, row = np.unique(_greedy(problem, theta), axis=0, return_inverse=True)
    weight = np.zeros((len(replicates), len(policy)))
    np.add.at(weight, (np.repeat(np.arange(len(replicates)), count.astype(np.int64)), row.ravel()), 1.0)
    own, pairs = target.own, target.model.n_pairs
    mean, square = np.zeros((len(replicates), pairs)), np.zeros((len(replicates), pairs))
    for k, kept in enumerate(replicates):
        if len(kept):
            mean[k, own], square[k, own] = kept.mean(axis=0), kept.var(axis=0) * len(kept)
    q_mean, q_sd = Moments(count, mean, square).estimate(target)
    spread = count.std(ddof=1) / np.sqrt(len(count)) / count.mean()
    constant = target.log_constant - float(np.log(2.0 * problem.scale).sum())
    draws = each * len(replicates)
    return Result(
        table=PolicyTable(target.coupled, problem.own[policy], weight, resolution=resolution_of(float(len(theta)))),
        q_mean=q_mean,
        q_sd=q_sd,
        log_evidence=Estimate.of(constant + np.log(count.mean() / each), spread),
        engine="rejection",
        reason=f"asked for: prior draws that satisfy every observed equation; stopped after {draws} of them",
        dimension=len(own),
        effective_sample_size=float(len(theta)),
        diagnostics={"accepted": len(theta), "draws": draws},
    )
