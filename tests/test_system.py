"""What compiled programs take of a posterior: every array against the target's, and small formulas one by one."""

from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from open_quadrature import TWO, landed
from scipy import stats
from wandering import SEEN, own_priors, two_rings, wandering

from bellmanifold._util.jax_setup import random_key
from bellmanifold.chart.batch import TooLargeError, batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.coordinates import Coordinates, Loop
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.system import (
    Drawn,
    Point,
    chart_of,
    drawn_laws,
    from_normals,
    normal_point,
    system_of,
)
from bellmanifold.posteriors.target import ValuePrior, noisy_target, relaxed_target
from bellmanifold.posteriors.weight import _ties, log_mixture, lower_exits
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation


def systems(coordinates):
    return system_of(coordinates, batch_chart(coordinates.target.model))


def crowds():
    """Two states with an observed action and two or three others; a third that no data touch. Priors have means."""
    moves = {(s, f"a{k}"): Move(-1.0 - k, {"goal": 1.0}) for s, n in (("s", 3), ("t", 4), ("far", 2)) for k in range(n)}
    model = from_moves("crowds", moves, start="far")
    in_t = model.pair_state == model.state_index["t"]
    prior = ValuePrior(np.where(in_t, -2.0, 1.5), np.where(in_t, 0.5, 3.0))
    return relaxed_target(Dataset.from_pairs(model, [("s", "a0"), ("t", "a0")]), 0.0, prior)


def test_arrays_of_a_system():
    """A state without data is held at 0 by its first pair; only free pairs stand for others; loops have exits."""
    target = crowds()
    model, index = target.model, target.model.pair_index
    loops = (Loop((0,), (index["s", "a1"],)), Loop((1,), (index["t", "a1"], index["s", "a1"])))
    found = systems(Coordinates(target, lingering=loops))
    idle = index["far", "a0"]
    free = {index["s", "a1"], index["t", "a1"]}
    assert set(np.flatnonzero(found.free)) == free | {idle}
    seen, unseen = ("sa0", "ta0"), ("sa1", "sa2", "ta1", "ta2", "ta3")
    assert set(np.flatnonzero(found.solved)) == {index[name[0], name[1:]] for name in seen}
    assert set(np.flatnonzero(found.unseen)) == {index[name[0], name[1:]] for name in unseen}
    assert np.asarray(found.prior_mean).tolist() == [0.0 if i == idle else m for i, m in enumerate(target.prior.mean)]
    assert np.asarray(found.prior_sd).tolist() == target.prior.sd.tolist()
    groups = {index["s", "a1"]: 2, index["t", "a1"]: 3}
    assert np.asarray(found.alternatives).tolist() == [groups.get(i, 1) for i in range(model.n_pairs)]
    assert [set(np.flatnonzero(row)) for row in np.asarray(found.exits)] == [set(loop.exits) for loop in loops]
    assert float(found.tie_width) == 100 * Coordinates(target).tie_width
    assert (found.own_precision.shape, found.own_mean.shape, found.knots.shape, found.log_scale.shape) == ((0,),) * 4
    assert (found.open.shape, found.seen.shape, found.subsets) == ((0,), (2, 0), ())
    assert (found.exact, found.centred, found.splits, found.flat) == (True, False, False, False), "loops split no ties"
    assert systems(Coordinates(target, lingering=loops[:1])).splits, "one is enough"
    assert not np.asarray(found.cut).any()
    assert np.asarray(found.reward).tolist() == target.reward.tolist()
    assert np.asarray(found.width).tolist() == target.scale.tolist()


def test_systems_of_cuts_and_of_inferred_noise():
    """Each subset of a cut solves those pairs whose digit it has; own sds and the table of eta go along."""
    target = relaxed_target(Dataset.complete(two_rings()), 0.5, 3.0)
    index = target.model.pair_index
    pair, stay = index["a", "round"], index["d", "stay"]
    cut = Coordinates(target, cut=(pair, stay), freed=(pair,))
    found = systems(cut)
    assert set(np.flatnonzero(found.cut)) == {pair, stay}
    assert set(np.flatnonzero(found.solved)) == set(range(target.model.n_pairs)) - {pair}
    pairs = np.asarray(found.layout.pair)
    for block, subsets in zip(found.layout.blocks, found.subsets, strict=True):
        own = [place for place, i in enumerate(pairs[block.own]) if i in (pair, stay)]
        assert len(subsets) == 2 ** len(own)
        for number, row in enumerate(np.asarray(subsets)):
            missing = [place for digit, place in enumerate(own) if not number >> digit & 1]
            assert np.flatnonzero(~row).tolist() == missing
    assert systems(replace(cut, centred=True)).subsets == ()
    told = [Observation("a", "go", -1.0), Observation("a", "go", -1.5), Observation("b", "back", 0.5, 0.25)]
    noisy = noisy_target(Dataset.from_pairs(wandering(), told), HalfNormal(0.8), 2.5)
    system = systems(Coordinates(noisy))
    assert np.asarray(system.own_precision).tolist() == noisy.own_precision.tolist()
    assert np.asarray(system.own_mean).tolist() == noisy.own_mean.tolist()
    assert np.asarray(system.knots).tolist() == noisy.noise_scale.normal.tolist()
    assert np.asarray(system.log_scale).tolist() == noisy.noise_scale.log_scale.tolist()
    assert normal_point(random_key(1), system, 3).z.shape == (1, 3)


def test_numbers_of_a_point_come_from_keys_of_their_own():
    """Pairs and noise scales from the halves of the key, coins from the key and 1; laws are those that were drawn."""
    target = crowds()
    key, pairs = random_key(8), target.model.n_pairs
    system = systems(Coordinates(target, lingering=(Loop((0,), (target.model.pair_index["s", "a1"],)),)))
    drawn = Drawn(jnp.zeros((1, 2, 5)), jnp.ones((1, 5)))
    found = normal_point(key, system, 5, drawn)
    of_pairs, of_scales = jax.random.split(key)
    np.testing.assert_array_equal(found.x, jax.random.normal(of_pairs, (pairs, 5)))
    np.testing.assert_array_equal(found.z, jax.random.normal(of_scales, (0, 5)))
    np.testing.assert_array_equal(found.coin, jax.random.normal(jax.random.fold_in(key, 1), (1, 5)))
    assert (found.log_law is drawn.log_law, found.concentration is drawn.concentration) == (True, True)
    without = normal_point(key, systems(Coordinates(target)), 5)
    assert (without.coin.shape, without.log_law) == ((0, 5), None)
    raised, x = np.asarray(from_normals(system, found).x), np.asarray(found.x)
    groups = {target.model.pair_index[s, "a1"]: n for s, n in (("s", 2), ("t", 3))}
    for i in range(pairs):
        np.testing.assert_array_equal(raised[i], x[i : i + groups.get(i, 1)].max(axis=0))


def test_hashes_of_policies_are_fixed():
    """Odd numbers below 2^64 that depend on nothing but their count: answers do not change from run to run."""
    moves = {(f"s{k:02}", action): Move(-1.0, {"goal": 1.0}) for k in range(40) for action in "abc"}
    found = batch_chart(from_moves("bandits", moves, start="s00")).mixer
    half = np.random.default_rng(0x5EED).integers(0, 2**63, 40, dtype=np.uint64)
    assert [int(number) for number in found] == [2 * int(number) + 1 for number in half]


def test_when_residuals_do_not_matter():
    """An exact posterior in the chart's coordinates, without ties or without determinants."""
    rings = systems(Coordinates(relaxed_target(Dataset.complete(two_rings()), 0.0, 3.0)))
    loops = systems(Coordinates(relaxed_target(Dataset.from_pairs(wandering(), SEEN), 0.0, 3.0)))
    assert ["policies" in {block.way for block in one.layout.blocks} for one in (rings, loops)] == [False, True]
    for exact, centred, splits in product([True, False], repeat=3):
        options = {"exact": exact, "centred": centred, "splits": splits}
        assert replace(rings, **options).ignores_residuals == (exact and not centred)
        assert replace(loops, **options).ignores_residuals == (exact and not centred and not splits)


def test_prior_values_and_residuals_of_points(rng):
    """Formula by formula, with a prior for each pair; values that nothing has count as 0 for what lies ahead."""
    model = wandering()
    target = relaxed_target(Dataset.from_pairs(model, SEEN), 0.3, own_priors(model))
    system = systems(Coordinates(target))
    x = rng.normal(size=(model.n_pairs, 4))
    mean, sd = target.prior.mean[:, None], target.prior.sd[:, None]
    np.testing.assert_allclose(system.log_prior(jnp.asarray(x)), stats.norm.logpdf(x, mean, sd))
    free = Coordinates(target).free
    found = np.asarray(system.values(jnp.asarray(x)))
    np.testing.assert_allclose(found[free], (mean + sd * x)[free])
    assert np.isneginf(found[~free]).all()
    q = x.copy()
    q[model.pair_state == model.state_index["b"]] = -np.inf
    top = np.maximum.reduceat(q, model.pair_start[:-1], axis=0)
    ahead = np.zeros((model.n_pairs, 4))
    for entry, pair in enumerate(model.next_pair):
        state = model.next_state[entry]
        if state < model.n_states and model.states[state] != "b":
            ahead[pair] += model.next_prob[entry] * top[state]
    np.testing.assert_allclose(system.residuals(system.law, jnp.asarray(q)), q - ahead)


def test_what_is_followed_of_open_laws():
    """The probability of every landing that was seen, and the concentration; nothing where laws are given."""
    data = landed(TWO, -1.0, (1, 2, 1))
    whole, learnt, _ = close_laws(data, "dirichlet")
    target = replace(relaxed_target(replace(data, model=whole), 0.0, 2.0), laws=learnt)
    system = systems(Coordinates(target))
    law = np.array([[0.2, 0.5, 0.3], [0.6, 0.0, 0.4]])  # of two points
    concentration = np.array([[0.7, 2.5]])
    with np.errstate(divide="ignore"):
        point = Point(*(jnp.zeros((n, 2)) for n in (3, 0, 0)), jnp.log(law.T)[None], jnp.asarray(concentration))
    landings = [law[:, landing] for _, landing in zip(*learnt.seen, strict=True)]
    np.testing.assert_allclose(system.tracked_values(point), [*landings, concentration[0]], atol=1e-12)
    assert system.tracked_values(point._replace(log_law=None)).shape == (0, 2)
    assert system.tracked_values(point._replace(concentration=None)).shape == (0, 2)
    assert np.asarray(system.open).tolist() == learnt.pairs.tolist()
    drawn = drawn_laws(learnt, np.random.default_rng(4), 3)
    rng = np.random.default_rng(4)
    alone = learnt.draw_concentration(rng, 3)
    np.testing.assert_array_equal(drawn.concentration, alone[None])
    np.testing.assert_array_equal(drawn.log_law, learnt.draw(rng, alone))
    assert drawn_laws(None, rng, 3) is None


def test_charts_of_agents_know_what_was_observed_alone():
    """Others know the whole problem; laws of very many states are not kept as dense tables, and refused."""
    target = relaxed_target(Dataset.from_pairs(wandering(), SEEN[:1]), 0.3, 2.0)
    known, whole = (chart_of(target, only_observed=only).layout.blocks for only in (True, False))
    assert [block.way for block in known] == ["sweeps"], "one pair meets no state again"
    assert "policies" in {block.way for block in whole}
    assert len(chart_of(target).layout.blocks) == len(whole)
    data = landed(TWO, -1.0, (1, 2, 1))
    model, learnt, _ = close_laws(data, "dirichlet")
    fits = replace(relaxed_target(replace(data, model=model), 0.0, 2.0), laws=learnt)
    assert chart_of(fits).layout.slot.shape == (2, 2)
    wide = replace(learnt, landed=learnt.landed.copy())
    wide.landed.resize((1, 10**6))
    with pytest.raises(TooLargeError, match="open laws may lead to 1000000 states"):
        chart_of(replace(fits, laws=wide))


def two_loops():
    """Loops at s and at t, the second with two exits; the coins of the first come first."""
    target = crowds()
    index = target.model.pair_index
    free = [index["s", "a1"], index["t", "a1"]]
    loops = (Loop((target.model.state_index["s"],), (free[0],)), Loop((target.model.state_index["t"],), (free[1],)))
    return target, free, systems(Coordinates(target, lingering=loops))


def test_each_loop_has_a_coin(rng):
    """Heads lower the exits of one loop alone: to their quantile below what its observed action is worth, -1."""
    target, free, system = two_loops()
    x = rng.normal(size=(target.model.n_pairs, 5))
    x[:, 4] = -60.0
    coin = np.array([[0.5, -0.5, 0.5, 0.0, 0.5], [-0.5, 0.5, 2.0, -1.0, 0.5]])
    point = Point(jnp.asarray(x), jnp.zeros((0, 5)), jnp.asarray(coin))
    found = np.asarray(jax.jit(lower_exits)(system, system.laws(point), point))
    for loop, i in enumerate(free):
        law = stats.norm(target.prior.mean[i], target.prior.sd[i])
        for k in range(5):
            lower = law.ppf(max(stats.norm.cdf(x[i, k]) * law.cdf(-1.0), 1e-300))
            expected = lower if coin[loop, k] > 0 else target.prior.mean[i] + target.prior.sd[i] * x[i, k]
            assert found[i, k] == pytest.approx(expected, rel=1e-6)


def test_the_density_of_all_tosses_is_a_product_over_loops():
    """(1 + Phi^-k) / 2 where no exit is greedy, else 1/2; a ceiling far below the prior is held at 1e-300."""
    target, free, system = two_loops()
    index = target.model.pair_index
    q = np.full((target.model.n_pairs, 4), -np.inf)
    q[index["s", "a0"]] = [-1.0, -1.0, -2.5, -200.0]
    q[index["t", "a0"]] = [-1.5, -1.5, -1.5, -1.5]
    q[free[0]] = [-2.0, 0.5, -2.5, -300.0]
    q[free[1]] = [-3.0, -3.0, 2.0, -0.5]
    law = [stats.norm(target.prior.mean[i], target.prior.sd[i]) for i in free]
    first = [0.5 * (1.0 + law[0].cdf(-1.0) ** -2), 0.5, 0.5]
    second = [0.5 * (1.0 + law[1].cdf(-1.5) ** -3)] * 2 + [0.5]
    found = np.asarray(jax.jit(log_mixture)(system, jnp.asarray(q)))
    np.testing.assert_allclose(np.exp(found[:3]), np.multiply(first, second), rtol=1e-9)
    assert found[3] == pytest.approx(600.0 * np.log(10.0) + 2.0 * np.log(0.5))
    np.testing.assert_array_equal(log_mixture(systems(Coordinates(target)), jnp.asarray(q)), np.zeros(4))


def test_ties_are_counted_among_exact_observed_actions_of_a_state():
    """States of one, two and three actions; within less than the width, not at it; relaxed and unseen ones do not.

    One of two points is enough: at the other nothing ties."""
    moves = {(s, f"a{k}"): Move(-1.0 - k, {"goal": 1.0}) for n, s in enumerate("abc") for k in range(n + 1)}
    model = from_moves("three", moves, start="a")
    target = relaxed_target(Dataset.complete(model), 0.0, 2.0)
    system = systems(Coordinates(target))
    width = float(system.tie_width)
    names = [state + action[1:] for state, action in map(model.pair_name, range(6))]

    find = jax.jit(lambda system, q: _ties(system, q, system.layout.greedy(q)[1]))

    def tied(system, other=None):
        """The states that tie, of values by pair, 0 by default, in units of the width."""
        q = jnp.asarray([[width * point.get(name, 0.0) for point in (other or apart, apart)] for name in names])
        found = np.asarray(find(system, q))
        return {model.states[s] for s in np.asarray(system.layout.state)[found]}

    apart = {"b1": -1.0, "c1": -5.0, "c2": -9.0}
    assert tied(system) == set(), "one action alone ties with nothing, and a whole width is no tie"
    assert tied(system, apart | {"b1": -0.9}) == {"b"}
    assert tied(system, apart | {"c2": -0.5}) == {"c"}
    assert tied(system, apart | {"c1": -9.0}) == set(), "those that tie have to be the best"
    relaxed = replace(system, width=system.width.at[names.index("b1")].set(0.3))
    assert tied(relaxed, apart | {"b1": -0.9, "c1": 0.0}) == {"c"}
    unsolved = replace(system, solved=system.solved.at[names.index("c0")].set(False))
    assert tied(unsolved, apart | {"c1": 0.0}) == set()
