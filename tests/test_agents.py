import numpy as np

from bellmanifold import envs
from bellmanifold.agents import run_episodes
from bellmanifold.solver import solve


class Stubborn:
    """Plays one policy and remembers what it was shown."""

    def __init__(self, policy):
        self.fixed, self.seen = policy, []

    def policy(self, rng):
        return self.fixed

    def observe(self, pairs, rewards):
        self.seen.append((pairs.tolist(), rewards.tolist()))


def always(model, action):
    return np.array([model.pair_index[(state, action)] for state in model.states])


def test_an_optimal_policy_collects_the_optimal_value():
    model = envs.deep_sea(5)
    agent = Stubborn(always(model, "right"))
    played = run_episodes(model, agent, 3)
    assert [round(float(e.rewards.sum()), 12) for e in played] == [0.85] * 3
    assert all(e.reached_goal for e in played)
    assert [model.pair_name(i)[0] for i in played[0].pairs] == ["0,0", "1,1", "2,2", "3,3", "4,4"]
    assert agent.seen == [(e.pairs.tolist(), e.rewards.tolist()) for e in played]


def test_a_loop_ends_when_a_state_repeats():
    model = envs.two_state()
    (episode,) = run_episodes(model, Stubborn(np.array([0])), 1)
    assert not episode.reached_goal
    assert episode.pairs.tolist() == [0]


def test_stochastic_improper_policies_meet_the_cap():
    model = envs.grid(3, 3, slip=0.1)
    (episode,) = run_episodes(model, Stubborn(always(model, "up")), 1)
    assert not episode.reached_goal
    assert len(episode.pairs) == 1000


def test_mean_return_is_the_value():
    """2,000 episodes of an optimal policy: the mean is within 5 standard errors (false alarm 6e-7)."""
    model = envs.deep_sea(4, slip=0.1)
    solution = solve(model)
    policy = model.greedy(solution.q)
    returns = [e.rewards.sum() for e in run_episodes(model, Stubborn(policy), 2000, seed=1)]
    assert abs(np.mean(returns) - solution.value_at_start) < 5 * np.std(returns) / np.sqrt(2000)
    again = [e.rewards.sum() for e in run_episodes(model, Stubborn(policy), 20, seed=1)]
    assert again == returns[:20]
