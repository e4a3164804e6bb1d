from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from problems import all_policies, chain, closure, random_problem
from slow_chains import attempts, long_chain, setbacks, small_components

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.io.models import load_model
from bellmanifold.mdp import backward, linear, subtraction_free
from bellmanifold.mdp.checks import assumption_2
from bellmanifold.mdp.graph import components, direct_routes, levels
from bellmanifold.mdp.lookahead import Steps
from bellmanifold.mdp.solver import policy_value, solve

BUILT_IN = [
    *("env:deep-sea?depth=5", "env:deep-sea?depth=4&slip=0.1", "env:deep-sea?depth=1", "env:pyramid", "env:swirl"),
    *("env:swirl?depth=9", "env:two-state", "env:four-state", "env:grid?rows=6&columns=7&slip=0.2&walls=1,1;2,3"),
    *("env:deep-sea?depth=10&convention=bsuite", "env:deep-sea?depth=10&convention=bsuite&stochastic=true"),
    *("gym:CliffWalking-v1", "gym:Taxi-v4"),
]


def solvable(rng, count):
    """Random problems that satisfy Assumption 2: cyclic, stochastic and with ties."""
    found = []
    while len(found) < count:
        kind = ("any", "costs", "integers")[int(rng.integers(3))]
        model = random_problem(rng, states=int(rng.integers(1, 8)), reward_kind=kind)
        if assumption_2(model).holds:
            found.append(model)
    return found


def test_three_solvers_agree_on_random_problems(rng):
    for model in solvable(rng, 40):
        answers = [solve(model, method) for method in ("vi", "pi", "lp")]
        for other in answers[1:]:
            np.testing.assert_allclose(other.q, answers[0].q, atol=1e-8, rtol=1e-8)
            np.testing.assert_array_equal(other.optimal, answers[0].optimal)
        scale = max(1.0, np.abs(answers[0].value).max())
        assert all(answer.max_residual <= 1e-9 * scale for answer in answers)


def test_against_every_proper_policy(rng):
    """V* is the best value of a proper policy, state by state; optimal pairs are those that attain it."""
    for model in [m for m in solvable(rng, 60) if m.n_states <= 5]:
        best = np.full(model.n_states, -np.inf)
        for policy in all_policies(model):
            matrix = chain(model, policy)
            if closure(matrix)[:-1, -1].all():
                value = np.linalg.solve(np.eye(model.n_states) - matrix[:-1, :-1], model.reward[policy])
                best = np.maximum(best, value)
        solution = solve(model)
        np.testing.assert_allclose(solution.value, best, atol=1e-8)
        q = model.backup(best)
        np.testing.assert_array_equal(solution.optimal, q >= best[model.pair_state] - 1e-7)


@pytest.mark.parametrize("reference", BUILT_IN)
def test_three_solvers_agree_on_built_in_problems(reference):
    model = load_model(reference)
    answers = [solve(model, method) for method in ("vi", "pi", "lp")]
    for other in answers[1:]:
        np.testing.assert_allclose(other.q, answers[0].q, atol=1e-8)
        np.testing.assert_array_equal(other.optimal, answers[0].optimal)


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("env:deep-sea?depth=5", 0.85),
        ("env:pyramid", 1.0),
        ("env:swirl", 0.85),
        ("env:two-state", -1.0),
        ("env:four-state", -4.0),
        ("gym:CliffWalking-v1", -13.0),
        ("env:deep-sea?depth=20&convention=bsuite", 0.99),
    ],
)
def test_known_values(reference, value):
    assert solve(load_model(reference)).value_at_start == pytest.approx(value, abs=1e-12)


def test_stochastic_deep_sea_reaches_the_treasure_with_the_papers_probability():
    """Depth 4, slip 0.1: going right all the time arrives in the last corner with probability 0.9^3 = 0.729."""
    model = envs.deep_sea(4, slip=0.1)
    cost = 0.15 / 4
    assert solve(model).value_at_start == pytest.approx(0.729 - 4 * cost + 0.271 * 2 * cost, abs=0.05)
    right = np.array([model.pair_index[(state, "right")] for state in model.states])
    last = np.zeros(model.n_states)
    last[model.state_index["3,3"]] = 1.0
    matrix = chain(model, right)[:-1, :-1]
    assert (np.eye(10)[0] @ np.linalg.matrix_power(matrix, 3) @ last) == pytest.approx(0.729)


def test_all_ties_are_listed():
    best = solve(envs.pyramid(5)).to_dict()["optimal_actions"]
    assert best["0,0"] == ["left", "right"]
    assert solve(envs.four_state()).to_dict()["optimal_actions"]["2"] == ["to-3", "to-4"]
    routes = {"0,0": 1.0}
    count = 0.0
    model = envs.pyramid(5)
    for state in model.states:
        for action in best[state]:
            i = model.pair_index[(state, action)]
            after = model.state_name(model.next_state[model.next_start[i]])
            routes[after] = routes.get(after, 0.0) + routes.get(state, 0.0)
    count = routes["goal"]
    assert count == 8, "the pyramid of depth 5 has eight optimal routes"


def test_value_iteration_bounds_its_error(rng):
    """The bound holds where a small last step would mislead: a slow loop with leak 1e-3."""
    moves = {("a", "wait"): Move(-1.0, {"a": 0.999, "goal": 0.001}), ("a", "go"): Move(-1000.5, {"goal": 1.0})}
    model = from_moves("slow", moves, start="a")
    solution = solve(model, "vi")
    assert solution.value[0] == pytest.approx(-1000.0, abs=1e-8)
    assert 0 < solution.error_bound < 1e-5
    assert abs(solution.value[0] + 1000.0) <= solution.error_bound


def test_value_iteration_refuses_what_it_cannot_bound():
    with pytest.raises(UnsupportedError, match=r'after 5 sweeps.*method="pi"'):
        solve(envs.grid(8, 8, slip=0.3), "vi", max_sweeps=5)


def test_refuses_where_assumption_2_fails():
    model = load_model("gym:FrozenLake-v1")
    with pytest.raises(UnsupportedError, match="costs nothing"):
        solve(model)
    assert solve(model, discount=0.99).value_at_start == pytest.approx(0.5420259, abs=1e-6)


def test_discount_is_the_usual_one(rng):
    """The fictitious goal gives the discounted problem's values."""
    model = random_problem(rng, states=6)
    q = np.zeros(model.n_pairs)
    for _ in range(2000):
        q = model.reward + 0.9 * (model.backup(model.best(q)) - model.reward)
    np.testing.assert_allclose(solve(model, discount=0.9).q, q, atol=1e-9)
    with pytest.raises(BadInputError, match="discount"):
        solve(model, discount=0.0)


def test_large_expander_and_large_grid_take_both_linear_solvers(rng):
    """Above 200 states a chain is factorised (grid) or iterated on (random graph); Bellman's equations still hold."""
    for model in (envs.grid(25, 25, slip=0.2), random_problem(rng, states=1500, reward_kind="costs", goal_share=0.02)):
        if not assumption_2(model).holds:
            model = model.discounted(0.9999)
        solution = solve(model, "pi")
        assert solution.max_residual < 1e-9 * np.abs(solution.value).max()


def test_rewards_spanning_twelve_orders():
    moves = {
        ("a", "dear"): Move(-1e6, {"goal": 1.0}),
        ("a", "cheap"): Move(-1e-6, {"b": 1.0}),
        ("b", "end"): Move(-2e-6, {"goal": 1.0}),
        ("b", "worse"): Move(-3e-6, {"goal": 1.0}),
    }
    solution = solve(from_moves("wide", moves, start="a"))
    assert solution.value_at_start == pytest.approx(-3e-6, rel=1e-12)
    assert solution.to_dict()["optimal_actions"] == {"a": ["cheap"], "b": ["end"]}


@pytest.mark.parametrize("factor", [1e-12, 1e-9, 1.0, 1e8])
def test_three_solvers_agree_at_every_scale(factor):
    for model in (envs.deep_sea(6), envs.grid(6, 6, slip=0.2), envs.swirl(4)):
        scaled = replace(model, reward=model.reward * factor)
        expected = solve(model).q * factor
        for method in ("vi", "pi", "lp"):
            np.testing.assert_allclose(solve(scaled, method).q, expected, rtol=1e-8, atol=1e-9 * factor)


def test_expanders_keep_their_digits_with_small_leaks(rng):
    """A 400-state expander left with probability 1e-8 a move: iteration is only accepted if its error is small."""
    from bellmanifold.mdp.linear import chain_on
    from bellmanifold.mdp.solver import policy_value
    from bellmanifold.mdp.subtraction_free import eliminate
    from bellmanifold.problem.builder import assemble
    from bellmanifold.problem.ssp import Description

    n, leak = 400, 1e-8
    successors = np.column_stack([rng.integers(0, n, (n, 4)), np.full(n, n)])
    law = np.column_stack([np.full((n, 4), (1 - leak) / 4), np.full(n, leak)])
    names = [str(k) for k in range(n + 1)]
    start = np.arange(n + 1) * 5
    plain = Description(
        state_names=names,
        action_names=["go"],
        goals=[n],
        initial_state=[0],
        initial_prob=[1.0],
        pair_state=np.arange(n),
        pair_action=np.zeros(n, dtype=int),
        reward=-rng.random(n),
        next_start=start,
        next_state=successors.ravel(),
        next_prob=law.ravel(),
    )
    model = assemble(plain)
    everywhere = np.arange(n)
    moves, _, out = chain_on(model, everywhere, everywhere)
    exact, _ = eliminate(moves.toarray(), out, model.reward)
    np.testing.assert_allclose(policy_value(model, everywhere), exact, rtol=1e-7)


def test_almost_free_loops_do_not_stop_value_iteration():
    moves = {("a", "wait"): Move(-1e-12, {"a": 1.0}), ("a", "go"): Move(-1.0, {"goal": 1.0})}
    solution = solve(from_moves("almost free", moves, start="a"), "vi")
    assert solution.value_at_start == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"success": False, "message": "numerical difficulties"}, '"numerical difficulties"): use --method pi'),
        ({"success": True}, "too degenerate to read a policy from: use --method pi"),
    ],
)
def test_a_linear_program_that_fails_names_another_method(cli, monkeypatch, answer, message):
    """HiGHS gives up, or hands over multipliers that would have the policy stay forever."""
    staying = SimpleNamespace(marginals=np.array([-1.0, 0.0]))
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: SimpleNamespace(ineqlin=staying, nit=1, **answer))
    code, out, err = cli("solve", "env:two-state", "--method", "lp")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert message in err


def by_dense_policy_iteration(model):
    """Optimal values by Howard's policy iteration from a proper policy, with dense linear systems."""
    law = np.zeros((model.n_pairs, model.n_states + 1))
    law[model.next_pair, model.next_state] = model.next_prob
    policy, better = assumption_2(model).proper_policy, True
    while better:
        value = np.linalg.solve(np.eye(model.n_states) - law[policy, :-1], model.reward[policy])
        q = model.reward + law[:, :-1] @ value
        switch = model.best(q) > q[policy] + 1e-10 * np.abs(q[policy])
        better, policy = switch.any(), np.where(switch, model.greedy(q), policy)
    return value


def hard_problems(rng):
    """Diffusing grids, expanders, rewards from 1e-6 to 1e5, circles closed by few states, rewards of both signs."""
    yield envs.grid(17, 17, slip=0.45)
    yield envs.grid(16, 16, slip=0.1, walls="3,3;3,4;4,3;9,9")
    yield from (build(300) for build in (small_components, attempts, setbacks))
    yield long_chain(300, loops=0.3)
    expander = random_problem(rng, states=300, reward_kind="costs", goal_share=0.05)
    yield expander if assumption_2(expander).holds else expander.discounted(0.999)
    yield random_problem(rng, states=300, reward_kind="any").discounted(0.99)
    yield replace(envs.grid(15, 15, slip=0.2), reward=-rng.integers(1, 3, envs.grid(15, 15, slip=0.2).n_pairs) * 1.0)


def test_against_dense_policy_iteration(rng):
    for model in hard_problems(rng):
        for discount in (None, 0.999, 0.9):
            given = model if discount is None else model.discounted(discount)
            solution = solve(model, discount=discount)
            np.testing.assert_allclose(solution.value, by_dense_policy_iteration(given), rtol=1e-8, err_msg=str(model))
            assert solution.max_residual <= 1e-13 * np.abs(solution.value).max()


def test_one_better_pair_among_thousands():
    """Only one state in 1,600 has anything to gain, and all others have less to gain from that."""
    model = envs.grid(40, 40, slip=0.2)
    first = solve(model)
    short = first.value[model.pair_state] - first.q
    pair = int(np.flatnonzero((short > 0.1) & (short < 0.5))[100])
    reward = model.reward.copy()
    reward[pair] += short[pair] + 2e-6
    solution = solve(replace(model, reward=reward))
    assert (solution.value >= first.value).all()
    assert solution.value[model.pair_state[pair]] > first.value[model.pair_state[pair]] + 1e-6
    assert solution.max_residual <= 1e-13 * np.abs(solution.value).max()


@pytest.mark.parametrize("other", [0.3, 0.1 + 0.2])
def test_a_tie_is_no_reason_to_switch(other):
    """Something better elsewhere: a state whose actions tie, or differ by a rounding, keeps the one it has."""
    moves = {
        ("x", "first"): Move(other, {"goal": 1.0}),
        ("x", "second"): Move(0.3, {"goal": 1.0}),
        ("y", "worse"): Move(-2.0, {"x": 1.0}),
        ("y", "better"): Move(-1.0, {"x": 1.0}),
    }
    model = from_moves("ties", moves, start="y")
    policy = np.array([model.pair_index["x", "second"], model.pair_index["y", "worse"]])
    value = np.array([0.3, -1.7])
    improved, near = Steps(model).improve(policy, value, np.array([0.3, 2.3]), rounds=5)
    assert improved.tolist() == [model.pair_index["x", "second"], model.pair_index["y", "better"]]
    np.testing.assert_allclose(near, [0.3, -0.7])


def test_gains_far_smaller_than_values_are_taken(rng):
    """Moves that pay 1e-9 less in values of 500 are told apart, and what they cost on the way adds up exactly."""
    model = envs.grid(30, 30, slip=0.3)
    dearer = model.pair_action == model.actions.index("down")
    solution = solve(replace(model, reward=10.0 * model.reward - 1e-9 * dearer))
    assert solution.max_residual <= 1e-12
    _, taken = np.unique(model.pair_state[solution.optimal], return_counts=True)
    assert (taken >= 1).all()
    cheapest = solve(replace(model, reward=10.0 * model.reward))
    assert (solution.value < cheapest.value).all()
    assert (solution.value > cheapest.value - 1e-6).all()


def precise_value(model, policy):
    moves, _, out = linear.chain_on(model, policy, np.arange(model.n_states))
    long = [array.astype(np.longdouble) for array in (moves.toarray(), out, model.reward[policy])]
    return subtraction_free.eliminate(*long)[0].astype(np.float64)


@pytest.mark.parametrize("build", [lambda: envs.grid(18, 18, slip=0.2), lambda: small_components(300)])
def test_a_value_nearby_is_corrected_to_a_rounding(build, rng):
    """Every state to its own digits, though rewards span eleven orders in one of the problems."""
    model = build().discounted(0.9)
    policy = rng.integers(model.pair_start[:-1], model.pair_start[1:])
    exact, right = precise_value(model, policy), model.reward[policy]
    near = exact * (1 + 1e-8 * rng.normal(size=len(exact)))
    for steps in (Steps(model), Steps(model, rng.integers(0, 100, model.n_states))):
        found = steps.correct(policy, right, near)
        np.testing.assert_allclose(found, exact, rtol=8 * np.finfo(float).eps)
        assert steps.correct(policy, right, exact + np.abs(right).max()) is None, "not near"


@pytest.mark.parametrize("build", [lambda: envs.grid(12, 12, slip=0.2), lambda: attempts(300), lambda: unequal()])
def test_looking_ahead_class_by_class(build, rng):
    """From a policy's value sweeps only rise, never beyond the optimum; rows of one length or not, columns or not."""
    model = build()
    policy = assumption_2(model).proper_policy
    value, best = policy_value(model, policy), solve(model).value
    for distance in (None, direct_routes(model)[1], rng.integers(0, 50, model.n_states)):
        steps = Steps(model, distance)
        q = steps.backup(value)
        np.testing.assert_allclose(q, model.backup(value), rtol=1e-14)
        np.testing.assert_array_equal(steps.best(q), model.best(q))
        improved, near = steps.improve(policy, value, np.abs(value), rounds=30)
        slack = 1e-12 * np.abs(best).max()
        assert (near >= value - slack).all()
        assert (near <= best + slack).all()
        assert (policy_value(model, improved) >= near - slack).all(), "its own policy is at least as good"


def unequal():
    """States with one to fifty moves, which lead to one to four others."""
    moves = {}
    for k in range(40):
        for a in range(50 if k == 7 else 1 + k % 3):
            after = {str(min(k + 1 + j, 40)): 1.0 for j in range(1 + a % 4)}
            after[str(max(k - 1 - a % 5, 0))] = 0.5
            total = sum(after.values())
            moves[(str(k), f"a{a}")] = Move(-1.0 - (a * 7 % 5), {s: p / total for s, p in after.items()})
    moves[("40", "a0")] = Move(-1.0, {"goal": 1.0})
    return from_moves("unequal", moves, start="0")


def test_a_chain_with_far_to_go_is_not_corrected_by_sweeps():
    """Left with a probability of 1e-6 a move: sweeps would take millions."""
    model = envs.grid(18, 18, slip=0.2)
    away = np.where(model.next_state == model.n_states, 1e-6, 1.0) * model.next_prob
    stuck = replace(model, next_prob=away / np.add.reduceat(away, model.next_start[:-1])[model.next_pair])
    policy, everywhere = assumption_2(stuck).proper_policy, np.arange(stuck.n_states)
    exact, right = precise_value(stuck, policy), stuck.reward[policy]
    assert Steps(stuck).correct(policy, right, exact) is None
    np.testing.assert_allclose(linear.solve_chain(stuck, policy, everywhere, right), exact, rtol=1e-9)
    assert solve(stuck).max_residual <= 1e-12 * np.abs(exact).max()


def staying_layers(rng, layers=30, width=12):
    """Layers in which a move goes on, or stays for a while, or, of every third pair, forever."""
    states = layers * width
    moves = {}
    for s in range(states):
        after = [str(min((s // width + 1) * width + int(k), states)) for k in rng.integers(0, width, 2)]
        stay = float(rng.random())
        moves[(str(s), "a")] = Move(-float(rng.random()), {after[0]: 1.0})
        moves[(str(s), "b")] = Move(-0.1, {str(s): stay, after[1]: 1.0 - stay})
        if s % 3 == 0:
            moves[(str(s), "c")] = Move(-1e-6, {str(s): 1.0})
    return from_moves("layers", moves, start="0", goal=str(states))


def test_sweeps_by_level_and_by_state_agree(rng):
    model = staying_layers(rng)
    order = np.argsort(components(model))
    level = backward._levels(model, order)
    np.testing.assert_array_equal(level, levels(model, may_stay=True))
    (value, policy), (other, its_policy) = backward._sweep(model, level), backward._sweep_one_by_one(model, order)
    np.testing.assert_allclose(value, other, rtol=1e-14)
    np.testing.assert_array_equal(policy, its_policy)
    np.testing.assert_allclose(value, by_dense_policy_iteration(model), rtol=1e-12)
    assert solve(model).method == "vi"
