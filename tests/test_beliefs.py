"""What agents show of their beliefs, against the posteriors they stand for, and how runs record it."""

import numpy as np
import pytest
from toy_agents import record_run

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.agent import ShowsBeliefs
from bellmanifold.agents.beliefs import shares
from bellmanifold.agents.posterior_sampling import PosteriorSampling
from bellmanifold.agents.registry import make_agent
from bellmanifold.agents.settings import SamplingSettings
from bellmanifold.agents.sources import weighed_points
from bellmanifold.agents.walking import Walk
from bellmanifold.chart.batch import batch_chart, known_chart
from bellmanifold.learning import run as run_module
from bellmanifold.learning.episodes import run_episodes
from bellmanifold.learning.run_settings import make_settings
from bellmanifold.posteriors.sparse_walk import SparseWalker
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.weight import weigh_normals
from bellmanifold_paper.agents.bayes_hmc import block_of_agents
from bellmanifold_paper.agents.bayes_td import MOST_INTEGRALS
from bellmanifold_paper.agents.settings import HMCSettings


def taught(agent, model, pairs):
    """The agent after it was shown some pairs and asked for a policy."""
    agent.observe(np.array(pairs), model.reward[pairs])
    agent.policy(np.random.default_rng(0))
    return agent


@pytest.mark.parametrize(
    ("epsilon", "name"), [(0.0, "swirl"), pytest.param(0.1, "swirl", marks=pytest.mark.slow), (0.5, "deep_sea")]
)
def test_weighed_points_believe_what_the_posterior_says(epsilon, name):
    """Weighed points against the library's posterior: within 5 standard errors of their effective number, for 24 shares
    and means together (false-alarm rate below 1e-4)."""
    model = getattr(envs, name)(3)
    pairs = [0, 2, 3, 6, 7]
    agent = taught(PosteriorSampling(model, SamplingSettings(epsilon=epsilon)), model, pairs)
    found = agent.beliefs()
    exact = bm.posterior(model, bm.Dataset.from_pairs(model, [model.pair_name(i) for i in pairs]), epsilon=epsilon)
    effective = agent.diagnostics["effective_sample_size"]
    assert effective >= 100
    np.testing.assert_allclose(found.action_probability, exact.action_probability.value, atol=2.5 / effective**0.5)
    assert (np.abs(found.q_mean - exact.q_mean.value) <= 5 * exact.q_sd.value / effective**0.5 + 1e-6).all()
    assert found is agent.beliefs(), "made once for each renewal"


def test_points_know_their_value_at_the_start():
    """Where the start has one action its mean value is that of the points there: a sum in another order."""
    moves = {("start", "on"): envs.building.Move(1.0, {"fork": 1.0})}
    moves |= {("fork", a): envs.building.Move(-2.0, {"goal": 1.0}) for a in "abc"}
    model = envs.building.from_moves("fork", moves, start="start")
    target = relaxed_target(bm.Dataset.from_pairs(model, [("start", "on"), ("fork", "a")]), 0.1, 3.0)
    pool = weighed_points(target, batch_chart(model), 0).pool
    assert pool.probability @ pool.at_start == pytest.approx(pool.q_mean[model.pair_index["start", "on"]], rel=1e-10)
    assert np.ptp(pool.at_start) > 1.0


def test_before_anything_is_seen_every_action_is_as_good():
    agent = make_agent("manifold", envs.deep_sea(3))
    agent.policy(np.random.default_rng(0))
    assert agent.beliefs().action_probability.tolist() == [0.5] * 12
    assert agent.beliefs().q_mean.tolist() == [0.0] * 12


def test_shares_by_hand():
    """Two states with three pairs each: a known best, any of two unknown ones, and both in one of two draws."""
    moves = {(s, a): envs.building.Move(0.0, {"goal": 1.0}) for s in "xy" for a in "abc"}
    model = envs.building.from_moves("two", moves, start="x")
    observed = np.array([True, False, False, True, True, True])
    policy = np.array([[0, -1], [4, 5]])
    found = shares(model, observed, policy, np.array([0.25, 0.75]))
    np.testing.assert_allclose(found, [0.25, 0.375, 0.375, 0.0, 0.25, 0.75])


@pytest.mark.slow
def test_a_walk_shows_its_one_draw():
    model = envs.swirl(3)
    data = bm.Dataset.from_pairs(model, [model.pair_name(i) for i in (0, 2, 3, 6)])
    target = relaxed_target(data, epsilon=0.0, prior_scale=10.0)
    rng = np.random.default_rng(0)
    walk = Walk(target, known_chart(model, target.observed), rng)
    policy = walk.draw(rng)
    found = walk.beliefs()
    known = policy >= 0
    assert known.any()
    assert (found.action_probability[policy[known]] == 1.0).all()
    unknown = np.add.reduceat(~target.observed, model.pair_start[:-1])
    spread = np.where(policy[model.pair_state] < 0, ~target.observed / np.maximum(unknown, 1)[model.pair_state], 0.0)
    spread[policy[known]] = 1.0
    np.testing.assert_array_equal(found.action_probability, spread)
    one_successor = model.next_state[model.next_start[:-1]]
    best = np.zeros(model.n_states + 1)  # the goal's is 0
    best[:-1] = model.best(np.asarray(weigh_normals(walk.walker.system, walk.walker.point).q)[:, walk.turn])
    seen = target.observed
    np.testing.assert_allclose(found.q_mean[seen], (model.reward + best[one_successor])[seen], atol=1e-6)


class WalkingSparsely(PosteriorSampling):
    """Walks on sparse systems although the problem would fit a batch."""

    def _new_source(self, target, rng):
        return Walk(target, None, rng, self._source)


def test_a_walk_on_sparse_systems_shows_its_one_draw():
    model = envs.swirl(3)
    agent = WalkingSparsely(model, SamplingSettings(epsilon=0.0))
    run_episodes(model, agent, 3, seed=0)
    policy = agent.policy(np.random.default_rng(1))
    found = agent.beliefs()
    assert isinstance(agent._source.walker, SparseWalker)
    known = agent.memory.observed[policy]
    assert (found.action_probability[policy[known]] == 1.0).all()
    np.testing.assert_allclose(np.bincount(model.pair_state, found.action_probability), 1.0)


def test_method_a_shows_the_posterior_itself():
    model = envs.deep_sea(3)
    agent = taught(PosteriorSampling(model, SamplingSettings(epsilon=0.01, method="A")), model, [0, 3, 9])
    seen = bm.Dataset.from_pairs(model, [model.pair_name(i) for i in (0, 3, 9)])
    exact = bm.posterior(model, seen, epsilon=0.01)
    np.testing.assert_allclose(agent.beliefs().action_probability, exact.action_probability.value, atol=0.01)


def test_chains_show_their_points():
    model = envs.deep_sea(3)
    agent = block_of_agents([model], HMCSettings(epsilon=0.5), [0])[0]
    agent.policy(np.random.default_rng(0))
    agent.block.points = np.array([[[1.0, 2.0] * 6, [3.0, 1.0] * 6, [0.0, 6.0] * 6]])
    found = agent.beliefs()
    np.testing.assert_allclose(found.action_probability, [1 / 3, 2 / 3] * 6)
    np.testing.assert_allclose(found.q_mean, [4 / 3, 3.0] * 6)


def test_an_ensemble_is_silent_where_showing_its_belief_would_be_slow():
    agent = make_agent("bayes-td-en", envs.grid(rows=3, columns=3))
    assert agent.beliefs() is not None, "one component at first"
    run_episodes(envs.grid(rows=3, columns=3), agent, 1, seed=0)
    agent.policy(np.random.default_rng(0))
    assert len(agent.posterior.weights) * 8 > MOST_INTEGRALS
    assert agent.beliefs() is None


@pytest.mark.parametrize("name", ["bayes-br", "manifold", "bayes-td", "bayes-td-en", "bayes-td-max"])
def test_beliefs_are_recorded_in_the_problems_own_order(name):
    """The record of a run against an agent that is asked by hand, in the order of actions that the run drew."""
    settings = make_settings({"model": "env:deep-sea?depth=3", "agent": name, "episodes": 4, "seed": 3})
    record = record_run(settings)
    assert record["action_probability"].dims == ("episode", "pair_number")
    assert record["action_probability"].dtype == record["q_mean"].dtype == np.float32
    model = bm.load_model(settings.model)
    world = run_module.world_of_run(model, 3)
    assert (world.model.pair_action != model.pair_action).any()
    agent = make_agent(name, world, settings.choices())
    rng = np.random.default_rng(run_module.play_seed(3))
    told = []

    class Asked:
        def policy(self, rng):
            policy = agent.policy(rng)
            told.append(agent.beliefs())
            return policy

        def observe(self, pairs, rewards):
            agent.observe(pairs, rewards)

    run_episodes(world, Asked(), 4, rng)
    for k, found in enumerate(told):
        for i in range(model.n_pairs):
            own = world.model.pair_index[model.pair_name(i)]
            assert record["action_probability"].values[k, i] == np.float32(found.action_probability[own])
            assert record["q_mean"].values[k, i] == np.float32(found.q_mean[own])


def test_runs_too_large_and_agents_without_beliefs_record_none(monkeypatch):
    settings = {"model": "env:deep-sea?depth=3", "episodes": 2, "seed": 0}
    for name in ("psrl", "q-learning"):
        assert not isinstance(make_agent(name, envs.deep_sea(3)), ShowsBeliefs)
        assert "q_mean" not in record_run(make_settings({**settings, "agent": name}))
    monkeypatch.setattr(run_module, "MOST_BELIEFS", 2 * 12 - 1)
    found = record_run(make_settings({**settings, "agent": "bayes-td"}))
    assert "action_probability" not in found
    assert "q_mean" not in found
