"""Draws go straight into ArviZ: tables and plots that show what the summary says, with labels that can be read.

ArviZ 0.x (the newest on Python 3.11) keeps draws in its own InferenceData, ArviZ 1.x in xarray's DataTree; both take an
xarray data set. `arviz_stats` is installed with this package, `arviz` only for these tests.
"""

import arviz
import arviz_stats
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray

import bellmanifold as bm
from bellmanifold.io.problem import from_json

matplotlib.use("Agg")
IS_OLD = arviz.__version__.startswith("0.")
plot_marginals = arviz.plot_posterior if IS_OLD else arviz.plot_dist
converted = arviz.convert_to_inference_data if IS_OLD else arviz.convert_to_datatree


def known(**options):
    model = bm.envs.deep_sea(2)
    return bm.posterior(model, bm.Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "left")]), **options)


def learnt_laws(**options):
    """A pair whose law is open, and landings of it."""
    problem = {
        "format": "bellmanifold.ssp/2",
        "goals": ["home"],
        "initial": {"a": 1.0},
        "pairs": [{"state": "a", "action": "go"}, {"state": "a", "action": "out", "reward": -2.0, "next": {"home": 1}}],
    }
    model = from_json(problem)
    gone = [bm.Observation("a", "go", -1.0, next=landing) for landing in ("a", "home", "home")]
    return bm.posterior(model, bm.Dataset.from_pairs(model, [*gone, ("a", "out")]), laws="dirichlet", **options)


CASES = {
    "exact": lambda: known(),
    "relaxed": lambda: known(epsilon=0.5, prior_scale=3.0),
    "noise": lambda: known(infer_noise=True, prior_scale=3.0),
    "laws": lambda: learnt_laws(),
}


@pytest.fixture(scope="module", params=["exact", "relaxed", "noise", pytest.param("laws", marks=pytest.mark.slow)])
def summary(request):
    return CASES[request.param]()


def test_the_table_agrees_with_the_summary(summary):
    """Means of ArviZ's table within 5 of its own standard errors (and the summary's); at most 6 numbers in each of
    four cases: false alarms below 1e-4. Draws are as independent as their attributes say, up to a fifth."""
    draws = summary.draws
    table = arviz.summary(draws, var_names=["q"], round_to="none")
    model = summary.target.model
    assert list(table.index) == [f"q[{state}: {action}]" for state, action in model.pair_index]
    error = np.hypot(table["sd"] / np.sqrt(table["ess_bulk"]), summary.result.q_mean.se)
    own = summary.target.coupled[model.pair_state]
    assert (np.abs(table["mean"] - summary.q_mean.value) <= 5 * error)[own].all()
    assert (table["r_hat"] < 1.02).all()
    assert table["ess_bulk"].mean() > 0.8 * draws.attrs["effective_sample_size"]


def texts():
    """All texts in the figures drawn so far, which are closed."""
    found = [
        text.get_text() for number in plt.get_fignums() for text in plt.figure(number).findobj(matplotlib.text.Text)
    ]
    plt.close("all")
    return " ".join(found)


def test_plots_show_the_names(summary):
    arviz.plot_forest(summary.draws, var_names=["q"], combined=True)
    forest = texts()
    plot_marginals(summary.draws, var_names=["q"])
    marginals = texts()
    for state, action in summary.target.model.pair_index:
        assert f"{state}: {action}" in forest
        assert f"{state}: {action}" in marginals


def test_the_whole_data_set_is_plotted_at_once(summary):
    """Whatever else was drawn: no weights, no infinities."""
    plot_marginals(summary.draws)
    arviz.plot_forest(summary.draws)
    plt.close("all")
    table = arviz.summary(summary.draws, round_to="none")
    assert np.isfinite(table["mean"]).all()
    assert "weight" not in summary.draws


def test_the_whole_data_set_is_summarised_by_what_is_installed_with_the_package(summary):
    draws = summary.draws
    table = arviz_stats.summary(draws, round_to="none")
    assert len(table) == sum(draws[name].isel(chain=0, draw=0).size for name in draws)
    assert np.isfinite(table["mean"]).all()
    assert (arviz_stats.rhat(draws)["q"] < 1.02).all()
    assert arviz_stats.ess(draws)["q"].mean() > 0.8 * draws.attrs["effective_sample_size"]


def test_arviz_keeps_them_as_a_posterior(summary):
    posterior = converted(summary.draws).posterior
    assert posterior.q.dims == ("chain", "draw", "pair")
    np.testing.assert_array_equal(posterior.q, summary.draws.q)


def test_laws_and_concentrations_are_drawn_with_their_values():
    """Means of the landings' probabilities, at 5 standard errors: false alarms 2e-6."""
    found = learnt_laws()
    draws = found.draws
    assert draws.landing.values.tolist() == ["a: go -> a", "a: go -> home"]
    told = found.to_dict()["laws"]["a"]["go"]
    for landing in ("a", "home"):
        one = draws.law.sel(landing=f"a: go -> {landing}")
        error = np.hypot(float(one.std()) / np.sqrt(one.size), told[landing]["se"])
        assert abs(float(one.mean()) - told[landing]["mean"]) <= 5 * error
    assert draws.concentration.dims == ("chain", "draw")


def test_draws_are_kept_in_files_and_fixed_by_the_seed(summary, tmp_path):
    summary.draws.to_netcdf(tmp_path / "draws.nc")
    summary.weighted_draws.to_netcdf(tmp_path / "weighted.nc")
    with xarray.open_dataset(tmp_path / "draws.nc") as kept:
        assert kept.identical(summary.draws)
    with xarray.open_dataset(tmp_path / "weighted.nc") as kept:
        assert kept.identical(summary.weighted_draws)


def test_the_same_seed_draws_the_same():
    first, second, other = known(), known(), known(seed=1)
    assert first.draws.identical(second.draws)
    assert not first.draws.identical(other.draws)
