"""Costs only: no move pays.

Where rewards are known by beliefs and noisy trials, and the prior is flat over rewards, what the moves pay is
independent given the data: payment_i ~ N(reward_i, scale_i^2), restricted to proper policies. A belief of -5 +- 2 gives
a payment above 0 a chance of 0.6%, and among a hundred moves there is nearly always one. Where moves are random, a loop
of such moves may pay, and is left in the end: a few draws then have values without bounds
(`bellmanifold.posteriors.tails`).

With `costs_only` payments above 0 are excluded: the posterior is conditioned on the box payment <= 0. Independent
normals stay independent in a box, so each is a truncated normal, drawn by its quantile function. With a standard normal
x and c = -reward / scale,

    payment = reward + scale y,    Phi(y) = Phi(x) Phi(c),

and the weight of every point stays the same. For x > 0 the upper tail is used, Phi(-y) = Phi(-x) + Phi(x) Phi(-c), as 1
less a small number has no digits. Every loop then costs with probability 1, so every point has a solution, and every
value is finite: it is at most 0, and at least what any proper policy pays.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Bool, Float

from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.posteriors.kernels import Gaussian
from bellmanifold.posteriors.target import Target
from bellmanifold.problem.costs import cost_unit, signed, worded

LOWEST = -6.0
"""A payment that is at most 0 with a smaller probability than Phi(LOWEST), 1e-9, contradicts the option."""


def without_payments(target: Target) -> Target:
    """The same posterior without payments above 0.

    Raises:
        BadInputError: if a reward is above 0 for certain, or all but.
        UnsupportedError: if payments are not independent normals.
    """
    costs, pays = cost_unit(target.model), target.exact & (target.reward > 0)
    if pays.any():
        pair, reward = _first(target, pays)
        told = f"the reward of pair ({pair}) is {signed(reward, costs):g}, and --costs-only says that no move pays: "
        raise BadInputError(worded(told + "leave --costs-only out, or write the cost as a negative reward", costs))
    if not target.prior.flat:
        raise UnsupportedError(
            "--costs-only needs a prior that is flat over rewards: use --prior-scale flat or --cost-belief, so that "
            "something is known about every reward"
        )
    fault = _fault(target)
    if fault:
        raise UnsupportedError(f"--costs-only takes beliefs and gaussian noise of known scale, {fault}")
    never = ceiling(target) < LOWEST
    if never.any():
        pair, reward = _first(target, never)
        told = f"what is known about the reward of pair ({pair}), {signed(reward, costs):g} with sd "
        told += f"{float(target.scale[never][0]):g}, leaves nothing at or below 0: leave --costs-only out, or write "
        told += "costs as negative rewards (--cost-belief takes positive costs)"
        raise BadInputError(worded(told, costs))
    return replace(target, costs_only=True)


def _fault(target: Target) -> str:
    """Why payments are not independent normals; empty if they are."""
    if target.laws is not None:
        return "and given transition laws: leave out --laws dirichlet, or --costs-only"
    if target.noise_scale is not None:
        return "and here it is inferred: give --noise-sd"
    if target.every_visit is not None or not isinstance(target.kernel, Gaussian):
        return f"not {target.kernel} noise: use gaussian noise"
    if target.epsilon:
        return "no tolerance: leave --epsilon out, or give --noise-sd"
    return ""


def _first(target: Target, pairs: Bool[np.ndarray, "pairs"]) -> tuple[str, float]:
    """Name and reward of the first of some pairs."""
    pair = int(np.argmax(pairs))
    return ", ".join(quote(name) for name in target.model.pair_name(pair)), float(target.reward[pair])


def check_batch(target: Target, why: str) -> None:
    """Refuse problems that are too large for batches, whose chains do not truncate payments."""
    if target.costs_only:
        raise UnsupportedError(f"{why}, and --costs-only needs large batches: leave it out, or use a smaller problem")


def ceiling(target: Target) -> Float[np.ndarray, "pairs"]:
    """The largest residual of each pair that does not pay; infinite for exact rewards."""
    uncertain = target.observed & (target.scale > 0)
    return np.where(uncertain, -target.reward / np.where(uncertain, target.scale, 1.0), np.inf)


def below(x: Float[Array, "pairs batch"], most: Float[Array, "pairs 1"]) -> Float[Array, "pairs batch"]:
    """Normal numbers truncated at `most`, increasing functions of standard normal ones."""
    lower = ndtri(jnp.maximum(ndtr(x) * ndtr(most), 1e-300))
    upper = -ndtri(jnp.maximum(ndtr(-x) + ndtr(x) * ndtr(-most), 1e-300))
    return jnp.where(jnp.isfinite(most), jnp.minimum(jnp.where(x > 0, upper, lower), most), x)
