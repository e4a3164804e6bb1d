"""The weight of a point against its formula, written out with dense matrices and one point at a time."""

from itertools import chain, combinations

import jax.numpy as jnp
import numpy as np
import pytest
from plain_chart import PlainChart
from scipy import stats

from bellmanifold import envs
from bellmanifold.chart import batch_chart
from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.laws import Gaussian, Laplace, StudentT
from bellmanifold.noise import HalfNormal
from bellmanifold.posteriors import coordinates as module
from bellmanifold.posteriors.coordinates import (
    Coordinates,
    Point,
    from_normals,
    member_moments,
    normal_point,
    weigh_normals,
)
from bellmanifold.posteriors.cut import cut_coordinates
from bellmanifold.posteriors.keys import random_key
from bellmanifold.posteriors.target import noisy_target, relaxed_target

BATCH = 40


def wandering():
    """A random cycle of two states that can be left, a state before it, and one that no data touch."""
    moves = {
        ("a", "go"): Move(-1.0, {"b": 0.7, "goal": 0.3}),
        ("a", "jump"): Move(-2.0, {"goal": 1.0}),
        ("b", "back"): Move(-0.5, {"a": 0.6, "goal": 0.4}),
        ("b", "x"): Move(-1.0, {"goal": 1.0}),
        ("b", "y"): Move(-1.5, {"goal": 1.0}),
        ("c", "in"): Move(-0.3, {"a": 0.5, "b": 0.5}),
        ("c", "out"): Move(-3.0, {"goal": 1.0}),
        ("far", "x"): Move(-1.0, {"c": 1.0}),
        ("far", "y"): Move(-1.0, {"goal": 1.0}),
    }
    return from_moves("wandering", moves, start="c")


SEEN = [("a", "go"), ("a", "jump"), ("b", "back"), ("c", "in")]


def shared_pair():
    """Two loops that share the pair (x, on), with random moves; before them a state that is left in the end."""
    moves = {
        ("x", "on"): Move(-0.8, {"x": 0.8, "y": 0.2}),
        ("y", "fast"): Move(-0.8, {"x": 1.0}),
        ("y", "slow"): Move(-0.82, {"y": 0.995, "x": 0.005}),
        ("x", "out"): Move(-1.0, {"goal": 1.0}),
        ("y", "out"): Move(-1.0, {"goal": 1.0}),
        ("z", "in"): Move(-0.4, {"z": 0.4, "x": 0.3, "y": 0.3}),
    }
    return from_moves("shared pair", moves, start="z")


def two_rings():
    """Two loops without chance, one before the other."""
    moves = {}
    for state, after in (("a", "b"), ("b", "c"), ("c", "a")):
        moves[state, "round"] = Move(-0.5, {after: 1.0})
    moves["a", "out"] = Move(-1.0, {"d": 1.0})
    moves["c", "home"] = Move(-4.0, {"goal": 1.0})
    moves["d", "stay"] = Move(-0.2, {"d": 1.0})
    moves["d", "out"] = Move(-1.0, {"goal": 1.0})
    return from_moves("two rings", moves, start="b")


def normals(coordinates, rng, batch=BATCH):
    """Standard normal coordinates of each pair, shape (pairs, batch), and of the noise scale."""
    return rng.normal(size=(coordinates.target.model.n_pairs, batch)), rng.normal(size=(coordinates.scales, batch))


def as_point(coordinates, x, z):
    return Point(jnp.asarray(coordinates.chart.spread(x, 0.0)), jnp.asarray(z))


def by_pair(coordinates, table):
    return np.asarray(table)[coordinates.chart.place]


def residuals(model, q):
    """g_i(q) = q_i - sum p(s'|i) max_a q(s', a)."""
    return q - (model.backup(np.maximum.reduceat(q, model.pair_start[:-1])) - model.reward)


def density(target, q):
    return stats.norm.logpdf(q, scale=target.prior_scale)


def plain_values(coordinates, x, width):
    """Action values, log-determinant and whether they exist at one point; pairs without a coordinate are never best."""
    target, solved = coordinates.target, coordinates.solved
    payment = target.reward + width * np.asarray(target.law.from_normal(jnp.asarray(x)))
    idle = ~target.coupled[target.model.pair_state]
    value = np.where(coordinates.free | idle, target.prior_scale * x, -np.inf)
    point = PlainChart(target.model, solved).solve(payment, value)
    return point.q, point.log_det, point.policy is not None


def test_one_of_several_given_the_largest(rng):
    """Pairs that stand for two: as a cut-off normal of scale sigma, by SciPy. Others are what they are."""
    target = relaxed_target(Dataset.from_pairs(wandering(), SEEN), 0.3, 2.5)
    coordinates = Coordinates(target, batch_chart(target.model))
    q = rng.normal(size=(target.model.n_pairs, 5)) * 2.5
    first, second = (
        by_pair(coordinates, m)
        for m in member_moments(coordinates.structure, jnp.asarray(coordinates.chart.spread(q, 0.0)))
    )
    shared = target.model.pair_index["b", "x"]
    below = stats.truncnorm(-np.inf, q[shared] / 2.5, scale=2.5)
    np.testing.assert_allclose(first[shared], (q[shared] + below.mean()) / 2, rtol=1e-7)
    np.testing.assert_allclose(second[shared], (q[shared] ** 2 + below.moment(2)) / 2, rtol=1e-7)
    for pair in (("a", "go"), ("c", "out")):
        i = target.model.pair_index[pair]
        np.testing.assert_array_equal(first[i], q[i])
        np.testing.assert_allclose(second[i], q[i] ** 2)


def test_which_pairs_have_which_coordinates():
    model = wandering()
    target = relaxed_target(Dataset.from_pairs(model, SEEN), 0.3, 2.5)
    coordinates = Coordinates(target, batch_chart(model))
    named = {
        name: {model.pair_name(i) for i in np.flatnonzero(getattr(coordinates, name))} for name in ("free", "residual")
    }
    assert named == {"free": {("b", "x"), ("c", "out")}, "residual": set(SEEN)}
    stand_in = {model.pair_name(i): model.pair_name(int(j)) for i, j in enumerate(coordinates.stand_in)}
    assert stand_in.pop(("b", "y")) == ("b", "x")
    assert all(pair == other for pair, other in stand_in.items())
    assert (coordinates.way, coordinates.dimension, coordinates.scales) == ("non-centred", 6, 0)
    centred = Coordinates(target, batch_chart(model), centred=True)
    assert not centred.residual.any()
    assert centred.stand_in.tolist() == list(range(model.n_pairs))
    go = model.pair_index["a", "go"]
    cut = Coordinates(target, batch_chart(model), cut=(go,), freed=(go,))
    assert cut.free[go]
    assert not cut.residual[go]
    assert cut.subsets_used is not None
    assert coordinates.subsets_used is None


def test_which_coordinates_reach_improper_parameters():
    """All where no observed loop is closed, centred ones always, else those whose cut meets every loop."""
    open_end = relaxed_target(Dataset.from_pairs(wandering(), SEEN), 0.3, 2.5)
    assert Coordinates(open_end, batch_chart(open_end.model)).covers_improper
    target = relaxed_target(Dataset.complete(two_rings()), 0.5, 3.0)
    chart, index = batch_chart(target.model), target.model.pair_index
    one, both = (index["a", "round"],), (index["a", "round"], index["d", "stay"])
    assert Coordinates(target, chart, centred=True).covers_improper
    assert [Coordinates(target, chart, cut=cut).covers_improper for cut in ((), one, both)] == [False, False, True]


def test_policies_have_numbers_until_there_are_too_many(monkeypatch):
    chart = batch_chart(envs.deep_sea(2))
    assert module.n_policies(chart) == 2**3
    monkeypatch.setattr(module, "NUMBERED", 8)
    assert module.mixer_of(chart).tolist() == [1, 2, 4]
    monkeypatch.setattr(module, "NUMBERED", 7)
    hashes = module.mixer_of(chart)
    assert (hashes % 2 == 1).all()
    assert (hashes > 2**32).all()


def test_tables_name_pairs_by_state():
    """Slots in the chart's order become pairs in the order of coupled states."""
    model = wandering()
    target = relaxed_target(Dataset.from_pairs(model, SEEN), 0.3, 2.5)
    coordinates = Coordinates(target, batch_chart(model))
    played = {"a": "jump", "b": "x", "c": "out", "far": "y"}
    slots = {s: model.pair_index[s, played[s]] - int(model.pair_start[k]) for k, s in enumerate(model.states)}
    choice = np.array([[slots[model.states[s]] for s in coordinates.chart.order]])
    table = module.policy_table(coordinates, choice, np.ones((1, 1)))
    states = np.flatnonzero(target.coupled)
    assert [model.pair_name(int(i)) for i in table.policy[0]] == [
        (model.states[s], played[model.states[s]]) for s in states
    ]
    assert len(states) == 3


@pytest.mark.parametrize(("epsilon", "way_out"), [(0.0, "use --epsilon above 0"), (0.5, "leave --proper-only out")])
def test_traps_are_named(epsilon, way_out):
    moves = {
        ("a", "on"): Move(-1.0, {"b": 1.0}),
        ("b", "back"): Move(-1.0, {"a": 1.0}),
        ("c", "go"): Move(-1.0, {"goal": 0.5, "c": 0.5}),
        ("d", "in"): Move(-1.0, {"a": 0.5, "goal": 0.5}),
    }
    target = relaxed_target(Dataset.complete(from_moves("trap", moves, start="d")), epsilon, 1.0)
    with pytest.raises(UnsupportedError, match=rf"trap a, b: .*{way_out}"):
        _ = Coordinates(target, batch_chart(target.model)).structure
    centred = Coordinates(target, batch_chart(target.model), centred=True)
    assert centred.structure.free.sum() == 4, "no policy is needed there"
    ring = (target.model.pair_index["a", "on"],)
    assert Coordinates(target, batch_chart(target.model), cut=ring).structure.free.sum() == 0, "nor in a cut"


def test_loops_with_an_unobserved_way_out_are_no_traps():
    """Of three observed loops the second has none."""
    moves = {(state, "stay"): Move(-1.0, {state: 1.0}) for state in "abc"}
    moves |= {(state, "out"): Move(-1.0, {"goal": 1.0}) for state in "ac"}
    moves["d", "in"] = Move(-1.0, {"a": 0.25, "b": 0.25, "c": 0.25, "goal": 0.25})
    model = from_moves("one trap", moves, start="d")
    target = relaxed_target(Dataset.from_pairs(model, [*((state, "stay") for state in "abc"), ("d", "in")]), 0.5, 1.0)
    with pytest.raises(UnsupportedError, match="trap b: "):
        _ = Coordinates(target, batch_chart(model)).structure


def test_states_that_no_data_touch_do_not_make_points_unsolvable():
    """Not even in one block with those that are touched: here two states without chance lead to each other."""
    moves = {(state, "on"): Move(-1.0, {after: 1.0}) for state, after in (("a", "b"), ("b", "a"))}
    moves |= {(state, "out"): Move(-1.0, {"goal": 1.0}) for state in "ab"}
    model = from_moves("half seen", moves, start="a")
    target = relaxed_target(Dataset.from_pairs(model, [("a", "out")]), 0.5, 2.0)
    coordinates = Coordinates(target, batch_chart(model))
    assert (target.coupled.tolist(), len(coordinates.chart.blocks)) == ([True, False], 1)
    weighed = coordinates.propose(random_key(0), 8)
    out = by_pair(coordinates, weighed.q)[model.pair_index["a", "out"]]
    np.testing.assert_allclose(weighed.log_weight, stats.norm.logpdf(out, scale=2.0))


def test_weight_is_prior_density_over_determinant(rng):
    """w = prod N(theta_i; 0, sigma^2) / |det A|, times what makes a law of the images of normal numbers."""
    law = StudentT(3.0)
    target = noisy_target(Dataset.from_pairs(wandering(), SEEN), 0.6, 2.5, law)
    coordinates = Coordinates(target, batch_chart(target.model))
    x, z = normals(coordinates, rng)
    weighed = coordinates.weigh(as_point(coordinates, x, z))
    found = by_pair(coordinates, weighed.q)
    coupled = target.coupled[target.model.pair_state]
    for k in range(BATCH):
        q, log_det, solvable = plain_values(coordinates, x[:, k], target.scale)
        assert solvable
        np.testing.assert_allclose(found[coupled, k], q[coupled], atol=1e-10)
        seen = target.observed
        correction = np.asarray(law.log_correction(law.from_normal(jnp.asarray(x[seen, k])))).sum()
        expected = density(target, q[seen]).sum() - log_det + correction
        assert weighed.log_weight[k] == pytest.approx(expected, abs=1e-9)


def test_an_inferred_noise_scale_widens_all_residuals(rng):
    """Coordinate z is eta at that quantile; residuals are eta / sqrt(m) wide."""
    model = wandering()
    data = Dataset.from_pairs(model, [*((*pair, -1.0) for pair in SEEN), ("a", "go", -1.4), ("b", "back", -0.2)])
    target = noisy_target(data, HalfNormal(0.8), 2.5, Gaussian())
    coordinates = Coordinates(target, batch_chart(model))
    assert coordinates.scales == 1
    x, z = normals(coordinates, rng)
    weighed = coordinates.weigh(as_point(coordinates, x, z))
    eta = np.exp(np.interp(z[0], target.noise_scale.normal, target.noise_scale.log_scale))
    np.testing.assert_allclose(weighed.noise_scale, eta[None], rtol=1e-12)
    for k in range(BATCH):
        q, log_det, _ = plain_values(coordinates, x[:, k], target.scale * eta[k])
        expected = density(target, q[target.observed]).sum() - log_det
        assert weighed.log_weight[k] == pytest.approx(expected, abs=1e-9)


def test_points_without_a_proper_solution_weigh_nothing(rng):
    """Where the residuals make the observed ring pay."""
    target = relaxed_target(Dataset.complete(two_rings()), 2.0, 3.0)
    coordinates = Coordinates(target, batch_chart(target.model))
    x, z = normals(coordinates, rng)
    weighed = coordinates.weigh(as_point(coordinates, x, z))
    solvable = [plain_values(coordinates, x[:, k], target.scale)[2] for k in range(BATCH)]
    np.testing.assert_array_equal(np.isfinite(weighed.log_weight), solvable)
    assert 0 < sum(solvable) < BATCH


def test_an_exact_posterior_is_weighed_without_the_residuals_that_split_its_ties(rng):
    target = relaxed_target(Dataset.from_pairs(wandering(), SEEN), 0.0, 2.5)
    coordinates = Coordinates(target, batch_chart(target.model))
    assert coordinates.dimension == 2, "(b, x) stands for (b, y), and (c, out)"
    x, z = normals(coordinates, rng)
    weighed = coordinates.weigh(as_point(coordinates, x, z))
    for k in range(BATCH):
        q, log_det, _ = plain_values(coordinates, x[:, k], np.zeros(target.model.n_pairs))
        expected = density(target, q[target.observed]).sum() - log_det
        assert weighed.log_weight[k] == pytest.approx(expected, abs=1e-9)


def test_loops_that_cost_less_than_the_residuals_pay_have_a_solution(rng):
    """Round the ring at -1e-10: with residuals of 1e-8 it may pay, without them it does not, and that counts."""
    moves = {
        ("a", "on"): Move(1.0, {"b": 1.0}),
        ("b", "back"): Move(-1.0 - 1e-10, {"a": 1.0}),
        ("a", "out"): Move(-1.0, {"goal": 1.0}),
    }
    target = relaxed_target(Dataset.complete(from_moves("ring", moves, start="a")), 0.0, 2.0)
    coordinates = Coordinates(target, batch_chart(target.model))
    x, z = normals(coordinates, rng)
    weighed = coordinates.weigh(as_point(coordinates, x, z))
    expected = density(target, np.array([-1.0, -1.0 - 1e-10, -2.0])).sum()
    np.testing.assert_allclose(weighed.log_weight, expected, atol=1e-6)


def test_centred_coordinates_are_the_values_and_weigh_the_kernels(rng):
    target = noisy_target(Dataset.from_pairs(wandering(), SEEN), 0.6, 2.5, Laplace())
    coordinates = Coordinates(target, batch_chart(target.model), centred=True)
    assert coordinates.way == "centred"
    assert coordinates.dimension == 7, "all pairs of coupled states"
    x, z = normals(coordinates, rng)
    weighed = coordinates.weigh(as_point(coordinates, x, z))
    coupled, seen = target.coupled[target.model.pair_state], target.observed
    for k in range(BATCH):
        q = 2.5 * x[:, k]
        np.testing.assert_allclose(by_pair(coordinates, weighed.q)[coupled, k], q[coupled])
        off = residuals(target.model, q)[seen] - target.reward[seen]
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


@pytest.mark.parametrize(("problem", "law"), [(shared_pair, StudentT(3.0)), (two_rings, Gaussian())])
def test_a_cut_is_weighed_by_its_balance_heuristic(rng, problem, law):
    """The formula of `cut`: densities over the mean, over all subsets, of the densities that could have proposed it."""
    target = noisy_target(Dataset.complete(problem()), 0.5, 3.0, law)
    treatments = cut_coordinates(target, batch_chart(target.model), proper_only=False)
    cut = list(treatments[0].cut)
    assert len(cut) == 2
    assert len(treatments) == 4
    subsets = list(chain.from_iterable(combinations(cut, k) for k in range(3)))
    for coordinates in (treatments[0], treatments[1], treatments[-1]):
        assert coordinates.way == "cut"
        x, z = normals(coordinates, rng, 12)
        weighed = coordinates.weigh(as_point(coordinates, x, z))
        for k in range(12):
            q, _, solvable = plain_values(coordinates, x[:, k], target.scale)
            if not solvable:
                assert weighed.log_weight[k] == -np.inf
                continue
            off = (residuals(target.model, q) - target.reward) / 0.5
            kernel = np.asarray(law.log_density(jnp.asarray(off))) - np.log(0.5)
            correction = np.asarray(law.log_correction(jnp.asarray(off)))
            prior = density(target, q)
            proposals = []
            for freed in subsets:
                solved = target.observed.copy()
                solved[list(freed)] = False
                others = [i for i in cut if i not in freed]
                how = (kernel - correction)[others].sum() + prior[list(freed)].sum()
                proposals.append(log_determinant(target, q, solved) + how)
            uncut = np.setdiff1d(np.arange(target.model.n_pairs), cut)
            top = prior.sum() + kernel[cut].sum() + correction[uncut].sum()
            expected = top - (np.logaddexp.reduce(proposals) - np.log(4.0))
            assert weighed.log_weight[k] == pytest.approx(expected, abs=1e-7)


def test_proposals_are_weighed_points():
    """Normal numbers, those of pairs that stand for several replaced by the largest of theirs."""
    target = noisy_target(Dataset.from_pairs(wandering(), SEEN), 0.6, 2.5, StudentT(3.0))
    coordinates = Coordinates(target, batch_chart(target.model))
    shape = (*coordinates.chart.slot.shape, BATCH)
    point = normal_point(random_key(3), shape, 0)
    assert point.x.shape == shape
    assert point.z.shape == (0, BATCH)
    raised = from_normals(coordinates.structure, point)
    before, after = by_pair(coordinates, point.x), by_pair(coordinates, raised.x)
    x, y = (target.model.pair_index["b", action] for action in "xy")
    np.testing.assert_array_equal(after[x], np.maximum(before[x], before[y]))
    rest = np.setdiff1d(np.arange(target.model.n_pairs), [x])
    np.testing.assert_array_equal(after[rest], before[rest])
    np.testing.assert_allclose(
        coordinates.propose(random_key(3), BATCH).log_weight, coordinates.weigh(raised).log_weight, rtol=1e-12
    )


def test_centred_points_are_normal_as_they_are():
    """Every pair has a coordinate of its own there: none stands for others."""
    target = noisy_target(Dataset.from_pairs(wandering(), SEEN), 0.6, 2.5, Laplace())
    coordinates = Coordinates(target, batch_chart(target.model), centred=True)
    point = normal_point(random_key(4), (*coordinates.chart.slot.shape, BATCH), 0)
    found = weigh_normals(coordinates.kind, coordinates.structure, point)
    np.testing.assert_allclose(found.log_weight, coordinates.weigh(point).log_weight, rtol=1e-12)


def test_what_answers_need_of_a_batch(rng):
    """Greedy slots, a number for each policy, sums of q and q^2 by weight relative to the largest."""
    target = relaxed_target(Dataset.complete(two_rings()), 2.0, 3.0)
    coordinates = Coordinates(target, batch_chart(target.model))
    x, z = normals(coordinates, rng)
    weighed = coordinates.weigh(as_point(coordinates, x, z))
    q, log_weight = np.asarray(weighed.q), np.asarray(weighed.log_weight)
    assert float(weighed.log_scale) == log_weight.max()
    weight = np.exp(log_weight - log_weight.max())
    some = weight > 0
    np.testing.assert_array_equal(weighed.choice, q.argmax(axis=0))
    slots, states = coordinates.chart.slot.shape
    digits = np.asarray(weighed.choice).astype(np.int64)
    np.testing.assert_array_equal(weighed.code, (digits * slots ** np.arange(states)[:, None]).sum(axis=0))
    finite = np.where(np.isfinite(q), q, 0.0)
    np.testing.assert_allclose(weighed.first, finite[..., some] @ weight[some], atol=1e-9)
    np.testing.assert_allclose(weighed.second, finite[..., some] ** 2 @ weight[some], atol=1e-9)
    assert not np.asarray(weighed.tied).any()


def test_a_batch_without_weight_has_sums_of_nothing():
    model = from_moves("paid", {("s", "stay"): Move(9.0, {"s": 1.0}), ("s", "go"): Move(0.0, {"goal": 1.0})}, start="s")
    target = relaxed_target(Dataset.complete(model), 0.01, 2.0)
    coordinates = Coordinates(target, batch_chart(model))
    weighed = coordinates.weigh(as_point(coordinates, np.zeros((2, 3)), np.zeros((0, 3))))
    assert np.isneginf(weighed.log_weight).all()
    assert float(weighed.log_scale) == 0.0
    np.testing.assert_array_equal(weighed.first, 0.0)
    np.testing.assert_array_equal(weighed.second, 0.0)


@pytest.mark.parametrize(("gap", "tied"), [(0.0, True), (1e-6, True), (4e-6, False)])
def test_ties_are_values_that_the_splitting_may_confuse(gap, tied):
    """A hundred times 1e-8 of the largest reward, 2; ties with pairs that were not observed do not count."""
    moves = {("s", name): Move(reward, {"goal": 1.0}) for name, reward in (("a", -2.0), ("b", -2.0 - gap), ("c", 0.0))}
    model = from_moves("bandit", moves, start="s")
    target = relaxed_target(Dataset.from_pairs(model, [("s", "a"), ("s", "b")]), 0.0, 1.0)
    coordinates = Coordinates(target, batch_chart(model))
    places = ([-5.0, -5.0], [5.0, 5.0], [-5.0, 5.0])
    low, high, both = (as_point(coordinates, np.tile(x, (3, 1)), np.zeros((0, 2))) for x in places)
    assert np.asarray(coordinates.weigh(low).tied).tolist() == [tied]
    assert np.asarray(coordinates.weigh(both).tied).tolist() == [tied], "somewhere is enough"
    assert np.asarray(coordinates.weigh(high).tied).tolist() == [False], "the third action is better"
