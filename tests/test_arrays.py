"""Problems from matrices: every form in which pymdptoolbox and QuantEcon take them gives the same problem, and back."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from problems import random_problem
from scipy.sparse import coo_matrix, csc_array, csr_array, csr_matrix

import bellmanifold as bm
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.io.problem import read_problem

FOREST = (
    [[[0.1, 0.9, 0.0], [0.1, 0.0, 0.9], [0.1, 0.0, 0.9]], [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]],
    [[0.0, 0.0], [0.0, 1.0], [4.0, 2.0]],
)
"""The forest of pymdptoolbox's documentation: wait or cut; a fire with probability 0.1."""
PUTERMAN = ([[(0.5, 0.5), (0, 1)], [(0, 1), (0.5, 0.5)]], [[5, 10], [-1, -np.inf]])
"""The example of QuantEcon's documentation: Q and R; the row Q[1, 1] is arbitrary."""


def drawn(rng, states=5, actions=3):
    """Random transitions (A, S, S), about half of them impossible, and rewards that depend on the next state."""
    transitions = rng.random((actions, states, states)) * (rng.random((actions, states, states)) < 0.5)
    transitions += 0.1 * np.eye(states)
    return transitions / transitions.sum(axis=2, keepdims=True), rng.normal(size=(actions, states, states))


def best_values(transitions, rewards, discount, goals=()):
    """The discounted values by iteration from the definition; `rewards` (S, A)."""
    value = np.zeros(len(rewards))
    for _ in range(20_000):
        q = rewards + discount * np.einsum("asn,n->sa", transitions, value)
        q[list(goals)] = 0.0
        if np.array_equal(value, q.max(axis=1)):
            break
        value = q.max(axis=1)
    return value


def values(model, states):
    """The optimal values by state number; 0 at goals."""
    found = bm.solve(model).to_dict()["value"]
    return np.array([found.get(str(k), 0.0) for k in range(states)])


def test_all_forms_are_one_problem(rng):
    p, r = drawn(rng)
    means = (p * r).sum(axis=2).T
    objects = np.empty(3, dtype=object)
    objects[:] = [csr_matrix(one) for one in p]
    q, of_state_first = p.transpose(1, 0, 2), r.transpose(1, 0, 2)
    s, a = np.repeat(np.arange(5), 3), np.tile(np.arange(3), 5)
    mixed = rng.permutation(15)
    pairs = {"s_indices": s, "a_indices": a}
    goals = {"goals": [4]}
    by_action = (p, p.tolist(), list(p), [csr_matrix(one) for one in p], tuple(map(csc_array, p)), objects)
    whole = bm.from_arrays(p, r, **goals)
    for transitions in by_action:
        assert bm.from_arrays(transitions, r, **goals) == whole
        assert bm.from_arrays(transitions, [csr_matrix(one) for one in r], **goals) == whole
    assert bm.from_arrays(q, of_state_first, **goals) == whole
    assert bm.from_arrays(q.reshape(15, 5), of_state_first.reshape(15, 5), **pairs, **goals) == whole
    assert (
        bm.from_arrays(coo_matrix(q.reshape(15, 5)), csr_array(of_state_first.reshape(15, 5)), **pairs, **goals)
        == whole
    )
    averaged = bm.from_arrays(p, means, **goals)
    np.testing.assert_allclose(averaged.reward, whole.reward, rtol=1e-12)
    assert bm.from_arrays(q, means, **goals) == averaged
    assert bm.from_arrays(q.reshape(15, 5), means.ravel(), **pairs, **goals) == averaged
    shuffled = bm.from_arrays(
        csr_matrix(q.reshape(15, 5)[mixed]), means.ravel()[mixed], s_indices=s[mixed], a_indices=a[mixed], **goals
    )
    assert set(shuffled.pair_index) == set(averaged.pair_index)
    assert bm.solve(shuffled, discount=0.9).value_at_start == pytest.approx(
        bm.solve(averaged, discount=0.9).value_at_start
    )
    of_states = bm.from_arrays(p, means[:, 0], **goals)
    assert of_states == bm.from_arrays(p, np.repeat(means[:, :1], 3, axis=1), **goals)


def test_as_many_actions_as_states():
    """The first axis counts actions, unless rewards are -inf or it is said."""
    stay, swap = np.eye(2), np.eye(2)[::-1]
    rewards = np.array([[-1.0, -2.0], [0.0, -4.0]])
    by_action = bm.from_arrays(np.array([stay, swap]), rewards, discount=0.5)
    assert by_action.to_frame().next.tolist()[0] == {"0": 0.5, "goal": 0.5}
    assert by_action == bm.from_arrays([stay, swap], rewards, discount=0.5)
    by_state = bm.from_arrays(np.array([stay, swap]), rewards, discount=0.5, first="state")
    assert by_state.to_frame().next.tolist()[2] == {"1": 0.5, "goal": 0.5}
    assert bm.from_arrays(np.array([stay, swap]), rewards, discount=0.5, first="action") == by_action
    assert list(bm.from_arrays(*PUTERMAN, discount=0.95).pair_index) == [("0", "0"), ("0", "1"), ("1", "0")]


def test_an_object_of_quantecon_brings_its_rewards_and_its_discount():
    """By its attributes: no QuantEcon is needed. The values are those of its documentation."""
    q, r = PUTERMAN
    product = SimpleNamespace(R=np.array(r), Q=np.array(q), beta=0.95, s_indices=None, a_indices=None)
    model = bm.from_arrays(product, name="Puterman")
    np.testing.assert_allclose(values(model, 2), [-8.57142857, -20.0], atol=1e-8)
    rows = np.array([q[0][0], q[0][1], q[1][0]])
    pairs = SimpleNamespace(R=np.array([5.0, 10, -1]), Q=rows, beta=0.95, s_indices=[0, 0, 1], a_indices=[0, 1, 0])
    assert bm.from_arrays(pairs, name="Puterman") == model
    assert values(bm.from_arrays(product, discount=0.5), 2)[1] == pytest.approx(-2.0)
    for more in ({"rewards": r}, {"s_indices": [0, 0, 1]}):
        with pytest.raises(BadInputError, match="a DiscreteDP holds its rewards and indices: leave them out"):
            bm.from_arrays(product, **more)


def test_values_and_policies_of_the_documented_forest():
    model = bm.from_arrays(*FOREST, discount=0.9, actions=["wait", "cut"])
    np.testing.assert_allclose(values(model, 3), [26.244, 29.484, 33.484], atol=1e-9)
    assert all(best == ["wait"] for best in bm.solve(model).to_dict()["optimal_actions"].values())


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
def test_a_discount_is_that_of_the_definition(rng, discount):
    p, r = drawn(rng)
    wanted = best_values(p, (p * r).sum(axis=2).T, discount)
    np.testing.assert_allclose(values(bm.from_arrays(p, r, discount=discount), 5), wanted, atol=1e-8)
    wanted = best_values(p, (p * r).sum(axis=2).T, discount, goals=[2])
    np.testing.assert_allclose(values(bm.from_arrays(p, r, [2], discount), 5), wanted, atol=1e-8)


def test_without_a_discount_the_goals_end_episodes(rng):
    p, r = drawn(rng)
    p[:, :, 0] += 0.05
    p /= p.sum(axis=2, keepdims=True)
    wanted = best_values(p, (p * -np.abs(r)).sum(axis=2).T, 1.0, goals=[0])
    np.testing.assert_allclose(values(bm.from_arrays(p, -np.abs(r), goals=[0]), 5), wanted, atol=1e-8)


def test_rows_of_goals_are_ignored(rng):
    """Whatever they say: no distribution, no number, rewards that nobody can pay."""
    p, r = drawn(rng)
    means = (p * r).sum(axis=2).T
    whole = bm.from_arrays(p, means, goals=[1, 3])
    p[:, 1], means[1] = np.nan, np.inf
    p[:, 3], means[3] = -7.0, np.nan
    assert bm.from_arrays(p, means, goals=[1, 3]) == whole
    assert whole.goals == ("1", "3")
    assert whole.states == ("0", "2", "4")


@pytest.mark.parametrize("goals", [4, "4", [4], ["4"], (4,), {4}, np.array([4]), [np.int64(4)], [False] * 4 + [True]])
def test_goals_in_every_form(rng, goals):
    p, r = drawn(rng)
    assert bm.from_arrays(p, r, goals).goals == ("4",)


def test_names(rng):
    p, r = drawn(rng, 3, 2)
    model = bm.from_arrays(p, r, "home", states=["home", "shop", "work"], actions=["walk", "ride"], name="town")
    assert model.goals == ("home",)
    assert list(model.pair_index) == [(s, a) for s in ("shop", "work") for a in ("walk", "ride")]
    assert model.name == "town"
    named = bm.from_arrays(p, r, discount=0.9, states=["goal", "goal'", "other"])
    assert named.goals == ("goal''",)


def test_where_an_episode_starts(rng):
    p, r = drawn(rng)
    states = [f"s{k}" for k in range(5)]

    def start(given):
        return bm.from_arrays(p, r, goals=[4], states=states, initial=given).initial.tolist()

    assert start(None) == [0.25] * 4
    assert start(1) == start("s1") == start({"s1": 1.0}) == start([0, 1, 0, 0, 0]) == [0.0, 1.0, 0.0, 0.0]
    assert start({"s1": 0.5, 3: 0.5}) == start(np.array([0.0, 0.5, 0.0, 0.5, 0.0])) == [0.0, 0.5, 0.0, 0.5]


def test_actions_that_a_state_does_not_have():
    p = np.full((3, 2, 2), 0.5)
    rewards = np.array([[-1.0, -np.inf, -2.0], [-np.inf, -np.inf, -3.0]])
    p[1] = np.nan
    model = bm.from_arrays(p, rewards, discount=0.9)
    assert list(model.pair_index) == [("0", "0"), ("0", "2"), ("1", "2")]
    with pytest.raises(
        BadInputError, match='from_arrays: state "1" has no action with a reward above -inf: give it one'
    ):
        bm.from_arrays(p, np.array([[-1.0, -1, -2], [-np.inf] * 3]), discount=0.9)


P, R = np.full((3, 2, 2), 0.5), np.full((2, 3), -1.0)


def changed(array, place, value):
    array = array.astype(float)
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("given", "more", "message"),
    [
        ((P, R), {}, r"there is neither a goal nor a discount below 1: name the states where .*goals=\[3\], or give"),
        ((P, R), {"discount": 1.0}, "neither a goal nor a discount below 1"),
        ((P, R), {"discount": 0.0}, r"discount is 0.0: it must lie in \(0, 1\]"),
        ((P, R), {"discount": 1.5, "goals": [1]}, r"discount is 1.5: it must lie in \(0, 1\]"),
        ((P, R), {"discount": float("nan")}, r"discount is nan: it must lie in \(0, 1\]"),
        ((P, R), {"goals": [2]}, "goals: there is no state 2: give a number from 0 to 1"),
        ((P, R), {"goals": [-1]}, "goals: there is no state -1: give a number from 0 to 1"),
        ((P, R), {"goals": ["b"]}, 'goals: no state is called "b": give one of'),
        ((P, R), {"goals": [0.5]}, "goals is the number 0.5: give the number or the name of a state"),
        ((P, R), {"goals": [True]}, "goals: a mask of 1 for 2 states: give one entry each"),
        ((P, R), {"goals": [0, 1]}, "goals: every state is a goal: leave one for an episode to start in"),
        ((P, R), {"goals": 1, "initial": 1}, 'initial: "1" is a goal'),
        ((P, R), {"goals": 1, "initial": 5}, "initial: there is no state 5: give a number from 0 to 1"),
        ((P, R), {"goals": 1, "initial": [1.0]}, r"initial has shape \(1,\): give a state, or 2 probabilities"),
        ((P, R), {"goals": 1, "initial": [0.5, 0.0]}, "initial: probabilities sum to 0.5: make them sum to 1"),
        ((P, R), {"goals": 1, "states": ["a"]}, "states: 1 name for 2 states: give one for each"),
        ((P, R), {"goals": 1, "states": ["a", "a"]}, "states: a name occurs twice: make them distinct"),
        ((P, R), {"goals": 1, "actions": ["a", "a", "b"]}, 'action names: "a" occurs twice: make them distinct'),
        (
            (P, R),
            {"goals": 1, "first": "state"},
            r"transitions have shape \(3, 2, 2\), not \(S, A, S\): give one matrix",
        ),
        ((list(P), R), {"goals": 1, "first": "state"}, 'a list of matrices, one per action: leave first="state" out'),
        ((P,), {"goals": 1}, "rewards are missing: give them second"),
        ((P[0], R), {"goals": 1}, r"transitions are a single matrix: give one matrix \(S, S\) for each action"),
        ((csr_matrix(P[0]), R), {"goals": 1}, "transitions are a single matrix"),
        ((P[:, :, :1], R), {"goals": 1}, r"transitions have shape \(3, 2, 1\), not \(S, A, S\)"),
        ((np.zeros((0, 2, 2)), R), {"goals": 1}, r"transitions have shape \(0, 2, 2\)"),
        (([P[0], P[1][:1]], R), {"goals": 1}, r"transitions of action 1 have shape \(1, 2\): make them all \(2, 2\)"),
        (("P", R), {"goals": 1}, "transitions are the string"),
        (([[[1.0], [0.5, 0.5]]], R), {"goals": 1}, "transitions: its rows have different lengths: give an array"),
        (
            (P, [0.0]),
            {"goals": 1},
            r"rewards have shape \(1,\), with 2 states and 3 actions: give them as \(2,\), \(2, 3\)",
        ),
        ((P, R.T), {"goals": 1}, r"rewards have shape \(3, 2\), with 2 states and 3 actions"),
        ((P, [csr_matrix(R)] * 3), {"goals": 1}, r"rewards of action 0 have shape \(2, 3\): make it \(2, 2\)"),
        (
            (changed(P, (2, 0), [0.5, 0.4]), R),
            {"goals": 1},
            'state "0", action "2": probabilities sum to 0.9: make this',
        ),
        (
            (changed(P, (2, 0), [0.5, 0.5 + 2e-9]), R),
            {"goals": 1},
            'state "0", action "2": probabilities sum to 1.000000002',
        ),
        (
            (changed(P, (2, 0), [1.5, -0.5]), R),
            {"goals": 1},
            'state "0", action "2": probability of state "1" is -0.5: give',
        ),
        (
            (changed(P, (1, 0, 1), np.nan), R),
            {"goals": 1},
            'state "0", action "1": probability of state "1" is nan: give',
        ),
        (
            (changed(P, (1, 0, 1), np.inf), R),
            {"goals": 1},
            'state "0", action "1": probability of state "1" is inf: give',
        ),
        ((P, changed(R, (0, 1), np.nan)), {"goals": 1}, 'state "0", action "1": reward is nan: give a finite number'),
        ((P, changed(R, (0, 1), np.inf)), {"goals": 1}, 'state "0", action "1": reward is inf: give a finite number'),
        (
            (P, changed(P, (1, 0, 1), -np.inf)),
            {"goals": 1},
            'state "0", action "1": reward of the move to state "1" is -inf',
        ),
        (
            (P[:, 0], [-1.0] * 3),
            {"goals": 1, "s_indices": [0, 0, 0]},
            "a_indices is missing: give the state and the action",
        ),
        (
            (P[:, 0], [-1.0] * 3),
            {"goals": 1, "s_indices": [0, 0], "a_indices": [0, 1, 2]},
            "s_indices: must be a list of 3",
        ),
        (
            (P[:, 0], [-1.0] * 3),
            {"goals": 1, "s_indices": [0, 0, 2], "a_indices": [0, 1, 2]},
            r"s_indices\[2\] is 2: .* 0 to 1",
        ),
        (
            (P[:, 0], [-1.0] * 3),
            {"goals": 1, "s_indices": [0, 0, 0], "a_indices": [0, 1, -2]},
            r"a_indices\[2\] is -2: give",
        ),
        (
            (P[:, 0], [-1.0] * 3),
            {"goals": 1, "s_indices": [0, 0, 0], "a_indices": [0, 1, 1]},
            r'pair \("0", "1"\): occurs twice',
        ),
        (
            (P[:, 0], [-1.0]),
            {"goals": 1, "s_indices": [0] * 3, "a_indices": [0, 1, 2]},
            r"rewards have shape \(1,\): .*\(3,\)",
        ),
    ],
)
def test_errors_name_the_place_and_the_remedy(given, more, message):
    with pytest.raises(BadInputError, match="^from_arrays: .*" + message):
        bm.from_arrays(*given, **more)


def test_a_number_of_an_action_may_not_be_huge():
    with pytest.raises(BadInputError, match=r"a_indices\[0\] is 1000000000: give a whole number from 0 to 9999999"):
        bm.from_arrays(P[:1, 0], [-1.0], goals=1, s_indices=[0], a_indices=[10**9])


def test_rounding_of_a_sum_is_allowed():
    model = bm.from_arrays(changed(P, (2, 0), [0.5, 0.5 + 5e-10]), R, goals=[1])
    assert np.bincount(model.next_pair, model.next_prob) == pytest.approx(1.0, abs=1e-15)


def test_undiscounted_rewards_may_be_positive_if_loops_do_not_pay():
    """Else `solve` and the exact posterior say which loop pays, and what to do."""
    ends = [[[0.0, 1.0], [0.0, 1.0]]]
    assert values(bm.from_arrays(ends, [3.0, 0.0], goals=[1]), 2)[0] == 3.0
    stays = bm.from_arrays([np.eye(2), ends[0]], [[1.0, 3.0], [0.0, 0.0]], goals=[1])
    with pytest.raises(UnsupportedError, match=r"the loop 0 -> 0 pays 1 per move.*discount=0.99 solves a nearby"):
        bm.solve(stays)
    with pytest.raises(
        UnsupportedError, match=r"the exact posterior does not exist: use epsilon above 0, or discount=0\.99"
    ):
        bm.posterior(stays, bm.Dataset.complete(stays))
    assert bm.posterior(stays, bm.Dataset.complete(stays), discount=0.9).action_probability["0", "0"].value == 1.0


def some_problems(rng, folder):
    content = (
        '{"format": "bellmanifold.ssp/2", "name": "x", "goals": ["end", "exit"], "initial": {"a": 0.25, "b": 0.75}, '
        '"prior": {"mean": -2.0}, "metadata": {"by": "me"}, "pairs": ['
        '{"state": "a", "action": "up", "reward": -1, "next": {"end": 0.5, "b": 0.5}, "reward_sd": 0.5},'
        '{"state": "b", "action": "down", "reward": 2, "next": {"exit": 1.0}, "prior": {"sd": 3.0}},'
        '{"state": "b", "action": "up", "reward": -1, "next": {"a": 0.1, "b": 0.2, "exit": 0.7}}]}'
    )
    (folder / "problem.json").write_text(content)
    yield read_problem(folder / "problem.json")
    yield from (
        bm.envs.deep_sea(4, slip=0.1, action_seed=3),
        bm.envs.swirl(3),
        bm.envs.robot(),
        bm.envs.grid(3, 3).discounted(0.9),
    )
    yield from (random_problem(rng, states=int(rng.integers(1, 6))) for _ in range(20))


def test_there_and_back(rng, tmp_path):
    """The same problem to the last bit, with several goals, priors, noise and metadata."""
    for model in some_problems(rng, tmp_path):
        arrays = model.to_arrays()
        assert bm.from_arrays(arrays) == model
        assert arrays.P.shape == (model.n_pairs + len(model.goals), model.n_states + len(model.goals))
        np.testing.assert_allclose(arrays.P.sum(axis=1), 1.0)
        again = bm.from_arrays(
            *(arrays.P, arrays.R, arrays.goals),
            s_indices=arrays.s_indices,
            a_indices=arrays.a_indices,
            states=arrays.states,
            actions=arrays.actions,
            initial=arrays.initial,
            name=arrays.name,
        )
        if not model.metadata and not model.reward_sd.any():
            assert again == model
        assert np.array_equal(bm.solve(again, discount=0.9).value, bm.solve(model, discount=0.9).value)


def test_a_record_is_the_whole_problem():
    arrays = bm.envs.two_state().to_arrays()
    for more in ({"discount": 0.9}, {"goals": np.array([0, 1])}, {"name": "other"}):
        with pytest.raises(BadInputError, match="from_arrays: such a record holds everything: give nothing else"):
            bm.from_arrays(arrays, **more)


def test_matrices_by_action_for_solvers_that_give_every_state_every_action(rng, tmp_path):
    """An action that a state lacks does what its first one does, so that values are the same."""
    for model in some_problems(rng, tmp_path):
        arrays = model.to_arrays()
        p, r = arrays.by_action()
        assert len(p) == len(model.actions)
        assert r.shape == (len(arrays.states), len(model.actions))
        value = best_values(np.array([one.toarray() for one in p]), r, 0.9)
        np.testing.assert_allclose(value[: model.n_states], bm.solve(model, discount=0.9).value, atol=1e-8)


def test_a_discount_is_taken_out_again(rng):
    p, r = drawn(rng)
    model = bm.from_arrays(p, r, goals=[2], discount=0.9)
    arrays = model.to_arrays(discount=0.9)
    assert arrays.discount == 0.9
    plain = bm.from_arrays(p, r, goals=[2]).to_arrays()
    assert arrays.states == plain.states
    np.testing.assert_allclose(arrays.P.toarray(), plain.P.toarray(), atol=1e-15)
    back = bm.from_arrays(arrays)
    np.testing.assert_allclose(back.next_prob, model.next_prob, atol=1e-15)
    assert arrays.P.nnz == plain.P.nnz, "no move to the goal is left over by rounding"
    with pytest.raises(
        BadInputError, match=r"ends with probability .*, less than 1 - discount: give a discount of at least"
    ):
        model.to_arrays(discount=0.5)
    for wrong in (0.0, 1.5):
        with pytest.raises(BadInputError, match=r"it must lie in \(0, 1\]"):
            model.to_arrays(discount=wrong)


def test_open_problems_have_no_matrices():
    with pytest.raises(BadInputError, match="to_arrays needs the whole problem"):
        bm.envs.two_state().opened().to_arrays()


def test_large_problems_are_read_with_arrays():
    """10,000 states with 3 actions and 4 successors each: no Python per entry."""
    rng, n = np.random.default_rng(0), 10_000
    column = rng.integers(n, size=(3, 4 * n))
    matrices = [csr_matrix((np.full(4 * n, 0.25), (np.repeat(np.arange(n), 4), own)), shape=(n, n)) for own in column]
    rewards = rng.random((n, 3))
    began = time.process_time()
    model = bm.from_arrays(matrices, rewards, goals=[0])
    arrays = model.to_arrays()
    assert time.process_time() - began < 3.0
    assert model.n_pairs == 3 * (n - 1)
    assert arrays.P.shape == (3 * (n - 1) + 1, n)
