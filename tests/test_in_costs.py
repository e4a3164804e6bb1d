"""Who brings costs reads of costs: no minus sign, no reward and no value, in text, cards and pictures.

JSON and tables of `to_frame` keep the library's names and signs.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold._util.display import as_html
from bellmanifold.errors import BadInputError
from bellmanifold.io.problem import write_problem
from bellmanifold.posteriors.route import way
from bellmanifold.problem.costs import Costs, column_name, in_terms, worded
from bellmanifold_lab.explorer.session import Session
from bellmanifold_lab.report.scenes import scene

ROADS = """from,to,name,minutes,oneway
home,mill,,4,no
home,bridge,,6,no
mill,market,high street,7,yes
mill,market,towpath,9,yes
bridge,market,,3,no
market,office,,2,no
"""
TRIPS = "from,to,name,minutes\nhome,mill,,4.4\nmill,market,towpath,8.1\nhome,bridge,,5.2\n"
ASKED = ("--noise-sd", "1", "--cost-belief", "5,2", "--samples", "4096")
AS_REWARDS = re.compile(r"\b(reward|value)s?\b")
MINUS = re.compile(r"(?<![\w.])[-−]\.?\d")
COMMANDS = {
    "solve": ("solve", "ROADS"),
    "show": ("env", "show", "ROADS"),
    "posterior": ("posterior", "ROADS", "TRIPS", *ASKED),
    "advise": ("advise", "ROADS", "TRIPS", *ASKED, "--tolerance", "0.1"),
    "learn": ("learn", "ROADS", "--agent", "q-learning", "--runs", "2", "--episodes", "3"),
    "check": ("check", "ROADS"),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The two tables, as arguments of commands: `ROADS` and `TRIPS`."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "roads.csv").write_text(ROADS)
    (folder / "trips.csv").write_text(TRIPS)
    return {"ROADS": f"{folder / 'roads.csv'}?goal=office&start=home", "TRIPS": str(folder / "trips.csv")}


PRINTED = {}
"""What commands printed, so that each runs once."""


def asked(cli, tables, name, *more):
    if (name, *more) not in PRINTED:
        code, out, err = cli(*(tables.get(word, word) for word in COMMANDS[name]), *more)
        assert code == 0, err
        PRINTED[name, *more] = out
    return PRINTED[name, *more]


def assert_in_costs(text):
    assert not MINUS.search(text), text
    assert not AS_REWARDS.search(text), text


@pytest.mark.parametrize("name", COMMANDS)
def test_texts_for_people(cli, tables, name):
    assert_in_costs(asked(cli, tables, name))


def test_what_the_texts_say(cli, tables):
    assert asked(cli, tables, "solve").startswith("roads: costs 11 minutes from the start\n")
    assert re.search(r"^  state +cost \(minutes\) +optimal actions$", asked(cli, tables, "solve"), re.MULTILINE)
    shown = asked(cli, tables, "show")
    assert re.search(r"^  state +action +cost \(minutes\) +leads to$", shown, re.MULTILINE)
    assert re.search(r"^  mill +towpath +9 +market \(1\)$", shown, re.MULTILINE)
    found = asked(cli, tables, "posterior")
    assert "noise of scale 1, flat prior over costs, proper policies only\n" in found
    assert "expected cost (minutes)  se of cost  sd of cost\n" in found
    assert re.search(r"^  home +mill +0\.\d+ +\S+ +1[1-9]\.\d+ ", found, re.MULTILINE)
    learnt = asked(cli, tables, "learn")
    assert "2 runs of 3 episodes, optimal cost 11 minutes\n" in learnt
    assert "completed regret (minutes)" in learnt


def test_a_route_is_a_line(cli, tables):
    """Places, and the names of roads that have one; no table of the best policy."""
    routes = asked(cli, tables, "posterior").split("most probable routes:\n")[1].splitlines()
    ways = [line.split(maxsplit=2)[2] for line in routes if line.startswith("  0.")]
    assert "home -> bridge -> market -> office" in ways
    assert "home -> mill -(high street)-> market -> office" in ways
    advice = asked(cli, tables, "advise").splitlines()
    assert sum(line.startswith("best policy: home -> ") and line.endswith("-> office") for line in advice) == 1
    assert "best policy:" not in advice


def test_a_loop_says_so(cli, tables):
    code, out, _ = cli("posterior", tables["ROADS"], tables["TRIPS"], "--epsilon", "1", "--samples", "4096")
    assert code == 0
    assert "home -> mill -> home (a loop)\n" in out


def test_json_keeps_its_signs(cli, tables):
    assert json.loads(asked(cli, tables, "solve", "--json"))["value_at_start"] == -11.0
    shown = json.loads(asked(cli, tables, "show", "--json"))
    assert max(pair["reward"] for pair in shown["pairs"]) == -2.0
    found = json.loads(asked(cli, tables, "posterior", "--json"))
    assert found["q_mean"]["home"]["mill"] < -10.0
    assert ["home", "bridge"] in [route["pairs"][0] for route in found["routes"]]
    assert json.loads(asked(cli, tables, "advise", "--json"))["best"]["value"]["mean"] < -10.0
    assert json.loads(asked(cli, tables, "learn", "--json"))["optimal_value"] == -11.0


def test_a_belief_about_costs_speaks_of_costs(cli, tmp_path):
    """A problem that does not say that it was given in costs, asked with `--cost-belief` or with `--reward-belief`."""
    problem, data = tmp_path / "roads.json", tmp_path / "trips.csv"
    write_problem(bm.from_edges([("a", "b", 3.0), ("a", "c", 4.0), ("b", "c", 2.0)], goal="c", start="a"), problem)
    told = json.loads(problem.read_text())
    told["metadata"].pop("costs")
    problem.write_text(json.dumps(told))
    data.write_text("state,action,reward\na,b,-3\n")
    given = ("posterior", str(problem), str(data), "--noise-sd", "1", "--samples", "4096")
    assert_in_costs(cli(*given, "--cost-belief", "5,2")[1])
    assert "expected value" in cli(*given, "--reward-belief", "-5,2")[1]
    summary = bm.posterior(bm.load_model(problem), bm.load_data(data, bm.load_model(problem)), cost_belief=(5.0, 2.0))
    assert summary.costs == Costs()


@pytest.fixture(scope="module")
def shown():
    """What a person looks at, of a problem in costs."""
    edges = [tuple(line.split(",")[k] for k in (0, 1, 3)) for line in ROADS.splitlines()[1:]]
    frame = {"from": [], "to": [], "minutes": []}
    for begin, end, minutes in edges:
        for column, cell in zip(frame, (begin, end, float(minutes)), strict=True):
            frame[column].append(cell)
    model = bm.from_edges(frame, goal="office", start="home")
    data = bm.Dataset.from_frame(model, [{"from": "home", "to": "mill", "minutes": 4.4}])
    given = {"cost_belief": (5.0, 2.0), "noise_sd": 1.0, "samples": 4096}
    return {
        "SSP": model,
        "Dataset": data,
        "Summary": bm.posterior(model, data, **given),
        "Solution": bm.solve(model),
        "Advice": bm.advise(model, data, **given),
        "Learning": bm.learn(model, "q-learning", episodes=3, runs=2),
    }


@pytest.mark.parametrize("name", ["SSP", "Dataset", "Summary", "Solution", "Advice", "Learning"])
def test_cards_speak_of_costs(shown, name):
    assert_in_costs(repr(shown[name]))
    html = as_html(shown[name].card()._replace(picture=None))
    assert_in_costs(re.sub("<[^>]*>", " ", html))
    assert "(minutes)" in html or name == "Dataset"


def test_frames_keep_names_and_signs(shown):
    assert shown["SSP"].to_frame().reward.max() < 0
    assert shown["Summary"].to_frame().q_mean.max() < 0
    assert shown["Solution"].to_frame().q.max() < 0
    assert shown["Learning"].to_frame().reward.max() < 0


def test_the_explorer_and_the_report_speak_of_costs(shown):
    """The pages are told the unit; what is known about moves is told in words. The data keep their signs."""
    session = Session(shown["SSP"], shown["Dataset"], cost_belief=(5.0, 2.0), noise_sd=1.0, samples=4096)
    view = session.view()
    assert session.board["costs"] == "minutes"
    assert view["known"][0] == "played once, cost 4.4 minutes; believed to cost 5 ± 2 minutes"
    assert_in_costs(" ".join([*view["known"], *view["warnings"], view["reason"]]))
    assert view["observations"][0]["reward"] == -4.4
    assert scene(shown["SSP"], "roads")["costs"] == "minutes"
    assert Session(bm.envs.two_state()).board["costs"] is scene(bm.envs.two_state(), "two")["costs"] is None


def test_pictures_name_the_unit(shown):
    axes = bm.figures.draw_regret(shown["Learning"])
    assert axes.get_ylabel() == "cumulative completed regret (minutes)"
    unknown = [replace(run, completed_regret=run.completed_regret * np.nan) for run in shown["Learning"].runs]
    axes = bm.figures.draw_regret(replace(shown["Learning"], runs=tuple(unknown)))
    assert axes.get_ylabel() == "cumulative cost (minutes)"
    assert axes.lines[-1].get_ydata().min() > 0


def test_errors_name_amounts_as_they_were_given(cli, tables, tmp_path):
    code, _, err = cli("posterior", tables["ROADS"], tables["TRIPS"], "--cost-belief", "1e200,1")
    assert code == 2
    assert "mean is 1e+200" in err
    (tmp_path / "twice.csv").write_text("from,to,minutes\nhome,mill,4.5\nhome,mill,5\n")
    code, _, err = cli("posterior", tables["ROADS"], str(tmp_path / "twice.csv"))
    assert code == 2
    assert 'pair ("home", "mill") cost 5 but 4.5 before: deterministic costs must repeat' in err
    assert "declare the costs noisy, with --noise-sd ETA" in err
    with pytest.raises(BadInputError, match=r"row 0: cost is 1e\+250: it must be at most 1e\+100"):
        bm.from_edges([("a", "b", 1e250)], goal="b", start="a")


def test_warnings_name_amounts_as_they_were_given(cli, tables, tmp_path):
    """Trips of 90 minutes against the prior of values, 0 give or take 10, and against a belief of 5."""
    (tmp_path / "slow.csv").write_text("from,to,minutes,sd\nmarket,office,90,0.1\n")
    code, out, _ = cli("posterior", tables["ROADS"], str(tmp_path / "slow.csv"), "--samples", "4096")
    assert code == 0
    (warning,) = [line for line in out.splitlines() if "contradict the prior" in line]
    assert_in_costs(warning)
    assert "the cost of (market, office) is about 90, " in warning.replace('"', "")
    code, out, _ = cli("posterior", tables["ROADS"], str(tmp_path / "slow.csv"), "--cost-belief", "5,0.1")
    assert code == 4
    (warning,) = [line for line in out.splitlines() if "differ by many of their sds" in line and "warning" in line]
    assert_in_costs(warning)
    assert "check their signs and their sds" in warning


def test_words():
    minutes = Costs("minutes")
    assert worded("values of rewards: use --reward-belief", minutes) == "costs of costs: use --reward-belief"
    assert worded("the value", None) == "the value"
    assert column_name("expected value", Costs()) == "expected cost"
    columns = {"state": ["s"], "q": [-0.0, float("nan")]}
    assert in_terms(columns, None) is columns
    assert str(in_terms(columns, Costs())) == "{'state': ['s'], 'cost to the goal': [0.0, nan]}"


def test_routes_in_one_line():
    """The goal that a road is called by, if there are several; the last place of a long route; untried moves."""
    roads = {"from": ["a", "b", "b", "c"], "to": ["b", "c", "yard", "depot"], "name": ["", "toll", "", "ferry"]}
    model = bm.from_edges(roads | {"cost": [1.0, 2.0, 3.0, 4.0]}, goal=["depot", "yard"], start="a")
    pair = {action: k for k, (_, action) in enumerate(map(model.pair_name, range(4)))}
    assert way(model, [pair["b"], pair["yard"]], "goal") == "a -> b -> yard"
    long = [pair["b"], pair["toll"], pair["ferry"]]
    assert way(model, long, "goal") == "a -> b -(toll)-> c -(ferry)-> goal"
    assert way(model, long, "goal", 1) == "a -> b -> ... -> goal"
    assert way(model, long, "open") == "a -> b -(toll)-> c -(ferry)-> ?"
    assert way(model, long[:2], "open", 1) == "a -> b -> ... -> ?"


@pytest.mark.parametrize(
    ("start", "roads"),
    [
        ("all", "from,to,minutes\na,b,\nb,c,\na,c,\n"),
        ("a", "from,to,name,minutes,probability\na,b,go,,0.5\na,c,go,,0.5\nb,c,,,1\na,c,on,,1\n"),
    ],
)
def test_a_policy_that_is_no_route_is_a_table(cli, tmp_path, start, roads):
    (tmp_path / "roads.csv").write_text(roads)
    (tmp_path / "none.csv").write_text("state,action\n")
    given = (f"{tmp_path / 'roads.csv'}?goal=c&start={start}", str(tmp_path / "none.csv"))
    code, out, err = cli("advise", *given, "--cost-belief", "5,1", "--samples", "4096")
    assert code == 0, err
    assert re.search(r"^best policy:\n  state +action\n  a ", out, re.MULTILINE)
    assert_in_costs(out)
