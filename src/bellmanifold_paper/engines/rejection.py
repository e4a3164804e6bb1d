"""Rejection sampling for the uniform kernel on tiny problems: slow, but too simple to be wrong; an oracle for tests.

With the uniform kernel the posterior is the prior restricted to the set where every observed Bellman residual lies
within its tolerance,

    |theta_i - sum p(s'|i) max_a theta(s', a) - r_i| < scale_i   for every observed pair i.

So theta is drawn from the prior and kept if it lies in the set: the kept draws are independent draws from the
posterior. A fraction P(set) of the draws is kept, and the evidence is that fraction times the product of
1 / (2 scale_i). The fraction falls like the product of scale_i / prior_scale, which limits the method to a handful of
observed pairs; if too few draws are kept, an error is raised.

Only pairs of coupled states are drawn; the other action values keep their prior. Draws are split into independent
replicates, which give standard errors as for every engine.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csr_array

from bellmanifold.errors import UnsupportedError
from bellmanifold.gaussian.chunks import chunks
from bellmanifold.posteriors.estimated import Estimate, resolution_of
from bellmanifold.posteriors.kernels import Uniform
from bellmanifold.posteriors.policies import PolicyTable, weights_of
from bellmanifold.posteriors.result import Moments, Result
from bellmanifold.posteriors.target import Target

REPLICATES = 32
BATCH_NUMBERS = 2**21

Draws = Float[np.ndarray, "_ pairs"]
"""Draws of all action values, any number of them; values of states that are not coupled are 0."""


def rejection(
    target: Target, draws: int = 2**22, seed: int = 0, min_accepted: int = 1000, held: int = BATCH_NUMBERS
) -> Result:
    """Draw from the prior and keep draws that satisfy every observed Bellman equation within its tolerance.

    The kernel must be uniform with positive width; fewer than `min_accepted` kept draws raise an error. At most `held`
    numbers are drawn at a time.
    """
    unknown = target.noise_scale is not None
    if unknown or not isinstance(target.kernel, Uniform) or np.any(target.scale[target.observed] <= 0):
        raise UnsupportedError(
            "rejection: only a uniform kernel of known positive width can be sampled by rejection: use the chart engine"
        )
    generator = np.random.default_rng(seed)
    each = -(-draws // REPLICATES)
    replicates = [_replicate(target, each, generator, held) for _ in range(REPLICATES)]
    accepted = sum(len(kept) for kept in replicates)
    if accepted < min_accepted:
        raise UnsupportedError(
            f"rejection: {accepted} of {each * REPLICATES} prior draws satisfy the {int(target.observed.sum())} "
            f"observed equations, fewer than the {min_accepted} an answer needs: use the chart engine or a larger "
            "epsilon"
        )
    return _result(target, replicates, each)


def _replicate(target: Target, draws: int, generator: np.random.Generator, held: int) -> Draws:
    """The draws of one replicate that are kept."""
    own, prior, kept = target.own, target.prior, []
    for part in chunks(draws, len(own), held):
        normal = generator.standard_normal((part.stop - part.start, len(own)))
        theta = np.zeros((len(normal), target.model.n_pairs))
        theta[:, own] = prior.mean[own] + prior.sd[own] * normal
        kept.append(theta[satisfied_equations(target, theta).all(axis=1)])
    return np.concatenate(kept)


def satisfied_equations(target: Target, theta: Draws) -> Bool[np.ndarray, "_ observed"]:
    """Which observed equations each draw satisfies."""
    model, observed = target.model, target.observed
    law = csr_array((model.next_prob, model.next_state, model.next_start), shape=(model.n_pairs, model.n_states + 1))
    ahead = model.best(theta) @ law[np.flatnonzero(observed)].toarray()[:, :-1].T
    return np.abs(theta[:, observed] - ahead - target.reward[observed]) < target.scale[observed]


def _result(target: Target, replicates: list[Draws], each: int) -> Result:
    count = np.array([len(kept) for kept in replicates])
    theta, own = np.concatenate(replicates), target.own
    policy, row = np.unique(target.model.greedy(theta)[:, target.coupled], axis=0, return_inverse=True)
    replicate = np.repeat(np.arange(len(count)), count)
    weight = weights_of(replicate, row.ravel(), np.ones(len(theta)), (len(count), len(policy)))
    mean, square = np.zeros((2, len(count), target.model.n_pairs))
    for k, kept in enumerate(replicates):
        if len(kept):
            mean[k], square[k] = kept.mean(axis=0), kept.var(axis=0) * len(kept)
    q_mean, q_sd = Moments(count.astype(np.float64), mean, square).estimate(target)
    spread = count.std(ddof=1) / np.sqrt(len(count)) / count.mean()
    constant = target.log_constant - float(np.log(2.0 * target.scale[target.observed]).sum())
    draws = each * len(replicates)
    return Result(
        table=PolicyTable(target.coupled, policy, weight, resolution=resolution_of(float(len(theta)))),
        q_mean=q_mean,
        q_sd=q_sd,
        log_evidence=Estimate.of(constant + np.log(count.mean() / each), spread),
        engine="rejection",
        reason=f"asked for: prior draws that satisfy every observed equation; stopped after {draws} of them",
        dimension=len(own),
        effective_sample_size=float(len(theta)),
        diagnostics={"accepted": len(theta), "draws": draws},
    )
