"""Which rewards and priors contradict each other, against the rule written out pair by pair."""

import numpy as np
import pytest

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.contradictions import among_rewards, with_prior
from bellmanifold.posteriors.target import ValuePrior, relaxed_target
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

MODEL = from_moves("bandit", {("s", name): Move(-1.0, {"goal": 1.0}) for name in "abc"}, start="s")


def rewards(**by_action):
    """A data set of rewards with sds: action -> (reward, sd) of each observation, or one without an sd."""
    told = [(action, paid) for action, several in by_action.items() for paid in several]
    return Dataset.from_pairs(
        MODEL,
        [
            Observation("s", action, paid[0], sd=paid[1]) if isinstance(paid, tuple) else Observation("s", action, paid)
            for action, paid in told
        ],
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": [(0.0, 1.0), (7.0, 1.0)]}, ""),
        ({"a": [(0.0, 1.0), (7.1, 1.0)]}, '("s", "a")'),
        ({"a": [(2.0, 0.5), (5.5, 0.5)]}, ""),
        ({"b": [(2.0, 0.5), (5.6, 0.5)]}, '("s", "b")'),
        ({"a": [(0.0, 1.0), (7.1, 1.0)], "c": [(0.0, 1.0), (-8.0, 1.0)]}, '("s", "c") and of 1 more'),
        ({"a": [(0.0, 1.0), (6.0, 1.0)], "b": [(3.0, 1.0), (-3.0, 1.0)]}, '("s", "a") and of 1 more'),
        ({"a": [(0.0, 1.0), (5.3, 1.0)], "b": [(3.0, 1.0), (-2.3, 1.0)]}, ""),
        ({"a": [(0.0, 1.0), (6.5, 1.0)], "b": [(3.0, 1.0), (-3.5, 1.0)], "c": [(0.0, 1.0), (0.1, 1.0)]}, "of 1 more"),
    ],
)
def test_rewards_many_sds_apart(given, said):
    """Two of a pair: half the squared gap against (4 + 1)^2; two pairs: the sum against (4 + sqrt 2)^2 = 29.3."""
    found = among_rewards(rewards(**given), noiseless=True)
    assert said in found if said else found == ""


@pytest.mark.parametrize(("gap", "said"), [(4.9, False), (5.1, True)])
def test_rewards_without_noise_overrule_beliefs(gap, said):
    """A belief of sd 2 is one degree of freedom beside a reward that is exact; beside a noisy one it is none."""
    data = rewards(a=[(1.0, 2.0), 1.0 + 2.0 * gap])
    assert bool(among_rewards(data, noiseless=True)) == said
    assert among_rewards(data, noiseless=False) == ""
    exact = rewards(a=[(1.0, 2.0), (1.0 + 2.0 * gap, 0.0)])
    assert bool(among_rewards(exact, noiseless=False)) == said


def test_many_rewards_that_are_a_little_too_far_apart_are_no_contradiction():
    """Twenty gaps of g sds: 10 g^2 against 4 times 20 where that is more than (4 + sqrt 20)^2 = 71.8."""
    several = [(float(k % 2), 1.0) for k in range(41)]
    near, far = ([(gap * paid, sd) for paid, sd in several] for gap in (2.6, 4.1))
    assert among_rewards(rewards(a=near), noiseless=True) == ""
    assert "check their signs" in among_rewards(rewards(a=far), noiseless=True)


@pytest.mark.parametrize(("value", "said"), [(-7.0, False), (-7.1, True), (9.0, False), (9.1, True)])
def test_values_many_prior_sds_from_their_mean(value, said):
    """A mean of 1 and an sd of 2: four of them reach from -7 to 9; of pairs that were seen only."""
    prior = ValuePrior(np.array([1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0]))
    target = relaxed_target(rewards(a=[1.0], b=[2.0]), 0.1, prior)
    found = with_prior(target, np.array([value, 3.0, 1e6]))
    assert bool(found) == said
    flat = relaxed_target(rewards(a=[1.0], b=[2.0]), 0.1, ValuePrior(prior.mean, prior.sd, flat=True))
    assert with_prior(flat, np.array([value, 3.0, 1e6])) == ""
    nothing = relaxed_target(rewards(), 0.1, prior)
    assert with_prior(nothing, np.array([value, 3.0, 1e6])) == ""


def test_what_is_said_of_a_prior_that_is_contradicted():
    """The pair that is furthest away, in how many sds; and numbers that would do: the median, and the largest gap."""
    prior = ValuePrior(np.array([1.0, 1.0, 1.0]), np.array([2.0, 0.5, 2.0]))
    target = relaxed_target(rewards(a=[1.0], b=[2.0], c=[1.0]), 0.1, prior)
    found = with_prior(target, np.array([-9.5, 6.0, 20.0]))
    assert 'the value of ("s", "b") is about 6, 10 prior standard deviations from its prior mean 1' in found
    assert "--prior-mean 6 --prior-scale 16 would fit" in found
    assert "--prior-scale 7 would fit" in with_prior(target, np.array([7.0, 6.0, 8.0]))
