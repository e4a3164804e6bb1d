"""A person's own agent in `bm.learn`, and environments of which only rewards are known."""

import gymnasium
import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold.errors import BadInputError

MODEL = bm.envs.deep_sea(2)


class Cycler:
    """Plays the k-th action of every state in its k-th episode, modulo two, and remembers what it saw."""

    def __init__(self, model):
        self.start, self.seen = model.pair_start[:-1], []

    def policy(self, rng):
        return self.start + len(self.seen) % 2

    def observe(self, pairs, rewards):
        self.seen.append((pairs.tolist(), rewards.tolist()))


class Corridor(gymnasium.Env):
    """Three cells without a table; the second action goes on and costs 1, the first stays and costs 2."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return self.cell, {}

    def step(self, action):
        self.cell += int(action)
        return min(self.cell, 2), -1.0 if action else -2.0, self.cell == 3, False, {}


def test_every_run_learns_with_a_copy_of_an_object():
    """In the problem's own order of actions, and the object itself learns nothing."""
    own = Cycler(MODEL)
    found = bm.learn(MODEL, agent=own, episodes=4, runs=3, seed=5)
    assert own.seen == []
    assert found.agent == "Cycler"
    assert [run.seed for run in found.runs] == [5, 6, 7]
    for run in found.runs:
        assert run.model == MODEL
        assert [episode.pairs.tolist() for episode in run.played] == [[0, 2], [1, 5], [0, 2], [1, 5]]
    assert found.to_dict()["agent"] == "Cycler"
    assert "Cycler" in repr(found)


def test_a_class_makes_an_agent_for_every_run():
    """For the order of actions which that run drew."""
    made = []

    def make(model):
        made.append(Cycler(model))
        return made[-1]

    found = bm.learn(MODEL, agent=make, episodes=2, runs=2)
    assert [len(agent.seen) for agent in made] == [2, 2]
    assert found.agent == "make"
    assert bm.learn(MODEL, agent=Cycler, episodes=1, runs=1).agent == "Cycler"


def test_own_agents_may_look_again():
    found = bm.learn(MODEL, agent=Cycler, episodes=2, runs=1, replan=True)
    assert found.runs[0].options == {"replan": True}
    with pytest.raises(BadInputError, match='Cycler has no option "epsilon": it has replan'):
        bm.learn(MODEL, agent=Cycler(MODEL), epsilon=0.1)


@pytest.mark.parametrize("agent", ["q-learning", Cycler])
def test_runs_in_an_environment_without_a_table_have_their_rewards(agent):
    found = bm.learn(Corridor(), agent=agent, episodes=3, runs=2)
    for run in found.runs:
        assert np.isnan(run.regret).all()
        assert run.reward.tolist() == [float(episode.rewards.sum()) for episode in run.played]
        assert (run.reward <= -3.0).all()
    assert found.to_dict()["reward_mean"] == np.mean([run.reward for run in found.runs], axis=0).tolist()
    assert (found.to_frame().reward <= -3.0).all()
    assert "cumulative reward" in repr(found)
    assert "data:image/png" in found._repr_html_()
