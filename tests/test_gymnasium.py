import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from problems import random_problem

import bellmanifold
from bellmanifold import envs
from bellmanifold.errors import BadInputError
from bellmanifold.models import load_model


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["DeepSea", "Pyramid", "Swirl", "TwoState", "FourState", "Grid"])
def test_registered_environments_pass_gymnasiums_check(name):
    options = {"depth": 5} if name in ("DeepSea", "Pyramid", "Swirl") else {}
    check_env(gymnasium.make(f"bellmanifold/{name}-v0", **options).unwrapped)


def test_there_and_back_again(rng):
    for _ in range(20):
        model = random_problem(rng, states=6)
        again = bellmanifold.from_gymnasium(bellmanifold.to_gymnasium(model))
        assert again.n_pairs == model.n_pairs
        np.testing.assert_allclose(again.reward, model.reward, rtol=1e-12)
        np.testing.assert_array_equal(again.next_state, model.next_state)
        np.testing.assert_allclose(again.initial, model.initial)


def test_steps_follow_the_law(rng):
    """Frequencies of 4,000 steps against the law: a chi-square statistic with 1 degree of freedom stays below 15.1 with
    probability 0.9999 for each of two laws: false alarm 2e-4."""
    env = bellmanifold.to_gymnasium(envs.deep_sea(3, slip=0.3))
    count = 0
    for seed in range(4000):
        env.reset(seed=seed)
        state, reward, terminated, truncated, _ = env.step(np.int64(1))
        assert reward == pytest.approx(-0.05)
        assert not terminated
        assert not truncated
        count += env.model.states[state] == "1,0"
    assert (count - 1200) ** 2 / (4000 * 0.3 * 0.7) < 15.1


def test_noise_and_goal():
    env = bellmanifold.to_gymnasium(envs.deep_sea(1, convention="bsuite", stochastic=True))
    rewards = []
    for seed in range(200):
        env.reset(seed=seed)
        state, reward, terminated, _, info = env.step(np.int64(0))
        assert terminated
        assert state == 1
        assert not info["action_mask"].any()
        rewards.append(reward)
    assert 0.8 < np.std(rewards) < 1.2  # sd of 200 normals: outside with probability 1e-4


def test_an_action_the_state_does_not_have():
    env = bellmanifold.to_gymnasium(envs.four_state())
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 1]
    env.step(np.int64(1))
    with pytest.raises(BadInputError, match="has 1 actions"):
        env.step(np.int64(1))


def test_cliff_walking_taxi_and_frozen_lake():
    cliff = load_model("gym:CliffWalking-v1")
    assert cliff.n_states == 37, "the cliff cannot be stood on and the goal is lumped"
    assert load_model("gym:Taxi-v4").n_states == 400
    lake = load_model("gym:FrozenLake-v1")
    assert lake.n_states == 11
    assert cliff.metadata == {"grid": [4, 12], "goal_cell": "3,11"}
    assert lake.metadata == {"grid": [4, 4]}, "holes end episodes too"
    assert load_model("gym:Taxi-v4").metadata == {}, "its map is no table of its states"
    i = lake.pair_index[("14", "2")]
    assert lake.reward[i] == pytest.approx(1 / 3), "a reward that depends on the next state is averaged"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("gym:NoSuchThing-v0", "cannot make it"),
        ("gym:CartPole-v1", "no transition table P"),
        ("gym:", "cannot make it"),
        ("gym:not a name!", "cannot make it"),
        ("gym:no.such.module:Thing-v0", "cannot make it"),
    ],
)
def test_bad_references(reference, message):
    with pytest.raises(BadInputError, match=message) as error:
        load_model(reference)
    assert "\n" not in str(error.value)


class Odd(gymnasium.Env):
    """An environment with a table but no initial distribution."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(1)
    P = [[[(1.0, 1, -1.0, False)]], [[(1.0, 0, -1.0, True)]]]  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return int(self.np_random.random() < 0.25), {}


def test_initial_distribution_from_resets():
    """1,000 resets, true share 0.25: within 4 standard errors (0.055): false alarm 6e-5."""
    model = bellmanifold.from_gymnasium(Odd())
    assert model.states == ("0", "1")
    assert model.initial[1] == pytest.approx(0.25, abs=0.055)


def test_a_table_of_another_shape():
    env = Odd()
    env.P = {0: {0: [(1.0, 1)]}}
    with pytest.raises(BadInputError, match="is not made of"):
        bellmanifold.from_gymnasium(env)
