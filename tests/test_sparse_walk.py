"""Walks on sparse systems: densities by a dense determinant, moves by hand, answers by the batch walker's.

Moves are followed with random numbers that are given; laws of largest values come from SciPy.
"""

import copy
from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from open_quadrature import open_model
from problems import random_problem
from scipy import stats

from bellmanifold import envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors import walk
from bellmanifold.posteriors.batch_walk import BatchWalker
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.kernels import Gaussian, Laplace, StudentT, Uniform
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.policies import action_probabilities
from bellmanifold.posteriors.sparse_system import SparseSystem, State
from bellmanifold.posteriors.sparse_walk import (
    SparseWalker,
    _slice,
    _swap_idle,
    flip,
    leap,
    refresh,
    step,
    turn,
    visit,
)
from bellmanifold.posteriors.system import Point, system_of
from bellmanifold.posteriors.target import ValuePrior, noisy_target, relaxed_target
from bellmanifold.posteriors.weight import weigh
from bellmanifold.problem.dataset import Dataset

SIGMA = 2.0


def sparse(target):
    return SparseSystem(Coordinates(target))


def crowd():
    """State s has 4 actions, t 3, u 2; the first of each leads on, to t, u or out."""
    moves = {("s", f"a{k}"): Move(-1.0, {"t": 0.5, "u": 0.5} if k == 0 else {"goal": 1.0}) for k in range(4)}
    moves |= {("t", f"a{k}"): Move(-2.0, {"u": 0.7, "s": 0.3} if k == 0 else {"goal": 1.0}) for k in range(3)}
    moves |= {("u", f"a{k}"): Move(-3.0, {"goal": 1.0}) for k in range(2)}
    return from_moves("crowd", moves, start="s")


def first_seen(epsilon):
    """The first actions of s and t were seen: u is touched, and 3, 2 and 2 actions are not known."""
    return relaxed_target(Dataset.from_pairs(crowd(), [("s", "a0"), ("t", "a0")]), epsilon, SIGMA)


def dense_log_det(model, observed, q):
    """log |det A|, A_ij = 1(i = j) - p(s_j | i) 1(a_j greedy at s_j) for observed i and j."""
    seen, greedy = np.flatnonzero(observed), model.greedy(q)
    matrix = np.eye(len(seen))
    for a, i in enumerate(seen):
        for e in range(model.next_start[i], model.next_start[i + 1]):
            s = model.next_state[e]
            if s < model.n_states:
                matrix[a] -= model.next_prob[e] * (seen == greedy[s])
    return np.linalg.slogdet(matrix)[1]


def residual(model, q):
    """g(q) of every pair, from the best values of the next states."""
    return q - (model.backup(model.best(q)) - model.reward)


def test_points_solve_the_equations_and_weigh_as_the_determinant_says(rng):
    """Random problems: residuals are r + epsilon x, and the likelihood is prod N(q_i; 0, sigma^2) / |det A|."""
    found = 0
    for _ in range(30):
        model = random_problem(rng, states=4, reward_kind="costs", goal_share=0.3)
        pairs = np.flatnonzero(rng.random(model.n_pairs) < 0.7)
        target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.3, SIGMA)
        try:
            system = sparse(target)
        except UnsupportedError:  # observed pairs trap some state
            continue
        x = rng.normal(size=system.size)
        state = system.evaluate(x, None)
        assert state.x is x
        if state.policy is None:
            assert state.log_likelihood == -np.inf
            continue
        found += 1
        coupled = target.coupled[model.pair_state]
        np.testing.assert_array_equal(state.policy[target.coupled], model.greedy(state.q)[target.coupled])
        g = residual(model, state.q)[pairs]
        np.testing.assert_allclose(g, target.reward[pairs] + 0.3 * x[len(system.free) :], atol=1e-9)
        np.testing.assert_array_equal(state.q[system.free], system.values(x))
        others = coupled & ~target.observed & ~np.isin(np.arange(model.n_pairs), system.free)
        assert (state.q[others] == -np.inf).all()
        square = ((state.q[pairs] / SIGMA) ** 2).sum()
        expected = -0.5 * square - dense_log_det(model, target.observed, state.q)
        assert state.log_likelihood == pytest.approx(expected, abs=1e-9)
    assert found > 10


def test_coordinates_are_counted():
    """Three states with unobserved pairs and two residuals; infinitesimal ones are not integrated over."""
    relaxed, exact = sparse(first_seen(0.3)), sparse(first_seen(0.0))
    assert (relaxed.size, relaxed.coordinates.dimension) == (5, 5)
    assert (exact.size, exact.coordinates.dimension) == (5, 3)
    assert relaxed.alternatives.tolist() == [3, 2, 2]
    assert relaxed.free.tolist() == [1, 5, 7]
    assert relaxed.coordinates.stand_in.tolist() == [0, 1, 1, 1, 4, 5, 5, 7, 7]
    np.testing.assert_allclose(relaxed.width, [0.3, 0.3])
    np.testing.assert_allclose(exact.split, [2e-8, 2e-8])
    assert not exact.width.any()


def test_the_largest_of_several_normals_has_the_power_of_their_law():
    """P(largest of k <= v) = Phi(v / sigma)^k is uniform, as Phi(x) is; one alone is sigma x itself."""
    system = sparse(first_seen(0.3))
    x = np.array([-1.3, 0.2, 2.5, 9.0, 9.0])
    values = system.values(x)
    np.testing.assert_allclose(stats.norm.cdf(values / SIGMA) ** [3, 2, 2], stats.norm.cdf(x[:3]), rtol=1e-12)
    assert [system.value(float(x[k]), k) for k in range(3)] == pytest.approx(values.tolist(), rel=1e-14)
    alone = sparse(relaxed_target(Dataset.from_pairs(envs.deep_sea(1), [("0,0", "left")]), 0.3, SIGMA))
    np.testing.assert_array_equal(alone.values(np.array([0.7, 0.0])), [1.4])
    assert alone.value(0.7, 0) == 1.4


def test_moments_of_one_of_several_values_below_the_largest():
    """With probability 1/k it is the largest, m; else a normal cut off at m: SciPy's truncated normal."""
    system = sparse(first_seen(0.3))
    q = np.array([-1.0, 0.5, -np.inf, -np.inf, -2.0, -1.5, -np.inf, 3.0, -np.inf])
    mean, variance = system.member_moments(q)
    assert mean[[0, 4]].tolist() == [-1.0, -2.0]
    assert variance[[0, 4]].tolist() == [0.0, 0.0]
    for pair, k in zip([1, 5, 7], [3, 2, 2], strict=True):
        m = q[pair]
        below = stats.truncnorm(-np.inf, m / SIGMA, scale=SIGMA)
        first, square = below.mean(), below.var() + below.mean() ** 2
        assert mean[pair] == pytest.approx((m + (k - 1) * first) / k, rel=1e-9)
        second = (m**2 + (k - 1) * square) / k
        assert variance[pair] + mean[pair] ** 2 == pytest.approx(second, rel=1e-9)


def test_residuals_that_split_ties_do_not_tilt_the_prior():
    """Rewards of 20,000 prior scales: residuals of 1e-6 of a scale change q^2 by 0.1; the prior is taken without."""
    moves = {("s", "on"): Move(-2e4, {"t": 1.0}), ("t", "on"): Move(-2e4, {"goal": 1.0})}
    model = from_moves("far", moves, start="s")
    system = sparse(relaxed_target(Dataset.complete(model), 0.0, 1.0))
    for x in (np.zeros(2), np.array([3.0, -2.0])):
        assert system.evaluate(x, None).log_likelihood == pytest.approx(-0.5 * (4e4**2 + 2e4**2), rel=1e-14)
    tilted = system.evaluate(np.array([3.0, -2.0]), None).q
    np.testing.assert_allclose(tilted - [-4e4, -2e4], [1e-6, -2e-6], rtol=1e-4)


def test_residuals_that_split_ties_do_not_undo_a_loop_that_costs_less():
    """Staying costs 1e-9, a residual pays 3e-8: the exact posterior knows better, a relaxed one finds it improper."""
    data = Dataset.from_pairs(envs.two_state(), [("s1", "stay", -1e-9), ("s1", "go", -1.0)])
    pays = np.array([3.0, 0.0])
    exact = sparse(relaxed_target(data, 0.0, 1.0)).evaluate(pays, None)
    assert exact.policy.tolist() == [1]
    assert exact.log_likelihood == pytest.approx(-1.0, abs=1e-6)
    relaxed = sparse(relaxed_target(data, 1e-8, 1.0)).evaluate(pays, None)
    assert relaxed.policy is None
    assert relaxed.log_likelihood == -np.inf


def test_states_that_data_do_not_touch_are_held_at_0():
    model = envs.deep_sea(3)
    system = sparse(relaxed_target(Dataset.from_pairs(model, [("0,0", "left")]), 0.3, SIGMA))
    state = system.evaluate(np.zeros(system.size), None)
    idle = ~system.target.coupled
    assert idle.sum() == 4
    np.testing.assert_array_equal(model.best(state.q)[idle], np.zeros(4))


class Given(np.random.Generator):
    """A generator that gives out uniform and normal numbers from lists."""

    def __init__(self, uniform=(), normal=()):
        super().__init__(np.random.PCG64(0))
        self.uniform, self.normal = list(uniform), list(normal)

    def random(self, size=None):
        return self.uniform.pop(0) if size is None else np.array([self.uniform.pop(0) for _ in range(size)])

    def standard_normal(self, size=None):
        return self.normal.pop(0) if size is None else np.array([self.normal.pop(0) for _ in range(size)])


def state_at(log_likelihood, x=0.0):
    return State(np.array([x]), np.zeros(1), log_likelihood, np.zeros(1, dtype=np.int64))


def test_a_bracket_shrinks_towards_the_state():
    """Angles 3/2 pi, then -1/4 pi and 5/8 pi: from the bracket, cut where the last angle was, on its side of 0."""
    tried = []

    def at(angle):
        tried.append(angle / np.pi)
        return state_at(-1.0 if len(tried) < 4 else 0.0, angle)

    found = _slice(state_at(0.0), at, Given([0.5, 0.75, 0.125, 0.5, 0.25]))
    assert tried == pytest.approx([1.5, -0.25, 0.625, -0.25 + 0.25 * 0.875])
    assert found.x[0] == pytest.approx(np.pi * tried[-1])


@pytest.mark.parametrize(("height", "accepted"), [(-0.69, True), (-0.70, False)])
def test_a_point_must_be_above_the_level(height, accepted):
    """The level is log u below the state: log 0.5 = -0.693; the second angle is accepted for certain."""
    heights = iter([height, 0.0])
    found = _slice(state_at(0.0), lambda angle: state_at(next(heights), angle), Given([0.5, 0.25, 0.5]))
    assert (found.x[0] == pytest.approx(0.5 * np.pi)) == accepted


def start_seen():
    """Deep sea 2: the start's pairs were seen; the first of the two pairs of each state below stands for both."""
    return relaxed_target(Dataset.from_pairs(envs.deep_sea(2), [("0,0", "left"), ("0,0", "right")]), 0.3, SIGMA)


def test_all_residuals_turn_together():
    """A third of a turn with the level far below: cos and sin of 2 pi / 3, unobserved values stay."""
    system = sparse(start_seen())
    x = np.array([0.1, 0.2, 0.3, 0.4])
    here = system.evaluate(x, None)
    there = turn(system, here, Given([1e-300, 1 / 3], [1.0, -1.0]))
    cos, sin = np.cos(2 * np.pi / 3), np.sin(2 * np.pi / 3)
    np.testing.assert_allclose(there.x, [0.1, 0.2, 0.3 * cos + sin, 0.4 * cos - sin])
    np.testing.assert_allclose(there.q, system.evaluate(there.x, None).q)


def seen_below(epsilon=0.3):
    """All pairs but the last of the state below on the left were seen: that one is idle or not."""
    model = envs.deep_sea(2)
    pairs = [0, 1, 2, 4, 5]
    return relaxed_target(Dataset(model, np.array(pairs), model.reward[pairs]), epsilon, SIGMA)


class Counting(SparseSystem):
    """Remembers what was evaluated."""

    def __init__(self, coordinates):
        super().__init__(coordinates)
        self.evaluated = []

    def evaluate(self, x, start, laws=None):
        self.evaluated.append(x)
        return super().evaluate(x, start, laws)


def test_a_visit_that_stays_idle_costs_nothing():
    system = Counting(Coordinates(seen_below()))
    here = system.evaluate(np.array([-2.0, 0, 0, 0, 0, 0]), None)
    ceiling = here.q[2]
    assert here.q[3] == -4.0 < ceiling, "it is not the best pair of its state"
    system.evaluated.clear()
    there = visit(system, here, 0, Given([0.5, stats.norm.cdf(-1.0)]))
    assert not system.evaluated
    np.testing.assert_allclose(there.x, [-1.0, 0, 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(there.q, [*here.q[:3], -2.0, *here.q[4:]])
    assert there.log_likelihood == here.log_likelihood
    above = visit(system, here, 0, Given([1e-300, stats.norm.cdf(1.0)]))
    assert len(system.evaluated) == 1, "above the ceiling everything may change"
    assert above.q[3] == pytest.approx(2.0)
    assert above.policy[1] == 3
    visit(system, above, 0, Given([1e-300, stats.norm.cdf(-2.0)]))
    assert len(system.evaluated) == 2, "the best pair is not idle, wherever it goes"
    assert here.x[0] == -2.0, "states are not written on"


class Steep(Counting):
    """The first number has to be within 1/2 of 1: elsewhere there is no likelihood."""

    def evaluate(self, x, start, laws=None):
        height = 0.0 if abs(x[0] - 1.0) < 0.5 else -np.inf
        return super().evaluate(x, start, laws)._replace(log_likelihood=height)


def test_a_visit_draws_from_the_prior_between_bounds_that_close_in():
    """From 1: the median 0 is too low, then quantiles of the normal above 0, below 2, until one lies in (1/2, 3/2)."""
    system = Steep(Coordinates(seen_below()))
    here = system.evaluate(np.array([1.0, 0, 0, 0, 0, 0]), None)
    assert here.policy[1] == 3, "the value is its state's best"
    below = [stats.truncnorm(0.0, np.inf).cdf(2.0), stats.truncnorm(0.0, 2.0).cdf(1.25)]
    system.evaluated.clear()
    there = visit(system, here, 0, Given([0.5, 0.5, *below]))
    np.testing.assert_allclose([x[0] for x in system.evaluated], [0.0, 2.0, 1.25], atol=1e-9)
    assert there.x[0] == pytest.approx(1.25)


@pytest.mark.slow
def test_visits_keep_the_law_of_a_value_far_below_its_prior():
    """The best m of four unseen actions, 8 + m was seen: p(m) ~ phi(m/2) Phi(m/2)^3 phi((8 + m)/2), by quadrature.

    Mean and quartiles of 16 chains within 7 standard errors: false alarms below 2e-5 for 15 degrees of freedom.
    """
    moves = {("s", "a"): Move(8.0, {"t": 1.0})} | {("t", f"a{k}"): Move(0.0, {"goal": 1.0}) for k in range(4)}
    model = from_moves("below", moves, start="s")
    system = sparse(relaxed_target(Dataset.from_pairs(model, [("s", "a")]), 0.0, SIGMA))
    assert system.alternatives.tolist() == [4]
    grid = np.linspace(-14.0, 6.0, 20001)
    density = stats.norm.pdf(grid / SIGMA) * stats.norm.cdf(grid / SIGMA) ** 3 * stats.norm.pdf((8 + grid) / SIGMA)
    share = np.cumsum(density) / density.sum()
    quartiles = grid[np.searchsorted(share, [0.25, 0.5, 0.75])]
    rng, found = np.random.default_rng(11), []
    for _ in range(16):
        here, values = system.evaluate(rng.standard_normal(system.size), None), []
        for k in range(260):
            here = visit(system, here, 0, rng)
            values += [here.q[system.free[0]]] if k >= 20 else []
        found.append([np.mean(values), *(np.mean(values <= quartile) for quartile in quartiles)])
    error = np.std(found, axis=0, ddof=1) / 4.0
    expected = [grid @ density / density.sum(), 0.25, 0.5, 0.75]
    assert np.all(np.abs(np.mean(found, axis=0) - expected) < 7 * error)
    assert error[1:].max() < 0.02, "sharp enough to tell"


@pytest.mark.parametrize(
    ("leak", "actions", "worth"),
    [
        pytest.param(0.05, 1, -2.0, marks=pytest.mark.slow),
        pytest.param(1e-3, 2, -2.0, marks=pytest.mark.slow),
        (0.2, 1, 0.5),
    ],
)
def test_flips_find_the_mode_that_nobody_leaves_by_choice(leak, actions, worth):
    """One state that is left with probability L or by unseen actions, sigma 1: the chance of staying in closed form.

    Worth v if nobody leaves by choice. With k unseen actions p(x) = k phi(x) Phi(x)^(k - 1) for the best of them,
    P(stay) = a / (a + b), a = Phi(v)^k phi(v) / L, b = int_(x > v) p(x) phi(v L + (1 - L) x) dx. Within 7 standard
    errors of 16 chains: false alarms below 1e-5 for 15 degrees of freedom. In the last case both modes have prior mass.
    """
    moves = {("s", "stay"): Move(worth * leak, {"s": 1.0 - leak, "goal": leak})}
    moves |= {("s", f"exit{k}"): Move(0.0, {"goal": 1.0}) for k in range(actions)}
    target = relaxed_target(Dataset.from_pairs(from_moves("wall", moves, start="s"), [("s", "stay")]), 0.0, 1.0)
    system, rng = sparse(target), np.random.default_rng(12)
    assert system.lingers.tolist() == [True]
    inside = stats.norm.cdf(worth) ** actions * stats.norm.pdf(worth) / leak
    x = np.linspace(worth, 9.0, 200001)
    density = actions * stats.norm.pdf(x) * stats.norm.cdf(x) ** (actions - 1)
    outside = (density * stats.norm.pdf(worth * leak + (1 - leak) * x)).sum() * (x[1] - x[0])
    found = []
    for _ in range(16):
        here, stays = system.evaluate(rng.standard_normal(system.size), None), 0
        for _ in range(150):
            here = flip(system, visit(system, here, 0, rng), 0, rng)
            stays += here.policy[0] == 0
            assert (here.policy[0] == 0) == (here.q[system.free[0]] < here.q[0])
        found.append(stays / 150)
    error = np.std(found, ddof=1) / 4.0
    assert abs(np.mean(found) - inside / (inside + outside)) < 7 * error
    assert error < 0.03, "sharp enough to tell"


def waiting_room(leak, actions, waiting):
    """Some states may wait, at a cost, until they slip to s (worth 5/2 less than s), or leave for -1/2; sigma is 1.

    Of s nothing was seen but that it is slipped to; its unseen actions are worth x at best.
    """
    moves = {("s", f"exit{k}"): Move(0.0, {"goal": 1.0}) for k in range(actions)}
    for k in range(waiting):
        moves[(f"t{k}", "wait")] = Move(-2.5 * leak, {f"t{k}": 1.0 - leak, "s": leak})
        moves[(f"t{k}", "out")] = Move(-0.5, {"goal": 1.0})
    model = from_moves("waiting room", moves, start="t0")
    seen = [(f"t{k}", action) for k in range(waiting) for action in ("wait", "out")]
    return relaxed_target(Dataset.from_pairs(model, seen), 0.0, 1.0)


@pytest.mark.parametrize(
    ("leak", "actions", "waiting", "visited", "steps"),
    [
        pytest.param(0.1, 2, 2, True, 200, marks=pytest.mark.slow),
        pytest.param(0.02, 1, 1, True, 200, marks=pytest.mark.slow),
        pytest.param(0.1, 2, 2, False, 500, marks=pytest.mark.slow),
        (0.1, 2, 2, False, 70),
    ],
)
def test_leaps_find_the_mode_in_which_others_wait(leak, actions, waiting, visited, steps):
    """The best x of k unseen actions, awaited by n states: the chance that they wait, by quadrature.

    They wait where x > 2. p(x) ~ phi(x) Phi(x)^(k - 1) (phi(x - 5/2) / L)^n there, and below with phi of what waiting
    once and leaving then is worth, (x - 5/2) L - (1 - L) / 2. With visits and by leaps alone, the chance and the mean
    of x within 7 standard errors of 16 chains: false alarms below 2e-5 for 15 degrees of freedom.
    """
    system, rng = sparse(waiting_room(leak, actions, waiting)), np.random.default_rng(13)
    assert (system.awaited.tolist(), system.lingers.tolist()) == ([True], [False])
    x = np.linspace(-8.0, 8.0, 320001)
    height = np.where(x > 2.0, stats.norm.pdf(x - 2.5) / leak, stats.norm.pdf((x - 2.5) * leak - (1 - leak) / 2))
    density = stats.norm.pdf(x) * stats.norm.cdf(x) ** (actions - 1) * height**waiting
    expected = np.array([density[x > 2.0].sum(), x @ density]) / density.sum()
    found = []
    for _ in range(16):
        here, values = system.evaluate(rng.standard_normal(system.size), None), []
        for k in range(steps):
            here = leap(system, visit(system, here, 0, rng) if visited else here, 0, rng)
            values += [here.q[system.free[0]]] if k >= 20 else []
        found.append([np.mean(np.array(values) > 2.0), np.mean(values)])
    error = np.std(found, axis=0, ddof=1) / 4.0
    assert np.all(np.abs(np.mean(found, axis=0) - expected) < 7 * error)
    assert error[0] < 0.03, "sharp enough to tell"


class Threefold(Counting):
    """Three times as likely where the first number is above 2.2."""

    def evaluate(self, x, start, laws=None):
        return super().evaluate(x, start, laws)._replace(log_likelihood=np.log(3.0) if x[0] > 2.2 else 0.0)


@pytest.mark.parametrize(
    ("number", "where", "proposed", "ratio"),
    [
        pytest.param(2.5, 0.0, stats.norm.ppf(0.25), 1 / 3, id="falls over the median"),
        pytest.param(0.5, 0.5, stats.norm.isf(0.5 * 0.0005**0.5), 3 / (0.0005**-0.5 - 1), id="rises into a mode"),
        pytest.param(0.5, 1.0, stats.norm.isf(0.0005), 3 / 999, id="rises over a far bound"),
        pytest.param(2.5, 1.0, stats.norm.isf(0.0005), 1 / 999, id="rises within a mode"),
        pytest.param(3.5, 1.0, stats.norm.ppf(0.4995), 999 / 3, id="falls over a far bound"),
    ],
)
def test_a_leap_over_a_given_bound(number, where, proposed, ratio):
    """Bounds that leave 1/2 to 1/1000 above them, the middle of what lies beyond, odds L(y) (1 - a) / (L(x) a)."""
    system = Threefold(Coordinates(seen_below()))
    here = system.evaluate(np.array([number, 0, 0, 0, 0, 0]), None)
    assert here.policy[1] == 3, "the value is its state's best"
    there = leap(system, here, 0, Given([where, 0.5, min(0.999, 0.999 * ratio)]))
    assert there.x[0] == pytest.approx(proposed, abs=1e-9)
    assert there.q[3] == pytest.approx(SIGMA * proposed, abs=1e-8)
    if ratio < 1:
        assert leap(system, here, 0, Given([where, 0.5, 1.001 * ratio])) is here


def test_a_leap_of_an_idle_value_costs_nothing():
    """Below what its state is worth without it the likelihood is the same: only the odds of the bound count."""
    system = Counting(Coordinates(seen_below()))
    here = system.evaluate(np.array([-2.0, 0, 0, 0, 0, 0]), None)
    idle = here._replace(x=np.array([1.5, 0, 0, 0, 0, 0]))  # as if it were above the bound
    system.evaluated.clear()
    there = leap(system, idle, 0, Given([0.0, stats.norm.cdf(-1.5) / 0.5, 0.999]))
    assert not system.evaluated
    assert (there.x[0], there.q[3]) == (pytest.approx(-1.5), pytest.approx(-3.0))
    assert there.log_likelihood == here.log_likelihood


def test_idle_laws_are_swapped_as_if_all_were_solved_anew():
    """Other laws of pairs that are not played: their values and the likelihood of the whole point."""
    model = open_model(["s", "t"], [("s", "a"), ("s", "b"), ("t", "c"), ("t", "d")])
    after = [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 2), (2, 0)]
    pair, landing = np.array(after).T
    reward = np.array([-1.0, -3.0, -0.5, 0.0])[pair]
    data = Dataset(model, pair, reward, np.full(len(pair), np.nan), landing)
    whole, laws, _ = close_laws(data, "dirichlet", 1.0)
    prior = ValuePrior(np.array([0.5, -1.0, 2.0, 0.0]), np.array([1.0, 2.0, 0.7, 1.5]))
    target = replace(relaxed_target(replace(data, model=whole), 0.0, prior), laws=laws)
    system, rng, swapped = sparse(target), np.random.default_rng(5), 0
    for _ in range(20):
        here = system.evaluate(rng.standard_normal(system.size), None, system.drawer.draw(rng, 1.0))
        there = _swap_idle(system, system.drawer, here, rng)
        anew = system.evaluate(there.x, None, there.laws)
        swapped += not np.array_equal(here.laws.law.toarray(), there.laws.law.toarray())
        np.testing.assert_array_equal(anew.policy, here.policy)
        np.testing.assert_allclose(there.q, anew.q, rtol=1e-9)
        assert there.log_likelihood == pytest.approx(anew.log_likelihood, rel=1e-9)
    assert swapped > 4


def test_states_that_lingering_pairs_leave_for_are_awaited():
    """In a slippery grid of 3 x 3 moves into the left wall were seen from the middle: they slip up and down."""
    model = envs.grid(3, 3, slip=0.1)
    for action, awaited in {"left": ["0,0", "2,0"], "right": []}.items():
        system = sparse(relaxed_target(Dataset.from_pairs(model, [("1,0", action)]), 0.0, SIGMA))
        states = model.pair_state[system.free]
        assert [model.states[s] for s in states[system.awaited]] == awaited
        assert [model.states[s] for s in states[system.lingers]] == (["1,0"] if awaited else [])


def test_a_step_leaps_with_awaited_values():
    """A value alone is visited eight times, and leaps each time; the generators end at the same number."""
    system = sparse(waiting_room(0.1, 2, 2))
    here, rng, again = system.evaluate(np.zeros(system.size), None), np.random.default_rng(0), np.random.default_rng(0)
    there = step(system, here, rng)
    here = turn(system, here, again)
    for _ in range(8):
        here = leap(system, visit(system, here, 0, again), 0, again)
    np.testing.assert_array_equal(there.x, refresh(system, here, again).x)
    assert rng.random() == again.random()


def test_values_are_visited_in_turn():
    """A step visits eight values, the next step the next eight, and chains with more data go on counting."""
    model, pairs = envs.deep_sea(4), np.arange(12)
    target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.0, SIGMA)
    system, rng = Counting(Coordinates(target)), np.random.default_rng(0)
    assert len(system.free) == 4
    here, order = system.evaluate(rng.standard_normal(system.size), None), []
    for _ in range(3):
        system.evaluated.clear()
        there = step(system, here, rng)
        for before, x in zip([here.x, *system.evaluated], system.evaluated, strict=False):
            order += [k for k in np.flatnonzero(before[:4] != x[:4]) if not order or order[-1] != k]
        here = there
    assert here.visits == 24
    assert order == [k % 4 for k in range(24)], "all four are the best of their states and are evaluated when visited"
    walker = SparseWalker(Coordinates(target), rng, 1)
    walker.advance(rng, 2)
    assert SparseWalker(Coordinates(target), rng, 1, walker).states[0].visits == 16


def test_refreshed_values_follow_their_law_below_the_ceiling():
    """Of k values below c the largest is below t with probability (Phi(t) / Phi(c))^k: u of it at the drawn u."""
    model = envs.deep_sea(2)
    pairs = np.array([0, 1, 2])
    system = sparse(relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.3, SIGMA))
    x = np.array([-2.0, 0.5, 0.0, 0.0, 0.0])
    here = system.evaluate(x, None)
    assert system.alternatives.tolist() == [1, 2]
    there = refresh(system, here, Given([0.3, 0.6]))
    ceiling = here.q[2] / SIGMA
    assert stats.norm.cdf(there.q[3] / SIGMA) == pytest.approx(0.3 * stats.norm.cdf(ceiling), rel=1e-12)
    assert there.x[0] == pytest.approx(there.q[3] / SIGMA)
    assert (there.x[1:] == x[1:]).all(), "a best value is not idle, nor is a residual"
    assert (np.delete(there.q, 3) == np.delete(here.q, 3)).all()
    assert here.x[0] == -2.0
    worse = State(x, np.where(np.arange(6) == 2, 1.0, here.q), 0.0, np.array([0, 2, 5]))
    both = refresh(system, worse._replace(q=np.array([0, 0, 1.0, -1, 0.4, 0.8])), Given([0.3, 0.6]))
    expected = 0.6 * stats.norm.cdf(0.8 / SIGMA) ** 2
    assert stats.norm.cdf(both.x[1]) == pytest.approx(expected, rel=1e-12)
    assert stats.norm.cdf(both.q[4] / SIGMA) ** 2 == pytest.approx(expected, rel=1e-12)


class Logging(np.random.Generator):
    """Writes down what numbers are asked for: turns ask for several normals, refreshing for several uniform ones."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))
        self.asked = []

    def standard_normal(self, size=None):
        self.asked += ["turn"] if size is not None else []
        return super().standard_normal(size)

    def random(self, size=None):
        self.asked += ["refresh"] if size is not None else []
        return super().random(size)


def hopeless():
    """A loop that pays 5, give or take 0.1: every parameter is improper."""
    return relaxed_target(Dataset.from_pairs(envs.two_state(), [("s1", "stay", 5.0)]), 0.1, SIGMA)


@pytest.mark.parametrize(
    ("target", "visits", "refreshed"),
    [
        (seen_below(), 8, 1),
        (hopeless(), 0, 0),
        (relaxed_target(Dataset.complete(envs.deep_sea(2)), 0.3, SIGMA), 0, 1),
    ],
    ids=["unobserved", "lost", "complete"],
)
def test_what_a_step_is_made_of(target, visits, refreshed):
    """A turn, eight visits of unobserved values if there are any, and a refreshment; just turns where all is lost."""
    system, rng = sparse(target), Logging()
    here = system.evaluate(np.zeros(system.size), None)
    there = step(system, here, rng)
    assert rng.asked == ["turn"] + ["refresh"] * refreshed
    assert there.visits == visits
    assert (there is here) == (not refreshed)


@pytest.mark.parametrize("lost", [pytest.param(0, marks=pytest.mark.slow), 1, 4])
def test_chains_are_counted_and_averaged(lost):
    """Two stretches of four chains against their own steps, written out: tables, moments and lost chains."""
    target = start_seen()
    coordinates, model = Coordinates(target), target.model
    rng = np.random.default_rng(1)
    walker = SparseWalker(coordinates, rng, 4)
    walker.advance(rng, 3)
    for chain in range(lost):
        walker.states[chain] = walker.states[chain]._replace(log_likelihood=-np.inf, policy=None)
    system, states, again = walker.system, list(walker.states), copy.deepcopy(rng)
    found = walker.record(rng, 10)
    assert (found.lost, found.row.shape, found.chain.tolist()) == (lost, (4 - lost, 10), list(range(lost, 4)))
    if lost == 4:
        with pytest.raises(UnsupportedError, match="no chain found"):
            walk._result(coordinates, found, "")
        return
    q = np.zeros((4 - lost, 10, 6))
    for number, chain in enumerate(range(lost, 4)):
        for k in range(10):
            states[chain] = step(system, states[chain], again)
            q[number, k] = states[chain].q
    assert walker.states[3].x.tolist() == states[3].x.tolist()
    result = walk._result(coordinates, found, "")
    policies = np.array([[model.greedy(one) for one in chain] for chain in q])
    assert result.table.weight.sum() == 10 * (4 - lost)
    for k, weight in enumerate(result.table.weight):
        for row, count in zip(result.table.policy, weight, strict=True):
            assert (policies[k] == row).all(axis=1).sum() == count
    best = np.array([[model.best(one) for one in chain] for chain in q])
    np.testing.assert_array_equal(found.value, best)
    moments = np.array([[system.member_moments(one) for one in chain] for chain in q])[..., coordinates.stand_in]
    means, variances = moments[:, :, 0], moments[:, :, 1]
    np.testing.assert_allclose(result.q_mean.value, means.mean(axis=(0, 1)), rtol=1e-12)
    square = (means**2 + variances).mean(axis=(0, 1))
    np.testing.assert_allclose(result.q_sd.value, np.sqrt(square - means.mean(axis=(0, 1)) ** 2), rtol=1e-9)
    error = means.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(4 - lost)
    np.testing.assert_allclose(result.q_mean.se, error, rtol=1e-9)


def test_a_chain_that_is_alone_has_errors():
    """Three of four chains are lost, nothing compares the fourth: its values are as uncertain as a single draw's."""
    rng = np.random.default_rng(1)
    walker = SparseWalker(Coordinates(start_seen()), rng, 4)
    walker.advance(rng, 3)
    for chain in range(3):
        walker.states[chain] = walker.states[chain]._replace(log_likelihood=-np.inf, policy=None)
    result = walk._result(walker.coordinates, walker.record(rng, 60), "")
    assert not result.trustworthy
    assert (result.q_mean.se > 0).all()
    np.testing.assert_allclose(result.q_mean.se, result.q_sd.value)
    np.testing.assert_allclose(result.q_sd.se, result.q_sd.value / np.sqrt(2))
    probability = action_probabilities(walker.system.target.model, result.table)
    assert (probability.se[:2] > 0).all(), "the others are exchangeable: 1/2 each"


def leaky():
    """Two states that lead to each other, every move of which may end; one action of each is not seen."""
    moves = {
        ("a", "x"): Move(-1.0, {"b": 0.7, "goal": 0.3}),
        ("a", "y"): Move(-0.5, {"a": 0.5, "b": 0.2, "goal": 0.3}),
        ("a", "z"): Move(-3.0, {"goal": 1.0}),
        ("b", "x"): Move(-0.5, {"a": 0.6, "goal": 0.4}),
        ("b", "y"): Move(-1.5, {"goal": 1.0}),
    }
    return from_moves("leaky", moves, start="a")


def leaky_target(noise, kernel, pairs=(0, 1, 3)):
    """Noisy rewards, seen once each; Gaussian ones twice."""
    model = leaky()
    pairs, repeats = np.array(pairs), 2 if isinstance(kernel, Gaussian) else 1
    reward = np.concatenate([model.reward[pairs] + 0.2 * k for k in range(repeats)])
    return noisy_target(Dataset(model, np.tile(pairs, repeats), reward), noise, SIGMA, kernel)


NOISES = {
    "known gaussian": (0.4, Gaussian()),
    "inferred gaussian": (HalfNormal(), Gaussian()),
    "laplace": (0.4, Laplace()),
    "inferred student-t": (HalfNormal(), StudentT(3.0)),
    "uniform": (0.6, Uniform()),
}


@pytest.mark.parametrize(
    "name",
    [
        "inferred student-t",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("known gaussian", "inferred gaussian", "uniform", "laplace")
        ),
    ],
)
def test_sparse_points_weigh_as_points_of_a_batch(rng, name):
    """The same normal numbers of residuals, of the noise scale and of largest values: the same values and weights."""
    coordinates = Coordinates(leaky_target(*NOISES[name]))
    system, chart = SparseSystem(coordinates), batch_chart(leaky())
    x = rng.normal(size=(system.size, 50))
    free, residuals = len(system.free), len(system.residual)
    numbers = np.zeros((5, 50))
    numbers[system.residual] = x[free : free + residuals]
    numbers[system.free] = np.array([system.values(column) / SIGMA for column in x.T]).T
    point = Point(*(jnp.asarray(part) for part in (numbers, x[free + residuals :], np.zeros((0, 50)))))
    weighed = weigh(system_of(coordinates, chart), point)
    states = [system.evaluate(column, None) for column in x.T]
    heights = np.array([state.log_likelihood for state in states])
    constant = -0.5 * residuals * np.log(2 * np.pi * SIGMA**2)
    np.testing.assert_array_equal(np.isfinite(heights), np.isfinite(weighed.log_weight))
    np.testing.assert_allclose(heights + constant, weighed.log_weight, rtol=1e-9)
    own = np.union1d(system.free, system.residual)
    np.testing.assert_allclose(np.array([state.q[own] for state in states]).T, np.asarray(weighed.q)[own], rtol=1e-9)
    if coordinates.scales:
        eta = [system.noise_scale(column) for column in x.T]
        np.testing.assert_allclose(eta, weighed.noise_scale[0], rtol=1e-12)
    else:
        assert system.noise_scale(x[:, 0]) == 1.0


def replicates(walker, rng, steps):
    """Means of the action values, shares of the actions and the mean noise scale, shape (chains, quantities)."""
    coordinates, trace = walker.coordinates, walker.record(rng, steps)
    table = trace.table(coordinates.target.coupled, coordinates.stand_in, 1.0)
    share = [[weight @ (table.policy == pair).any(axis=1) for pair in range(5)] for weight in table.weight]
    eta = trace.value[:, :, trace.value.shape[2] - trace.scales :].mean(axis=1)
    return np.hstack([trace.moments.mean, np.array(share) / steps, eta])


@cache
def reference(name):
    """What 128 chains of a batch find on the leaky loop."""
    rng = np.random.default_rng(0)
    walker = BatchWalker(Coordinates(leaky_target(*NOISES[name])), batch_chart(leaky()), rng, 128)
    walker.advance(rng, 200)
    return replicates(walker, rng, 200)


def assert_agrees(name, walker, rng, steps):
    """Means over 16 chains or more within 7 combined standard errors of the reference: 4e-6 for 15 degrees of freedom,
    so false alarms below 5e-5 for eleven quantities."""
    own, other = replicates(walker, rng, steps), reference(name)
    error = np.hypot(*(found.std(axis=0, ddof=1) / np.sqrt(len(found)) for found in (own, other)))
    gap = np.abs(own.mean(axis=0) - other.mean(axis=0))
    assert np.all(gap <= 7 * error), gap / error
    assert error[[0, 1, 3]].max() < 0.15, "sharp enough to tell"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inferred gaussian", "laplace", "inferred student-t"])
def test_sparse_walks_find_what_batches_find(name):
    """Inferred noise scales and kernels that are not Gaussian on sparse systems; false alarms: `assert_agrees`."""
    rng = np.random.default_rng(3)
    walker = SparseWalker(Coordinates(leaky_target(*NOISES[name])), rng, 16)
    walker.advance(rng, 40)
    assert_agrees(name, walker, rng, 80)


def test_numbers_are_carried_from_pair_to_pair(rng):
    """Values with priors of their own have a number each; two that share one keep it when the first of them is seen."""
    model = crowd()
    prior = ValuePrior.stated(model, 1.0, pairs={("s", "a1"): (0.5, 2.0), ("s", "a2"): (-0.5, 3.0)})
    before, after = (
        Coordinates(relaxed_target(Dataset.from_pairs(model, [("s", "a0"), ("t", "a0"), *more]), 0.0, prior))
        for more in ([], [("t", "a1"), ("s", "a3")])
    )
    walker = SparseWalker(before, rng, 2)
    carried = SparseWalker(after, rng, 2, walker)
    free, later = ([model.pair_name(pair) for pair in one.system.free] for one in (walker, carried))
    assert free == [("s", "a1"), ("s", "a2"), ("s", "a3"), ("t", "a1"), ("u", "a0")]
    assert later == [("s", "a1"), ("s", "a2"), ("t", "a2"), ("u", "a0")]
    for old, new in zip(walker.states, carried.states, strict=True):
        number = dict(zip(free, old.x[: len(free)].tolist(), strict=True))
        assert new.x[:4].tolist() == [number[key] for key in (("s", "a1"), ("s", "a2"), ("t", "a1"), ("u", "a0"))]


@pytest.mark.parametrize(
    "batch",
    [pytest.param(flag, id=name, marks=pytest.mark.slow) for name, flag in (("batch", True), ("sparse", False))],
)
def test_walks_that_are_carried_to_more_data_find_what_fresh_ones_find(batch):
    """Chains of one seen pair go on with three; false alarms: `assert_agrees`."""
    name, rng, chart = "inferred gaussian", np.random.default_rng(4), batch_chart(leaky())
    noise = NOISES[name]
    chains = 64 if batch else 16
    few, more = (Coordinates(leaky_target(*noise, pairs)) for pairs in ((0,), (0, 1, 3)))
    before = walk.walker_of(few, chart if batch else None, rng, chains)
    before.advance(rng, 20)
    walker = walk.walker_of(more, chart if batch else None, rng, chains, before)
    assert (before.is_fresh, walker.is_fresh) == (True, False)
    walker.advance(rng, 40)
    assert_agrees(name, walker, rng, 80)


def test_chains_keep_their_numbers_when_more_is_known():
    """Largest values by state, residuals by pair, the noise scale; what is new is drawn."""
    noise, rng = NOISES["inferred gaussian"], np.random.default_rng(5)
    before = SparseWalker(Coordinates(leaky_target(*noise, (0,))), rng, 2)
    after = SparseWalker(Coordinates(leaky_target(*noise, (0, 1, 3))), rng, 2, before)
    assert before.system.free.tolist() == [1, 3], "of a and b"
    assert after.system.free.tolist() == [2, 4]
    for was, now in zip(before.states, after.states, strict=True):
        assert now.x[[0, 1, 2, 5]].tolist() == was.x.tolist()
        assert len(set(now.x.tolist())) == 6
    batch = BatchWalker(before.coordinates, batch_chart(leaky()), rng, 2)
    later = BatchWalker(after.coordinates, batch_chart(leaky()), rng, 2, batch)
    assert later.point is batch.point
    assert walk.walker_of(after.coordinates, None, rng, 1, batch).is_fresh, "chains of another kind cannot go on"
