"""The weight of a point against its formula, written out with dense matrices and one point at a time."""

from dataclasses import replace
from itertools import chain, combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from open_quadrature import TWO, landed
from plain_chart import PlainChart
from scipy import integrate, stats
from wandering import SEEN, own_priors, shared_pair, two_rings, wandering

from bellmanifold._util.jax_setup import random_key
from bellmanifold.chart.arrangement import padded_successors
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.coordinates import Coordinates, Loop
from bellmanifold.posteriors.cut_weight import _CutBlock, _log_acyclic, _log_determinants
from bellmanifold.posteriors.cuts import covering
from bellmanifold.posteriors.kernels import Gaussian, Laplace, StudentT
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.system import (
    Point,
    from_normals,
    member_means,
    member_moments,
    normal_point,
    system_of,
)
from bellmanifold.posteriors.target import ValuePrior, noisy_target, relaxed_target
from bellmanifold.posteriors.weight import (
    log_mixture,
    lower_exits,
    propose,
    weigh,
    weigh_normals,
)
from bellmanifold.problem.dataset import Dataset

BATCH = 40
PRIORS = pytest.mark.parametrize("own", [False, True], ids=["shared prior", "prior of each pair"])


def prior_of(model, own, scale=2.5):
    """One scale for all, or another mean and standard deviation for each pair."""
    return own_priors(model) if own else scale


def normals(coordinates, rng, batch=BATCH):
    """Standard normal coordinates of each pair, shape (pairs, batch), and of the noise scale."""
    return rng.normal(size=(coordinates.target.model.n_pairs, batch)), rng.normal(size=(coordinates.scales, batch))


def as_point(x, z=None):
    """Coordinates of pairs and of the noise scale; no coins."""
    z = np.zeros((0, x.shape[1])) if z is None else z
    return Point(jnp.asarray(x), jnp.asarray(z), jnp.zeros((0, x.shape[1])))


def systems(coordinates):
    return system_of(coordinates, batch_chart(coordinates.target.model))


def residuals(model, q):
    """g_i(q) = q_i - sum p(s'|i) max_a q(s', a)."""
    return q - (model.backup(np.maximum.reduceat(q, model.pair_start[:-1])) - model.reward)


def density(target, q):
    """Log prior density of each pair's value."""
    return stats.norm.logpdf(q, target.prior.mean, target.prior.sd)


def plain_values(coordinates, x, width):
    """Action values, log-determinant and whether they exist at one point; pairs without a coordinate are never best."""
    target, solved = coordinates.target, coordinates.solved
    payment = target.reward + width * np.asarray(target.kernel.from_normal(jnp.asarray(x)))
    idle = ~target.coupled[target.model.pair_state]
    value = np.where(coordinates.free | idle, target.prior.mean + target.prior.sd * x, -np.inf)
    point = PlainChart(target.model, solved).solve(payment, value)
    return point.q, point.log_det, point.policy is not None


@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_one_of_several_given_the_largest(rng, mean):
    """Pairs that stand for two: as a cut-off normal of their prior, by SciPy. Others are what they are."""
    model = wandering()
    target = relaxed_target(Dataset.from_pairs(model, SEEN), 0.3, ValuePrior.same(model, 2.5, mean))
    q = mean + rng.normal(size=(model.n_pairs, 5)) * 2.5
    system = systems(Coordinates(target))
    first, variance = (np.asarray(m) for m in member_moments(system, jnp.asarray(q)))
    np.testing.assert_allclose(jax.jit(member_means)(system, jnp.asarray(q)), first, rtol=1e-14)
    shared = model.pair_index["b", "x"]
    below = stats.truncnorm(-np.inf, (q[shared] - mean) / 2.5, loc=mean, scale=2.5)
    np.testing.assert_allclose(first[shared], (q[shared] + below.mean()) / 2, rtol=1e-7)
    second = (q[shared] ** 2 + below.moment(2)) / 2
    np.testing.assert_allclose(variance[shared] + first[shared] ** 2, second, rtol=1e-7)
    for pair in (("a", "go"), ("c", "out")):
        i = model.pair_index[pair]
        np.testing.assert_array_equal(first[i], q[i])
        np.testing.assert_array_equal(variance[i], 0.0)


def bandits(states):
    """So many states with two actions each."""
    moves = {(f"s{k:02}", action): Move(-1.0, {"goal": 1.0}) for k in range(states) for action in "ab"}
    return from_moves("bandits", moves, start="s00")


def test_policies_have_numbers_until_there_are_too_many():
    """2^62 of them have, and no more."""
    few, many = (batch_chart(bandits(states)) for states in (62, 63))
    assert few.mixer.tolist() == [2**k for k in range(62)]
    hashes = many.mixer
    assert (hashes % 2 == 1).all()
    assert (hashes > 2**32).all()
    assert len(np.unique(hashes)) == 63


def test_choices_are_pairs_of_the_problems_states():
    """Actions of sorted states become pairs in the order of the problem's states, for one choice and for several."""
    model = wandering()
    chart = batch_chart(model)
    for played in ({"a": "jump", "b": "x", "c": "out", "far": "y"}, {"a": "go", "b": "y", "c": "in", "far": "x"}):
        slots = {s: model.pair_index[s, played[s]] - int(model.pair_start[k]) for k, s in enumerate(model.states)}
        choice = np.array([slots[model.states[s]] for s in chart.layout.state.tolist()])
        assert [model.pair_name(int(i)) for i in chart.pairs(choice)] == [(s, played[s]) for s in model.states]
        np.testing.assert_array_equal(chart.pairs(np.stack([choice] * 2, axis=1)).T, [chart.pairs(choice)] * 2)


def test_states_that_no_data_touch_do_not_make_points_unsolvable():
    """Not even in one block with those that are touched: here two states without chance lead to each other."""
    moves = {(state, "on"): Move(-1.0, {after: 1.0}) for state, after in (("a", "b"), ("b", "a"))}
    moves |= {(state, "out"): Move(-1.0, {"goal": 1.0}) for state in "ab"}
    model = from_moves("half seen", moves, start="a")
    target = relaxed_target(Dataset.from_pairs(model, [("a", "out")]), 0.5, 2.0)
    system = systems(Coordinates(target))
    assert (target.coupled.tolist(), len(system.layout.blocks)) == ([True, False], 1)
    weighed = propose(system, random_key(0), 8)
    out = weighed.q[model.pair_index["a", "out"]]
    np.testing.assert_allclose(weighed.log_weight, stats.norm.logpdf(out, scale=2.0))


@PRIORS
def test_weight_is_prior_density_over_determinant(rng, own):
    """w = prod N(theta_i; mean_i, sd_i^2) / |det A|, times what makes a kernel of the images of normal numbers."""
    kernel, model = StudentT(3.0), wandering()
    target = noisy_target(Dataset.from_pairs(model, SEEN), 0.6, prior_of(model, own), kernel)
    coordinates = Coordinates(target)
    x, z = normals(coordinates, rng)
    weighed = weigh(systems(coordinates), as_point(x, z))
    with_value = coordinates.free | coordinates.solved
    for k in range(BATCH):
        q, log_det, solvable = plain_values(coordinates, x[:, k], target.scale)
        assert solvable
        np.testing.assert_allclose(weighed.q[with_value, k], q[with_value], atol=1e-10)
        assert np.isneginf(weighed.q[model.pair_index["b", "y"], k]) != own
        seen = target.observed
        correction = np.asarray(kernel.log_correction(kernel.from_normal(jnp.asarray(x[seen, k])))).sum()
        expected = density(target, q)[seen].sum() - log_det + correction
        assert weighed.log_weight[k] == pytest.approx(expected, abs=1e-9)


@PRIORS
def test_an_inferred_noise_scale_widens_all_residuals(rng, own):
    """Coordinate z is eta at that quantile; residuals are eta / sqrt(m) wide."""
    model = wandering()
    data = Dataset.from_pairs(model, [*((*pair, -1.0) for pair in SEEN), ("a", "go", -1.4), ("b", "back", -0.2)])
    target = noisy_target(data, HalfNormal(0.8), prior_of(model, own), Gaussian())
    coordinates = Coordinates(target)
    assert coordinates.scales == 1
    x, z = normals(coordinates, rng)
    weighed = weigh(systems(coordinates), as_point(x, z))
    eta = np.exp(np.interp(z[0], target.noise_scale.normal, target.noise_scale.log_scale))
    np.testing.assert_allclose(weighed.noise_scale, eta[None], rtol=1e-12)
    for k in range(BATCH):
        q, log_det, _ = plain_values(coordinates, x[:, k], target.scale * eta[k])
        expected = density(target, q)[target.observed].sum() - log_det
        assert weighed.log_weight[k] == pytest.approx(expected, abs=1e-9)


def test_points_without_a_proper_solution_weigh_nothing(rng):
    """Where the residuals make the observed ring pay."""
    target = relaxed_target(Dataset.complete(two_rings()), 2.0, 3.0)
    coordinates = Coordinates(target)
    x, z = normals(coordinates, rng)
    weighed = weigh(systems(coordinates), as_point(x, z))
    solvable = [plain_values(coordinates, x[:, k], target.scale)[2] for k in range(BATCH)]
    np.testing.assert_array_equal(np.isfinite(weighed.log_weight), solvable)
    assert 0 < sum(solvable) < BATCH


@PRIORS
def test_an_exact_posterior_is_weighed_without_the_residuals_that_split_its_ties(rng, own):
    model = wandering()
    target = relaxed_target(Dataset.from_pairs(model, SEEN), 0.0, prior_of(model, own))
    coordinates = Coordinates(target)
    if not own:
        assert coordinates.dimension == 2, "(b, x) stands for (b, y), and (c, out)"
    x, z = normals(coordinates, rng)
    weighed = weigh(systems(coordinates), as_point(x, z))
    for k in range(BATCH):
        q, log_det, _ = plain_values(coordinates, x[:, k], np.zeros(model.n_pairs))
        expected = density(target, q)[target.observed].sum() - log_det
        assert weighed.log_weight[k] == pytest.approx(expected, abs=1e-9)


def test_loops_that_cost_less_than_the_residuals_pay_have_a_solution(rng):
    """Round the ring at -1e-10: with residuals of 1e-8 it may pay, without them it does not, and that counts."""
    moves = {
        ("a", "on"): Move(1.0, {"b": 1.0}),
        ("b", "back"): Move(-1.0 - 1e-10, {"a": 1.0}),
        ("a", "out"): Move(-1.0, {"goal": 1.0}),
    }
    target = relaxed_target(Dataset.complete(from_moves("ring", moves, start="a")), 0.0, 2.0)
    coordinates = Coordinates(target)
    x, z = normals(coordinates, rng)
    weighed = weigh(systems(coordinates), as_point(x, z))
    expected = density(target, np.array([-1.0, -1.0 - 1e-10, -2.0])).sum()
    np.testing.assert_allclose(weighed.log_weight, expected, atol=1e-6)


@PRIORS
def test_centred_coordinates_are_the_values_and_weigh_the_kernels(rng, own):
    model = wandering()
    target = noisy_target(Dataset.from_pairs(model, SEEN), 0.6, prior_of(model, own), Laplace())
    coordinates = Coordinates(target, centred=True)
    assert coordinates.way == "centred"
    coupled, seen = target.coupled[model.pair_state], target.observed
    assert coordinates.dimension == coupled.sum() == (9 if own else 7), "all pairs of coupled states"
    x, z = normals(coordinates, rng)
    weighed = weigh(systems(coordinates), as_point(x, z))
    for k in range(BATCH):
        q = target.prior.mean + target.prior.sd * x[:, k]
        np.testing.assert_allclose(weighed.q[coupled, k], q[coupled])
        off = residuals(model, q)[seen] - target.reward[seen]
        assert weighed.log_weight[k] == pytest.approx(stats.laplace.logpdf(off, scale=0.6).sum(), abs=1e-10)


def log_determinant(target, q, solved):
    """log |det A| over solved pairs, A_ij = 1(i = j) - p(s_j|i) 1(j is greedy), as a dense matrix."""
    model, pairs = target.model, np.flatnonzero(solved)
    best = [int(own[np.argmax(q[own])]) for own in np.split(np.arange(model.n_pairs), model.pair_start[1:-1])]
    matrix = np.eye(len(pairs))
    for row, i in enumerate(pairs):
        for e in range(model.next_start[i], model.next_start[i + 1]):
            s = model.next_state[e]
            if s < model.n_states and solved[best[s]]:
                matrix[row, np.searchsorted(pairs, best[s])] -= model.next_prob[e]
    determinant = np.linalg.det(matrix)
    return np.log(determinant) if determinant > 1e-13 else -np.inf


@PRIORS
@pytest.mark.parametrize(
    ("problem", "kernel"),
    [(shared_pair, StudentT(3.0)), pytest.param(two_rings, Gaussian(), marks=pytest.mark.slow)],
)
def test_a_cut_is_weighed_by_its_balance_heuristic(rng, problem, kernel, own):
    """The formula of `cuts`: densities over the mean, over all subsets, of all densities that may have proposed it."""
    model = problem()
    target = noisy_target(Dataset.complete(model), 0.5, prior_of(model, own, 3.0), kernel)
    treatments = covering(target).ways[0]
    cut = list(treatments[0].cut)
    assert len(cut) == 2
    assert len(treatments) == 4
    subsets = list(chain.from_iterable(combinations(cut, k) for k in range(3)))
    for coordinates in (treatments[0], treatments[1], treatments[-1]):
        assert coordinates.way == "cut"
        x, z = normals(coordinates, rng, 12)
        weighed = weigh(systems(coordinates), as_point(x, z))
        for k in range(12):
            q, _, solvable = plain_values(coordinates, x[:, k], target.scale)
            if not solvable:
                assert weighed.log_weight[k] == -np.inf
                continue
            off = (residuals(model, q) - target.reward) / 0.5
            log_kernel = np.asarray(kernel.log_density(jnp.asarray(off))) - np.log(0.5)
            correction = np.asarray(kernel.log_correction(jnp.asarray(off)))
            prior = density(target, q)
            proposals = []
            for freed in subsets:
                solved = target.observed.copy()
                solved[list(freed)] = False
                others = [i for i in cut if i not in freed]
                how = (log_kernel - correction)[others].sum() + prior[list(freed)].sum()
                proposals.append(log_determinant(target, q, solved) + how)
            uncut = np.setdiff1d(np.arange(model.n_pairs), cut)
            top = prior.sum() + log_kernel[cut].sum() + correction[uncut].sum()
            expected = top - (np.logaddexp.reduce(proposals) - np.log(4.0))
            assert weighed.log_weight[k] == pytest.approx(expected, abs=1e-7)


def knotted(chance):
    """A loop before which four states are knotted: with or without chance, and with one, two or three actions."""
    moves = {
        ("z", "stay"): {"z": 1.0},
        ("z", "out"): {"goal": 1.0},
        ("a", "on"): {"b": 1.0},
        ("a", "far"): {"c": 0.6, "z": 0.4},
        ("a", "out"): {"z": 1.0},
        ("b", "on"): {"c": 1.0},
        ("c", "back"): {"a": 0.7, "c": 0.3},
        ("c", "on"): {"d": 1.0},
        ("d", "back"): {"a": 0.5, "b": 0.3, "goal": 0.2},
        ("d", "stay"): {"d": 1.0},
        ("d", "out"): {"goal": 1.0},
    }
    surely = {pair: {next(iter(law)): 1.0} for pair, law in moves.items()}
    return from_moves("knot", {p: Move(-1.0, law) for p, law in (moves if chance else surely).items()}, start="a")


@pytest.mark.parametrize(("chance", "way"), [(False, "sweeps"), (True, "policies")])
@pytest.mark.parametrize("each", [False, True], ids=["one law", "a law for each point"])
def test_determinants_of_every_subset_of_a_cut(chance, way, each):
    """Of all policies of the knot, against dense matrices: a row of the identity where what is played is not solved."""
    model = knotted(chance)
    chart = batch_chart(model)
    layout, law = chart.layout, chart.layout.sort(chart.law)
    (block,) = (block for block in layout.blocks if block.end - block.begin == 4)
    assert block.way == way
    assert block.begin > 0
    pairs = np.asarray(layout.pair)[block.own]
    cut = [model.pair_index[pair] for pair in (("c", "back"), ("c", "on"), ("d", "back"), ("d", "stay"))]
    unseen = model.pair_index["a", "far"]
    places = np.flatnonzero(np.isin(pairs, cut))
    states = np.asarray(layout.state)[block.states]
    choice = np.array(list(product(*(range(model.pair_start[s + 1] - model.pair_start[s]) for s in states)))).T
    law = jnp.repeat(law[..., None], choice.shape[1], axis=-1) if each else law
    own = (law[block.own], jnp.asarray(pairs != unseen), jnp.asarray(places))
    determinants = _log_determinants if chance else _log_acyclic
    found = jax.jit(lambda own, choice: determinants(_CutBlock(block, layout, *own), choice))(own, jnp.asarray(choice))
    assert found.shape == (16, 18)
    expected = np.zeros((16, 18))
    for subset, k in product(range(16), range(18)):
        free = {int(pairs[place]) for digit, place in enumerate(places) if not subset >> digit & 1} | {unseen}
        matrix = np.eye(model.n_states + 1)
        for s, action in zip(states, choice[:, k], strict=True):
            pair = int(model.pair_start[s] + action)
            for e in range(model.next_start[pair], model.next_start[pair + 1]) if pair not in free else ():
                matrix[s, model.next_state[e]] -= model.next_prob[e]
        determinant = np.linalg.det(matrix[np.ix_(states, states)])
        expected[subset, k] = np.log(determinant) if determinant > 1e-13 else -np.inf
    assert 0 < np.isneginf(expected).sum() < expected.size
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("problem", "which"),
    [
        (wandering, "exact"),
        pytest.param(wandering, "relaxed", marks=pytest.mark.slow),
        (wandering, "centred"),
        (shared_pair, "cut"),
    ],
)
def test_points_may_have_a_law_each(rng, problem, which):
    """Weighed together with the laws as an array over the points: as each alone in a problem of its own law."""
    model = problem()
    data = Dataset.complete(model) if which == "cut" else Dataset.from_pairs(model, SEEN)
    target = relaxed_target(data, 0.0 if which == "exact" else 0.5, own_priors(model))
    coordinates = covering(target).ways[0][1] if which == "cut" else Coordinates(target, centred=which == "centred")
    assert (coordinates.way == "cut") == (which == "cut")
    models = [with_another_law(rng, model) for _ in range(8)]
    law = jnp.stack([jnp.asarray(padded_successors(one)[1]) for one in models], axis=-1)
    x, _ = normals(coordinates, rng, len(models))
    together = weigh(replace(systems(coordinates), law=law), as_point(x))
    assert np.ptp(together.log_weight) > 0
    for k, one in enumerate(models):
        alone = weigh(systems(replace(coordinates, target=replace(target, model=one))), as_point(x[:, k : k + 1]))
        np.testing.assert_allclose(together.log_weight[k], alone.log_weight[0], rtol=1e-12)
        np.testing.assert_allclose(together.q[:, k], alone.q[:, 0], rtol=1e-12)
        np.testing.assert_array_equal(together.choice[:, k], alone.choice[:, 0])


def with_another_law(rng, model):
    """The same successors with other probabilities; certain moves stay certain."""
    weight = rng.uniform(0.2, 1.0, len(model.next_prob))
    return replace(model, next_prob=weight / np.bincount(model.next_pair, weight)[model.next_pair])


def test_laws_of_points_are_discounted():
    """Given as logarithms, one for each point: multiplied by the discount, and what that takes leads to the goal."""
    data = landed(TWO, -1.0, (1, 2, 1))
    whole, learnt, _ = close_laws(data, "dirichlet")
    target = relaxed_target(replace(data, model=whole), 0.0, 2.0)
    system = systems(Coordinates(replace(target, laws=replace(learnt, discount=0.75))))
    law = np.array([[0.2, 0.5, 0.3], [0.6, 0.0, 0.4]])  # of two points
    with np.errstate(divide="ignore"):
        point = Point(*(np.zeros((n, 2)) for n in (3, 0, 0)), np.log(law.T)[None], np.ones((1, 2)))
    found = np.asarray(system.laws(point))
    go = target.model.pair_index["s", "go"]
    np.testing.assert_allclose(found[go].T, 0.75 * law + [0.0, 0.0, 0.25], atol=1e-12)
    others = np.delete(np.arange(3), go)
    np.testing.assert_array_equal(found[others], np.repeat(np.asarray(system.law)[others, :, None], 2, axis=-1))


def test_proposals_are_weighed_points():
    """Normal numbers, those of pairs that stand for several replaced by the largest of theirs."""
    target = noisy_target(Dataset.from_pairs(wandering(), SEEN), 0.6, 2.5, StudentT(3.0))
    system = systems(Coordinates(target))
    point = normal_point(random_key(3), system, BATCH)
    assert point.x.shape == (target.model.n_pairs, BATCH)
    assert point.z.shape == (0, BATCH)
    assert point.coin.shape == (0, BATCH)
    raised = from_normals(system, point)
    before, after = np.asarray(point.x), np.asarray(raised.x)
    x, y = (target.model.pair_index["b", action] for action in "xy")
    np.testing.assert_array_equal(after[x], np.maximum(before[x], before[y]))
    rest = np.setdiff1d(np.arange(target.model.n_pairs), [x])
    np.testing.assert_array_equal(after[rest], before[rest])
    proposed = propose(system, random_key(3), BATCH)
    ratio = np.linspace(-2.0, 3.0, BATCH)
    rated = weigh(system, raised._replace(log_ratio=jnp.asarray(ratio)))
    np.testing.assert_allclose(rated.log_weight - ratio, proposed.log_weight, rtol=1e-12, atol=1e-12)
    weight, q = np.exp(proposed.log_weight - np.max(proposed.log_weight)), np.asarray(proposed.q)
    valued = np.asarray(system.solved | system.free)
    assert np.isneginf(q[y]).all()
    assert not valued[y]
    mean = np.where(valued, np.where(valued[:, None], q, 0.0) @ weight / weight.sum(), 0.0)
    square = np.where(valued[:, None], q - mean[:, None], 0.0) ** 2 @ weight
    np.testing.assert_allclose(proposed.mean, mean, atol=1e-12)
    np.testing.assert_allclose(proposed.square, square, atol=1e-9)


def test_flat_priors_weigh_what_makes_a_kernel_alone(rng):
    """Of solved pairs: no densities of values, no determinants."""
    kernel, model = StudentT(3.0), bandits(2)
    target = noisy_target(Dataset.complete(model), 0.6, ValuePrior(np.zeros(4), np.ones(4), flat=True), kernel)
    system = systems(Coordinates(replace(target, observed=np.array([True, True, True, False]))))
    x = rng.normal(size=(4, 5))
    correction = np.asarray(kernel.log_correction(kernel.from_normal(jnp.asarray(x))))
    np.testing.assert_allclose(weigh(system, as_point(x)).log_weight, correction[:3].sum(axis=0), rtol=1e-12)


def test_centred_points_are_normal_as_they_are():
    """Every pair has a coordinate of its own there: none stands for others."""
    target = noisy_target(Dataset.from_pairs(wandering(), SEEN), 0.6, 2.5, Laplace())
    system = systems(Coordinates(target, centred=True))
    point = normal_point(random_key(4), system, BATCH)
    found = weigh_normals(system, point)
    np.testing.assert_allclose(found.log_weight, weigh(system, point).log_weight, rtol=1e-12)


def test_what_answers_need_of_a_batch(rng):
    """Greedy actions, a number for each policy, moments of q by weight relative to the largest."""
    target = relaxed_target(Dataset.complete(two_rings()), 2.0, 3.0)
    coordinates, model = Coordinates(target), target.model
    x, z = normals(coordinates, rng)
    system = systems(coordinates)
    weighed = weigh(system, as_point(x, z))
    q, log_weight = np.asarray(weighed.q), np.asarray(weighed.log_weight)
    assert float(weighed.log_scale) == log_weight.max()
    weight = np.exp(log_weight - log_weight.max())
    some = weight > 0
    own = np.split(np.arange(model.n_pairs), model.pair_start[1:-1])
    greedy = np.array([q[own[s]].argmax(axis=0) for s in system.layout.state.tolist()])
    np.testing.assert_array_equal(weighed.choice, greedy)
    states, actions = system.layout.slot.shape
    np.testing.assert_array_equal(weighed.code, (greedy * actions ** np.arange(states)[:, None]).sum(axis=0))
    assert float(weighed.weight) == pytest.approx(weight.sum())
    mean = q[:, some] @ weight[some] / weight.sum()
    np.testing.assert_allclose(weighed.mean, mean, atol=1e-9)
    np.testing.assert_allclose(weighed.square, (q[:, some] - mean[:, None]) ** 2 @ weight[some], atol=1e-9)
    assert not np.asarray(weighed.tied).any()


def test_a_batch_without_weight_has_sums_of_nothing():
    model = from_moves("paid", {("s", "stay"): Move(9.0, {"s": 1.0}), ("s", "go"): Move(0.0, {"goal": 1.0})}, start="s")
    target = relaxed_target(Dataset.complete(model), 0.01, 2.0)
    weighed = weigh(systems(Coordinates(target)), as_point(np.zeros((2, 3))))
    assert np.isneginf(weighed.log_weight).all()
    assert float(weighed.log_scale) == 0.0
    assert float(weighed.weight) == 0.0
    np.testing.assert_array_equal(weighed.mean, 0.0)
    np.testing.assert_array_equal(weighed.square, 0.0)


@pytest.mark.parametrize(("gap", "tied"), [(0.0, True), (1e-6, True), (4e-6, False)])
def test_ties_are_values_that_the_splitting_may_confuse(gap, tied):
    """A hundred times 1e-8 of the largest reward, 2; ties with pairs that were not observed do not count."""
    moves = {("s", name): Move(reward, {"goal": 1.0}) for name, reward in (("a", -2.0), ("b", -2.0 - gap), ("c", 0.0))}
    model = from_moves("bandit", moves, start="s")
    target = relaxed_target(Dataset.from_pairs(model, [("s", "a"), ("s", "b")]), 0.0, 1.0)
    system = systems(Coordinates(target))
    places = ([-5.0, -5.0], [5.0, 5.0], [-5.0, 5.0])
    low, high, both = (as_point(np.tile(x, (3, 1))) for x in places)
    assert np.asarray(weigh(system, low).tied).tolist() == [tied]
    assert np.asarray(weigh(system, both).tied).tolist() == [tied], "somewhere is enough"
    assert np.asarray(weigh(system, high).tied).tolist() == [False], "the third action is better"


# --- loops that are hardly ever left ----------------------------------------------------------------------------------


def lingering(leak, exits, mean, sd):
    """Stay in a state that leaks, at a price which makes that worth -2, or leave it by actions nobody has tried."""
    moves = {("s", "stay"): Move(-2.0 * leak, {"s": 1.0 - leak, "goal": leak})}
    moves |= {("s", f"u{k}"): Move(0.0, {"goal": 1.0}) for k in range(exits)}
    model = from_moves("lingering", moves, start="s")
    prior = ValuePrior(np.full(exits + 1, mean), np.full(exits + 1, sd))
    prior.sd[model.pair_index["s", "stay"]] = 1.5
    return relaxed_target(Dataset.from_pairs(model, [("s", "stay")]), 0.0, prior)


def evidence(target, leak, exits, mean, sd):
    """With v the largest unobserved value: staying is greedy and of density N(-2) / leak below v = -2, else left."""
    stay = stats.norm(target.prior.mean[target.observed][0], target.prior.sd[target.observed][0])

    def above(v):
        largest = exits * stats.norm.cdf(v, mean, sd) ** (exits - 1) * stats.norm.pdf(v, mean, sd)
        return largest * stay.pdf(-2.0 * leak + (1.0 - leak) * v)

    left = integrate.quad(above, -2.0, mean + 12.0 * sd, points=[mean], epsabs=1e-13)[0]
    return left + stats.norm.cdf(-2.0, mean, sd) ** exits * stay.pdf(-2.0) / leak


def quantiles(target, exits, points=2**15):
    """Midpoints of equally probable slices of the largest unobserved value's law, in units of its prior."""
    x = stats.norm.ppf(((np.arange(points) + 0.5) / points) ** (1.0 / exits))
    return np.repeat(x[None], target.model.n_pairs, axis=0)


LINGERING = pytest.mark.parametrize(
    ("exits", "mean", "sd"),
    [*(pytest.param(exits, 0.0, 1.0, marks=pytest.mark.slow) for exits in (1, 3)), (2, -1.0, 2.0)],
)


@LINGERING
def test_coins_do_not_change_the_evidence(exits, mean, sd):
    """Mean weights over the slices, and over both sides of a coin, are the integral: a leak of 0.1 needs no coin."""
    target = lingering(0.1, exits, mean, sd)
    x, truth = quantiles(target, exits), evidence(target, 0.1, exits, mean, sd)
    plain = weigh(systems(Coordinates(target)), as_point(x))
    assert np.exp(plain.log_weight).mean() == pytest.approx(truth, rel=2e-4)
    loop = Loop((0,), (target.model.pair_index["s", "u0"],))
    system, stay = systems(Coordinates(target, lingering=(loop,))), target.model.pair_index["s", "stay"]
    sides = [as_point(x)._replace(coin=jnp.full((1, x.shape[1]), side)) for side in (-1.0, 1.0)]
    tails, heads = (weigh(system, point) for point in sides)
    both = np.exp(np.concatenate([tails.log_weight, heads.log_weight]))
    assert both.mean() == pytest.approx(truth, rel=2e-4)
    tossed = np.asarray(normal_point(random_key(5), system, BATCH).coin)
    assert (tossed.shape, set(np.sign(tossed[0]))) == ((1, BATCH), {-1.0, 1.0}), "both sides come up"
    stays = [float(np.mean(np.asarray(side.choice) == stay)) for side in (tails, heads)]
    assert stays == pytest.approx([stats.norm.cdf(-2.0, mean, sd) ** exits, 1.0], abs=1e-4)


@LINGERING
@pytest.mark.parametrize("leak", [1e-4, 1e-9])
def test_coins_find_what_points_of_the_prior_miss(leak, exits, mean, sd):
    """The cell in which staying is greedy weighs 1 / leak: with a coin no weight is more than twice the evidence of
    either case, however small the leak is."""
    target = lingering(leak, exits, mean, sd)
    (components,) = covering(target).ways
    (loop,) = components[0].lingering
    assert loop.exits == (target.model.pair_index["s", "u0"],)
    x, truth = quantiles(target, exits), evidence(target, leak, exits, mean, sd)
    system = systems(components[0])
    sides = [as_point(x)._replace(coin=jnp.full((1, x.shape[1]), side)) for side in (-1.0, 1.0)]
    found = [np.exp(weigh(system, point).log_weight) for point in sides]
    assert np.mean(found) == pytest.approx(truth, rel=2e-4)
    stay = stats.norm(target.prior.mean[target.observed][0], target.prior.sd[target.observed][0])
    below = stats.norm.cdf(-2.0, mean, sd) ** exits
    assert np.max(found) < 2.0 * max(below * stay.pdf(-2.0) / leak, stay.pdf(stay.mean())) * (1 + 1e-6)


@pytest.mark.slow
@LINGERING
def test_lowered_values_and_their_density(rng, exits, mean, sd):
    """Heads: the value keeps its quantile among those below -2. The mixture's density is written out."""
    target = lingering(1e-3, exits, mean, sd)
    coordinates = covering(target).ways[0][0]
    system, exit_ = systems(coordinates), target.model.pair_index["s", "u0"]
    x = quantiles(target, exits, 64)
    sides = {side: as_point(x)._replace(coin=jnp.full((1, 64), side)) for side in (-1.0, 1.0)}
    tails, heads = (
        np.asarray(lower_exits(system, system.laws(sides[side]), sides[side])[exit_]) for side in (-1.0, 1.0)
    )
    np.testing.assert_allclose(tails, mean + sd * x[0], rtol=1e-12)
    law = stats.norm(mean, sd)
    assert (heads < -2.0).all()
    np.testing.assert_allclose(law.cdf(heads), law.cdf(-2.0) * stats.norm.cdf(x[0]), rtol=1e-9)
    q = np.full((target.model.n_pairs, 3), -np.inf)
    q[target.observed], q[exit_] = [-2.0, -2.0, -0.5], [-3.0, -2.5, 0.3]
    expected = [0.5 * (1.0 + law.cdf(-2.0) ** -exits)] * 2 + [0.5]
    np.testing.assert_allclose(np.exp(log_mixture(system, jnp.asarray(q))), expected, rtol=1e-9)
    plain = systems(Coordinates(target))
    np.testing.assert_array_equal(log_mixture(plain, jnp.asarray(q)), 0.0)


@pytest.mark.slow
def test_two_loops_are_tossed_for_independently():
    """Two states of the kind, each with its own coin: the evidence, over all four tosses, is the product."""
    leaks, moves = {"s": 1e-3, "t": 1e-6}, {}
    for state, leak in leaks.items():
        moves[state, "stay"] = Move(-2.0 * leak, {state: 1.0 - leak, "goal": leak})
        moves[state, "u0"] = Move(0.0, {"goal": 1.0})
    model = from_moves("two", moves, start="s")
    target = relaxed_target(Dataset.from_pairs(model, [(state, "stay") for state in leaks]), 0.0, 1.5)
    coordinates = covering(target).ways[0][0]
    assert len(coordinates.lingering) == 2
    side, points = np.array([-1.0, 1.0]), 128
    x = stats.norm.ppf((np.arange(points) + 0.5) / points)
    s, t, first, second = (grid.ravel() for grid in np.meshgrid(x, x, side, side, indexing="ij"))
    at = np.where((model.pair_state == model.state_index["s"])[:, None], s, t)
    point = as_point(at)._replace(coin=jnp.asarray(np.stack([first, second])))
    found = np.exp(weigh(systems(coordinates), point).log_weight).mean()
    single = [evidence(lingering(leak, 1, 0.0, 1.5), leak, 1, 0.0, 1.5) for leak in leaks.values()]
    assert found == pytest.approx(np.prod(single), rel=5e-3)
