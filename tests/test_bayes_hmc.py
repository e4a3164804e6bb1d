"""The agent that walks by Hamiltonian Monte Carlo: blocks of runs in step, and what it believes."""

import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.envs.building import with_action_order
from bellmanifold.learning.run import play_run, play_runs
from bellmanifold_paper.agents.bayes_hmc import BlockOfChains, block_of_agents
from bellmanifold_paper.agents.settings import HMCSettings


@pytest.mark.slow
def test_chains_play_the_posterior():
    """All pairs of a depth-2 deep sea seen, epsilon 1: each of 40 chains' shares of routes average to the posterior's.
    Chains are nearly independent; 5 standard errors of their mean: false alarm 2e-6 a route."""
    model = envs.deep_sea(2)
    agents = block_of_agents([model] * 40, HMCSettings(epsilon=1.0, prior_scale=2.0), range(40))
    pairs = np.arange(model.n_pairs)
    rng = np.random.default_rng(0)
    for agent in agents:
        agent.policy(rng)
        agent.observe(pairs, model.reward)
    for agent in agents:
        agent.policy(rng)
    summary = bm.posterior(model, bm.Dataset.complete(model), epsilon=1.0, prior_scale=2.0)
    routes = [route.pairs for route in summary.routes]
    share = np.array([agent.route_probabilities(routes) for agent in agents])
    error = share.std(axis=0, ddof=1) / np.sqrt(len(agents))
    exact = np.array([route.probability for route in summary.routes])
    assert np.all(np.abs(share.mean(axis=0) - exact) <= 5 * error)
    assert np.all(error < 0.02)


def test_orders_of_actions_do_not_mix_pairs_up():
    """Two runs with other orders of actions: what one observes reaches its own chain, under its own numbers, and it
    plays what its own chain prefers."""
    model = envs.deep_sea(3)
    models = [with_action_order(model, 1), with_action_order(model, 2)]
    agents = block_of_agents(models, HMCSettings(), [1, 2])
    block, other = agents[0].block, models[1]
    assert [other.pair_name(i) for i in range(12)] != [block.model.pair_name(i) for i in range(12)]
    agents[1].policy(np.random.default_rng(0))
    agents[1].observe(np.arange(12), np.arange(12.0))
    assert not block.memories[0].count.any()
    for i in range(12):
        assert block.memories[1].mean_reward[block.model.pair_index[other.pair_name(i)]] == i
    played = [other.pair_name(pair) for pair in agents[1].policy(np.random.default_rng(0))]
    assert played == [block.model.pair_name(pair) for pair in block.model.greedy(block.points[1, -1])]


def test_a_run_is_the_same_alone_and_among_others():
    """Bit for bit: a block is always played as a whole."""
    model = envs.deep_sea(2)
    runs = list(play_runs(model, "bayes-br-hmc", 3, [2, 5, 13], {"epsilon": 0.5}))
    assert [run.seed for run in runs] == [2, 5, 13]
    np.testing.assert_array_equal(runs[0].seconds, runs[1].seconds, "runs in step share their time")
    alone = play_run(model, "bayes-br-hmc", 3, 5, {"epsilon": 0.5})
    np.testing.assert_array_equal(alone.regret, runs[1].regret)
    np.testing.assert_array_equal(alone.route_probability, runs[1].route_probability)
    np.testing.assert_array_equal(alone.diagnostics["acceptance"], runs[1].diagnostics["acceptance"])
    assert 0.3 < np.nanmean(alone.diagnostics["acceptance"]) <= 1.0


def test_step_and_preconditioner_carry_over():
    block = BlockOfChains([envs.deep_sea(2)] * 2, HMCSettings(epsilon=0.5), [0, 1])
    first = np.asarray(block.state.step_size)
    assert first == pytest.approx(0.03)
    block.move()
    block.memories[0].add(np.array([0]), np.array([0.1]))
    block.move()
    tuned, variance = np.asarray(block.state.step_size), np.asarray(block.state.variance)
    assert not np.allclose(tuned, first)
    assert not np.allclose(variance, 1.0)
    assert block.points.shape == (2, 1000, 6)


def test_routes_are_believed_in():
    """Every agent with beliefs: probabilities of all routes sum to 1 in every episode."""
    model = envs.swirl(3)
    for agent in ("manifold", "bayes-br", "bayes-td", "bayes-td-en", "bayes-td-max", "bayes-br-hmc"):
        options = {} if agent == "manifold" else {"epsilon": 0.5}
        run = play_run(model, agent, 4, 0, options)
        assert len(run.routes) == 14
        assert run.route_probability.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-9)
