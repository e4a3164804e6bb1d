"""Sweeps by levels: the same solution as policy iteration, changed one value at a time, and walks that rest on them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.posterior_sampling import PosteriorSampling
from bellmanifold.agents.settings import SamplingSettings
from bellmanifold.agents.sources import is_swept
from bellmanifold.chart.sparse import sparse_chart
from bellmanifold.chart.sweeping import MOST_TOUCHED, LevelSweep, level_sweep
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.mdp.graph import has_cycle, levels
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.sparse_system import SparseSystem
from bellmanifold.posteriors.sparse_walk import SparseWalker, step
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.problem.dataset import Dataset

ROWS, COLUMNS = 4, 12


def layered(rng, successors):
    """Rows of states; every pair leads to some states of later rows, or to the goal."""
    moves = {}
    for row in range(ROWS):
        for column in range(COLUMNS):
            for action in range(int(rng.integers(1, 4))):
                later = [f"{r},{c}" for r in range(row + 1, ROWS) for c in range(COLUMNS)] + ["goal"]
                where = rng.choice(later, size=min(len(later), int(rng.integers(1, successors + 1))), replace=False)
                law = dict(zip(where, rng.dirichlet(np.ones(len(where))), strict=True))
                moves[(f"{row},{column}", f"a{action}")] = Move(float(rng.normal()), law)
    return from_moves("layered", moves, start="0,0")


def random_chart(rng, successors):
    """A chart with and without sweeps, payments, and values of the pairs that are not solved."""
    model = layered(rng, successors)
    solved = rng.random(model.n_pairs) < 0.8
    charts = [sparse_chart(model, solved, may_sweep=may_sweep) for may_sweep in (True, False)]
    assert charts[0].sweep is not None
    assert charts[1].sweep is None
    return *charts, rng.normal(size=model.n_pairs), rng.normal(size=model.n_pairs)


@pytest.mark.parametrize("successors", [1, 3])
def test_a_sweep_is_policy_iteration(rng, successors):
    for _ in range(5):
        swept, plain, payment, value = random_chart(rng, successors)
        there, again = swept.solve(payment, value), plain.solve(payment, value)
        np.testing.assert_allclose(there.q, again.q, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(there.policy[swept.states], again.policy[swept.states])
        assert there.log_det == 0.0
        assert again.log_det == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("successors", [1, 3])
def test_one_changed_value_against_solving_anew(rng, successors):
    """Ten changes in turn, each from the last: values and policies; sure moves to the last bit."""
    for _ in range(3):
        chart, _, payment, value = random_chart(rng, successors)
        here = chart.solve(payment, value)
        for pair in rng.choice(chart.pairs[~chart.solved], 10):
            new = float(3.0 * rng.normal())
            before = here.q.copy()
            there = chart.moved(here, payment, int(pair), new)
            assert (here.q == before).all(), "points are not written on"
            value = np.where(np.arange(len(value)) == pair, new, value)
            again = chart.solve(payment, value)
            np.testing.assert_allclose(there.q, again.q, rtol=0.0, atol=0.0 if successors == 1 else 1e-12)
            np.testing.assert_array_equal(there.policy, again.policy)
            here = there


def test_a_state_may_become_worth_what_the_next_one_is():
    """Worth 5, as the state with the next number always was: that is a change for whatever leads to it."""
    moves = {
        ("first", "go"): Move(0.0, {"second": 1.0}),
        ("second", "go"): Move(0.0, {"fourth": 1.0}),
        ("third", "go"): Move(5.0, {"goal": 1.0}),
        ("fourth", "try"): Move(1.0, {"goal": 1.0}),
    }
    model = from_moves("beside", moves, start="first")
    assert model.states.index("third") == model.states.index("second") + 1
    order = np.array([model.states.index(name) for name in ("fourth", "third", "second", "first")])
    sweep = LevelSweep(model, order, np.array([0, 2, 3, 4]))
    pay, pair = model.reward.copy(), model.pair_index["fourth", "try"]
    before = sweep.solve(pay)
    assert before[model.pair_index["first", "go"]] == 1.0
    after = sweep.moved(before, pay, pair, 5.0)
    assert after.q.tolist() == [5.0] * 4
    assert sorted(model.states[s] for s in after.states) == ["first", "fourth", "second"]


def test_where_much_changes_all_is_swept_again():
    """More states than are looked at one by one lead to the one whose value changes."""
    many = MOST_TOUCHED + 10
    moves = {(f"s{k}", "go"): Move(-1.0, {"last": 1.0}) for k in range(many)}
    model = from_moves("star", {**moves, ("last", "try"): Move(-2.0, {"goal": 1.0})}, start="s0")
    solved = model.pair_state != model.states.index("last")
    chart = sparse_chart(model, solved)
    (pair,) = np.flatnonzero(~solved)
    here = chart.solve(model.reward, np.full(model.n_pairs, -2.0))
    there = chart.moved(here, model.reward, int(pair), 5.0)
    assert (there.q == np.where(solved, 4.0, 5.0)).all()


def star(leaves):
    """States that lead to one, whose value is not known."""
    moves = {(f"s{k}", "go"): Move(-1.0, {"last": 1.0}) for k in range(leaves)}
    model = from_moves("star", {**moves, ("last", "try"): Move(-2.0, {"goal": 1.0})}, start="s0")
    return model, model.pair_state != model.states.index("last")


@pytest.mark.parametrize(("leaves", "is_answered"), [(MOST_TOUCHED - 1, True), (MOST_TOUCHED, False)])
def test_so_many_states_are_looked_at_one_by_one(leaves, is_answered):
    model, solved = star(leaves)
    sweep = level_sweep(model, solved)
    assert sweep is not None
    pay = np.where(solved, -1.0, -2.0)
    (pair,) = np.flatnonzero(~solved)
    found = sweep.moved(sweep.solve(pay), pay, int(pair), 5.0)
    assert (found is not None) == is_answered
    if found is not None:
        np.testing.assert_array_equal(found.q, np.where(solved, 4.0, 5.0))
        np.testing.assert_array_equal(np.sort(found.states), np.arange(model.n_states))
        np.testing.assert_array_equal(np.sort(found.greedy), np.arange(model.n_pairs))


def test_narrow_levels_and_cycles_are_not_swept():
    """Eight states of a level on average are enough, be there a single level beside those without moves, or two."""
    for depth in (1, 2):
        for states, is_swept_at in ((8 * (depth + 1), True), (8 * (depth + 1) - 1, False)):
            moves = {(f"{k:02}", "go"): Move(-1.0, {"goal": 1.0}) for k in range(states)}
            moves |= {(f"{k:02}", "on"): Move(-1.0, {"00": 1.0}) for k in range(1, states if depth == 2 else 1)}
            model = from_moves("wide", moves, start="00")
            assert (level_sweep(model, np.ones(model.n_pairs, dtype=bool)) is not None) == is_swept_at
    grid = envs.grid(12, 12)
    assert level_sweep(grid, np.ones(grid.n_pairs, dtype=bool)) is None


@pytest.mark.parametrize("name", ["deep_sea", "swirl", "grid"])
def test_cycles_are_found_where_there_are_no_levels(rng, name):
    model = envs.grid(3, 3, slip=0.1) if name == "grid" else getattr(envs, name)(4)
    for share in (0.1, 0.3, 1.0):
        allowed = rng.random(model.n_pairs) < share
        assert has_cycle(model, allowed) == (levels(model, allowed) is None)


def wide():
    """A start that leads to thirty states, of which one was not fully seen; ties among the known ones."""
    rng = np.random.default_rng(3)
    moves = {("start", f"to{k}"): Move(-1.0, {f"s{k}": 1.0}) for k in range(30)}
    for k in range(30):
        for action, reward in (("known", float(rng.integers(1, 3))), ("other", -6.0)):
            moves[(f"s{k}", action)] = Move(reward, {"goal": 1.0})
    model = from_moves("wide", moves, start="start")
    pairs = np.delete(np.arange(model.n_pairs), model.pair_index["s0", "other"])
    return model, Dataset(model, pairs, model.reward[pairs])


@pytest.mark.slow
def test_walks_without_residuals_draw_from_the_posterior():
    """Action probabilities of 8 chains of 100 steps against importance sampling, ties split by infinitesimal
    residuals included: 6 standard errors (between chains: 7 degrees of freedom, 5e-4) of 30 dependent probabilities,
    and 0.01; false alarm below 1e-3."""
    model, data = wide()
    target = relaxed_target(data, 0.0, 2.0)
    walker = SparseWalker(Coordinates(target), np.random.default_rng(0), 8)
    assert walker.system.ignores_residuals
    rng = np.random.default_rng(1)
    walker.advance(rng, 10)
    trace = walker.record(rng, 100)
    coupled = np.flatnonzero(target.coupled)
    own = int(np.flatnonzero(coupled == model.states.index("start"))[0])
    first = trace.policy[trace.row][:, :, own]
    exact = bm.posterior(model, data, epsilon=0.0, prior_scale=2.0)
    for k in range(30):
        pair = model.pair_index["start", f"to{k}"]
        share = (first == pair).mean(axis=1)
        error = share.std(ddof=1) / np.sqrt(len(share))
        assert abs(share.mean() - exact.action_probability.value[pair]) <= 6.0 * error + 0.01
    assert sum((first == model.pair_index["start", f"to{k}"]).mean() > 0.01 for k in range(30)) > 4, "ties are split"


def test_a_walk_moves_one_value_as_if_it_solved_all():
    """The same steps with sweeps that begin anew at every point."""
    _, data = wide()
    walks = []
    for kind in (SparseSystem, Anew):
        system, rng = kind(Coordinates(relaxed_target(data, 0.0, 2.0))), np.random.default_rng(5)
        here = system.evaluate(rng.standard_normal(system.size), None)
        walks.append([here := step(system, here, rng) for _ in range(20)])
    for fast, slow in zip(*walks, strict=True):
        assert (fast.q == slow.q).all()
        assert fast.log_likelihood == slow.log_likelihood
        assert (fast.policy == slow.policy).all()


class Anew(SparseSystem):
    """Solves everything at every point."""

    def moved(self, here, x, which, value):
        return self.evaluate(x, here.policy, here.laws)


def test_what_was_not_played_is_not_looked_at():
    """Other rewards and other laws where nothing was played: the same policies, to the bit, of a large deep sea."""
    sea = envs.deep_sea(34)
    seen = np.flatnonzero(sea.pair_state < 210)
    unseen = np.delete(np.arange(sea.n_pairs), seen)
    reward, landing = sea.reward.copy(), sea.next_state.copy()
    reward[unseen], landing[sea.next_start[unseen]] = 7.0, sea.n_states
    policies = []
    for model in (sea, replace(sea, reward=reward, next_state=landing)):
        agent, rng = (
            PosteriorSampling(model, SamplingSettings(epsilon=0.0, explore="directed")),
            np.random.default_rng(0),
        )
        agent.observe(seen, sea.reward[seen])
        policies.append([agent.policy(rng) for _ in range(3)])
        assert agent._source.walker.system.ignores_residuals
    np.testing.assert_array_equal(*policies)


def test_large_exact_posteriors_without_cycles_are_swept():
    """A deep sea of 34 rows has more than 1,000 pairs; a tolerance, a cycle or fewer pairs need the other programs."""
    sea = envs.deep_sea(34)
    data = Dataset.complete(sea)
    assert is_swept(relaxed_target(data, 0.0, 10.0))
    assert not is_swept(relaxed_target(data, 0.1, 10.0))
    assert not is_swept(relaxed_target(Dataset.complete(envs.deep_sea(10)), 0.0, 10.0))
    assert not is_swept(relaxed_target(Dataset.complete(envs.grid(17, 17)), 0.0, 10.0))
