"""The command `reproduce`: names, runs shared between figures, files, and what it says when it cannot go on."""

import io
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from toy_agents import play_here, record_run

from bellmanifold.errors import BadInputError, StoppedError
from bellmanifold.io.models import load_model
from bellmanifold.learning.netcdf import read_netcdf
from bellmanifold.learning.routes import Routes, all_routes
from bellmanifold.learning.run_file import encode
from bellmanifold.posteriors.inference import posterior
from bellmanifold.problem.dataset import Dataset
from bellmanifold_lab.sweeps.plan import plan_runs
from bellmanifold_lab.sweeps.runner import sweep
from bellmanifold_lab.sweeps.store import PLAN_FILE, Store
from bellmanifold_paper import paper_runs
from bellmanifold_paper.comparisons import METHODS, Setting, route_probabilities
from bellmanifold_paper.demonstrations import demonstration, environments_page, seen_before, show_episode
from bellmanifold_paper.figure_list import FIGURES, PaperFigure, find_figures
from bellmanifold_paper.pages import progress_page, ranked_page, regret_page, retuned_page, routes_page
from bellmanifold_paper.paper_runs import DEEP_SEA, PYRAMID, SMALL_DEEP_SEA, SWIRL, TOLERANCES, Cell, PaperRuns
from bellmanifold_paper.plots.style import handles
from bellmanifold_paper.render import draw_figures, play_cells, save
from bellmanifold_paper.route_chances import routes_of

ROOT = Path(__file__).parent.parent


def test_every_figure_of_the_paper_has_a_name():
    assert [figure.number for figure in FIGURES.values()] == list(range(1, 20))
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in FIGURES)


def test_the_figures_need_the_runs_of_the_shipped_plan_and_one_more():
    from bellmanifold_lab.sweeps.plan import read_plan

    needed = {settings for figure in FIGURES.values() for settings in figure.settings(10)}
    planned = set(read_plan(ROOT / "plans" / "paper.toml").runs)
    assert planned <= needed
    assert needed - planned == set(demonstration(SMALL_DEEP_SEA).settings(1))


def test_names_are_listed(cli):
    code, out, _ = cli("reproduce", "--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(FIGURES)
    assert "Figure 7   310 runs  about 2 min  deep sea: cumulative regret" in out
    assert "Figure 1   no runs   seconds      Example 1 as a graph" in out
    assert "Figure 9   1 run     about 1 s    a run on the pyramid" in out


def test_figures_have_numbers():
    assert [figure.name for figure in find_figures(["7", "Figure 1", "figure-4"])] == [
        "two-state-diagram",
        "environments",
        "deep-sea-regret",
    ]


def test_a_dry_run_says_what_is_missing_and_plays_nothing(cli, tmp_path):
    code, out, _ = cli("reproduce", "7", "1", "--out", str(tmp_path / "x"), "--dry-run", "--workers", "2")
    assert code == 0
    assert out.splitlines() == [
        "two-state-diagram: 0 runs, 0 of them to play",
        "deep-sea-regret: 310 runs, 310 of them to play",
        "together 310 runs to play (figures share them): about 2 min of one core",
        "roughly 57 s with --workers 2",
    ]
    assert not (tmp_path / "x").exists()
    code, out, _ = cli("reproduce", "1", "--out", str(tmp_path / "x"), "--dry-run")
    assert out.splitlines()[-1] == "together no runs to play (figures share them): seconds of one core"
    assert "the ledger" in cli("reproduce", "--out", str(tmp_path / "x"), "--dry-run")[1]


def test_a_dry_run_without_a_directory_counts_every_run(cli):
    code, out, err = cli("reproduce", "3", "9", "--dry-run", "--workers", "1")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "two-state-marginals: 0 runs, 0 of them to play",
        "pyramid-episodes: 1 run, 1 of them to play",
        "together 1 run to play (figures share them): about 1 s of one core",
        "roughly 1 s with --workers 1",
    ]


def test_some_figures_are_asked_for_in_any_order():
    found = find_figures(["swirl-routes", "environments", "swirl-routes"])
    assert [figure.name for figure in found] == ["environments", "swirl-routes"]
    assert find_figures(()) == list(FIGURES.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("figure-99", "--out", "x"), r"FIGURE: unknown name \"figure-99\": give a number from 1 to 19.*--list"),
        (("environments",), "--out is missing"),
        (("environments", "--out", "x", "--runs", "0"), "--runs is 0"),
        (("environments", "--out", "x", "--workers", "0"), "--workers is 0"),
        (
            ("deep-sea-regret", "--out", "x", "--runs", "100000000"),
            r"--runs is 100000000: .* runs are above 200,000: make it smaller",
        ),
    ],
)
def test_bad_usage(cli, arguments, message):
    code, out, err = cli("reproduce", *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)
    assert err.count("\n") == 1


def test_a_directory_that_cannot_be_made(cli, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = cli("reproduce", "environments", "--out", str(tmp_path / "file" / "x"))
    assert code == 2
    assert "choose another --out" in err
    assert err.count("\n") == 1, "nothing is begun"


def test_a_figure_without_runs_end_to_end(cli, tmp_path):
    code, out, err = cli("reproduce", "two-state-diagram", "--out", str(tmp_path))
    assert code == 0
    assert out.splitlines() == [str(tmp_path / f"two-state-diagram.{kind}") for kind in ("png", "pdf")]
    assert "drawing two-state-diagram" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two-state-diagram.pdf", "two-state-diagram.png"]
    header = (tmp_path / "two-state-diagram.png").read_bytes()[:24]
    assert int.from_bytes(header[16:20], "big") == pytest.approx(3.4 * 300, abs=1)
    assert (tmp_path / "two-state-diagram.pdf").read_bytes().startswith(b"%PDF")


def test_a_figure_with_runs_end_to_end(cli, tmp_path, monkeypatch):
    """The second time everything is there, and the same bytes are written."""
    monkeypatch.setattr(paper_runs, "EPISODES", 10)
    code, _, err = cli("reproduce", "deep-sea-3-episodes", "--out", str(tmp_path), "--runs", "1")
    assert code == 0
    assert "1 of 1 runs done" in err
    before = {path: path.read_bytes() for path in tmp_path.glob("*.p*")}
    assert len(before) == 2
    code, _, err = cli("reproduce", "deep-sea-3-episodes", "--out", str(tmp_path), "--runs", "1")
    assert code == 0
    assert "1 of 1 runs are already there" in err
    assert {path: path.read_bytes() for path in tmp_path.glob("*.p*")} == before


TOY = "env:deep-sea?depth=2"


def toy_figure(*cells):
    return PaperFigure("toy", 0, "a toy", lambda runs: Figure(figsize=(1, 1)), cells)


def test_a_directory_serves_other_figures_and_numbers_of_runs(tmp_path):
    """Runs that are there are not played again, whatever was asked for first."""
    first, second = (Cell(TOY, "bayes-td", epsilon, episodes=3) for epsilon in (0.1, 0.2))
    play_cells([toy_figure(first)], tmp_path, 2, play_here)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*.nc")}
    assert len(written) == 2
    for wanted, runs, total in (((second,), 1, 3), ((first, second), 3, 6), ((first,), 1, 6)):
        found = play_cells([toy_figure(*wanted)], tmp_path, runs, play_here)
        assert found.cell(wanted[0])["regret"].shape == (runs, 3)
        assert len(list((tmp_path / "runs").glob("*.nc"))) == total
    assert all(path.stat().st_mtime_ns == when for path, when in written.items())
    plan = json.loads((tmp_path / "runs" / PLAN_FILE).read_text())
    assert len(plan["runs"]) == 6
    with pytest.raises(BadInputError, match="belongs to another plan"):
        sweep(plan_runs(first.settings(1)), tmp_path / "runs", play_here)


def test_a_wider_plan_must_mean_the_same_problems(tmp_path):
    plan = plan_runs(Cell(TOY, "bayes-td", 0.1).settings(1))
    with Store(tmp_path).claim(plan, widen=True):
        pass
    known = json.loads((tmp_path / PLAN_FILE).read_text())
    (tmp_path / PLAN_FILE).write_text(json.dumps(known | {"models": {TOY: "another"}}))
    with pytest.raises(BadInputError, match="was a different problem"), Store(tmp_path).claim(plan, widen=True):
        pass


def test_an_interruption_says_how_to_go_on(tmp_path):
    def stop(runs):
        raise KeyboardInterrupt

    figures = [toy_figure(), PaperFigure("late", 0, "never drawn", stop)]
    with pytest.raises(StoppedError, match=r"1 of 2 figures are in .*; run the same command again"):
        list(draw_figures(figures, PaperRuns(tmp_path, 1), tmp_path, lambda figure: None))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.pdf", "toy.png"]


def test_an_interruption_that_a_library_swallows_is_noticed(tmp_path):
    """Half of a table may be missing then: what is drawn from it is not kept."""

    def swallow(runs):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return Figure(figsize=(1, 1))

    with pytest.raises(StoppedError, match="0 of 1 figures"):
        list(draw_figures([PaperFigure("x", 0, "x", swallow)], PaperRuns(tmp_path, 1), tmp_path, lambda figure: None))
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class BrokenFigure(Figure):
    """Fails when half of its file is written."""

    def savefig(self, file, **look):
        file.write(b"half")
        raise OSError


def test_a_figure_that_fails_to_save_leaves_the_old_one(tmp_path):
    save(Figure(figsize=(1, 1)), tmp_path, "x")
    before = (tmp_path / "x.png").read_bytes()
    with pytest.raises(BadInputError, match=r"x\.png: cannot be written"):
        save(BrokenFigure(figsize=(1, 1)), tmp_path, "x")
    assert (tmp_path / "x.png").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture(scope="module")
def played():
    """A short run on deep sea of depth 3."""
    return record_run(replace(demonstration(SMALL_DEEP_SEA), episodes=4).settings(1)[0])


def test_an_episode_shows_the_posterior_of_what_was_seen_before_it(played):
    model = load_model(SMALL_DEEP_SEA)
    first = show_episode(played, model, 0)
    assert not first.observed.any()
    np.testing.assert_allclose(first.probability, 0.5, atol=1e-9)
    assert len(first.played) == 3
    shown = show_episode(played, model, 2)
    moves = played["pair"].values[:6].astype(np.int64)
    assert sorted(set(moves.tolist())) == np.flatnonzero(shown.observed).tolist()
    assert shown.played == played["pair"].values[6:9].tolist()
    assert seen_before(played, model, 2).pair.tolist() == moves.tolist()
    summary = posterior(model, Dataset(model, moves, model.reward[moves]), epsilon=0.01)
    np.testing.assert_allclose(shown.probability, summary.action_probability.value, atol=1e-9)


def test_routes_flow_from_the_start_to_the_goal(played):
    """What enters a state leaves it; where nothing was decided, routes take its action as often as it is optimal."""
    model = load_model(SMALL_DEEP_SEA)
    on_route = show_episode(played, model, 3).on_route
    leaving = np.bincount(model.pair_state, on_route, model.n_states)
    entering = np.bincount(model.next_state, on_route[model.next_pair], model.n_states + 1)
    start = int(np.argmax(model.initial))
    assert leaving[start] == pytest.approx(1.0, abs=1e-6)
    assert entering[-1] == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(np.delete(leaving, start), np.delete(entering[:-1], start), atol=1e-6)


def test_a_record_is_read_as_xarray_reads_it(played):
    content = encode(played)
    xr.testing.assert_identical(read_netcdf(content), xr.load_dataset(io.BytesIO(content), engine="h5netcdf"))
    named = played.assign(name=("letter", np.array(["a", "b"])))
    with pytest.raises(BadInputError, match="something other than the arrays of a run"):
        read_netcdf(bytes(named.to_netcdf(engine="h5netcdf")))


def test_the_best_routes_are_no_loops():
    reward, loops = np.array([1.0, 0.9, 0.9, 0.2]), np.array([True, False, False, False])
    routes = Routes(np.zeros((4, 1), int), reward, np.zeros(4, int), loops)
    assert routes.is_optimal.tolist() == [False, True, True, False]


@cache
def known_routes(reference):
    """Routes of a problem without loops and what they pay."""
    model = load_model(reference)
    routes = np.array(all_routes(model))
    return routes, model.reward[routes].sum(axis=1)


class Made(PaperRuns):
    """Runs made up: BR knows the best route, all others know nothing; regret grows by the method's number."""

    def cell(self, cell):
        routes, value = known_routes(cell.model)
        share = np.full(len(routes), 1.0 / len(routes))
        if cell.agent == "bayes-br":
            share = (value == value.max()) / (value == value.max()).sum()
        each = np.ones((self.runs, 100))
        number = list(METHODS.values()).index(cell.agent) + 1.0
        by_episode = {"regret": number * each, "coverage": each, "diagnostic_acceptance": 0.7 * each}
        data = {name: (("run", "episode"), values) for name, values in by_episode.items()}
        data["route"] = (("run", "route_number", "step"), np.tile(routes, (self.runs, 1, 1)))
        chance = np.tile(share, (self.runs, 100, 1))
        return xr.Dataset(data | {"route_probability": (("run", "episode", "route_number"), chance)})

    def separately(self, cell):
        """Runs that see everything but in the last of two episodes."""
        pairs = np.arange(load_model(cell.model).n_pairs)
        return [xr.Dataset({"pair": ("move", pairs), "moves": ("episode", [len(pairs), 0])}) for _ in range(self.runs)]


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path, 2)


SMALL = Setting("env:deep-sea?depth=3")


def test_the_regret_page_has_a_panel_a_tolerance_and_all_methods(made):
    figure = regret_page(made, [SMALL])
    panels = [axes for part in figure.subfigs for axes in part.axes]
    assert [axes.get_title() for axes in panels] == [rf"$\epsilon = {epsilon:g}$" for epsilon in TOLERANCES]
    for axes in panels:
        assert [line.get_label() for line in axes.lines] == list(METHODS)
        assert [line.get_ydata()[-1] for line in axes.lines] == [100.0 * (k + 1) for k in range(6)]
    legends = [part.legends for part in figure.subfigs if part.legends]
    assert [[text.get_text() for text in legend.get_texts()] for (legend,) in legends] == [list(METHODS)]


def test_the_routes_page_has_a_column_for_the_exact_posterior(made):
    figure = routes_page(made, [SMALL])
    grid = np.array(figure.subfigs[0].axes[:14]).reshape(2, 7)
    assert [axes.get_title() for axes in grid[0]][-1] == "exact"
    assert [axes.get_ylabel() for axes in grid[:, 0]] == ["BR", "HMC"]
    for row, best in ((0, 1.0), (1, 1 / 8)):
        top = max(grid[row, 0].lines, key=lambda line: line.get_zorder())
        assert top.get_ydata()[0] == pytest.approx(best)
    assert len(grid[0, -1].lines) == 8
    assert not grid[1, -1].lines


def test_the_progress_page_has_acceptance_beside_it(made):
    figure = progress_page(made, [SMALL, SMALL])
    assert [part.get_suptitle() for part in figure.subfigs[:2]] == [r"(a) $\sigma = 10$", r"(b) $\sigma = 10$"]
    for part in figure.subfigs[:2]:
        left, right = part.subfigs
        assert [line.get_label() for line in left.axes[5].lines] == list(METHODS)
        assert all(line.get_ydata()[0] == 100.0 for line in left.axes[5].lines)
        (acceptance,) = right.axes
        assert [line.get_label() for line in handles(acceptance)] == [rf"$\epsilon = {e:g}$" for e in TOLERANCES]
        assert all(line.get_ydata()[0] == 0.7 for line in handles(acceptance))


def test_the_page_of_the_second_tuning_shows_both(made):
    accepted, believed = retuned_page(made, SMALL).axes
    assert [line.get_label().split(", ")[1] for line in handles(accepted)] == ["tuned again"] * 2 + ["first tuning"] * 2
    assert all(line.get_ydata()[-1] == pytest.approx(1 / 8) for line in handles(believed))


def test_the_ranked_page_shows_the_best_routes_alone(made):
    """Of BR and exact, the posterior given what was seen: its noise stays far below that of an agent's pool (0.007)."""
    figure = ranked_page(made, Setting(PYRAMID), points=2**17)
    axes = figure.subfigs[0].axes[0]
    by_label = {line.get_label(): line for line in axes.lines}
    for label in ("BR", "exact"):
        np.testing.assert_allclose(by_label[label].get_ydata(), np.full(8, 1 / 8), atol=2e-3)
        assert (np.diff(by_label[label].get_ydata()) <= 0).all()
    np.testing.assert_allclose(by_label["TD"].get_ydata(), np.full(8, 1 / 32))
    uneven = figure.subfigs[0].axes[5].lines
    last = next(line for line in uneven if line.get_label() == "BR").get_ydata()
    assert 0.02 < last[-1] < last[0] < 0.04, "at tolerance 5 the data say little"


def test_routes_of_stacked_runs(made):
    cell = SMALL.cell("BR", 0.01)
    known = routes_of(cell.model)
    assert known.reward.max() == pytest.approx(0.85)
    assert route_probabilities(made, cell)[0, 0, known.is_optimal].tolist() == [1.0]
    assert not known.is_loop.any()
    assert known.pairs.tolist() == made.cell(cell)["route"].values[0].tolist()


@pytest.mark.slow
def test_every_figure_of_a_comparison_is_drawn_from_one_run_each(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(paper_runs, "EPISODES", 10)
    names = [name for name in FIGURES if name.startswith(("deep-sea", "pyramid", "hmc")) and "episodes" not in name]
    code, out, _ = cli("reproduce", *names, "--out", str(tmp_path), "--runs", "1")
    assert code == 0
    assert [Path(line).stem for line in out.splitlines()[::2]] == names
    found = {path.stem for path in tmp_path.glob("*.pdf")}
    assert found == set(names)
    assert DEEP_SEA in json.loads((tmp_path / "runs" / PLAN_FILE).read_text())["models"]


def test_the_page_of_environments_knows_nothing_yet():
    figure = environments_page()
    assert [axes.get_title() for axes in figure.axes] == ["deep sea", "deep sea pyramid", "deep sea swirl"]
    for axes, reference in zip(figure.axes, (DEEP_SEA, PYRAMID, SWIRL), strict=True):
        wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
        assert len(wedges) == load_model(reference).n_pairs
        assert {round(wedge.theta2 - wedge.theta1) for wedge in wedges} == {180}
        assert axes.get_legend() is None
    assert len(figure.legends[0].get_texts()) == 2


WITHOUT_THE_PAPER = """
import sys
from bellmanifold._util import plugins
from bellmanifold.cli.main import run
sys.modules["bellmanifold_paper"] = None
before = plugins.plugged_in
plugins.plugged_in = lambda kind: {name: point for name, point in before(kind).items() if "paper" not in point.value}
"""


def without_the_paper(*arguments):
    """Run the command line where the paper's package is not installed."""
    code = f"{WITHOUT_THE_PAPER}sys.exit(run({list(arguments)}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("deep-sea-regret", "--out", "x"), ("--list",)])
def test_a_missing_package_is_named(arguments):
    done = without_the_paper("reproduce", *arguments)
    assert done.returncode == 3
    assert done.stderr.startswith(
        "bellmanifold: the command reproduce is in the package bellmanifold_paper, which is not"
    )
    assert done.stderr.count("\n") == 1


def test_a_report_without_the_package_leaves_the_ledger_out(tmp_path):
    (settings,) = Cell(TOY, "bayes-td", 0.1, episodes=3).settings(1)
    Store(tmp_path).write(settings, encode(record_run(settings)))
    (tmp_path / "claims.json").write_text("{}")
    done = without_the_paper("report", str(tmp_path))
    assert done.returncode == 0
    assert "claims.json: left out: the package bellmanifold_paper is not installed" in done.stderr
    assert (tmp_path / "report.html").exists()
