"""Agents that stop exploring once their best policy is good enough."""

import json
from dataclasses import replace

import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold.agents.registry import make_agent
from bellmanifold.agents.stopping import Stopping
from bellmanifold.chart.batch import ChartLimits
from bellmanifold.decisions.joint_draws import joint_draws, sizes
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.budget import Budget


def test_a_run_says_when_it_stopped():
    """After the stop it plays one policy, whose expected loss was at most what it was told."""
    learning = bm.learn(bm.envs.deep_sea(depth=3), "manifold", episodes=25, runs=2, prior_scale=1.0, until_loss=0.1)
    for run in learning.runs:
        stopped, loss = run.diagnostics["stopped"], run.diagnostics["expected_loss"]
        assert run.stopped_episode is not None
        first = run.stopped_episode - 1
        assert (stopped[:first] == 0).all()
        assert (stopped[first:] == 1).all()
        assert (loss[:first] > 0.1).all()
        assert loss[first] <= 0.1
        last = {tuple(episode.policy) for episode in run.played[first + 1 :]}
        assert len(last) == 1
    assert learning.to_dict()["stopped_episode"] == [run.stopped_episode for run in learning.runs]
    frame = learning.to_frame()
    of_first = frame[frame["run"] == 0]
    np.testing.assert_array_equal(of_first["expected_loss"], learning.runs[0].diagnostics["expected_loss"])
    np.testing.assert_array_equal(of_first["true_loss"], learning.runs[0].expected_regret)
    assert of_first["stopped"].sum() == 25 - learning.runs[0].stopped_episode + 1
    assert "stopped episode" in learning._repr_html_()


def test_at_once_and_never():
    model = bm.envs.deep_sea(depth=3)
    at_once = bm.learn(model, "manifold", episodes=3, runs=1, prior_scale=1.0, until_loss=1e6)
    assert at_once.runs[0].stopped_episode == 1
    never = bm.learn(model, "manifold", episodes=3, runs=1, prior_scale=1.0, until_loss=0.0)
    assert never.runs[0].stopped_episode is None
    without = bm.learn(model, "manifold", episodes=1, runs=1)
    assert "stopped_episode" not in without.to_dict()
    assert "expected_loss" not in without.to_frame()


@pytest.mark.parametrize(
    "options",
    [
        {"agent": "bayes-br", "epsilon": 0.05},
        pytest.param({"agent": "bayes-br", "noise_sd": 0.1}, marks=pytest.mark.slow),
        pytest.param({"agent": "manifold", "laws": "dirichlet"}, marks=pytest.mark.slow),
        {"agent": "manifold", "explore": "directed"},
    ],
)
def test_every_posterior_of_these_agents(options):
    """On a problem with loops, whose improper parameters are left out."""
    learning = bm.learn(bm.envs.two_state(), episodes=20, runs=1, prior_scale=2.0, until_loss=0.3, **options)
    run = learning.runs[0]
    assert run.stopped_episode is not None
    assert np.isfinite(run.diagnostics["expected_loss"]).all()


def test_chains_that_disagree_go_on():
    """A known move pays 0, another -1; of the second half of the draws a fifth says 3: the halves lose 0 and 0.6."""
    moves = {("here", name): Move(0.0, {"goal": 1.0}) for name in ("known", "other")}
    model = from_moves("two moves", moves, start="here")
    summary = bm.posterior(model, bm.Dataset.from_pairs(model, [("here", "known")]), seed=0)
    other, count = model.pair_index["here", "other"], 1000
    q = np.zeros((count, 2))
    q[:, other] = -1.0
    q[count // 2 :: 5, other] = 3.0
    drawn = joint_draws(summary.target, Budget(seed=0))
    draws = replace(drawn, q=q, weight=np.full(count, 1.0 / count))
    for walked, until, stops in ((False, 0.4, True), (True, 0.4, False), (True, 0.65, True), (False, 0.2, False)):
        stopping = Stopping(until)
        stopping.judge(replace(draws, walked=walked))
        assert stopping.loss == pytest.approx(0.3)
        assert (stopping.policy is not None) == stops


def test_after_the_stop_beliefs_are_kept_up_and_nothing_is_explored(rng):
    """An agent that was on its way to what it had not seen: from the stop on it plays its best policy wherever it is,
    and believes what it has seen since (both moves of this state pay what they pay, so one is surely better)."""
    moves = {("here", name): Move(pay, {"goal": 1.0}) for name, pay in (("a", 0.0), ("b", 1.0))}
    model = from_moves("two moves", moves, start="here")
    agent = make_agent("manifold", model, {"explore": "directed", "replan": True, "until_loss": 0.0})
    agent.policy(rng)
    assert agent.diagnostics["explores"] == 1.0
    agent.observe(np.array([0, 1]), model.reward)
    best = agent.policy(rng)
    assert agent.diagnostics["stopped"] == 1.0
    assert agent.diagnostics["expected_loss"] == 0.0
    assert agent.look(0, rng).tolist() == best.tolist() == [model.pair_index["here", "b"]]
    np.testing.assert_allclose(agent.beliefs().q_mean, model.reward, atol=1e-6)
    np.testing.assert_allclose(agent.route_probabilities([(0,), (1,)]), model.reward, atol=1e-6)


@pytest.mark.slow
def test_only_chains_are_called_walked():
    """Weighed points are not; points of chains are, in the chart and on sparse systems."""
    model = bm.envs.deep_sea(depth=2)
    target = bm.posterior(model, bm.Dataset.from_pairs(model, [("0,0", "right")]), seed=0).target
    assert not joint_draws(target, Budget(seed=0)).walked
    assert joint_draws(target, Budget(seed=0, coordinates=0, rounds=1)).walked
    assert joint_draws(target, Budget(seed=0, chart=ChartLimits(entries=2), sparse_steps=64)).walked


def test_wrong_options():
    model = bm.envs.two_state()
    with pytest.raises(BadInputError, match="until_loss is -1"):
        bm.learn(model, "manifold", episodes=1, runs=1, until_loss=-1.0)
    with pytest.raises(BadInputError, match="psrl has no option"):
        bm.learn(model, "psrl", episodes=1, runs=1, until_loss=1.0)


def test_where_no_draws_can_be_made_it_goes_on(monkeypatch):
    from bellmanifold.agents import stopping
    from bellmanifold.errors import UnsupportedError

    def refuse(*_):
        raise UnsupportedError("no draws")

    monkeypatch.setattr(stopping, "known_draws", refuse)
    run = bm.learn(bm.envs.two_state(), "manifold", episodes=2, runs=1, until_loss=1e9).runs[0]
    assert run.stopped_episode is None
    assert np.isnan(run.diagnostics["expected_loss"]).all()
    assert Stopping(1.0).diagnostics["stopped"] == 0.0


def test_on_the_command_line(cli):
    given = ("learn", "env:two-state", "--agent", "manifold", "--until-loss", "100", "--episodes", "2", "--runs", "2")
    code, out, _ = cli(*given)
    assert code == 0
    assert "stopped exploring: 2 of 2 runs, median: before episode 1" in out
    code, out, _ = cli(*given, "--json")
    assert json.loads(out)["stopped_episode"] == [1, 1]


def test_in_a_plan(tmp_path):
    from bellmanifold.learning.run_settings import make_settings

    entry = {"model": "env:swirl", "agent": "manifold", "until_loss": 0.5, "episodes": 5, "seed": 0}
    assert make_settings(entry).choices()["until_loss"] == 0.5
    assert "until_loss" not in make_settings(entry | {"agent": "psrl"}).choices()


def test_points_beyond_those_wanted_come_last():
    """Above 64 pairs the order of a set had 131,072 points weighed where 20,971 were enough."""
    assert sizes(20_971, 131_072) == [20_971, 131_072]
    assert sizes(131_072, 131_072) == [131_072]
