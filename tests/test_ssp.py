from dataclasses import replace

import numpy as np
import pytest
from problems import random_problem

from bellmanifold import envs
from bellmanifold.errors import BadInputError
from bellmanifold.mdp.graph import end_components
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import Description


def small(**changes):
    """Two states, three pairs, one goal; keyword arguments replace fields."""
    fields = {
        "state_names": ["a", "b", "goal"],
        "action_names": ["x", "y"],
        "goals": [2],
        "initial_state": [0],
        "initial_prob": [1.0],
        "pair_state": [0, 0, 1],
        "pair_action": [0, 1, 0],
        "reward": [-1.0, -2.0, -3.0],
        "next_start": [0, 1, 3, 4],
        "next_state": [1, 0, 2, 2],
        "next_prob": [1.0, 0.5, 0.5, 1.0],
    }
    return Description(**{**fields, **changes})


def test_describe_and_assemble_are_inverse(rng):
    for _ in range(50):
        model = random_problem(rng, states=int(rng.integers(1, 8)))
        assert assemble(model.describe()) == model


def test_small_integers_describe_the_same_problem():
    """Indices may come in 32 bits; the codes that tell pairs apart do not overflow."""
    plain = envs.grid(6, 5, slip=0.2).describe()
    parts = ("pair_state", "pair_action", "next_start", "next_state")
    narrow = replace(plain, **{part: getattr(plain, part).astype(np.int32) for part in parts})
    assert assemble(narrow) == assemble(plain)
    wide = small(
        state_names=[f"s{k}" for k in range(2**16 + 1)],
        action_names=[f"a{k}" for k in range(2**16)],
        pair_state=np.array([0, 0, 2**16], dtype=np.int32),
        pair_action=np.array([0, 1, 0], dtype=np.int32),
        next_state=[2**16, 0, 2, 2],
    )
    assert assemble(wide).states == ("s0", "s65536")


def test_a_subproblem_is_what_assembling_its_pairs_gives(rng):
    """End components of random problems: states, actions and successors are numbered as if nothing else had existed."""
    found = 0
    for _ in range(60):
        model = random_problem(rng, states=int(rng.integers(2, 9)))
        for component in end_components(model):
            keep = np.isin(np.arange(model.n_pairs), component.pairs)
            start, entries = int(component.states[-1]), np.repeat(keep, np.diff(model.next_start))
            plain = replace(
                model.describe(),
                initial_state=[start],
                initial_prob=[1.0],
                **{part: getattr(model, part)[keep] for part in ("pair_state", "pair_action", "reward", "reward_sd")},
                next_start=np.append(0, np.cumsum(np.diff(model.next_start)[keep])),
                next_state=model.next_state[entries],
                next_prob=model.next_prob[entries],
            )
            assert model.subproblem(keep, start=start) == assemble(plain)
            found += 1
    assert found > 20


def test_order_of_description_does_not_matter():
    """States are numbered by their first pair, successors ascend, whatever order they came in."""
    shuffled = small(
        pair_state=[0, 1, 0],
        pair_action=[0, 0, 1],
        reward=[-1.0, -3.0, -2.0],
        next_start=[0, 1, 2, 4],
        next_state=[1, 2, 2, 0],
        next_prob=[1.0, 1.0, 0.5, 0.5],
    )
    assert assemble(shuffled) == assemble(small())


def test_goals_are_lumped_and_equal_successors_merged():
    model = assemble(
        small(
            state_names=["a", "b", "g1", "g2"],
            goals=[2, 3],
            next_start=[0, 1, 4, 5],
            next_state=[1, 2, 3, 2, 3],
            next_prob=[1.0, 0.25, 0.5, 0.25, 1.0],
        )
    )
    assert model.goals == ("g1", "g2")
    assert model.next_state.tolist() == [1, 2, 2]
    assert model.next_prob.tolist() == [1.0, 1.0, 1.0]


def test_zero_probability_is_no_successor_and_small_misses_are_scaled_away():
    model = assemble(
        small(next_start=[0, 2, 4, 5], next_state=[1, 0, 0, 2, 2], next_prob=[1.0, 0.0, 0.5, 0.5 - 4e-10, 1])
    )
    assert model.next_start.tolist() == [0, 1, 3, 4]
    assert model.next_prob[1:3].sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_prob": [1.0, 0.5, 0.6, 1.0]}, r'pair \("a", "y"\): probabilities sum to 1.1'),
        ({"next_prob": [1.0, 1.5, -0.5, 1.0]}, r'pair \("a", "y"\): probability of "goal" is -0.5'),
        ({"next_prob": [1.0, np.nan, 0.5, 1.0]}, r'pair \("a", "y"\): probability of "a" is nan'),
        ({"reward": [-1.0, np.inf, 0.0]}, r'pair \("a", "y"\): reward is inf'),
        ({"reward_sd": [0.0, -1.0, 0.0]}, r'pair \("a", "y"\): reward_sd is -1'),
        ({"pair_action": [0, 0, 0]}, r'pair \("a", "x"\): occurs twice'),
        ({"pair_state": [0, 0, 2]}, r'pair \("goal", "x"\): its state is a goal'),
        ({"goals": []}, "goals: there are none"),
        ({"initial_state": [2]}, "is a goal"),
        ({"initial_prob": [0.9]}, "initial: probabilities sum to 0.9"),
        ({"initial_prob": [-1.0]}, "initial: probability"),
        ({"state_names": ["a", "b", "goal", "c"], "initial_state": [3]}, 'initial: unknown state "c"'),
        (
            {"state_names": ["a", "b", "goal", "c"], "next_state": [1, 3, 2, 2]},
            r'pair \("a", "y"\): next state "c" is not a goal and has no pair',
        ),
        ({"state_names": ["a", "a", "goal"]}, "occurs twice"),
        ({"pair_state": [0, 0, 7]}, "outside"),
        ({"pair_state": [0.0, 0.5, 1.0]}, "whole numbers"),
        ({"next_start": [0, 3, 1, 4]}, "must rise"),
        ({"reward": ["-1", "-2", "-3"]}, "reward: must be a list of numbers"),
        ({"reward": [-1.0]}, "number of pairs"),
        ({"next_prob": [1.0]}, "differ in length"),
        (
            {"pair_state": [], "pair_action": [], "reward": [], "next_start": [0], "next_state": [], "next_prob": []},
            "pairs: there are none",
        ),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(BadInputError, match=message):
        assemble(small(**changes))


def test_discount_sends_the_rest_to_the_goal():
    model = envs.two_state().discounted(0.9)
    assert model.next_state.tolist() == [0, 1, 1]
    np.testing.assert_allclose(model.next_prob, [0.9, 0.1, 1.0])
    assert envs.two_state().discounted(1.0) == envs.two_state()


def test_memory_grows_with_successors_not_with_states_squared():
    """10,000 actions in one state and 10,000 successors of one pair take no more than their own entries."""
    n = 10_000
    pair_state = np.append(np.zeros(n, dtype=int), np.arange(1, n + 1))
    pair_action = np.append(np.arange(n), np.zeros(n, dtype=int))
    lengths = np.append([n], np.ones(2 * n - 1, dtype=int))
    next_state = np.concatenate([np.arange(1, n + 1), np.full(2 * n - 1, n + 1)])
    next_prob = np.concatenate([np.full(n, 1 / n), np.ones(2 * n - 1)])
    model = assemble(
        Description(
            [str(k) for k in range(n + 2)],
            [str(k) for k in range(n)],
            [n + 1],
            [0],
            [1.0],
            pair_state,
            pair_action,
            -np.ones(2 * n),
            np.append(0, np.cumsum(lengths)),
            next_state,
            next_prob,
        )
    )
    arrays = (model.pair_state, model.reward, model.next_start, model.next_state, model.next_prob)
    assert sum(array.nbytes for array in arrays) < 8 * 12 * n
    assert model.next_prob[:n].sum() == pytest.approx(1.0)


def test_dataset_counts_means_and_scatter():
    model = envs.two_state()
    data = Dataset.from_pairs(model, [("s1", "go", -1.0), ("s1", "go", -2.0), ("s1", "stay")])
    assert data.count.tolist() == [1, 2]
    assert data.mean_reward.tolist() == [-1.0, -1.5]
    assert data.scatter.tolist() == [0.0, 0.5]
    assert len(data.extended(np.array([0]), np.array([-1.0]))) == 4
    empty = Dataset.from_pairs(model, [])
    assert empty.scatter.tolist() == empty.mean_reward.tolist() == [0.0, 0.0]
    assert not empty.observed.any()
    assert Dataset.complete(model).observed.all()


def test_deterministic_rewards_must_repeat():
    model = envs.two_state()
    near = Dataset.from_pairs(model, [("s1", "go", -1.0), ("s1", "go", -1.0 - 5e-10)])
    assert near.deterministic_reward().tolist() == [0.0, -1.0]
    large = Dataset.from_pairs(model, [("s1", "go", 1e6), ("s1", "go", 1e6 + 5e-4)])
    assert large.deterministic_reward()[1] == 1e6
    wrong = Dataset.from_pairs(model, [("s1", "stay"), ("s1", "go", -1.0), ("s1", "go", -1.00001)])
    with pytest.raises(BadInputError, match=r"observations\[2\].*must repeat"):
        wrong.deterministic_reward()


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (("s9", "go"), "unknown state"),
        (("s1", "fly"), 'has no action "fly": it has "stay", "go"'),
        (("goal", "go"), "is a goal"),
        (("s1", "go", float("nan")), "reward is nan"),
    ],
)
def test_wrong_observations_are_named(observation, message):
    with pytest.raises(BadInputError, match=message):
        Dataset.from_pairs(envs.two_state(), [observation])


def test_arrays_of_a_problem_cannot_be_written_to():
    """... and those it was made of still can."""
    reward = np.array([-1.0, -2.0, -3.0])
    model = assemble(small(reward=reward))
    for array in (model.reward, model.next_prob, replace(model, reward=reward).reward):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5.0
    reward[0] = 5.0


def test_a_problem_equals_no_other_thing():
    assert envs.two_state() == envs.two_state()
    assert envs.two_state() != "two-state"
