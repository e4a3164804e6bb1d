"""Matrices are read as the libraries mean them: pymdptoolbox's and QuantEcon's solvers find our values and policies.

Discounted problems are solved by their policy iterations, which end at the exact values. Without a discount there are
none: pymdptoolbox iterates values, and QuantEcon solves backwards from a horizon so far away that it does not matter.
"""

import warnings

import numpy as np
import pytest
from problems import random_problem
from scipy.sparse import csr_array, csr_matrix

import bellmanifold as bm

HOW = "the extra dev installs it: pip install -e '.[dev]'"
mdp = pytest.importorskip("mdptoolbox.mdp", reason=HOW)
example = pytest.importorskip("mdptoolbox.example", reason=HOW)
markov = pytest.importorskip("quantecon.markov", reason=HOW)
HORIZON = 4000


def quietly(make, *given, **more):
    """Without the warnings of these libraries, about discounts of 1 and sparse comparisons."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*given, **more)


def by_mdptoolbox(transitions, rewards, discount=1.0):
    """Values and policy, as arrays by state."""
    if discount < 1.0:
        solver = quietly(mdp.PolicyIteration, transitions, rewards, discount, eval_type=0)
    else:
        solver = quietly(mdp.ValueIteration, transitions, rewards, 1.0, epsilon=1e-12, max_iter=HORIZON)
    quietly(solver.run)
    return np.array(solver.V), np.array(solver.policy)


def by_quantecon(*given):
    """Values and policy of `DiscreteDP`, as arrays by state."""
    problem = quietly(markov.DiscreteDP, *given)
    if problem.beta < 1.0:
        found = problem.solve(method="policy_iteration")
        return found.v, found.sigma
    value, policy = markov.backward_induction(problem, HORIZON)
    return value[0], policy[0]


def require_agreement(model, found):
    """The same values, and a policy that is optimal for us; states by number, goals have value 0."""
    value, policy = found
    ours = bm.solve(model).to_dict()
    for state in model.states:
        assert value[int(state)] == pytest.approx(ours["value"][state], rel=1e-7, abs=1e-7)
        assert str(policy[int(state)]) in ours["optimal_actions"][state]
    np.testing.assert_allclose([value[int(goal)] for goal in model.goals if goal.isdigit()], 0.0, atol=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", ["forest", "small", "rand"])
def test_examples_of_pymdptoolbox(name, sparse):
    np.random.seed(3)  # noqa: NPY002 (its `rand` draws from NumPy's global generator)
    transitions, rewards = {
        "forest": lambda: example.forest(S=6, r1=4, r2=2, p=0.1, is_sparse=sparse),
        "small": example.small,
        "rand": lambda: example.rand(6, 4, is_sparse=sparse),
    }[name]()
    if name == "small" and sparse:
        transitions = [csr_matrix(one) for one in transitions]
    for discount in (0.5, 0.9, 0.96):
        model = bm.from_arrays(transitions, rewards, discount=discount)
        require_agreement(model, by_mdptoolbox(transitions, rewards, discount))


def test_examples_of_quantecon():
    """Puterman's, in both forms; the growth of its lecture on dynamic programs, where actions depend on the state."""
    q, r = [[(0.5, 0.5), (0, 1)], [(0, 1), (0.5, 0.5)]], [[5, 10], [-1, -float("inf")]]
    product = markov.DiscreteDP(r, q, 0.95)
    pairs = markov.DiscreteDP([5, 10, -1], [(0.5, 0.5), (0, 1), (0, 1)], 0.95, [0, 0, 1], [0, 1, 0])
    for problem in (product, pairs, product.to_sa_pair_form(), pairs.to_product_form()):
        require_agreement(
            bm.from_arrays(problem), by_quantecon(problem.R, problem.Q, 0.95, problem.s_indices, problem.a_indices)
        )
    stored, kept = np.arange(16)[:, None], np.arange(6)[None, :]
    with np.errstate(invalid="ignore"):
        rewards = np.where(kept <= stored, np.sqrt(np.maximum(stored - kept, 0.0)), -np.inf)
    transitions = np.zeros((16, 6, 16))
    for a in range(6):
        transitions[:, a, a : a + 11] = 1.0 / 11
    growth = markov.DiscreteDP(rewards, transitions, 0.9)
    model = bm.from_arrays(growth)
    assert model.n_pairs == np.isfinite(rewards).sum()
    require_agreement(model, by_quantecon(rewards, transitions, 0.9))
    require_agreement(bm.from_arrays(growth.to_sa_pair_form()), by_quantecon(rewards, transitions, 0.9))


def drawn(rng, discount):
    """Random transitions (A, S, S) and rewards (A, S, S); without a discount state 0 is absorbing and pays nothing."""
    n, m = int(rng.integers(2, 8)), int(rng.integers(1, 5))
    transitions = rng.random((m, n, n)) * (rng.random((m, n, n)) < 0.6) + 0.05 * np.eye(n)
    rewards = rng.normal(size=(m, n, n))
    if discount == 1.0:
        transitions[:, :, 0] += 0.05
        transitions[:, 0], rewards[:, 0] = np.eye(n)[0], 0.0
        rewards = np.where(rewards > 0.0, 0.0, rewards) - 0.01 * (np.arange(n) > 0)[:, None]
    return transitions / transitions.sum(axis=2, keepdims=True), rewards


@pytest.mark.parametrize("case", range(50))
def test_random_problems(case):
    """Half of them discounted, half of them sparse, with rewards in every shape."""
    rng = np.random.default_rng(case)
    discount = (1.0, 0.5, 1.0, 0.95)[case % 4]
    p, r = drawn(rng, discount)
    goals = [0] if discount == 1.0 else []
    means = (p * r).sum(axis=2).T
    n, m = means.shape
    transitions = [csr_matrix(one) for one in p] if case % 8 < 4 else p
    rewards = (means, r, [csr_matrix(one) for one in r])[case % 3]
    if case % 3 == 2 and case % 8 >= 4:
        rewards = r
    require_agreement(
        bm.from_arrays(transitions, rewards, goals, discount), by_mdptoolbox(transitions, rewards, discount)
    )
    q = p.transpose(1, 0, 2)
    model = bm.from_arrays(q, means, goals, discount, first="state")
    require_agreement(model, by_quantecon(means, q, discount))
    s, a = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    rows = csr_array(q.reshape(-1, n)) if case % 8 < 4 else q.reshape(-1, n)
    given = quietly(markov.DiscreteDP, means.ravel(), rows, discount, s, a)
    assert bm.from_arrays(given, goals=goals) == model


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_what_to_arrays_returns_is_taken_by_both(discount):
    rng, checked = np.random.default_rng(5), 0
    while checked < 8:
        model = random_problem(rng, states=int(rng.integers(1, 6))).discounted(discount)
        if not bm.check(model).holds:
            continue
        arrays, ours = model.to_arrays(discount=discount), bm.solve(model)
        best = {state: set(actions) for state, actions in ours.to_dict()["optimal_actions"].items()}
        of_quantecon = by_quantecon(arrays.R, arrays.P, arrays.discount, arrays.s_indices, arrays.a_indices)
        transitions, rewards = arrays.by_action()
        for value, policy in (of_quantecon, by_mdptoolbox(transitions, rewards, arrays.discount)):
            np.testing.assert_allclose(value[: model.n_states], ours.value, rtol=1e-6, atol=1e-6)
            for s, state in enumerate(model.states):
                own = {model.pair_name(i)[1] for i in range(model.pair_start[s], model.pair_start[s + 1])}
                first = model.pair_name(model.pair_start[s])[1]
                played = arrays.actions[policy[s]]
                assert (played if played in own else first) in best[state]
        checked += 1
