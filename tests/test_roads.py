"""The road map of the guide: a known map, beliefs about costs and some drives, against searching sampled costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import bellmanifold as bm

EXAMPLE = Path(__file__).parent.parent / "examples" / "roads"
DRAWS = 4000


def to_go(model, cost):
    """What the shortest way from every junction costs, the goal last."""
    landing, size = model.next_state[model.next_start[:-1]], model.n_states + 1
    assert (cost > 0).all()
    away = csr_array((cost, (landing, model.pair_state)), shape=(size, size))
    return dijkstra(away, indices=model.n_states)


def by_search(model, mean, sd, rng):
    """Optimal roads in draws of the costs: the share of each, by shortest paths against the roads."""
    landing = model.next_state[model.next_start[:-1]]
    share = np.zeros(model.n_pairs)
    for _ in range(DRAWS):
        cost = np.abs(mean + sd * rng.standard_normal(model.n_pairs))
        share[model.greedy(-(cost + to_go(model, cost)[landing]))] += 1.0 / DRAWS
    return share


def test_a_map_with_beliefs_and_drives():
    """Costs about 5 +- 1: action probabilities as from sampled costs.

    Shares of 4,000 draws have errors of up to 0.008; within 4.5 of them for 132 dependent numbers, a false alarm in
    less than 1 of 1,000 seeds. A loop that pays would take 5 standard deviations on each of its roads. One cost in
    3.5 million is below 0; the search takes it for a positive one, which moves a share by 1 / 4,000.
    """
    model = bm.load_model(EXAMPLE / "roads.json")
    data = bm.load_data(EXAMPLE / "drives.json", model)
    summary = bm.posterior(model, data, reward_belief=(-5.0, 1.0), samples=2**15)
    assert summary.trustworthy
    assert summary.target.prior.flat
    assert summary.target.proper_only
    assert summary.log_evidence is None
    precision = np.ones(model.n_pairs) + data.own_precision
    mean = (-5.0 + data.own_precision * data.own_mean) / precision
    share = by_search(model, mean, 1.0 / np.sqrt(precision), np.random.default_rng(5))
    error = np.hypot(summary.action_probability.se, np.sqrt(share * (1 - share) / DRAWS) + 1e-3)
    assert np.abs(summary.action_probability.value - share).max() < 4.5 * error.max()
    assert (np.abs(summary.action_probability.value - share) < 4.5 * error).all()


@pytest.mark.slow
def test_advice_about_the_map():
    """Costs about 5 +- 1: the best way is the shortest one by mean costs, since a way's value is linear in the costs;
    its loss is what shortest ways of 4,000 sampled costs save. Each within 4.5 standard errors, a false alarm in
    75,000 seeds.
    """
    model = bm.load_model(EXAMPLE / "roads.json")
    data = bm.load_data(EXAMPLE / "drives.json", model)
    advice = bm.advise(model, data, reward_belief=(-5.0, 1.0), samples=2**15)
    precision = np.ones(model.n_pairs) + data.own_precision
    mean = (-5.0 + data.own_precision * data.own_mean) / precision
    best = -to_go(model, -mean)[:-1] @ model.initial
    rng = np.random.default_rng(5)
    costs = (-(mean + rng.standard_normal(model.n_pairs) / np.sqrt(precision)) for _ in range(DRAWS))
    found = np.array([-to_go(model, cost)[:-1] @ model.initial for cost in costs])
    loss, error = found.mean() - best, found.std() / np.sqrt(DRAWS)
    assert abs(advice.decision.value.value - best) < 4.5 * advice.decision.value.se
    assert abs(advice.expected_loss.value - loss) < 4.5 * np.hypot(advice.expected_loss.se, error)
    way = [model.pair_index[pair] for pair in advice.policy.items()]
    assert mean[way].sum() == pytest.approx(best)
    assert advice.tried.sum() == 12


def test_the_files_are_the_built_in_network_without_its_costs():
    model, true = bm.load_model(EXAMPLE / "roads.json"), bm.envs.roads()
    assert model.open_reward.all()
    assert not model.open_law.any()
    assert replace(model, name=true.name, reward=true.reward) == true
    seen = json.loads((EXAMPLE / "drives.json").read_text())
    assert seen["format"] == "bellmanifold.data/2"
    assert {one["sd"] for one in seen["observations"]} == {1.0}


def test_drivers_who_miss_a_turn():
    model = bm.envs.roads(slip=0.2)
    law = bm.envs.roads(slip=0.2).next_prob
    assert bm.check(model).holds
    assert np.isclose(law.max(), 0.8)
    with pytest.raises(bm.errors.BadInputError, match="slip is 1"):
        bm.envs.roads(slip=1.0)
