"""What a posterior is made of: widths, masks, constants and the numbers that are refused."""

import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
from open_quadrature import TWO, landed, open_model
from scipy import stats

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.kernels import Gaussian, Laplace, Uniform
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.noise_scale import scale_table
from bellmanifold.posteriors.target import Target, ValuePrior, noisy_target, relaxed_target
from bellmanifold.posteriors.value_prior import LARGEST, check_rewards, check_size
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation


def row():
    """a -> b -> c -> goal; each state can also give up."""
    after = {"a": "b", "b": "c", "c": "goal"}
    moves = {(s, "on"): Move(-1.0, {t: 1.0}) for s, t in after.items()}
    moves |= {(s, "stop"): Move(-3.0, {"goal": 1.0}) for s in after}
    return from_moves("row", moves, start="a")


def seen(*observations):
    return Dataset.from_pairs(row(), observations)


def named(model, states):
    return {model.states[s] for s in np.flatnonzero(states)}


def test_successors_and_coupled_states():
    """Seen: (a, on), which leads to b, and (c, stop), which ends. So b is a successor, and all three are coupled."""
    target = relaxed_target(seen(("a", "on"), ("c", "stop")), 0.1, 1.0)
    assert named(target.model, target.successors) == {"b"}
    assert named(target.model, target.coupled) == {"a", "b", "c"}
    last = relaxed_target(seen(("c", "on")), 0.1, 1.0)
    assert named(last.model, last.successors) == set()
    assert named(last.model, last.coupled) == {"c"}
    assert [last.model.pair_name(i) for i in last.own] == [("c", "on"), ("c", "stop")]


def test_loops_are_those_of_observed_pairs():
    moves = {("s", "stay"): Move(-1.0, {"s": 1.0}), ("s", "go"): Move(-1.0, {"goal": 1.0})}
    model = from_moves("loop", moves, start="s")
    assert relaxed_target(Dataset.from_pairs(model, [("s", "go")]), 0.1, 1.0).loops == []
    (loop,) = relaxed_target(Dataset.complete(model), 0.1, 1.0).loops
    assert loop.pairs.tolist() == [model.pair_index["s", "stay"]]


def test_relaxed_widths_and_kernels():
    target = relaxed_target(seen(("a", "on"), ("a", "on")), 0.25, 2, "uniform")
    index = target.model.pair_index["a", "on"]
    assert target.scale.tolist() == [0.25 if i == index else 0.0 for i in range(6)]
    assert target.reward[index] == -1.0
    assert (target.prior.scale, target.epsilon, target.kernel) == (2.0, 0.25, Uniform())
    assert (target.prior.mean.tolist(), target.prior.sd.tolist()) == ([0.0] * 6, [2.0] * 6)
    assert target.described_kernel == "uniform"
    assert not target.is_exact
    assert not target.is_gaussian
    assert Coordinates(target).tie_width == 0.0


def test_an_exact_posterior_has_no_kernel():
    target = relaxed_target(seen(("a", "on"), ("b", "stop")), 0, 2.0, "uniform")
    assert target.is_exact
    assert target.is_gaussian
    assert target.epsilon == 0.0
    assert Coordinates(target).tie_width == pytest.approx(3e-8), "relative to the largest of the rewards -1 and -3"


def test_ties_of_rewards_that_are_all_nothing_have_a_width_too():
    model = row()
    data = Dataset.from_pairs(model, [("a", "on", 0.0)])
    assert Coordinates(relaxed_target(data, 0.0, 2.0)).tie_width == pytest.approx(1e-8)


def test_one_width_of_zero_does_not_make_it_exact():
    model = row()
    observed, scale = np.array([True, True, False, False, False, False]), np.array([0.0, 0.1, 0, 0, 0, 0])
    target = Target(model, observed, np.zeros(6), scale, ValuePrior.same(model, 1.0))
    assert (target.is_exact, target.proper_only, target.log_constant) == (False, False, 0.0)


def test_repeats_narrow_the_kernel():
    """eta / sqrt(m), around the mean of m rewards; evidence is the joint density of all rewards."""
    data = seen(("a", "on", 1.0), ("a", "on", 2.0), ("a", "on", 4.5), ("c", "stop", -1.0))
    target = noisy_target(data, 0.6, 2.0, Gaussian())
    on, stop = (target.model.pair_index[pair] for pair in (("a", "on"), ("c", "stop")))
    assert target.scale[[on, stop]] == pytest.approx([0.6 / np.sqrt(3.0), 0.6])
    assert np.count_nonzero(target.scale) == 2
    assert target.reward[on] == pytest.approx(2.5)
    assert (target.noise_sd, target.epsilon, target.noise_scale) == (0.6, None, None)
    assert target.is_gaussian
    for g in (0.0, 1.7):
        joint = stats.norm.logpdf([1.0, 2.0, 4.5], g, 0.6).sum()
        assert target.log_constant + stats.norm.logpdf(2.5, g, 0.6 / np.sqrt(3.0)) == pytest.approx(joint)


def test_an_inferred_scale_leaves_relative_widths():
    data = seen(("a", "on", 1.0), ("a", "on", 2.0))
    prior = HalfNormal(1.5)
    target = noisy_target(data, prior, 2.0, Gaussian())
    assert target.scale[target.observed] == pytest.approx([1 / np.sqrt(2.0)])
    assert target.noise_sd is None
    assert target.noise_scale is not None
    assert target.log_constant == target.noise_scale.log_mass == scale_table(data, prior).log_mass
    assert target.described_kernel == "gaussian of inferred width"
    assert not target.is_gaussian


def test_noise_of_other_shapes_needs_pairs_seen_once():
    once, twice = seen(("a", "on", 1.0), ("b", "on", 2.0)), seen(("a", "on", 1.0), ("a", "on", 1.0))
    assert noisy_target(once, 0.5, 2.0, Laplace()).kernel == Laplace()
    assert noisy_target(twice, 0.5, 2.0, Gaussian()).kernel == Gaussian()
    with pytest.raises(UnsupportedError, match="seen once"):
        noisy_target(twice, 0.5, 2.0, Laplace())
    assert not noisy_target(seen(), 0.5, 2.0, Laplace()).observed.any()


def test_rewards_with_sds_of_their_own_need_gaussian_noise():
    """Noise of 0.5 and an sd of 0.25: weighed by precisions of 4 and 16."""
    data = Dataset.from_pairs(row(), [Observation("a", "on", 1.0), Observation("a", "on", 2.0, 0.25)])
    target = noisy_target(data, 0.5, 2.0)
    index = target.model.pair_index["a", "on"]
    assert target.reward[index] == pytest.approx((4.0 * 1.0 + 16.0 * 2.0) / 20.0)
    assert target.scale[index] == pytest.approx(1.0 / np.sqrt(20.0))
    with pytest.raises(
        UnsupportedError, match="rewards with an sd of their own are Gaussian, and laplace noise is not"
    ):
        noisy_target(data, 0.5, 2.0, Laplace())


def test_open_laws_lead_where_they_were_seen_to_or_back():
    """Of four landings three stayed; nobody saw where `leave` led; a problem without open laws stays as it is."""
    model = open_model(["s", "t"], [("s", "go"), ("s", "exit"), ("t", "leave")])
    seen_to = [Observation("s", "go", -1.0, next=name) for name in ("s", "s", "t", "s")]
    whole, laws, no_law = close_laws(
        Dataset.from_pairs(model, [*seen_to, Observation("t", "leave", -1.0)]), "dirichlet", 1.0
    )
    data = Dataset.from_pairs(whole, [Observation("s", "go", -1.0), Observation("t", "leave", -1.0)])
    target = relaxed_target(data, 0.1, 1.0)
    assert target.support is whole
    support = target.with_laws(laws, no_law).support
    rows = [slice(*support.next_start[i : i + 2]) for i in (0, 2)]
    assert [dict(zip(support.next_state[r].tolist(), support.next_prob[r].tolist(), strict=True)) for r in rows] == [
        {0: 0.75, 1: 0.25},
        {1: 1.0},
    ]


@pytest.mark.parametrize("noise", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_has_a_positive_scale(noise):
    with pytest.raises(BadInputError, match="noise_sd"):
        noisy_target(seen(("a", "on")), noise, 2.0, Gaussian())


@pytest.mark.parametrize("epsilon", [-1e-9, float("nan"), float("inf")])
def test_epsilon_is_not_negative(epsilon):
    with pytest.raises(BadInputError, match="epsilon"):
        relaxed_target(seen(("a", "on")), epsilon, 2.0)


@pytest.mark.parametrize("prior_scale", [0.0, -2.0, float("nan"), float("inf")])
def test_the_prior_has_a_positive_scale(prior_scale):
    with pytest.raises(BadInputError, match="prior_scale is"):
        relaxed_target(seen(("a", "on")), 0.1, prior_scale)


@pytest.mark.parametrize(
    ("reward", "epsilon", "prior_scale", "fine"),
    [
        (1.0, 1e-100, 1.0, True),
        (1.0, 1e-101, 1.0, False),
        (1.0, 0.1, 1e100, True),
        (1.0, 0.1, 1.01e100, False),
        (1.0, 0.1, 1e-101, False),
        (-1e100, 0.1, 1.0, True),
        (-1e101, 0.1, 1.0, False),
        (1e-101, 0.1, 1.0, False),
        (0.0, 0.0, 1.0, True),
    ],
)
def test_sizes_that_can_be_squared(reward, epsilon, prior_scale, fine):
    """Every size between 1e-100 and 1e100, ends included, or 0 where that means something."""
    data = seen(("a", "on", reward))
    if fine:
        assert relaxed_target(data, epsilon, prior_scale).observed.sum() == 1
    else:
        with pytest.raises(BadInputError, match="other units"):
            relaxed_target(data, epsilon, prior_scale)


def test_the_smallest_and_the_largest_of_several_sizes():
    """Of priors both ends have to fit, of rewards and means the largest one: small ones beside it are as good as 0."""
    own = ValuePrior(np.array([1e-200, 2.0, -3.0, 0.0, 0.0, 0.0]), np.array([1e-100, 1e100, 1.0, 1.0, 1.0, 1.0]))
    assert relaxed_target(seen(("a", "on", 1e-200), ("b", "on", -1.0)), 0.1, own).prior is own
    for sd in (0.99e-100, 1.01e100):
        with pytest.raises(BadInputError, match=re.escape(f"prior_scale is {sd:g}: it must lie between 1e-100 and")):
            relaxed_target(seen(("a", "on")), 0.1, ValuePrior(np.zeros(6), np.array([1.0, sd, 1.0, 1.0, 1.0, 1.0])))
    with pytest.raises(BadInputError, match=r"the largest reward is -1e\+101"):
        relaxed_target(seen(("a", "on", -1e101), ("b", "on", 1e100)), 0.1, 1.0)


def test_draws_and_sizes_of_a_prior():
    mean, sd = np.array([-3.0, 0.5, 2.0]), np.array([0.25, 4.0, 1.5])
    own = ValuePrior(mean, sd)
    number = np.random.default_rng(5).standard_normal((7, 3))
    np.testing.assert_array_equal(own.draw(np.random.default_rng(5), 7), mean + sd * number)
    np.testing.assert_allclose(own.standardise(own.draw(np.random.default_rng(5), 7)), number, atol=1e-12)
    assert own.likely_size.tolist() == [3.25, 4.5, 3.5]
    assert ValuePrior(mean, sd, flat=True).likely_size.tolist() == [0.0] * 3
    assert own.scale == 4.0


def test_unknown_kernel():
    with pytest.raises(BadInputError, match="choose from gaussian, uniform"):
        inspect.unwrap(relaxed_target)(seen(), 0.1, 1.0, "cauchy")


def test_every_action_value_may_have_its_own_prior():
    """As it was given, for relaxed and noisy rewards; reports name the widest."""
    own = ValuePrior(np.arange(6.0), np.linspace(0.5, 3.0, 6))
    for target in (relaxed_target(seen(("a", "on")), 0.1, own), noisy_target(seen(("a", "on")), 0.1, own)):
        assert target.prior is own
        assert target.prior.scale == 3.0
    np.testing.assert_allclose(own.standardise(own.mean + 2.0 * own.sd), 2.0)


def test_priors_that_differ_couple_a_state():
    """Without data all actions of a state are equally good only if they share a prior."""
    mean = np.zeros(6)
    model = row()
    mean[model.pair_index["c", "stop"]] = 1.0
    target = relaxed_target(seen(("a", "stop")), 0.1, ValuePrior(mean, np.ones(6)))
    assert named(model, target.coupled) == {"a", "c"}
    assert named(model, target.prior.exchangeable(model, np.ones(6, dtype=bool))) == {"a", "b"}
    only_on = np.array([name[1] == "on" for name in map(model.pair_name, range(6))])
    assert target.prior.exchangeable(model, only_on).all(), "one of each state"


@pytest.mark.parametrize(
    ("mean", "sd"), [(np.nan, 1.0), (np.inf, 1.0), (0.0, np.nan), (0.0, np.inf), (0.0, 0.0), (0.0, -1.0)]
)
def test_priors_that_are_none_are_refused(mean, sd):
    """One wrong number among six is enough."""
    with pytest.raises(BadInputError, match="prior: a mean or a standard deviation"):
        ValuePrior(np.array([0.0, mean] * 3), np.array([1.0, sd] * 3))


@pytest.mark.parametrize(("mean", "fine"), [(1e100, True), (-1.01e100, False)])
def test_prior_means_can_be_squared(mean, fine):
    own = ValuePrior(np.full(6, mean), np.ones(6))
    if fine:
        assert relaxed_target(seen(("a", "on")), 0.1, own).prior is own
    else:
        with pytest.raises(BadInputError, match="other units"):
            relaxed_target(seen(("a", "on")), 0.1, own)


def told():
    """Plain and own rewards of one pair, own ones of another, an exact and an own one of a third, and a plain one."""
    observations = [
        Observation("a", "on", 1.0),
        Observation("a", "on", 2.0, 0.25),
        Observation("b", "on", -2.0, 0.5),
        Observation("b", "on", -1.0, 2.0),
        Observation("b", "stop", 0.75, 0.0),
        Observation("b", "stop", 0.5, 0.25),
        Observation("c", "on", -3.0),
    ]
    return Dataset.from_pairs(row(), observations)


def test_sds_of_their_own_beside_a_tolerance():
    """Where a pair has nothing else they say its reward; elsewhere their density is a factor of the evidence."""
    index = row().pair_index
    names = [("a", "on"), ("b", "on"), ("b", "stop"), ("c", "on")]
    target = relaxed_target(told(), 0.3, 2.0)
    precision = 1.0 / 0.5**2 + 1.0 / 2.0**2
    mean = (-2.0 / 0.5**2 - 1.0 / 2.0**2) / precision
    assert [target.reward[index[name]] for name in names] == pytest.approx([1.0, mean, 0.75, -3.0])
    assert [target.scale[index[name]] for name in names] == pytest.approx([0.3, precision**-0.5, 0.3, 0.3])
    assert (np.count_nonzero(target.scale), int(target.observed.sum())) == (4, 4)
    apart = stats.norm.logpdf(2.0, 1.0, 0.25) + stats.norm.logpdf(0.5, 0.75, 0.25)
    for g in (0.0, 1.7):
        joint = stats.norm.logpdf([-2.0, -1.0], g, [0.5, 2.0]).sum()
        around = stats.norm.logpdf(mean, g, precision**-0.5)
        assert target.log_constant == pytest.approx(apart + joint - around)
    with pytest.raises(UnsupportedError, match="rewards with an sd of their own are Gaussian: leave kernel out"):
        relaxed_target(told(), 0.3, 2.0, "uniform")
    beside = Dataset.from_pairs(row(), [Observation("a", "on", 1.0), Observation("a", "on", 2.0, 0.25)])
    assert relaxed_target(beside, 0.3, 2.0, "uniform").kernel == Uniform(), "no equation has their width"
    plain = relaxed_target(seen(("a", "on")), 0.3, 2.0)
    assert (plain.log_constant, plain.proper_only) == (0.0, False)
    given = np.arange(6.0)
    assert relaxed_target(seen(("a", "on")), 0.3, 2.0, reward=given).reward is given


def test_sds_of_their_own_beside_noise():
    """By precision where the noise is known, apart where it is inferred; exact rewards overrule all."""
    index = row().pair_index
    names = [("a", "on"), ("b", "on"), ("b", "stop"), ("c", "on")]
    known = noisy_target(told(), 0.5, 2.0)
    both = 1.0 / 0.5**2 + 1.0 / 0.25**2
    own = 1.0 / 0.5**2 + 1.0 / 2.0**2
    mean = (-2.0 / 0.5**2 - 1.0 / 2.0**2) / own
    rewards = [(1.0 / 0.5**2 + 2.0 / 0.25**2) / both, mean, 0.75, -3.0]
    assert [known.reward[index[name]] for name in names] == pytest.approx(rewards)
    assert [known.scale[index[name]] for name in names] == pytest.approx([both**-0.5, own**-0.5, 0.0, 0.5])
    assert (known.own_precision, known.own_mean, known.noise_scale) == (None, None, None)
    inferred = noisy_target(told(), HalfNormal(0.8), 2.0)
    assert inferred.own_precision.tolist() == told().own_precision.tolist()
    assert inferred.own_mean.tolist() == told().own_mean.tolist()
    assert inferred.noise_sd is None
    assert [inferred.scale[index[name]] for name in names] == [1.0, np.inf, 0.0, 1.0], "relative to eta; own sds apart"
    none = noisy_target(seen(("a", "on", 1.0), ("a", "on", 1.5)), HalfNormal(0.8), 2.0)
    assert (none.own_precision, none.own_mean) == (None, None)
    for sd in (0.0, 0.25):
        with pytest.raises(UnsupportedError, match="laplace noise is not"):
            noisy_target(Dataset.from_pairs(row(), [Observation("a", "on", 1.0, sd)]), 0.5, 2.0, Laplace())


def test_open_laws_tie_nothing_and_couple_everything():
    """The pair that leads somewhere unknown may not tie; laws that no value depends on leave their evidence alone."""
    data = landed(TWO, -1.0, (1, 2, 1))
    whole, learnt, no_law = close_laws(data, "dirichlet")
    rest = Dataset.from_pairs(whole, [Observation("s", "go", -1.0), Observation("t", "leave", -2.0)])
    given = replace(relaxed_target(rest, 0.0, 2.0), log_constant=0.25)
    target = given.with_laws(learnt, no_law)
    go, leave = whole.pair_index["s", "go"], whole.pair_index["t", "leave"]
    assert np.flatnonzero(target.open).tolist() == [go]
    assert np.flatnonzero(target.may_tie).tolist() == [leave]
    assert np.flatnonzero(given.may_tie).tolist() == sorted([go, leave])
    assert not given.open.any()
    assert target.coupled.all()
    assert not target.is_acyclic
    assert target.log_constant == pytest.approx(0.25 + learnt.log_evidence)
    assert (given.with_laws(None, no_law).log_constant, given.with_laws(None, no_law).laws) == (0.25, None)
    unseen = replace(target, observed=np.zeros_like(target.observed))
    assert not unseen.open.any()


def test_loops_of_exact_rewards_hold_nobody():
    """Of two loops without a way out the one with a relaxed reward may pay; a loop needs one such pair only."""
    moves = {("a", "on"): Move(-1.0, {"b": 1.0}), ("b", "back"): Move(-1.0, {"a": 1.0})}
    moves |= {("c", "stay"): Move(-1.0, {"c": 1.0}), ("c", "out"): Move(-1.0, {"a": 0.5, "goal": 0.5})}
    model = from_moves("loops", moves, start="c")
    target = relaxed_target(Dataset.complete(model), 0.5, 2.0)
    index = model.pair_index
    scale = np.zeros(4)
    scale[index["a", "on"]] = 0.5
    partly = replace(target, scale=scale)
    assert (len(target.improper_loops), len(partly.loops)) == (2, 2)
    (loop,) = partly.improper_loops
    assert set(loop.pairs.tolist()) == {index["a", "on"], index["b", "back"]}
    assert not partly.is_exact
    assert Coordinates(partly, cut=(index["a", "on"],)).covers_improper, "nobody lingers at c for ever"
    assert not Coordinates(target, cut=(index["a", "on"],)).covers_improper
    assert not Coordinates(partly).covers_improper, "a loop of which only a part is exact has to be cut, too"


def test_exchangeable_pairs_state_by_state(rng):
    """All pairs of a state that are asked about have one mean and one sd: looked at one by one."""
    moves = {(f"s{s}", f"a{a}"): Move(-1.0, {"goal": 1.0}) for s in range(40) for a in range(1 + s % 4)}
    model = from_moves("many", moves, start="s0")
    mean, sd = (rng.choice([1.0, 2.0], model.n_pairs, p=[0.8, 0.2]) for _ in range(2))
    asked = rng.random(model.n_pairs) < 0.7
    prior = ValuePrior(mean, sd)
    kinds = [{(mean[i], sd[i]) for i in range(*model.pair_start[s : s + 2]) if asked[i]} for s in range(model.n_states)]
    expected = [len(kind) <= 1 for kind in kinds]
    assert prior.exchangeable(model, asked).tolist() == expected
    assert 0 < sum(expected) < 40
    assert min(len(kind) for kind in kinds) == 0, "nothing is asked about some"


def test_sizes_at_the_ends_of_their_range():
    check_size("x", np.array([LARGEST, -1.0]))
    check_size("x", LARGEST**-1)
    check_size("x", np.array([0.0, 0.0]))
    for wrong in (np.nextafter(LARGEST, np.inf), np.nextafter(LARGEST**-1, 0.0)):
        with pytest.raises(BadInputError, match=r"x is .*choose other units"):
            check_size("x", np.array([0.0, wrong]))
    check_rewards(seen(("a", "on", 0.0), ("b", "on", 1e100)))
    with pytest.raises(BadInputError, match=re.escape("observations[1]: reward is -1e+101")):
        check_rewards(seen(("a", "on", 0.0), ("b", "on", -1e101), ("c", "on", 3.0)))


def test_priors_as_options_state_them():
    """One number or one for each pair; single pairs come first; what is no such number is refused."""
    model, sds = row(), np.linspace(0.5, 3.0, 6)
    plain = ValuePrior.stated(model)
    assert (plain.mean.tolist(), plain.sd.tolist(), plain.flat) == ([0.0] * 6, [10.0] * 6, False)
    own = ValuePrior.stated(model, sds, -2.0, {("b", "stop"): (0.25, 0.75)})
    at = model.pair_index["b", "stop"]
    assert own.mean.tolist() == [0.25 if i == at else -2.0 for i in range(6)]
    assert own.sd.tolist() == [0.75 if i == at else sds[i] for i in range(6)]
    flat = ValuePrior.stated(model, "flat", np.arange(6.0))
    assert (flat.flat, flat.mean.tolist(), flat.sd.tolist()) == (True, list(range(6)), [10.0] * 6)
    same = ValuePrior.same(model, 0.5, 3)
    assert (same.mean.tolist(), same.sd.tolist(), same.flat) == ([3.0] * 6, [0.5] * 6, False)
    for wrong, message in (
        ({"scale": np.ones(5)}, "prior_scale has 5 numbers: give one, or one for each of 6 pairs"),
        ({"scale": np.array([1.0, 0.0, 1.0, 1.0, 1.0, 1.0])}, "prior_scale is 0.0: give a positive number"),
        ({"scale": np.inf}, "prior_scale is inf: give a positive number"),
        ({"scale": -0.5}, "prior_scale is -0.5: give a positive number"),
        ({"mean": np.array([1.0, 2.0, np.nan, 1.0, 1.0, 1.0])}, "prior_mean is nan: give a finite number"),
        ({"pairs": {("b", "stop"): (0.0, 0.0)}}, 'prior: the sd of ("b", "stop") is 0.0: give a positive number'),
        ({"pairs": {("b", "stop"): (0.0, np.inf)}}, 'prior: the sd of ("b", "stop") is inf: give a positive number'),
    ):
        with pytest.raises(BadInputError, match=re.escape(message)):
            ValuePrior.stated(model, **wrong)
