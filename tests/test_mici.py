"""The exact posterior against Mici's constrained HMC, which knows nothing of charts (the optional extra "oracles").

Mici walks on the manifold {theta: g_i(theta) = r_i, i observed} itself. It is given the constraint, its Jacobian and
the prior on the ambient space (`dens_wrt_hausdorff=False`), and adds the co-area factor, half the log-determinant of
the Gram matrix, on its own; the constraint is linear within a cell of greedy actions, so that factor's gradient is 0. A
step of its integrator is reversible across the kinks between cells too, as long as Newton's method finds its way there
and back; Mici checks that and rejects the step otherwise. The manifold is a graph over the unobserved values, hence
connected: nothing is restricted to a cell.

Every chain starts at Q*, the one point of the manifold that needs no chart, so agreement cannot come from the start.
"""

import numpy as np
import pytest
from problems import random_problem

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.mdp.checks import assumption_2
from bellmanifold.mdp.solver import solve
from bellmanifold.problem.dataset import Dataset

mici = pytest.importorskip("mici", reason="the optional oracle Mici is not installed: pip install mici")
pytestmark = pytest.mark.slow

CHAINS, WARM_UP, DRAWS = 32, 20, 200


class Equations:
    """The observed Bellman equations with dense matrices: g(theta) - r and its derivative."""

    def __init__(self, model, observed):
        self.law = np.zeros((model.n_pairs, model.n_states + 1))
        np.add.at(self.law, (model.next_pair, model.next_state), model.next_prob)
        self.own = [np.flatnonzero(model.pair_state == s) for s in range(model.n_states)]
        self.observed, self.reward = observed, model.reward[observed]

    def constraint(self, q):
        value = np.array([q[pairs].max() for pairs in self.own] + [0.0])
        return (q - self.law @ value)[self.observed] - self.reward

    def jacobian(self, q):
        derivative = np.eye(len(q))
        for state, pairs in enumerate(self.own):
            derivative[:, pairs[q[pairs].argmax()]] -= self.law[:, state]
        return derivative[self.observed]


def walked(model, observed, scale, with_factor=True):
    """Points of Mici's chains on the manifold, shape (chains, draws, pairs)."""
    equations = Equations(model, observed)
    system = mici.systems.DenseConstrainedEuclideanMetricSystem(
        neg_log_dens=lambda q: 0.5 * float(q @ q) / scale**2,
        grad_neg_log_dens=lambda q: q / scale**2,
        constr=equations.constraint,
        jacob_constr=equations.jacobian,
        mhp_constr=lambda q: lambda matrix: np.zeros(len(q)),
        dens_wrt_hausdorff=not with_factor,
    )
    integrator = mici.integrators.ConstrainedLeapfrogIntegrator(system, step_size=0.5 * scale)
    sampler = mici.samplers.StaticMetropolisHMC(system, integrator, np.random.default_rng(1), n_step=3)
    found = sampler.sample_chains(
        WARM_UP,
        DRAWS,
        [solve(model).q] * CHAINS,
        adapters=[],
        trace_funcs=[lambda state: {"q": state.pos}],
        display_progress=False,
    )
    points = np.array(found.traces["q"])
    worst = max(np.abs(equations.constraint(q)).max() for q in points[:, -1])
    assert worst < 1e-7, "Mici has left the manifold"
    return points


def z_scores(model, observed, scale, with_factor=True):
    """Differences of action probabilities and mean values in combined standard errors; the spread is that of chains."""
    q = walked(model, observed, scale, with_factor)
    best = q >= np.maximum.reduceat(q, model.pair_start[:-1], axis=2)[:, :, model.pair_state]
    data = Dataset(model, observed, model.reward[observed])
    exact = bm.posterior(model, data, epsilon=0.0, prior_scale=scale)
    assert exact.engine == "chart"
    share, mean = best.mean(axis=1), q.mean(axis=1)
    certain = np.isin(exact.action_probability.value, (0.0, 1.0))
    np.testing.assert_allclose(share.mean(axis=0)[certain], exact.action_probability.value[certain])
    scores = []
    for ours, theirs in ((exact.action_probability, share), (exact.findings.q_mean, mean)):
        se = np.hypot(ours.se, theirs.std(axis=0, ddof=1) / np.sqrt(CHAINS))
        scores.append((theirs.mean(axis=0) - ours.value) / np.maximum(se, 1e-9))
    return np.where(certain, 0.0, scores[0]), scores[1]


def leaky():
    """Two states that seldom lead elsewhere: without its determinant the chart says 0.54 instead of 0.68."""
    moves = {
        ("a", "x"): Move(-0.1, {"b": 0.9, "goal": 0.1}),
        ("a", "y"): Move(-0.5, {"goal": 1.0}),
        ("b", "x"): Move(-0.1, {"a": 0.9, "goal": 0.1}),
        ("b", "y"): Move(-0.5, {"goal": 1.0}),
    }
    return from_moves("leaky", moves, start="a")


def sticky():
    """A state that is seldom left: without its determinant the chart says 0.33 instead of 0.91."""
    moves = {("a", "x"): Move(-0.05, {"a": 0.95, "goal": 0.05}), ("a", "y"): Move(-1.0, {"goal": 1.0})}
    return from_moves("sticky", moves, start="a")


CASES = {
    "two-state": (envs.two_state(), [1], 2.0),
    "four-state": (envs.four_state(), [0, 1, 4], 4.0),
    "deep sea": (envs.deep_sea(2), [0, 1, 2], 1.0),
    "slippery sea": (envs.deep_sea(2, slip=0.3), [0, 1, 2, 4], 1.0),
    "pyramid": (envs.pyramid(2), [0, 1, 3], 1.0),
    "swirl": (envs.swirl(2), [0, 1, 3, 4], 1.0),
    "leaky": (leaky(), [0, 2], 2.0),
    "sticky": (sticky(), [0], 2.0),
}


@pytest.mark.parametrize("name", CASES)
def test_exact_posterior_against_constrained_hmc(name):
    """At most 12 numbers a case at 4 standard errors of 32 chains (t, 31 degrees of freedom, 3.7e-4 each): false alarms
    at most 4.4e-3 a case."""
    model, observed, scale = CASES[name]
    probability, mean = z_scores(model, np.array(observed), scale)
    assert np.abs(probability).max() < 4, probability
    assert np.abs(mean).max() < 4, mean


def test_random_problems_against_constrained_hmc(rng):
    """Four problems of three states, at most 12 numbers each, as above: false alarms at most 1.8e-2 for all of them."""
    done = 0
    while done < 4:
        model = random_problem(rng, states=3, actions=2, reward_kind="costs")
        if not assumption_2(model).holds or not 4 <= model.n_pairs <= 6:
            continue
        observed = np.sort(rng.choice(model.n_pairs, model.n_pairs - 2, replace=False))
        probability, mean = z_scores(model, observed, 2.0)
        assert np.abs(probability).max() < 4, (done, probability)
        assert np.abs(mean).max() < 4, (done, mean)
        done += 1


def test_the_comparison_sees_the_co_area_factor():
    """Without the Gram determinant Mici samples another law on the same manifold, and the comparison notices."""
    model, observed, scale = CASES["deep sea"]
    probability, mean = z_scores(model, np.array(observed), scale, with_factor=False)
    assert max(np.abs(probability).max(), np.abs(mean).max()) > 5
