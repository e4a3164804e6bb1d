"""Where one trial has a value in closed form, how noisy it is, and what that value is.

The closed form (`bellmanifold.decisions.sample_information`) needs rewards that are Gaussian given the data, and laws
that are known: beliefs and trials with known standard deviations under a prior that is flat over rewards. Elsewhere
`why_not` names what is missing, and only the value of knowing all of Q(s, a) can be computed.

*The noise of a trial* is what the posterior would take it to be: `trial_sd` if that is given; else the sd of the pair's
last trial; for a pair that was never tried, the noise common to all rewards, or the median sd of the trials of other
pairs. A reward without any sd counts as exact, and so does a trial of a pair if no trial had one.

*Loops that pay* are left out of the posterior, and the closed form knows this only of the means. So it is used if
loops pay in at most MOST_IMPROPER of some draws of the Gaussian; its error is of the order of that share (on the road
map of the guide, two-way roads pay as loops in 1.2% of draws; without these, gains change by 0.2% of the largest). No
trial is worth more than the expected loss. A gain above it is due to rewards so rare that no draw met them, under which
some loop that is hardly ever left nearly pays, and is not believed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bellmanifold.decisions.sample_information import trial_gains
from bellmanifold.decisions.valuation import Planner
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.kernels import Gaussian
from bellmanifold.posteriors.target import Target
from bellmanifold.problem.dataset import Dataset

MOST_IMPROPER = 0.02
"""Largest share of draws in which a loop pays."""
DRAWS = 256
"""Number of draws for this share."""
ERRORS = 5.0
"""A gain this many standard errors above the expected loss is not believed."""

PerPair = Float[np.ndarray, "pairs"]


@dataclass(frozen=True, eq=False)
class OneTrial:
    """What one trial of each pair would save.

    Attributes:
        sd: noise of a trial, 0 for an exact one, shape (pairs,).
        gain: what it would save, shape (pairs,); None if that is not known.
        why_not: why it is not known.
    """

    sd: PerPair
    gain: PerPair | None
    why_not: str = ""


def one_trial(target: Target, planner: Planner, loss: Estimate, sd: PerPair, seed: int) -> OneTrial:
    """What one trial of each pair would save, given the expected loss of stopping."""
    reason = why_not(target)
    if reason:
        return OneTrial(sd, None, reason)
    if target.improper_loops:
        normals = np.random.default_rng([seed, 2]).standard_normal((target.model.n_pairs, DRAWS))
        share = 1.0 - float(planner.solvable(target.reward[:, None] + target.scale[:, None] * normals).mean())
        if share > MOST_IMPROPER:
            return OneTrial(sd, None, f"some loop pays with probability {share:.2g}")
    try:
        gain = trial_gains(target.model, target.reward, target.scale**2, sd)
    except UnsupportedError as refusal:
        return OneTrial(sd, None, str(refusal))
    if not gain.max(initial=0.0) <= float(loss.value) + ERRORS * float(loss.se):
        return OneTrial(
            sd, None, "rewards too rare to be drawn would decide it, as some loop that is hardly left may pay"
        )
    return OneTrial(sd, gain)


def why_not(target: Target) -> str:
    """Why one trial has no closed form; empty if it has one."""
    if target.laws is not None:
        return "laws are learnt"
    if target.costs_only:
        return "rewards are truncated at 0"
    if not target.prior.flat:
        return "the prior is over action values, not over rewards"
    if target.noise_scale is not None:
        return "the noise is inferred"
    if not isinstance(target.kernel, Gaussian) or target.every_visit is not None:
        return "the noise is not Gaussian"
    return "a tolerance is no noise" if target.epsilon else ""


def trial_noise(data: Dataset, noise_sd: float | None, trial_sd: float | int | None = None) -> PerPair:
    """The sd of the next trial of every pair: `trial_sd`, or what the data and the noise of all rewards say.

    >>> from bellmanifold import Observation, envs
    >>> drive, belief = Observation("s1", "go", -1.0, 0.5, "goal"), Observation("s1", "stay", -1.0, 2.0)
    >>> data = Dataset.from_pairs(envs.two_state(), [drive, belief])
    >>> trial_noise(data, None), trial_noise(data, None, 3.0), trial_noise(Dataset.from_pairs(data.model, []), 0.1)
    (array([0.5, 0.5]), array([3., 3.]), array([0.1, 0.1]))
    """
    if trial_sd is not None:
        return np.full(data.model.n_pairs, float(trial_sd))
    common = 0.0 if noise_sd is None else noise_sd
    is_trial = ~((data.sd > 0) & (data.next < 0)) & ~np.isnan(data.reward)
    own = np.where(np.isnan(data.sd), common, data.sd)[is_trial]
    usual = float(np.median(own)) if noise_sd is None and len(own) else common
    found = np.full(data.model.n_pairs, usual)
    found[data.pair[is_trial]] = own  # of several, the last
    return found


def check_trial_sd(trial_sd: float | int | None) -> None:
    """Raise unless this is None or the noise of a trial."""
    if trial_sd is not None and not (np.isfinite(trial_sd) and trial_sd >= 0):
        raise BadInputError(f"trial_sd is {trial_sd}: give a number that is not negative (0 for an exact trial)")
