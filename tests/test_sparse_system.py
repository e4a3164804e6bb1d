"""Sparse systems piece by piece: which values linger, what residuals add, how values flip; numbers by hand."""

from dataclasses import replace

import numpy as np
import pytest
from open_quadrature import open_model
from scipy import stats

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.sparse_system import SparseSystem
from bellmanifold.posteriors.sparse_walk import SparseWalker, flip, refresh
from bellmanifold.posteriors.target import noisy_target, relaxed_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

SIGMA = 2.0


def sparse(target):
    return SparseSystem(Coordinates(target))


class Given(np.random.Generator):
    """A generator that gives out uniform numbers from a list."""

    def __init__(self, *uniform):
        super().__init__(np.random.PCG64(0))
        self.uniform = list(uniform)

    def random(self, size=None):
        return self.uniform.pop(0) if size is None else np.array([self.uniform.pop(0) for _ in range(size)])


def prior_of(model):
    """Means and scales that differ from pair to pair."""
    return ValuePrior(0.3 - 0.1 * np.arange(model.n_pairs), SIGMA + 0.25 * np.arange(model.n_pairs))


WAITING = {
    ("s", "wait"): Move(-0.5, {"s": 0.5, "t": 0.25, "goal": 0.25}),
    ("s", "go"): Move(-1.0, {"u": 1.0}),
    ("t", "wait"): Move(-0.5, {"t": 0.4, "s": 0.6}),
    ("t", "go"): Move(-1.0, {"goal": 1.0}),
    ("u", "go"): Move(-1.0, {"v": 0.75, "goal": 0.25}),
    ("v", "go"): Move(-1.0, {"goal": 1.0}),
}


@pytest.mark.parametrize(
    ("seen", "lingers", "awaited"),
    [
        ([("s", "wait")], ["s"], ["t"]),
        ([("t", "wait")], [], []),
        ([("s", "wait"), ("t", "wait"), ("u", "go")], ["s"], ["t"]),
        ([("s", "go"), ("u", "go")], [], []),
    ],
)
def test_values_of_states_that_are_left_every_other_time(seen, lingers, awaited):
    """Pairs that stay with probability 1/2 or more, and the other states that they leave for."""
    model = from_moves("waiting", WAITING, start="s")
    system = sparse(relaxed_target(Dataset.from_pairs(model, seen), 0.0, SIGMA))
    states = [model.states[s] for s in model.pair_state[system.free]]
    assert [state for state, flag in zip(states, system.lingers, strict=True) if flag] == lingers
    assert [state for state, flag in zip(states, system.awaited, strict=True) if flag] == awaited


def rest_of(model, q):
    """g(q) of every pair: what its value has more than what comes after it."""
    return q - (model.backup(model.best(q)) - model.reward)


def test_rewards_with_sds_of_their_own_beside_inferred_noise():
    """Precisions add up: residuals are those of the weighted mean of both."""
    model = envs.deep_sea(2)
    names = [model.pair_name(pair) for pair in range(6)]
    seen = [Observation(*names[k], reward) for k, reward in ((0, -0.3), (0, 0.5), (2, 0.4), (2, 0.1), (2, 0.2))]
    seen += [Observation(*names[k], reward, sd) for k, reward, sd in ((2, 1.5, 0.7), (4, -0.8, 0.4))]
    target = noisy_target(Dataset.from_pairs(model, seen), HalfNormal(), prior_of(model))
    system, x = sparse(target), np.random.default_rng(4).standard_normal(20)
    x = x[: system.size]
    found, eta = system.evaluate(x, None), system.noise_scale(x)
    table = target.noise_scale
    assert eta == pytest.approx(np.exp(np.interp(x[-1], table.normal, table.log_scale)))
    assert system.residual.tolist() == [0, 2, 4]
    normals = x[len(system.free) : len(system.free) + 3]
    rewards = rest_of(model, found.q)
    for pair, normal, (count, mean), (own, sd) in zip(
        [0, 2, 4], normals, [(2, 0.1), (3, 0.7 / 3), (0, 0.0)], [(0.0, np.inf), (1.5, 0.7), (-0.8, 0.4)], strict=True
    ):
        precision = count / eta**2 + 1 / sd**2
        weighted = (count * mean / eta**2 + own / sd**2) / precision
        assert rewards[pair] == pytest.approx(weighted + normal / np.sqrt(precision))
    z = (found.q - target.prior.mean)[[0, 2, 4]] / target.prior.sd[[0, 2, 4]]
    assert found.log_likelihood == pytest.approx(-0.5 * (z**2).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_a_flat_prior_weighs_nothing(epsilon):
    model = envs.deep_sea(2)
    target = relaxed_target(Dataset.complete(model), epsilon, SIGMA)
    system = sparse(replace(target, prior=replace(target.prior, flat=True)))
    assert system.evaluate(np.linspace(-1.0, 1.0, system.size), None).log_likelihood == 0.0


def wide(ends=30):
    """Many states below one: one sweep solves it. Ends are equally good but in the first; s leads to two of them."""
    moves = {("s", "a"): Move(-0.5, {"t00": 0.75, "t01": 0.25}), ("s", "b"): Move(-1.0, {"t02": 1.0})}
    for k in range(ends):
        moves[f"t{k:02}", "a"] = Move(-1.0, {"goal": 1.0})
        moves[f"t{k:02}", "b"] = Move(-1.0 if k else -2.0, {"goal": 1.0})
    return from_moves("wide", moves, start="s")


def test_one_value_moves_as_if_the_point_were_evaluated_anew():
    """Where residuals do not count one step from the point before; elsewhere, and from nowhere, all of it."""
    model, pairs = wide(), np.delete(np.arange(62), [3, 4, 7])
    for epsilon in (0.0, 0.3):
        target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), epsilon, prior_of(model))
        system, rng = sparse(target), np.random.default_rng(1)
        assert system.ignores_residuals == (epsilon == 0.0)
        here = system.evaluate(rng.standard_normal(system.size), None)
        for which in (0, 1, 2):
            x = here.x.copy()
            x[which] = 2.5 - which
            anew = system.evaluate(x, None)
            for start in (here, here._replace(policy=None)):
                found = system.moved(start, x, which, system.value(float(x[which]), which))
                np.testing.assert_allclose(found.q, anew.q, rtol=1e-12)
                assert found.log_likelihood == pytest.approx(anew.log_likelihood, rel=1e-12)
                assert found.x is x


@pytest.mark.parametrize("flat", [False, True])
def test_the_weight_where_residuals_do_not_count(flat):
    """The prior at the values of seen pairs; nothing where it is flat. Coordinates of residuals change nothing."""
    model, pairs = wide(), np.delete(np.arange(62), [3, 4, 7])
    prior = replace(prior_of(model), flat=flat)
    system = sparse(relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.0, prior))
    x = np.linspace(-1.5, 1.5, system.size)
    here = system.evaluate(x, None)
    expected = 0.0 if flat else -0.5 * (((here.q - prior.mean) / prior.sd)[pairs] ** 2).sum()
    assert here.log_likelihood == pytest.approx(expected, rel=1e-13)
    x[5:] += 1.0
    np.testing.assert_array_equal(system.evaluate(x, None).q, here.q)
    x[1] = 4.0
    moved = system.moved(here, x, 1, system.value(4.0, 1))
    expected = 0.0 if flat else -0.5 * (((moved.q - prior.mean) / prior.sd)[pairs] ** 2).sum()
    assert moved.log_likelihood == pytest.approx(expected, rel=1e-13)


def test_the_prior_is_taken_with_infinitesimal_residuals_where_they_are_small_beside_it():
    """Values of about 1: exactly at the values found, ties split. Values of 20,000, a noisy one among them: without."""
    model = envs.deep_sea(2)
    system = sparse(relaxed_target(Dataset.complete(model), 0.0, SIGMA))
    here = system.evaluate(np.linspace(-2.0, 2.0, system.size), None)
    assert here.log_likelihood == -0.5 * ((here.q / SIGMA) ** 2).sum()
    assert system.with_ties_split(here, np.random.default_rng(1)) is here.q, "they are split already"
    moves = {("s", "on"): Move(-2e4, {"t": 1.0}), ("t", "on"): Move(-2e4, {"goal": 1.0})}
    target = relaxed_target(Dataset.complete(from_moves("far", moves, start="s")), 0.0, 1.0)
    far = sparse(replace(target, scale=np.array([0.0, 0.3]))).evaluate(np.array([3.0, -2.0]), None)
    expected = -0.5 * ((4e4 + 0.6) ** 2 + (2e4 + 0.6) ** 2)
    assert far.log_likelihood == pytest.approx(expected, rel=1e-14)


def test_values_of_no_point_count_as_nothing():
    """Where a state has no value its mean is 0 and does not spread."""
    system = sparse(relaxed_target(Dataset.complete(envs.deep_sea(2)), 0.3, SIGMA))
    mean, variance = system.member_moments(np.array([1.5, -np.inf, 2.5, -1.0, np.inf, 0.5]))
    assert mean.tolist() == [1.5, 0.0, 2.5, -1.0, 0.0, 0.5]
    assert variance.tolist() == [0.0] * 6


def test_nothing_lingers_by_a_law_that_is_open():
    model = open_model(["s", "t"], [("s", "a"), ("s", "b"), ("t", "c"), ("t", "d")])
    seen = [Observation("s", "a", -1.0, next="s"), Observation("t", "c", -1.0, next="s")]
    whole, laws, no_law = close_laws(Dataset.from_pairs(model, seen), "dirichlet", 1.0)
    data = Dataset.from_pairs(whole, [Observation("s", "a", -1.0), Observation("t", "c", -1.0)])
    system = sparse(relaxed_target(data, 0.0, SIGMA).with_laws(laws, no_law))
    assert len(system.free) == 2
    assert not system.lingers.any()
    assert not system.awaited.any()


def test_ties_are_split_where_residuals_do_not_count():
    """By residuals that are drawn: of the two equal actions either is the best now and then, by about 1e-8."""
    model = wide()
    system = sparse(relaxed_target(Dataset.complete(model), 0.0, SIGMA))
    here = system.evaluate(np.zeros(62), None)
    assert here.q[[2, 3, 4, 5]].tolist() == [-1.0, -2.0, -1.0, -1.0]
    rng, again = np.random.default_rng(7), np.random.default_rng(7)
    found, noise = system.with_ties_split(here, rng), 2e-8 * again.standard_normal(62)
    np.testing.assert_allclose((found - here.q)[2:], noise[2:], atol=1e-15)
    ahead = [0.75 * noise[2] + 0.25 * max(noise[[4, 5]]), max(noise[[6, 7]])]
    np.testing.assert_allclose((found - here.q)[:2], noise[:2] + ahead, atol=1e-15)
    relaxed = sparse(relaxed_target(Dataset.complete(model), 0.3, SIGMA))
    there = relaxed.evaluate(np.zeros(62), None)
    assert relaxed.with_ties_split(there, rng) is there.q, "they are weighed already"


def crowded(actions):
    """s may wait or leave; waiting was seen, and `actions` ways to leave were not."""
    moves = {("s", "wait"): Move(-0.3, {"s": 0.9, "goal": 0.1})}
    model = from_moves("wait", moves | {("s", f"x{k}"): Move(0.0, {"goal": 1.0}) for k in range(actions)}, start="s")
    prior = ValuePrior(np.append(-0.5, np.full(actions, 0.4)), np.append(3.0, np.full(actions, SIGMA)))
    return sparse(relaxed_target(Dataset.from_pairs(model, [("s", "wait")]), 0.0, prior))


@pytest.mark.parametrize("actions", [1, 3])
def test_a_flip_by_hand(actions):
    """Waiting is worth -3: below that nothing is left by choice. The odds to accept are L(y) p / (L(x) (1 - p))."""
    system = crowded(actions)
    worth = -3.0
    below = stats.norm.cdf((worth - 0.4) / SIGMA) ** actions

    def height(value):
        """Log likelihood where the best way to leave has this value: q = -0.3 + 0.9 V, or -3 with determinant 0.1."""
        q = max(-0.3 + 0.9 * value, worth) if value > worth else worth
        return -0.5 * ((q + 0.5) / 3.0) ** 2 - (np.log(0.1) if value < worth else 0.0)

    for number, u in ((1.2, 0.3), (-5.0, 0.3)):
        here = system.evaluate(np.array([number, 0.0]), None)
        value = system.value(number, 0)
        falls = value > worth
        assert here.log_likelihood == pytest.approx(height(value), abs=1e-6)
        assert falls == (number > 0)
        share = u * below if falls else below + u * (1 - below)
        proposed = 0.4 + SIGMA * stats.norm.ppf(share ** (1 / actions))
        odds = np.exp(height(proposed) - height(value))
        odds *= below / (1 - below) if falls else (1 - below) / below
        accepted = flip(system, here, 0, Given(u, min(0.999, 0.999 * odds)))
        assert stats.norm.cdf(accepted.x[0]) == pytest.approx(share, rel=1e-6)
        assert accepted.q[1] == pytest.approx(proposed, rel=1e-6)
        assert accepted.log_likelihood == pytest.approx(height(proposed), abs=1e-6)
        assert accepted.q[0] == pytest.approx(worth if falls else -0.3 + 0.9 * proposed, abs=1e-6)
        if odds < 0.99:
            assert flip(system, here, 0, Given(u, 1.001 * odds)) is here
        assert here.x[0] == number


def test_nothing_is_flipped_where_it_would_always_be_below():
    """Without it the state is worth far more than its prior holds: no flip is proposed, no number drawn."""
    moves = {("s", "wait"): Move(30.0, {"s": 0.5, "goal": 0.5}), ("s", "x"): Move(0.0, {"goal": 1.0})}
    model = from_moves("rich", moves, start="s")
    system = sparse(relaxed_target(Dataset.from_pairs(model, [("s", "wait")]), 0.0, SIGMA))
    here = system.evaluate(np.zeros(2), None)
    assert flip(system, here, 0, Given()) is here


def test_refreshed_values_have_priors_of_their_own():
    """Below the best of their state, of several alternatives; where nothing is free nothing is drawn."""
    model = envs.deep_sea(2)
    target = relaxed_target(Dataset(model, np.array([0, 1, 2, 4]), model.reward[[0, 1, 2, 4]]), 0.3, prior_of(model))
    system = sparse(target)
    here = system.evaluate(np.array([-3.0, -3.0, 0.0, 0.0, 0.0, 0.0]), None)
    assert here.policy.tolist()[1:] == [2, 4]
    there = refresh(system, here, Given(0.3, 0.6))
    for place, (pair, best, u) in enumerate(((3, 2, 0.3), (5, 4, 0.6))):
        mean, sd = target.prior.mean[pair], target.prior.sd[pair]
        share = u * stats.norm.cdf((here.q[best] - mean) / sd)
        assert stats.norm.cdf(there.x[place]) == pytest.approx(share)
        assert there.q[pair] == pytest.approx(mean + sd * stats.norm.ppf(share))
    known = sparse(relaxed_target(Dataset.complete(model), 0.3, SIGMA))
    at = known.evaluate(np.zeros(6), None)
    np.testing.assert_array_equal(refresh(known, at, Given()).q, at.q)


def test_what_a_chain_shows_and_keeps():
    """The greedy policy with ties split, the value at the start and means by pair; every fourth point is kept."""
    model, pairs = wide(), np.delete(np.arange(62), [1, 3, 4])
    target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.0, prior_of(model))
    walker, rng = SparseWalker(Coordinates(target), np.random.default_rng(1), 2), np.random.default_rng(2)
    assert walker.most == 2**62
    assert walker.ignores_residuals
    walker.advance(rng, 2)
    drawn, here = walker.draw(1), walker.states[1]
    assert drawn.policy.tolist() == model.greedy(walker._shown[1]).tolist()
    assert drawn.at_start == pytest.approx(max(here.q[0], here.q[1]))
    mean, _ = walker.system.member_moments(here.q)
    np.testing.assert_array_equal(drawn.q_mean, mean[walker.coordinates.stand_in])
    points = walker.record(rng, 9, keeps=True).points
    assert points.shape == (62, 2 * 3), "after steps 1, 5 and 9 of both chains"
    assert walker.record(rng, 1).points is None
    ends = walker.ends()
    assert ends.kept.tolist() == [True, True]
    np.testing.assert_array_equal(ends.q, np.stack([state.q for state in walker.states], axis=1))
    np.testing.assert_array_equal(walker.ends(np.array([False, True])).q, ends.q[:, 1:])
    relaxed = SparseWalker(Coordinates(relaxed_target(Dataset.complete(model), 0.3, SIGMA)), rng, 1)
    assert (relaxed.most, relaxed.ignores_residuals) == (20, False)
