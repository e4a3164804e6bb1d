"""Agents that are told where they land, and nothing else: in built-in problems and environments without a table."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.registry import make_agent
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.io.numbered import Digits, numbered
from bellmanifold.learning.episodes import run_episodes

EPISODES = 12


def same(one, other):
    return all(
        np.array_equal(a.pairs, b.pairs) and np.array_equal(a.rewards, b.rewards) and np.array_equal(a.policy, b.policy)
        for a, b in zip(one, other, strict=True)
    )


def played(model, episodes=EPISODES, agent="manifold", **options):
    return run_episodes(model, make_agent(agent, model, options), episodes, seed=3)


@pytest.mark.parametrize("agent", ["manifold", pytest.param("bayes-br", marks=pytest.mark.slow)])
def test_deterministic_laws_are_known_after_one_landing(agent):
    """Bit for bit the run of an agent that is shown the law of every pair it plays."""
    model = envs.deep_sea(4)
    assert same(played(model, agent=agent), played(model, agent=agent, laws="deterministic"))


@pytest.mark.parametrize("laws", ["deterministic", "dirichlet"])
def test_the_table_is_never_looked_at(laws):
    """Laws and rewards of pairs that were not played change nothing, bit for bit."""
    model = envs.deep_sea(4)
    run = played(model, 6, laws=laws)
    seen = np.unique(np.concatenate([episode.pairs for episode in run]))
    hidden = np.setdiff1d(np.arange(model.n_pairs), seen)
    reward = model.reward.copy()
    reward[hidden] = 77.0
    goal = np.full(len(hidden), model.n_states)
    other = replace(model, reward=reward).with_rows(hidden, np.arange(len(hidden) + 1), goal, np.ones(len(hidden)))
    assert len(hidden)
    assert same(run, played(other, 6, laws=laws))
    agent = make_agent("manifold", model, {"laws": laws})
    assert agent.model.open_law.all()
    assert agent.model.open_reward.all()


def test_of_pairs_that_were_played_only_landings_count():
    """Two laws that led to the same landings in a run: to an agent that is not shown them they are the same."""
    one, other = (played(envs.deep_sea(4, slip=slip), 6, laws="dirichlet") for slip in (1e-6, 2e-6))
    assert same(one, other)
    assert all(
        np.array_equal(a.diagnostics["concentration"], b.diagnostics["concentration"])
        for a, b in zip(one[1:], other[1:], strict=True)
    )


def test_a_world_that_is_not_deterministic_is_refused_as_such():
    with pytest.raises(BadInputError, match='so the problem is not deterministic: use laws="dirichlet"'):
        played(envs.deep_sea(3, slip=0.4), 40, laws="deterministic")


def test_bad_combinations():
    model = envs.deep_sea(3)
    for options, error, message in (
        ({"concentration": 0.5}, BadInputError, 'give laws="dirichlet" too'),
        ({"laws": "dirichlet", "concentration": -1.0}, BadInputError, "concentration is -1.0: give a number"),
        ({"laws": "guessed"}, BadInputError, "laws is .*: give known, deterministic or dirichlet"),
        ({"laws": "dirichlet", "method": "A"}, UnsupportedError, "method A follows the laws of the problem"),
    ):
        with pytest.raises(error, match=message):
            make_agent("manifold", model, options)
    with pytest.raises(BadInputError, match='psrl has no option "laws"'):
        make_agent("psrl", model, {"laws": "dirichlet"})


def test_the_way_to_news_follows_what_was_seen():
    model = envs.deep_sea(3)
    memory = Memory(model.opened())
    left = model.pair_index["0,0", "left"]
    memory.add(np.array([left, left]), np.zeros(2))
    for landing in ("1,0", "1,1"):
        memory.land(left, model.state_index[landing])
    known = memory.known_model
    row = slice(*known.next_start[left : left + 2])
    assert [model.states[s] for s in known.next_state[row]] == ["1,0", "1,1"]
    assert known.next_prob[row].tolist() == [0.5, 0.5]
    others = np.setdiff1d(np.arange(model.n_pairs), [left])
    assert (known.next_state[known.next_start[others]] == model.n_states).all()


@pytest.mark.slow
def test_concentration_tells_deterministic_worlds_from_slippery_ones():
    """After 100 episodes of deep sea 5: below 0.02 where nothing slips, between 0.02 and 1 with a slip of 0.1."""
    for slip, least, most in ((0.0, 0.0, 0.02), (0.1, 0.02, 1.0)):
        run = played(envs.deep_sea(5, slip=slip), 100, laws="dirichlet")
        assert least <= run[-1].diagnostics["concentration"] < most


class Corridor(gymnasium.Env):
    """Cells in a row, without any table; observations and actions are several numbers each."""

    observation_space = gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(3, start=1)))
    action_space = gymnasium.spaces.MultiDiscrete([2])

    def __init__(self):
        self.cell = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return (0, 1), {}

    def step(self, action):
        assert action.shape == (1,)
        self.cell = max(0, self.cell + (1 if action[0] else -1))
        return (self.cell % 2, 1 + self.cell // 2), -1.0, self.cell == 4, False, {}


@pytest.mark.parametrize("laws", ["deterministic", pytest.param("dirichlet", marks=pytest.mark.slow)])
def test_an_environment_without_a_table_is_learnt(laws):
    """Four moves right; within 30 episodes the agent finds them and goes on doing so."""
    learning = bm.learn(
        Corridor(), agent="manifold", laws=laws, explore="directed", episodes=30, runs=1, prior_mean=-5.0
    )
    assert all(episode.rewards.sum() == -4.0 for episode in learning.runs[0].played[-5:])
    assert learning.messages == ("there is no optimum to compare with: the environment has no table P",)


def test_known_laws_need_a_table_and_say_what_does_not():
    with pytest.raises(UnsupportedError, match='use laws="deterministic" or laws="dirichlet", or psrl'):
        bm.learn(Corridor(), agent="manifold", episodes=1, runs=1)


def test_several_numbers_are_numbered_as_digits_are():
    space = gymnasium.spaces.MultiDiscrete([[2, 3], [4, 1]], start=[[0, 1], [-1, 5]])
    digits = Digits(space)
    values = [digits.value(number) for number in range(digits.count)]
    assert digits.count == 24
    assert all(space.contains(value) for value in values)
    assert [digits.number(value) for value in values] == list(range(24))
    assert numbered(gymnasium.make("FrozenLake-v1")).observation_space == gymnasium.spaces.Discrete(16)
    with pytest.raises(UnsupportedError, match="gym:CartPole-v1: observations and actions must be whole numbers"):
        numbered(gymnasium.make("CartPole-v1"))


class Lottery(Corridor):
    """The last cell pays one of two prizes."""

    def step(self, action):
        observation, reward, arrived, cut_off, info = super().step(action)
        return observation, reward + (float(self.np_random.integers(2)) if arrived else 0.0), arrived, cut_off, info


def test_rewards_that_vary_are_spoken_of():
    options = {"episodes": 12, "runs": 1, "laws": "deterministic", "prior_mean": -5.0}
    learning = bm.learn(Lottery(), agent="manifold", **options)
    said = "the rewards of a pair vary, and their mean is taken to be exact"
    assert any(message.startswith(said) for message in learning.messages)
    assert any(warning.startswith(said) for warning in learning.to_dict()["warnings"])


@pytest.mark.slow
def test_rewards_that_vary_are_noise_to_whoever_expects_it():
    options = {"episodes": 12, "runs": 1, "laws": "deterministic", "prior_mean": -5.0}
    noisy = bm.learn(Lottery(), agent="bayes-br", noise_sd=0.5, **options)
    assert not any(message.startswith("the rewards of a pair vary") for message in noisy.messages)
