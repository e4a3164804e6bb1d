"""From options to a posterior: beliefs, rewards without landings, likelihoods, and what does not go together."""

import inspect

import numpy as np
import pytest
from open_quadrature import TWO

from bellmanifold import envs
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.kernels import Gaussian, Laplace, StudentT, Uniform
from bellmanifold.posteriors.noise import HalfNormal, InferredScale, KnownScale
from bellmanifold.posteriors.question import (
    check_flat,
    every_visit_target,
    inferred_noise,
    rewards_in,
    stated_target,
    with_belief,
)
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

MODEL = envs.two_state()
PRIOR = ValuePrior.same(MODEL, 2.0)


def seen(*observations):
    return Dataset.from_pairs(MODEL, observations)


def own_log_prior(eta):
    """A prior of a user over the noise scale."""
    return -np.abs(eta)


def test_likelihoods_that_options_state():
    """Exact without a tolerance, relaxed with one, noisy with a scale; each visit counts where the mean does not."""
    twice = seen(("s1", "stay", -1.0), ("s1", "stay", -1.0), ("s1", "go", -2.0))
    exact = stated_target(twice, PRIOR, True, None, "gaussian", "gaussian", None)
    assert (exact.epsilon, exact.is_exact, exact.proper_only, exact.prior is PRIOR) == (0.0, True, True, True)
    relaxed = stated_target(twice, PRIOR, False, 0.25, "uniform", "gaussian", None)
    assert (relaxed.epsilon, relaxed.kernel, relaxed.proper_only) == (0.25, Uniform(), False)
    noisy = stated_target(twice, PRIOR, True, None, "gaussian", "gaussian", 0.5)
    assert (noisy.noise_sd, noisy.kernel, noisy.every_visit, noisy.proper_only) == (0.5, Gaussian(), None, True)
    once = stated_target(seen(("s1", "go", -2.0)), PRIOR, False, None, "gaussian", "laplace", 0.5)
    assert (once.kernel, once.every_visit) == (Laplace(), None)
    every = stated_target(twice, PRIOR, True, None, "gaussian", StudentT(3.0), 0.5)
    assert (every.every_visit.noise, every.every_visit.data is twice) == (KnownScale(0.5, StudentT(3.0)), True)
    assert (every.kernel, every.noise_scale, every.log_constant, every.proper_only) == (StudentT(3.0), None, 0.0, True)
    nothing = stated_target(seen(), PRIOR, False, None, "gaussian", "laplace", 0.5)
    assert nothing.every_visit is None
    for wrong in ((None, "gaussian", "laplace", None), (None, "gaussian", Laplace(), None)):
        with pytest.raises(BadInputError, match="noise without its scale"):
            stated_target(twice, PRIOR, False, *wrong)
    for wrong in ((0.0, "gaussian", "gaussian", 0.5), (None, "uniform", "gaussian", 0.5)):
        with pytest.raises(BadInputError, match="leave them out where rewards are noisy"):
            stated_target(twice, PRIOR, False, *wrong)


def test_every_visit_counts_under_noise_of_known_or_half_normal_scale():
    twice = seen(("s1", "stay", -1.0), ("s1", "stay", -1.5))
    inferred = every_visit_target(twice, HalfNormal(0.3), PRIOR, Laplace())
    assert inferred.every_visit.noise == InferredScale(HalfNormal(0.3), Laplace())
    assert (inferred.noise_scale, inferred.log_constant, inferred.proper_only) == (None, 0.0, False)
    assert every_visit_target(twice, 1, PRIOR, Laplace(), True).proper_only
    with pytest.raises(UnsupportedError, match="a prior of your own over its scale"):
        inspect.unwrap(every_visit_target)(twice, own_log_prior, PRIOR, Laplace())
    for sd in (0.0, 0.5):
        own = seen(("s1", "stay", -1.0), ("s1", "stay", -1.5), Observation("s1", "go", -1.0, sd))
        with pytest.raises(UnsupportedError, match="rewards with an sd of their own are Gaussian, and laplace"):
            every_visit_target(own, 0.5, PRIOR, Laplace())


def test_noise_is_inferred_with_a_prior_or_known():
    assert inferred_noise(True, None) == HalfNormal()
    assert inferred_noise(own_log_prior, None) is own_log_prior
    for wrong in (1, 0.5, "yes"):
        with pytest.raises(BadInputError, match=r"infer_noise is .*: give True or a log density"):
            inspect.unwrap(inferred_noise)(wrong, None)
    for prior in (True, own_log_prior):
        with pytest.raises(BadInputError, match="leave one of the two out"):
            inferred_noise(prior, 0.5)


def test_beliefs_are_a_mean_and_an_sd():
    data = seen(("s1", "go", -2.0))
    told = with_belief(data, [-1.0, 0.5])
    assert (told.own_mean.tolist(), told.own_precision.tolist()) == ([-1.0, -1.0], [4.0, 4.0])
    assert told.count.tolist() == data.count.tolist()
    assert with_belief(data, (-1.0, 0.5)).own_mean.tolist() == [-1.0, -1.0]
    for wrong, message in (
        ((1.0,), "reward_belief has 1 number: give .mean, sd., two numbers"),
        ((1.0, 2.0, 3.0), "reward_belief has 3 numbers: give .mean, sd., two numbers"),
        ((1.0, 0.0), "reward_belief: sd is 0.0: give a positive number"),
        ("-1", "reward_belief .*give .mean, sd., two numbers"),
    ):
        with pytest.raises(BadInputError, match=message):
            with_belief(data, wrong)


def test_rewards_of_a_problem_with_a_law_for_every_pair():
    """Landings without a reward are left out; where a pair has no law its landing goes, reward and sd stay."""
    told = [
        Observation("s", "go", -1.0, next="t"),
        Observation("s", "go", next="s"),
        Observation("t", "leave", -2.0, 0.5, next="goal"),
    ]
    data = Dataset.from_pairs(TWO, told)
    none, leaves = np.zeros(3, dtype=bool), np.array([name[1] == "leave" for name in map(TWO.pair_name, range(3))])
    kept, gone = (rewards_in(TWO, data, no_law) for no_law in (none, leaves))
    for found in (kept, gone):
        assert found.pair.tolist() == data.pair[[0, 2]].tolist()
        assert found.reward.tolist() == [-1.0, -2.0]
        np.testing.assert_array_equal(found.sd, [np.nan, 0.5])
    assert kept.next.tolist() == data.next[[0, 2]].tolist()
    assert gone.next.tolist() == [data.next[0], -1]


def test_flat_priors_need_something_of_every_reward():
    """The first pair of which nothing is known is named; improper policies have no place under such a prior."""
    complete, partly = Dataset.complete(MODEL), seen(("s1", "stay", -1.0))
    for proper_only in (None, True):
        check_flat(complete, proper_only)
        with pytest.raises(BadInputError, match=r"nothing is known about the reward of pair \(\"s1\", \"go\"\)"):
            check_flat(partly, proper_only)
    with pytest.raises(BadInputError, match="is flat, which covers proper policies only: leave proper_only out"):
        check_flat(complete, False)
