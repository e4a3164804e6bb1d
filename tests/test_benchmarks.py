"""The peers that benchmarks compare with compute the right thing, and rows judge goals as they say."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gpu
import jax
import jax.numpy as jnp
import looking_again
import measuring
import numpy as np
import numpy_hmc
import one_problem
import peers
import posteriors as posterior_rows
import published_method
import pytest
import run
import solving
import temporal_differences

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.learning import episodes as loop
from bellmanifold.posteriors.inference import posterior
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper import td
from bellmanifold_paper.bellman import log_likelihood, transitions

ROOT = Path(__file__).parent.parent


def some_seen(depth: int, count: int) -> Dataset:
    model = envs.deep_sea(depth=depth)
    pairs = np.sort(np.random.default_rng(0).permutation(model.n_pairs)[:count])
    return Dataset(model, pairs, model.reward[pairs])


@pytest.mark.parametrize(("depth", "seen"), [(2, 4), (2, 6), (3, 9), (3, 12)])
def test_the_published_method_agrees_with_the_mixture(depth, seen):
    """Means over 16 scramblings, 7 standard errors (15 degrees of freedom): false alarms below 1e-4 over all queries.

    A share is a whole number of points: all scramblings can agree and be half a point off, so that is added to the
    spread.
    """
    data = some_seen(depth, seen)
    methods = [published_method.PublishedMethod(data, 0.5, points=2**10, seed=seed) for seed in range(16)]
    answers = np.array([method.probabilities(method.groups()) for method in methods])
    ours = posterior(data.model, data, epsilon=0.5, engine="mixture")
    by_route = {frozenset(route.pairs): (route.probability, route.se) for route in ours.routes}
    routes = np.array([by_route[frozenset(query.values())] for query in methods[0].routes()])
    value = np.concatenate([ours.action_probability.value, routes[:, 0]])
    spread = np.hypot(answers.std(axis=0, ddof=1), 0.5 / 2**10)
    se = np.hypot(spread / 4.0, np.concatenate([ours.action_probability.se, routes[:, 1]]))
    assert np.all(np.abs(answers.mean(axis=0) - value) <= 7.0 * se)


def test_the_published_method_counts_its_integrals():
    """16,384 cells at depth 5 with all pairs seen; a cell agrees with one action of each of its 14 states and both of
    the root's, and with one route from either."""
    method = published_method.PublishedMethod(Dataset.complete(envs.deep_sea(depth=5)), 0.01)
    cells, queries = list(method.cells()), method.actions() + method.routes()
    assert len(cells) == 2**14
    assert len(queries) == 30 + 32
    assert {len(published_method.agreeing(cell, queries)) for cell in cells[::1000]} == {14 + 2 + 2}


def test_gradient_of_the_numpy_chain():
    data = some_seen(3, 7)
    density, law = numpy_hmc.Posterior(data, 0.3), transitions(data.model)
    observed, reward = jnp.asarray(data.observed), jnp.asarray(data.mean_reward)

    def log_density(q):
        scale = jnp.full(len(q), 0.3)
        return log_likelihood(law, q, observed, reward, scale) - 0.5 * jnp.sum((q / 10.0) ** 2)

    points = 3.0 * np.random.default_rng(1).standard_normal((2, data.model.n_pairs))
    values = [density.value_and_gradient(q) for q in points]
    exact = [jax.jit(jax.value_and_grad(log_density))(jnp.asarray(q)) for q in points]
    for (_, ours), (_, gradient) in zip(values, exact, strict=True):
        np.testing.assert_allclose(ours, gradient, rtol=1e-9, atol=1e-9)
    assert values[0][0] - values[1][0] == pytest.approx(float(exact[0][0] - exact[1][0]))


def test_the_numpy_chain_finds_the_prior():
    """Nothing seen: variance 100 within 15%; 5 standard errors of 12,000 coordinates are 7% (false alarm 6e-7)."""
    nothing = Dataset(envs.deep_sea(depth=3), np.zeros(0, dtype=np.int64), np.zeros(0))
    rng = np.random.default_rng(0)
    points, accepted = numpy_hmc.walk(numpy_hmc.Posterior(nothing, 0.1), np.zeros(12), 1.3, 1000, 10, rng)
    assert accepted > 0.98  # a wrong half step leaves 0.92
    assert points[50:].var() == pytest.approx(100.0, rel=0.15)


def test_sampled_td_max_agrees_with_the_closed_form():
    """100,000 draws: 6 standard errors of a share are 0.0095; false alarm below 1e-7 over all shares."""
    data = some_seen(3, 8)
    target, start = relaxed_target(data, 0.5, 10.0), td.initial(data.model, 10.0)
    rng = np.random.default_rng(0)
    sampled = temporal_differences.sampled_maximum(start, target, rng)
    exact = td.update_td_max(start, target)
    np.testing.assert_allclose(sampled.mean, exact.mean, atol=6.0 * 10.0 / np.sqrt(100_000))
    np.testing.assert_allclose(sampled.variance, exact.variance)
    routes = [list(route.values()) for route in published_method.PublishedMethod(data, 0.5).routes()]
    actions, shares = temporal_differences.sampled_answers(data.model, exact, routes, rng)
    np.testing.assert_allclose(actions, td.action_probabilities(data.model, exact), atol=0.0095)
    np.testing.assert_allclose(shares, td.route_probabilities(data.model, exact, routes), atol=0.0095)


def test_highs_solves_the_same_problem():
    grid = envs.grid(4, 5, slip=0.2)
    np.testing.assert_allclose(solving.by_highs(grid), solving.bm.solve(grid).value, atol=1e-6)


def test_half_of_the_pairs_is_seen_along_trajectories():
    data = posterior_rows.half_seen(envs.deep_sea(depth=5))
    assert len(data) == 15
    reached = {0} | set(data.model.next_state[data.model.next_start[data.pair]])
    assert set(data.model.pair_state[data.pair]) <= reached


def test_rows_judge_their_goals():
    ours, peer = measuring.Times("a", [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), measuring.Times("b", [8.0, 10.0], [8.0, 10.0])
    row = measuring.Row("x", ours, peer, measuring.Goal(ratio=4.0))
    assert row.ratio == (4.5, 8.0 / 3.0, 10.0)
    assert row.met
    assert not measuring.Row("x", ours, peer, measuring.Goal(ratio=5.0)).met
    assert not measuring.Row("x", ours, peer, measuring.Goal(ratio=4.0), comparable=False).met
    assert measuring.Row("x", ours, None, measuring.Goal(ratio=4.0)).met is None
    assert not measuring.Row("x", ours, None, measuring.Goal(seconds=1.5)).met
    assert measuring.Row("x", ours).met is None
    assert "4.5 (2.67-10)" in run.table([row.to_dict()])


def a_run(agent, setting, regret, solved=None):
    return peers.Played("bsuite-10", agent, setting, 0, regret, 1.0, solved, 0.0)


def test_peers_are_shown_at_their_best():
    """By the least regret, or by the episode at which runs are solved; one that never is counts as if it were later."""
    sea = [a_run("psrl", 0, 9.0), a_run("psrl", 3, 2.0), a_run("rlsvi", 0, 5.0)]
    sea = [replace(run, problem="deep-sea-5") for run in sea]
    *_, line = peers.table(sea).splitlines()
    assert line == "| deep-sea-5 | 9.0 | 2.0 | noise_sd 0.03, weight 1 | 5.0 | 5.0 | noise_sd 1, prior_scale 1 |"
    bsuite = [a_run("psrl", 0, 0.0, 300), a_run("psrl", 0, 0.0), a_run("psrl", 1, 0.0, 350), a_run("rlsvi", 0, 1.0)]
    *_, line = peers.table(bsuite).splitlines()
    told = "300 (300 to 300, 1 of 2 never) | 350 (350 to 350) | noise_sd 0.3, weight 1"
    assert line == f"| bsuite-10 | {told} | never solved | never solved | noise_sd 1, prior_scale 1 |"


def test_gridworld_is_the_literatures_and_rules_are_compared_fairly():
    """Its optimal value is published as 6.03648; whatever a rule changes is put back."""
    assert bm.solve(looking_again.gridworld()).value_at_start == pytest.approx(-6.03648, abs=1e-5)
    rule = loop._Rollout._is_telling
    new, both, published = (
        looking_again.play(("gridworld", agent, rule, 3, 1))
        for agent, rule in (("psrl", "new"), ("psrl", "new or doubled"), ("psrl, weight 1", "none"))
    )
    assert loop._Rollout._is_telling is rule
    assert len({run.regret for run in (new, both, published)}) == 3
    assert looking_again.table([new, both]).splitlines()[-1].startswith("| gridworld | psrl | - |")


def test_the_gpu_script_needs_the_core_alone(tmp_path):
    """A finder that refuses everything but jax, numpy, scipy and jaxtyping: no row may fail."""
    refused = ["blackjax", "typer", "xarray", "arviz_stats", "gymnasium", "h5py", "h5netcdf", "matplotlib", "plotly"]
    refused += ["rich"]
    code = f"""
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {refused}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
rows = ["chart, drawn", "one problem, drawn", "HMC", "mixture"]
sys.argv = ["gpu.py", "--scale", "0.0001", "--out", {str(tmp_path / "gpu.json")!r}, "--only", *rows]
runpy.run_path({str(ROOT / "benchmarks" / "gpu.py")!r}, run_name="__main__")
"""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'benchmarks'}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    assert [name for name, row in found.items() if "failed" in row] == []
    assert found["mixture"]["cells"] == 2**6


def test_a_program_for_one_problem_weighs_as_the_chart_does():
    """The same normal numbers, in tiles and at once."""
    draws = gpu.Draws(64)
    normals = jax.random.normal(jax.random.key(3), (draws.pairs, 64))
    total, played = draws.weighed(normals)
    found = one_problem.probabilities(
        draws.chart.model,
        gpu.EPSILON,
        gpu.PRIOR_SCALE,
        lambda tile: normals.reshape(draws.pairs, 4, 16)[:, tile],
        16,
        4,
    )
    np.testing.assert_allclose(found, played / total, rtol=1e-9)
    with pytest.raises(ValueError, match="cycle"):
        one_problem.weighed(envs.swirl(depth=2), 0.01, 10.0, normals)
