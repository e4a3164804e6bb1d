import itertools
from collections import Counter

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from problems import random_problem
from scipy import stats

import bellmanifold
from bellmanifold import envs
from bellmanifold.errors import BadInputError
from bellmanifold.io.models import load_model


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


def outcome(env, state, action):
    """One step of a Gymnasium environment from a state of our choice: the next state's name, the reward."""
    env.reset()
    env.unwrapped.s = int(state)
    after, reward, terminated, _, _ = env.step(int(action))
    return ("goal" if terminated else str(int(after))), float(reward)


def law_of(model, pair):
    own = slice(model.next_start[pair], model.next_start[pair + 1])
    return {model.state_name(s): p for s, p in zip(model.next_state[own], model.next_prob[own], strict=True)}


@pytest.mark.parametrize("name", ["CliffWalking-v1", "Taxi-v4", "FrozenLake-v1"])
def test_tables_are_what_the_environments_do(name):
    """Every pair is stepped in the environment itself.

    CliffWalking and Taxi are deterministic. FrozenLake slips: 300 steps of each of 44 pairs, a chi-square test at level
    1e-6 each: false alarms 5e-5. Rewards there depend on where the step leads, and are compared by their mean over the
    same steps, given the frequencies.
    """
    model, env = load_model(f"gym:{name}"), gymnasium.make(name).unwrapped
    env.reset(seed=1)
    for i in range(model.n_pairs):
        law = law_of(model, i)
        if len(law) == 1:
            assert outcome(env, *model.pair_name(i)) == (next(iter(law)), model.reward[i])
            continue
        steps = [outcome(env, *model.pair_name(i)) for _ in range(300)]
        seen = Counter(after for after, _ in steps)
        assert set(seen) <= set(law)
        assert stats.chisquare([seen[s] for s in law], [300 * p for p in law.values()]).pvalue > 1e-6, model.pair_name(
            i
        )
        paid = dict(steps)
        assert model.reward[i] == pytest.approx(sum(p * paid[s] for s, p in law.items())), model.pair_name(i)


def played(env, model, policy, seed, discount=1.0):
    """What a policy earns in the environment itself, from one of its own starts."""
    state, _ = env.reset(seed=seed)
    total, factor, terminated = 0.0, 1.0, False
    while not terminated:
        action = model.pair_name(policy[model.state_index[str(int(state))]])[1]
        state, reward, terminated, _, _ = env.step(int(action))
        total, factor = total + factor * float(reward), factor * discount
    return total


def test_optimal_policies_earn_their_values_in_the_environments():
    """CliffWalking: 13 moves. Taxi: each of 100 random starts earns its own value exactly. FrozenLake, discounted by
    0.99: the mean of 500 episodes within 4 standard errors of V(start) (false alarms 6e-5), which is known to be
    0.54203."""
    cliff, env = load_model("gym:CliffWalking-v1"), gymnasium.make("CliffWalking-v1").unwrapped
    solution = bellmanifold.solve(cliff)
    assert played(env, cliff, cliff.greedy(solution.q), seed=0) == solution.value[cliff.state_index["36"]] == -13.0

    taxi, env = load_model("gym:Taxi-v4"), gymnasium.make("Taxi-v4").unwrapped
    solution = bellmanifold.solve(taxi)
    for seed in range(100):
        start = str(int(env.reset(seed=seed)[0]))
        assert played(env, taxi, taxi.greedy(solution.q), seed) == pytest.approx(
            solution.value[taxi.state_index[start]]
        )

    lake, env = load_model("gym:FrozenLake-v1"), gymnasium.make("FrozenLake-v1").unwrapped
    solution = bellmanifold.solve(lake, discount=0.99)
    earned = [played(env, lake, lake.greedy(solution.q), seed, discount=0.99) for seed in range(500)]
    assert solution.value[0] == pytest.approx(0.54203, abs=5e-6)
    assert abs(np.mean(earned) - solution.value[0]) < 4 * np.std(earned) / np.sqrt(len(earned))


class BsuiteEpisode:
    """One episode of bsuite's deep sea by its rules, move by move, with its own coin."""

    def __init__(self, size, stochastic, rng):
        self.size, self.stochastic, self.rng = size, stochastic, rng
        self.row, self.column = 0, 0

    def move(self, right):
        """The reward without its noise, its noise's sd, and whether the episode is over."""
        reward = 1.0 if right and self.column == self.size - 1 else 0.0
        noisy = self.stochastic and self.row == self.size - 1 and self.column in (0, self.size - 1)
        if right:
            reward -= 0.01 / self.size
            if not self.stochastic or self.rng.random() > 1.0 / self.size:
                self.column = min(self.column + 1, self.size - 1)
        else:
            self.column = max(self.column - 1, 0)
        self.row += 1
        return reward, float(noisy), self.row == self.size


def test_bsuites_deep_sea_move_by_move():
    """Every sequence of actions of the deterministic variant, size 4, beside our environment."""
    env = bellmanifold.to_gymnasium(envs.deep_sea(4, convention="bsuite"))
    for moves in itertools.product((False, True), repeat=4):
        episode = BsuiteEpisode(4, stochastic=False, rng=None)
        env.reset(seed=0)
        for right in moves:
            state, reward, terminated, _, _ = env.step(np.int64(right))
            expected, _, over = episode.move(right)
            assert reward == pytest.approx(expected, abs=1e-15)
            assert terminated == over
            assert over or env.model.states[state] == f"{episode.row},{episode.column}"


def test_bsuites_stochastic_deep_sea_by_its_frequencies(rng):
    """1,000 episodes of both under the policy that always turns right: where the last row is met (chi-square of two
    samples at level 1e-4), rewards before it exactly, the noise of the last reward where bsuite has it (KS, 1e-4).
    False alarm 2e-4."""
    size = 4
    env = bellmanifold.to_gymnasium(envs.deep_sea(size, convention="bsuite", stochastic=True))
    columns = np.zeros((2, size), dtype=int)
    noises = []
    for seed in range(1000):
        episode = BsuiteEpisode(size, True, rng)
        env.reset(seed=seed)
        for _ in range(size - 1):
            state, reward, _, _, _ = env.step(np.int64(1))
            assert reward == pytest.approx(episode.move(True)[0], abs=1e-15)
        own = int(env.model.states[state].split(",")[1])
        columns[:, [own]] += [[1], [0]]
        columns[1, episode.column] += 1
        episode.column = own
        expected, noise, over = episode.move(True)
        _, reward, terminated, _, _ = env.step(np.int64(1))
        assert terminated == over
        if noise:
            noises.append(reward - expected)
        else:
            assert reward == pytest.approx(expected, abs=1e-15)
    assert stats.chi2_contingency(columns).pvalue > 1e-4, columns
    assert stats.kstest(noises, "norm").pvalue > 1e-4


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("gym:NoSuchThing-v0", "cannot make it"),
        ("gym:CartPole-v1", "no transition table P"),
        ("gym:", "cannot make it"),
        ("gym:not a name!", "cannot make it"),
        ("gym:no.such.module:Thing-v0", "would import a module"),
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
