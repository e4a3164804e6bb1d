"""The report: what is in it, what it refuses, and that names of others stay text."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from toy_agents import play_here, record_run

import bellmanifold as bm
from bellmanifold.errors import BadInputError
from bellmanifold.learning.record import require_fit
from bellmanifold.learning.routes import read_routes
from bellmanifold.learning.run_file import encode, load_run, read_arrays
from bellmanifold.learning.run_settings import make_settings
from bellmanifold_lab.commands import demo
from bellmanifold_lab.report import page
from bellmanifold_lab.report.curves import curves
from bellmanifold_lab.report.ledger import ledger_section
from bellmanifold_lab.report.overview import _at_the_end, overview
from bellmanifold_lab.report.reading import Contents, _belief_in_optimum, _Problems, read_directory
from bellmanifold_lab.report.scenes import UNKNOWN
from bellmanifold_lab.report.text import asset, display_name, embed_json, escape_name
from bellmanifold_lab.sweeps.plan import plan_runs
from bellmanifold_lab.sweeps.store import Store
from bellmanifold_paper.comparisons import METHODS as AGENTS_OF
from bellmanifold_paper.ledger_file import Entry, JudgedClaim, Ledger, write_ledger
from bellmanifold_paper.plots.style import METHODS
from bellmanifold_paper.verdicts import Measurement

HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    "\u202eabc \u05d0\u05d1\u05d2",
    "x" * 10_000,
    "🚢👩\u200d🚀",
    "a\u2028b&amp;",
]
SWIRL = "env:swirl?depth=3"


def keep(directory, **entry):
    """Play a run and put it into a directory."""
    settings = make_settings({"episodes": 6, "seed": 0} | entry)
    directory.mkdir(exist_ok=True, parents=True)
    Store(directory).path(settings).write_bytes(encode(record_run(settings)))
    return settings


def hostile_problem(path):
    """A problem whose names want to be markup: a chain of states, two actions each."""
    states = [*HOSTILE, "goal"]
    pairs = [
        {"state": state, "action": action, "reward": -1.0, "next": {states[k + 1]: 1.0}}
        for k, state in enumerate(HOSTILE)
        for action in ("<img src=x onerror=alert(1)>", "\"'&--><!--")
    ]
    problem = {"format": "bellmanifold.ssp/1", "goals": ["goal"], "initial": {states[0]: 1.0}, "pairs": pairs}
    path.write_text(json.dumps(problem))
    return str(path)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Two runs of one cell, one of another, and one of a hostile problem, beside a ledger."""
    root = tmp_path_factory.mktemp("runs")
    keep(root / "runs", model=SWIRL, agent="bayes-td", seed=0)
    keep(root / "runs", model=SWIRL, agent="bayes-td", seed=1)
    keep(root / "runs", model=SWIRL, agent="q-learning")
    keep(root / "runs", model=hostile_problem(root / "a&<b>.json"), agent="bayes-td-max")
    entry = Entry(Measurement("q<sub>", 0.5, 0.25, 1.0, None, 1), "above 0", "established")
    claim = JudgedClaim(
        "one", "Figure 1", "<b>bold</b>", "so", (entry,), "holds with a remark", "but " + "x" * 1500 + " end"
    )
    write_ledger(root / "claims.json", Ledger((claim,), 1, "0.1", "abc", "2026-01-02"))
    return root


@pytest.fixture(scope="module")
def html(directory):
    page.write_report(directory, directory / "report.html", ledger=ledger_section(directory))
    return (directory / "report.html").read_text()


def data_of(html, name):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html, re.DOTALL)[1])


def unpacked(text, width):
    whole = np.frombuffer(base64.b64decode(text), dtype="<u2").reshape(-1, width)
    return np.where(whole == UNKNOWN, np.nan, whole / (UNKNOWN - 1))


class Elements(HTMLParser):
    """Which elements a page has, and its text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_a_run_is_played_as_it_was_recorded(directory, html):
    player = data_of(html, "player-data")
    model = bm.load_model(SWIRL)
    for seed in (0, 1):
        settings = make_settings({"model": SWIRL, "agent": "bayes-td", "episodes": 6, "seed": seed})
        record = load_run(Store(directory / "runs").path(settings))
        (run,) = [r for r in player["runs"] if (r["agent"], r["seed"]) == ("bayes-td", seed)]
        scene = player["scenes"][run["scene"]]
        assert scene["states"] == list(model.states)
        assert [pair for moves in run["moves"] for pair in moves] == record["pair"].values.tolist()
        np.testing.assert_allclose(run["reward"], record["total_reward"], rtol=1e-4)
        belief = np.array(run["belief"])
        pie = unpacked(run["pie"], model.n_pairs)[belief]
        np.testing.assert_allclose(pie, record["action_probability"], atol=1e-5)
        low, high = run["value_range"]
        value = low + (high - low) * unpacked(run["value"], model.n_pairs)[belief]
        np.testing.assert_allclose(value, record["q_mean"], atol=(high - low) * 1e-5)
        plays = np.array([[pair in route for pair in range(model.n_pairs)] for route in record["route"].values])
        on_route = unpacked(run["on_route"], model.n_pairs)[belief]
        np.testing.assert_allclose(on_route, record["route_probability"].values @ plays, atol=1e-5)
        begin = np.cumsum(record["moves"].values)
        for pair, first in enumerate(run["first"]):
            where = np.flatnonzero(record["pair"].values == pair)
            assert first == (-1 if not len(where) else np.searchsorted(begin, where[0], side="right"))


def test_agents_without_beliefs_are_played_too(html):
    player = data_of(html, "player-data")
    (run,) = [r for r in player["runs"] if r["agent"] == "q-learning"]
    assert run["pie"] is run["value"] is run["on_route"] is run["routes"] is None
    assert len(run["moves"]) == 6


def test_curves_average_over_the_runs_of_a_cell(directory, html):
    found = data_of(html, "curves-data")
    (cell,) = [c for c in found["curves"] if c["agent"] == "bayes-td"]
    records = [
        load_run(
            Store(directory / "runs").path(
                make_settings({"model": SWIRL, "agent": "bayes-td", "episodes": 6, "seed": k})
            )
        )
        for k in (0, 1)
    ]
    regret = np.array([np.cumsum(r["completed_regret"].values) for r in records])
    assert cell["runs"] == 2
    np.testing.assert_allclose(cell["regret"], regret.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(cell["regret_sd"], regret.std(axis=0, ddof=1), rtol=1e-4, atol=1e-12)
    # The optimal route of the swirl of depth 3, by hand: right all the way down.
    model = bm.load_model(SWIRL)
    best = bm.solve(model)
    believed = []
    for record in records:
        optimal = []
        for route in record["route"].values:
            pairs = [int(i) for i in route if i >= 0]
            ends = model.next_state[model.next_start[pairs[-1]]] == model.n_states
            optimal.append(ends and abs(model.reward[pairs].sum() - best.value_at_start) < 1e-9)
        assert sum(optimal) == 1
        believed.append(record["route_probability"].values[:, optimal].sum(axis=1))
    np.testing.assert_allclose(cell["believed"], np.mean(believed, axis=0), rtol=1e-4, atol=1e-9)


@pytest.fixture(scope="module")
def stopping(tmp_path_factory):
    """Two runs that stop exploring, beside one that was not told to."""
    root = tmp_path_factory.mktemp("stopping")
    given = {"model": "env:deep-sea?depth=3", "agent": "manifold", "episodes": 20, "prior_scale": 1.0}
    for seed in (0, 1):
        keep(root, **given, until_loss=0.1, seed=seed)
    keep(root, **given)
    return root


def test_expected_loss_beside_the_true_one(stopping):
    """Curve, table and player show what the runs recorded, and where they stopped; others show nothing of it."""
    contents = read_directory(stopping)
    told = next(cell for cell in contents.cells if cell.settings.choices().get("until_loss"))
    other = next(cell for cell in contents.cells if cell is not told)
    records = [load_run(run.path) for run in told.runs]
    expected = np.array([record["diagnostic_expected_loss"].values for record in records])
    true = np.array([record["expected_regret"].values for record in records])
    first = [int(np.argmax(record["diagnostic_stopped"].values)) for record in records]
    made = page.make_page(contents, "stops")
    curve, plain = (data_of(made, "curves-data")["curves"][contents.cells.index(cell)] for cell in (told, other))
    np.testing.assert_allclose(curve["expected_loss"], expected.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(curve["true_loss"], true.mean(axis=0), rtol=1e-4, atol=1e-12)
    at_stop = {"runs": 2, "episode": np.mean(first) + 1}
    assert curve["stop"] == pytest.approx(
        at_stop | {"expected": expected[[0, 1], first].mean(), "true": true[[0, 1], first].mean()}, rel=1e-4, abs=1e-12
    )
    assert (plain["expected_loss"], plain["true_loss"], plain["stop"]) == ([], [], None)
    assert '<th scope="col">stopped exploring</th>' in made
    assert (
        f"<td>before episode {np.mean(first) + 1:g} (2 of 2 runs)</td><td>{curve['stop']['expected']:.3g}</td>" in made
    )
    runs = {(run["settings"], run["seed"]): run for run in data_of(made, "player-data")["runs"]}
    for record, stopped, (_, run) in zip(records, first, sorted(runs.items())[-2:], strict=True):
        np.testing.assert_allclose(run["expected_loss"], record["diagnostic_expected_loss"], rtol=1e-4)
        np.testing.assert_allclose(run["true_loss"], record["expected_regret"], rtol=1e-4, atol=1e-12)
        assert run["stopped"] == stopped
    assert [run["expected_loss"] for run in runs.values()].count(None) == 1


def test_runs_that_never_stop_say_so(tmp_path):
    keep(tmp_path, model="env:deep-sea?depth=3", agent="manifold", episodes=2, prior_scale=1.0, until_loss=0.0)
    contents = read_directory(tmp_path)
    assert contents.cells[0].stop is None
    assert "<td>no</td><td></td><td></td>" in overview(contents)


def test_without_an_optimum_nothing_is_said_about_it(tmp_path):
    """FrozenLake does not satisfy Assumption 2."""
    keep(tmp_path, model="gym:FrozenLake-v1", agent="q-learning")
    contents = read_directory(tmp_path)
    assert all(cell.first_optimal == [None] and not cell.has_optimum for cell in contents.cells)
    made = page.make_page(contents, "unknown")
    for found in data_of(made, "curves-data")["curves"]:
        assert found["optimal"] == [None] * 6
        assert found["believed"] == []
    (run,) = data_of(made, "player-data")["runs"]
    assert run["optimal"] is None
    (row,) = re.findall("<tr><td>.*?</tr>", made)
    assert "<td>unknown</td><td>unknown</td>" in row


def test_routes_believed_without_an_optimum_are_not_judged():
    """A run that knows routes but no optimal value: no probability is given to optimal routes, not even 0."""
    model = bm.load_model("env:deep-sea?depth=2")
    routes, shares = np.array([[0, 2]]), np.ones((3, 1))
    found = {"route": routes, "route_probability": shares, "regret": np.zeros(3), "optimal_value": np.array(np.nan)}
    assert np.isnan(_belief_in_optimum(found, model)).all()


def test_a_loop_is_no_optimal_route():
    """Two states: stay pays -1 as going does, but never ends."""
    model = bm.envs.two_state()
    routes = np.array([[model.pair_index[(model.states[0], "stay")]], [model.pair_index[(model.states[0], "go")]]])
    assert read_routes(model, routes).collecting(-1.0).tolist() == [False, True]
    assert not read_routes(model, routes).collecting(np.nan).any()


def test_names_of_others_stay_text(html):
    """Only the page's own elements exist, no attribute handles events, and every name is there as text, cut short."""
    elements = Elements(html)
    tags = [tag for tag, _ in elements.found]
    assert tags.count("script") == 4
    assert not {"img", "b", "iframe", "object", "link"} & set(tags)
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert html.count("<script") == html.count("</script>") == 4
    assert "alert(1)</script>" not in html
    scene = next(s for s in data_of(html, "player-data")["scenes"] if "<script>alert(1)</script>" in s["states"])
    assert scene["states"][1:3] == ["</script>", "abc \u05d0\u05d1\u05d2"]
    assert scene["states"][3] == "x" * 199 + "…"
    assert scene["states"][4] == "🚢👩\u200d🚀"
    assert scene["actions"] == ["<img src=x onerror=alert(1)>", "\"'&--><!--"]
    assert "<b>bold</b>" in elements.text
    assert "q<sub>: 0.5 [0.25, 1] (wanted above 0: established)" in elements.text
    assert "but " + "x" * 1500 + " end" in elements.text, "sentences are longer than names"
    assert any("from 1 run per cell (so few runs decide little" in text for text in elements.text)
    assert "Measured on 2026-01-02 by bellmanifold 0.1, commit abc." in elements.text
    assert "a&<b>.json" in "".join(elements.text)


def test_nothing_but_its_own_programs_may_run(html):
    policy = next(a["content"] for tag, a in Elements(html).found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy.split(";")[1]
    assert not [a for _, a in Elements(html).found if "src" in a or "href" in a]


@pytest.mark.parametrize("name", [*HOSTILE, "\x00\x1b[2J", "\ud800"])
def test_text_by_itself(name):
    assert json.loads(embed_json(name)) == name
    assert not re.search("[<>&\u2028\u2029]", embed_json(name))
    assert len(display_name(name)) <= 200
    assert re.fullmatch(r"<bdi>[^<>]*</bdi>", escape_name(name))
    escape_name(name).encode()


def test_few_bytes_are_kept_for_few_runs(directory):
    """The first run of every cell comes before the second of any, and the page says what is left out."""
    contents = read_directory(directory)
    assert page.make_player(contents)[1] == ""
    player, remark = page.make_player(contents, most_runs=3)
    assert sorted(run["agent"] for run in player["runs"]) == ["bayes-td", "bayes-td-max", "q-learning"]
    assert "3 of 4 runs: those with the first seeds of each setting" in remark
    assert len(page.make_player(contents, most_bytes=1)[0]["runs"]) == 1


def test_a_copy_under_another_name_is_counted_once(tmp_path):
    for seed in (0, 1):
        settings = keep(tmp_path, model=SWIRL, agent="q-learning", seed=seed)
    shutil.copy(Store(tmp_path).path(settings), tmp_path / "a copy.nc")
    steps = []
    contents = read_directory(tmp_path, lambda: steps.append(1))
    assert sorted(run.settings.seed for run in contents.cells[0].runs) == [0, 1]
    assert sum(contents.made_by.values()) == 2
    assert len(steps) == 3


def test_many_cells_have_a_panel_for_each_tolerance(directory):
    contents = read_directory(directory)
    one = next(cell for cell in contents.cells if cell.settings.agent == "bayes-td")
    agents = ("bayes-td", "bayes-td-en", "bayes-td-max")
    many = [
        replace(one, settings=replace(one.settings, epsilon=epsilon, agent=agent))
        for agent in agents
        for epsilon in (0.01, 0.1, 0.2, 0.5, 1.0)
    ]
    exact = replace(one, settings=replace(one.settings, epsilon=None, agent="manifold"))
    found, remark = curves([*many, exact])
    assert remark == ""
    (problem,) = found["problems"]
    assert [panel["name"] for panel in problem["panels"]][:2] == [
        "epsilon 0.01, prior scale 10",
        "epsilon 0.1, prior scale 10",
    ]
    assert [name for _, name in problem["panels"][0]["curves"]] == [*agents, "manifold"]
    assert problem["panels"][-1]["name"] == "all settings"
    assert problem["panels"][-1]["curves"][1][1] == "bayes-td (epsilon 0.1)"
    found, remark = curves(many * 100)
    assert len(embed_json(found)) < 2_000_000
    assert remark == "<p>The plots show the first 800 of 1,500 settings.</p>"


def test_agents_have_the_colours_of_the_printed_figures():
    program, style = (asset("report", name) for name in ("page.js", "page.css"))
    named = dict(re.findall(r"(--\w+): (#\w+);", style.split("@media")[0]))
    for label, stroke in METHODS.items():
        colour = re.search(rf'"{AGENTS_OF[label]}": \["([^"]+)"', program)[1]
        assert named.get(colour, colour).lower() == stroke.colour.lower(), label


def test_arrays_read_quickly_are_those_read_slowly(directory):
    path = next((directory / "runs").glob("*bayes-td_0*.nc"))
    record = load_run(path)
    found, attributes = read_arrays(path, [*map(str, record.data_vars), "nothing"])
    assert set(found) == set(map(str, record.data_vars))
    assert attributes == record.attrs
    for name, values in found.items():
        np.testing.assert_array_equal(values, record[name].values)


def test_command_and_where_it_writes(directory, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("report", str(directory), "--out", "x.html")
    assert (code, out, err) == (0, "report: x.html\n", "")
    assert (tmp_path / "x.html").stat().st_size < 8_000_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.html"]
    code, _, err = cli("report", str(directory), "--out", str(tmp_path))
    assert code == 2
    assert "is a directory" in err
    code, _, err = cli("report", str(directory), "--out", "nowhere/x.html")
    assert code == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["plan.toml", "model.py", "x", ".html"])
def test_only_html_files_are_written_over(directory, tmp_path, cli, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("mine")
    code, out, err = cli("report", str(directory), "--out", name)
    assert (code, out) == (2, "")
    assert f"{name}: the report is an HTML file: give --out a name that ends in .html" in err
    assert Path(name).read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"claims": [3]}, "claims[0] is a number"),
        ({"claims": [{"id": 1}]}, 'claims[0]: "source" is missing'),
        ({"runs": 2.5}, "runs is a number"),
        ({"verdict": "maybe"}, 'claims[0]: unknown verdict "maybe"'),
        ({"measured": 3}, "claims[0].measured is a number"),
        ({"value": float("nan")}, "claims[0].measured[0].value is nan"),
        ({"entry runs": "ten"}, "claims[0].measured[0].runs is a string"),
        ({"entry runs": -1}, "claims[0].measured[0].runs is -1"),
        ({"wanted": 3}, "claims[0].measured[0].wanted is a number"),
        ({"outcome": "sure"}, 'claims[0].measured[0].outcome: unknown outcome "sure"'),
    ],
)
def test_ledgers_of_others_are_read_strictly(directory, tmp_path, cli, change, says):
    shutil.copytree(directory / "runs", tmp_path / "runs")
    content = json.loads((directory / "claims.json").read_text())
    claim = content["claims"][0]
    for name, value in change.items():
        owner = content if name in content else claim if name in claim else claim["measured"][0]
        owner[name.removeprefix("entry ")] = value
    (tmp_path / "claims.json").write_text(json.dumps(content))
    code, out, err = cli("report", str(tmp_path))
    assert (code, out) == (2, "")
    assert f"claims.json: {says}" in err
    assert err.count("\n") == 1


def test_directories_that_hold_no_runs_are_refused(tmp_path, directory, cli):
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken"
    shutil.copytree(directory / "runs", broken)
    victim = next(broken.glob("*.nc"))
    victim.write_bytes(victim.read_bytes()[:-300])
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.nc").write_bytes(b"not a run")
    ledger = tmp_path / "ledger"
    shutil.copytree(directory / "runs", ledger)
    (ledger / "claims.json").write_text('{"format": "something"}')
    (tmp_path / "file").write_text("")
    for name, says in (
        ("nowhere", "no such directory"),
        ("n" * 300, "n: no such directory"),
        ("file", "file: not a directory"),
        ("empty", "contains no runs"),
        ("broken", "damaged"),
        ("other", "damaged, or not a result of this program: remove it"),
        ("ledger", "not a ledger"),
    ):
        code, out, err = cli("report", str(tmp_path / name))
        assert (code, out) == (2, "")
        assert says in err
        assert err.count("\n") == 1
        assert not list(tmp_path.glob("*/report.html"))


def test_a_problem_that_is_gone_or_has_changed_is_not_drawn(directory, tmp_path):
    runs = tmp_path / "runs"
    path = tmp_path / "problem.json"
    keep(runs, model=hostile_problem(path), agent="bayes-td", episodes=2)
    path.write_text(path.read_text().replace("-1.0", "-2.0"))
    contents = read_directory(tmp_path)
    assert list(contents.missing.values()) == ["the problem has changed since these runs were made"]
    path.unlink()
    contents = read_directory(tmp_path)
    assert "no such file" in next(iter(contents.missing.values()))
    made = page.make_page(contents, "gone")
    assert data_of(made, "player-data")["runs"] == []
    assert len(data_of(made, "curves-data")["curves"]) == 1


def test_a_relative_problem_is_found_from_everywhere(tmp_path, monkeypatch):
    """Here, in the directory or above it; a file of that name that holds another problem does not count."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(home)
    hostile_problem(home / "problem.json")
    keep(Path("out/runs"), model="problem.json", agent="q-learning", episodes=2)
    monkeypatch.chdir(elsewhere)
    assert list(read_directory(Path("../home/out")).problems) == ["problem.json"]
    Path("problem.json").write_text((home / "problem.json").read_text().replace("-1.0", "-2.0"))
    contents = read_directory(home / "out")
    assert contents.problems["problem.json"].reward[0] == -1.0
    assert not contents.missing
    Path("problem.json").unlink()
    (home / "problem.json").unlink()
    said = read_directory(home / "out").missing["problem.json"]
    assert said == "problem.json: no such file: check the path (or run `report` where the runs were played)"


def test_demo_prints_a_table_and_where_the_report_is(tmp_path, capfd, monkeypatch):
    """A small one, in this process; the real one is in the slow tests."""
    monkeypatch.chdir(tmp_path)
    entry = {"model": SWIRL, "agent": "bayes-td", "episodes": 20}
    plan = plan_runs([make_settings({**entry, "seed": seed}) for seed in range(2)])
    demo.show(plan, Path("here"), play_here, improper=lambda model, run, pairs: 0.25)
    out, err = capfd.readouterr()
    assert out.splitlines()[0] == "2 runs of 20 episodes each; agents know nothing at first"
    assert out.splitlines()[-1] == "report: here/report.html"
    (row,) = [line.split() for line in out.splitlines() if line.startswith(f"  {SWIRL}")]
    assert row[1] == "bayes-td"
    assert row[-2] == "0.2500"
    runs = [load_run(path) for path in sorted((tmp_path / "here/runs").glob("*.nc"))]
    assert row[-4] == f"{np.mean([r['completed_regret'].sum() for r in runs]):.2f}"
    assert "2 of 2 runs done" in err
    demo.show(plan, Path("here"), play_here, improper=lambda model, run, pairs: 0.25)
    assert capfd.readouterr().out == out, "a second call plays nothing"


def test_improper_mass_of_the_demo_is_the_posteriors():
    """Two states at tolerance 5: some mass is improper; a problem without loops has none."""
    model = bm.envs.two_state()
    run = make_settings({"model": "env:two-state", "agent": "bayes-br", "epsilon": 5.0, "episodes": 1, "seed": 0})
    found = demo.improper_mass(model, run, [0, 1, 1])
    exact = bm.posterior(model, bm.Dataset.complete(model), epsilon=5.0, prior_scale=10.0)
    assert found == float(exact.improper_mass_model.value) > 0.05
    assert demo.improper_mass(bm.envs.deep_sea(2), run, [0]) == 0.0


@pytest.mark.slow
def test_the_real_demo(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bellmanifold", "demo", "--out", "demo"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "report: demo/report.html"
    assert (tmp_path / "demo/report.html").stat().st_size < 8_000_000
    assert done.stdout.count("env:") == 9
    assert not re.search(r"\bnever\b", done.stdout)  # every agent finds the optimum


def test_what_the_page_needs_is_shipped():
    import bellmanifold_lab.report

    home = Path(bellmanifold_lab.report.__file__).parent
    assert {"page.html", "page.css", "page.js"} <= {path.name for path in home.iterdir()}


def test_what_cannot_be_drawn_is_named(tmp_path):
    """A problem too large, one without a table, and a pipe where the problem was: the page says so, and still plots."""
    keep(tmp_path / "runs", model="env:grid?rows=21&columns=21", agent="q-learning", episodes=1)
    contents = read_directory(tmp_path)
    made = page.make_page(contents, "large")
    assert "Too large to be drawn: <bdi>env:grid?rows=21&amp;columns=21</bdi>." in made
    assert data_of(made, "player-data")["runs"] == []
    assert len(data_of(made, "curves-data")["curves"]) == 1
    problems = _Problems(tmp_path, load=lambda place: object())
    assert problems.get("gym:Tableless-v0", "0") is None
    assert problems.missing["gym:Tableless-v0"] == "it has no transition table, so there is nothing to draw"
    pipe = str(tmp_path / "problem.json")
    os.mkfifo(pipe)
    assert problems.get(pipe, "0") is None
    assert problems.missing[pipe] == f"{pipe}: is not a file"


def test_of_two_wrong_problems_of_one_name_the_first_is_named(tmp_path, monkeypatch):
    """Neither the file here nor the one beside the runs is what they were played on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    hostile_problem(tmp_path / "problem.json")
    hostile_problem(tmp_path / "out" / "problem.json")
    problems = _Problems(tmp_path / "out")
    assert problems.get("problem.json", "0" * 64) is None
    assert problems.missing["problem.json"] == "the problem has changed since these runs were made"


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ({}, "moves is missing"),
        ({"moves": np.ones(2)}, "moves has the wrong type of numbers"),
        ({"moves": np.ones(3, dtype=int)}, "moves does not have one entry per episode"),
        ({"moves": np.array([1, 2]), "pair": np.array([0, 1])}, "moves and pair disagree"),
        ({"moves": np.array([1, 1]), "pair": np.array([0, 9])}, "pair is not one of the problem's"),
        ({"moves": np.array([1, 1]), "route": np.zeros((1, 1), dtype=int)}, "routes are incomplete"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(found, fault):
    with pytest.raises(BadInputError, match=f"{fault}: not a result of this program"):
        require_fit(found, ("moves",), episodes=2, pairs=4)


def test_the_papers_regret_is_shown_for_its_own_runs_alone():
    """Giving up improves it, so that nobody should be compared by it."""
    contents = Contents(cells=[], problems={}, missing={}, made_by={})
    assert "regret as in the paper" not in overview(contents)
    assert "regret as in the paper" in overview(contents, paper=True)


def test_sums_in_another_order_end_in_the_same_place():
    """What rounding leaves of equal runs is no spread of theirs; a small spread is."""
    ends = [[np.array([0.0, end]) for end in runs] for runs in ((6.4, 6.4 + 1e-15), (6.4, 6.4 + 2e-9), (0.0, 0.0))]
    assert [_at_the_end(curves) for curves in ends] == ["6.4 (0)", "6.4 (1.41e-09)", "0 (0)"]
