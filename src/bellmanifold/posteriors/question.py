"""From the arguments of a call to the posterior that they specify.

Beliefs become observations, rewards are restated in the problem with a law for every pair, and a likelihood is chosen:
relaxed for rewards without noise, Gaussian with sufficient means, or one with a factor for every visit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool

from bellmanifold._util.options import KernelName
from bellmanifold.errors import BadInputError, UnsupportedError, count_of, quote, require_kind
from bellmanifold.posteriors.kernels import Gaussian, Kernel, named_kernel
from bellmanifold.posteriors.noise import HalfNormal, InferredScale, KnownScale, NoiseModel
from bellmanifold.posteriors.noise_scale import LogPrior
from bellmanifold.posteriors.target import EveryVisit, Target, noisy_target, relaxed_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import require_belief
from bellmanifold.problem.ssp import SSP


def stated_target(
    data: Dataset,
    values: ValuePrior,
    proper_only: bool,
    epsilon: float | int | None,
    kernel: KernelName,
    noise: str | Kernel,
    scale: float | int | LogPrior | None,
) -> Target:
    """The posterior with the likelihood that the arguments of `bellmanifold.posterior` specify.

    `scale` is the scale of the noise, or the log density of a prior over it; None for rewards without noise.
    """
    if scale is None:
        if noise != "gaussian":
            raise BadInputError("noise without its scale: give --noise-sd or --infer-noise too")
        return relaxed_target(data, epsilon or 0.0, values, kernel, proper_only)
    if epsilon is not None or kernel != "gaussian":
        raise BadInputError("epsilon and kernel relax deterministic rewards: leave them out where rewards are noisy")
    shape = named_kernel(noise) if isinstance(noise, str) else noise
    has_mean = isinstance(shape, Gaussian) or data.count.max(initial=0) <= 1
    return (noisy_target if has_mean else every_visit_target)(data, scale, values, shape, proper_only)


def every_visit_target(
    data: Dataset,
    noise: float | int | LogPrior,
    prior_scale: float | int | ValuePrior,
    kernel: Kernel,
    proper_only: bool = False,
) -> Target:
    """The posterior for noise under which the mean of repeats is not sufficient; arguments as for `noisy_target`."""
    if data.own_count.any() or data.exact.any():
        raise UnsupportedError(
            f"rewards with an sd of their own are Gaussian, and {kernel} noise is not: use gaussian noise"
        )
    if isinstance(noise, HalfNormal):
        model: NoiseModel = InferredScale(noise, kernel)
    elif callable(noise):
        raise UnsupportedError(
            f"repeats under {kernel} noise do not take a prior of your own over its scale: use "
            "bellmanifold_paper.sample_chains with a "
            "noise model"
        )
    else:
        model = KnownScale(float(noise), kernel)
    by_mean = noisy_target(data, noise, prior_scale, proper_only=proper_only)
    return replace(by_mean, kernel=kernel, noise_scale=None, log_constant=0.0, every_visit=EveryVisit(data, model))


def inferred_noise(prior: bool | LogPrior, noise_sd: float | int | None) -> LogPrior:
    """The prior over an inferred noise scale; a known one must not be given, too."""
    if prior is not True and not callable(prior):
        raise BadInputError(f"infer_noise is {prior!r:.40}: give True or a log density; noise_sd is a known scale")
    if noise_sd is not None:
        raise BadInputError("noise_sd is given, so there is no noise to infer: leave one of the two out")
    return HalfNormal() if prior is True else prior


def with_belief(data: Dataset, reward_belief: Any, cost_belief: Any = None) -> Dataset:
    """The data with a belief about every reward, stated as one of rewards or of costs."""
    if reward_belief is not None and cost_belief is not None:
        raise BadInputError(
            "reward_belief and --cost-belief say the same with opposite signs: leave one of the two out"
        )
    name, belief = ("reward_belief", reward_belief) if cost_belief is None else ("cost_belief", cost_belief)
    remedy = "give (mean, sd), two numbers"
    require_kind(belief, (tuple, list), name, remedy)
    if len(belief) != 2:
        raise BadInputError(f"{name} has {count_of(len(belief), 'number')}: {remedy}")
    mean, sd = belief
    try:
        require_belief(mean, sd)
        costs = data.model.metadata.get("costs")
        if cost_belief is not None and mean < 0 and isinstance(costs, Mapping) and not costs.get("gains"):
            raise BadInputError(
                f"mean is {mean:g}: costs are positive: drop the minus, or use --reward-belief if moves pay"
            )
        return data.with_belief(mean if cost_belief is None else -mean, sd)
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from None


def rewards_in(whole: SSP, data: Dataset, no_law: Bool[np.ndarray, "pairs"]) -> Dataset:
    """The rewards as observations of the problem with a law for every pair; landings have been used by then."""
    landing = np.where(no_law[data.pair], -1, data.next)
    paid = ~np.isnan(data.reward)
    return Dataset(whole, data.pair[paid], data.reward[paid], data.sd[paid], landing[paid], left_out=data.left_out)


def check_flat(data: Dataset, proper_only: bool | None) -> None:
    """Refuse a flat prior if some action value would have no prior at all, or if improper policies are requested."""
    if data.free.any():
        pair = ", ".join(quote(name) for name in data.model.pair_name(int(np.argmax(data.free))))
        raise BadInputError(
            f"prior_scale is flat, but nothing is known about the reward of pair ({pair}), so its value would have "
            "no prior: give it an observation or a belief, or a number as --prior-scale"
        )
    if proper_only is False:
        raise BadInputError("prior_scale is flat, which covers proper policies only: leave --proper-only out")
