"""Tables of roads: what becomes a problem, what is left out, and what is said about wrong input."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest
from road_graphs import costs_from, random_roads

import bellmanifold as bm
from bellmanifold.errors import BadInputError
from bellmanifold.io.problem import write_problem
from bellmanifold.io.road_columns import unit_in

HEAD = "from,to,cost\n"
ROADS = HEAD + "A,B,2\nB,C,1.5\nA,C,5\n"


@pytest.fixture
def table(tmp_path):
    """Writes a table of roads and returns a reference to it with options."""

    def write(text, query="goal=C&start=A", name="roads.csv"):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return f"{tmp_path / name}?{query}" if query is not None else str(tmp_path / name)

    return write


def rows(model):
    """Each pair in words: from, action, cost and where it leads."""
    laws = model.columns()
    return list(zip(laws["state"], laws["action"], (-model.reward).tolist(), laws["next"], strict=True))


@pytest.mark.parametrize("seed", range(50))
def test_shortest_ways_are_those_of_dijkstra(seed):
    """Parallel, one-way and two-way roads, dead ends, and junctions that are not on the way."""
    rng = np.random.default_rng(seed)
    frame = random_roads(rng)
    goal = str(rng.choice(frame["to"]))
    reference = costs_from(frame, goal)
    if not reference:
        pytest.fail("the generator makes a road to every goal that it names")
    model = bm.from_edges(frame, goal=goal, start="all")
    solution = bm.solve(model)
    assert dict(zip(model.states, -solution.value, strict=True)) == pytest.approx(reference)
    start = str(rng.choice(list(reference)))
    one = bm.from_edges(frame.to_dict("records"), goal=goal, start=start)
    assert -bm.solve(one).value_at_start == pytest.approx(reference[start])


@pytest.mark.parametrize(
    "text",
    [
        ROADS,
        "\ufeff" + ROADS.replace("\n", "\r\n"),
        ROADS.replace(",", ";"),
        ROADS.replace(",", "\t"),
        "Source, Target ,Travel-Time\n A ,B,2\nB,C,1.50\n\nA,C,5\n",
        "u,v,length,lanes,cost\nA,B,9,1,2\nB,C,9,2,1.5\nA,C,9,,5\n",
        "tail,head,weight,oneway\nA,B,2,yes\nB,C,1.5,1\nA,C,5,\n",
    ],
)
def test_tables_in_several_dialects(table, text, capsys):
    expected = [("A", "B", 2.0, {"B": 1.0}), ("A", "C", 5.0, {"C": 1.0}), ("B", "C", 1.5, {"C": 1.0})]
    assert rows(bm.load_model(table(text))) == expected
    said = capsys.readouterr().err
    assert said == ("" if "lanes" not in text else said)
    assert ('columns "length", "lanes" are not used' in said) == ("lanes" in text)


def test_tables_of_every_kind_make_the_same_problem(table, tmp_path):
    columns = {"from": ["A", "B", "A"], "to": ["B", "C", "C"], "cost": [2.0, 1.5, 5.0]}
    frame = pandas.DataFrame(columns)
    model = bm.from_edges(columns, goal="C", start="A")
    assert model == bm.from_edges(frame, goal="C", start="A")
    assert model == bm.from_edges(frame.to_dict("records"), goal=["C"], start=["A"])
    assert model == bm.from_edges(list(zip(*columns.values(), strict=True)), "C", {"A": 3.0})
    assert model == bm.from_edges(frame.set_index(["from", "to"]), "C", "A")
    assert model == bm.from_edges(
        frame.rename(columns={"from": "a", "to": "b", "cost": "c"}),
        "C",
        "A",
        columns=dict(zip(("from", "to", "cost"), "abc", strict=True)),
    )
    assert rows(model) == rows(bm.from_edges(table(ROADS, None), "C", "A"))
    assert model.metadata == {"costs": {"unit": ""}, "roads": {"lines": [0, 2, 1]}}
    numbered = bm.from_edges(pandas.DataFrame({"u": [1.0, 2.0], "v": [2, 3], "length": [4, np.nan]}), 3, 1)
    assert (numbered.states, numbered.goals, numbered.actions) == (("1", "2"), ("3",), ("2", "3"))
    assert numbered.open_reward.tolist() == [False, True]
    write_problem(model, tmp_path / "roads.json")
    assert bm.load_model(tmp_path / "roads.json") == model


def test_the_unit_is_in_the_name_of_the_column_or_told(table):
    for column, unit in (
        ("minutes", "minutes"),
        ("Time [s]", "seconds"),
        ("length_km", "km"),
        ("cost", ""),
        ("time", ""),
    ):
        model = bm.load_model(table(ROADS.replace("cost", column)))
        assert model.metadata["costs"] == {"unit": unit}, column
        assert unit_in(column) == unit
    assert bm.load_model(table(ROADS, "goal=C&start=A&unit=euros")).metadata["costs"] == {"unit": "euros"}


def test_two_way_roads_are_two_actions(table):
    text = "from,to,cost,oneway\nA,B,2,no\nB,C,1,\nB,D,4,false\n"
    model = bm.load_model(table(text))
    assert [row[:3] for row in rows(model)] == [
        ("A", "B", 2.0),
        ("B", "A", 2.0),
        ("B", "C", 1.0),
        ("B", "D", 4.0),
        ("D", "B", 4.0),
    ]
    every = bm.load_model(table(text.replace("1,\n", "1,yes\n"), "goal=C&start=A&twoway=true"))
    assert rows(every) == rows(model)
    assert model.metadata["roads"]["lines"] == [0, -1, 1, 2, -3], "a two-way cul-de-sac is no dead end"


def test_a_way_back_may_be_listed():
    """As in the tables of edges of OSMnx, where both directions of a two-way street are rows of their own."""
    frame = pandas.DataFrame(
        {
            "u": [1, 2, 2, 3, 1, 2],
            "v": [2, 1, 3, 2, 2, 1],
            "key": [0, 0, 0, 0, 1, 1],
            "name": [["Main", "Bridge"], ["Main", "Bridge"], "Main", "Main", None, None],
            "oneway": [False] * 6,
            "length": [10.0, 10.0, 7.0, 7.0, 12.0, 13.0],
        }
    ).set_index(["u", "v", "key"])
    assert [row[:3] for row in rows(bm.from_edges(frame, 3, 1))] == [
        ("1", "Main / Bridge", 10.0),
        ("1", "2", 12.0),
        ("1", "2 (2)", 13.0),
        ("2", "Main / Bridge", 10.0),
        ("2", "Main", 7.0),
        ("2", "1", 12.0),
        ("2", "1 (2)", 13.0),
    ]


def test_names_of_roads_are_unique_at_their_junction(table):
    text = "from,to,name,cost,oneway\nA,B,Main,1,no\nB,C,Main,1,no\nA,B,,2,\nA,B,,3,\nB,C,,4,\n"
    assert [row[:2] for row in rows(bm.load_model(table(text)))] == [
        ("A", "Main"),
        ("A", "B"),
        ("A", "B (2)"),
        ("B", "Main to A"),
        ("B", "Main to C"),
        ("B", "C"),
    ]


def test_a_road_may_lead_to_several_places(table):
    text = "from,to,name,cost,probability\nA,B,ferry,2,0.25\nA,C,ferry,2,0.75\nB,C,,1,\nA,B,bridge,3,1\n"
    model = bm.load_model(table(text))
    assert rows(model)[0] == ("A", "ferry", 2.0, {"B": 0.25, "C": 0.75})
    assert model.n_pairs == 3
    frame = bm.posterior(model, bm.Dataset.complete(model)).to_edges()
    assert frame["share"].tolist() == [0.25, 0.75, 1.0, 1.0]
    assert frame[["from", "to", "name"]].values.tolist() == [
        ["A", "B", "ferry"],
        ["A", "C", "ferry"],
        ["B", "C", "C"],
        ["A", "B", "bridge"],
    ]


def test_an_uncertain_road_to_a_dead_end_is_left_out(table, capsys):
    text = "from,to,name,cost,probability\nA,C,ferry,2,0.75\nA,D,ferry,2,0.25\nA,C,bridge,9,\nE,A,,1,\nE,D,,1,\n"
    model = bm.load_model(table(text))
    assert [row[:2] for row in rows(model)] == [("A", "bridge"), ("E", "A")]
    said = 'left out 1 junction from which there is no sure way to the goal ("D"), with 2 roads from or to there\n'
    assert capsys.readouterr().err.endswith("roads.csv: " + said)
    assert model.metadata["roads"]["left_out"] == ["D"]


def test_what_is_left_out_is_told_once_and_kept(cli, table):
    text = ROADS + "C,A,1\nB,D,1\nD,E,1\nE,D,1\n"
    code, out, err = cli("solve", table(text), "--json")
    assert code == 0
    assert json.loads(out)["value_at_start"] == -3.5
    assert err.count("\n") == 1
    assert 'left out 2 junctions from which there is no sure way to the goal ("D", "E"), with 3 roads from or to' in err
    assert err.endswith("there and 1 road out of the goal\n")


def test_several_goals_and_starts(table):
    model = bm.load_model(table(ROADS, "goal=B,C&start=A"))
    assert (model.goals, model.n_pairs) == (("B", "C"), 2)
    assert bm.posterior(model, bm.Dataset.complete(model)).to_edges()["to"].tolist() == ["B", "C"]
    weighted = bm.from_edges(table(ROADS, None), ["C"], {"A": 3, "B": 1})
    assert weighted.initial.tolist() == [0.75, 0.25]
    assert bm.load_model(table(ROADS, "goal=C&start=A,B")).initial.tolist() == [0.5, 0.5]
    assert bm.load_model(table(ROADS, "goal=C&start=all")).initial.tolist() == [0.5, 0.5]
    comma = HEAD + '"A, 1",B,2\n'
    assert bm.load_model(table(comma, "goal=B&start=A, 1")).states == ("A, 1",)


def test_names_may_be_in_an_array_or_a_column(table):
    for kind in (np.array, pandas.Series, pandas.Index):
        model = bm.from_edges(table(ROADS, None), kind(["B", "C"]), kind(["A"]))
        assert (model.goals, model.initial.tolist()) == (("B", "C"), [1.0])


def test_rows_are_numbered_as_pandas_numbers_them(table, tmp_path):
    text = HEAD + "A,B,1\n\nB,C,2\n,,\n,,\n"
    model = bm.load_model(table(text))
    edges = bm.posterior(model, bm.Dataset.complete(model)).to_edges()
    assert edges["cost"].equals(pandas.read_csv(tmp_path / "roads.csv")["cost"].iloc[:2].rename_axis("row"))


def test_positions_are_kept(table, tmp_path, monkeypatch):
    text = "from,to,cost,from_x,from_y,to_x,to_y\nA,B,2,0,0,1,0\nB,C,1,1,0,2.5,-1\nB,D,1,1,0,9,9\n"
    expected = {"A": [0.0, 0.0], "B": [1.0, 0.0], "C": [2.5, -1.0]}
    assert bm.load_model(table(text)).metadata["positions"] == expected
    (tmp_path / "places.csv").write_text("junction,lon,lat\nA,0,0\nB,1,0\nC,2.5,-1\nD,9,9\nZ,,\n")
    model = bm.load_model(table(ROADS, "goal=C&start=A&nodes=places.csv"))
    assert model.metadata["positions"] == expected
    monkeypatch.chdir(tmp_path)
    assert model == bm.from_edges("roads.csv", "C", "A", nodes=pandas.read_csv("places.csv"))


def test_open_costs_and_noise(table):
    model = bm.load_model(table("from,to,cost,sd\nA,B,,0.5\nB,C,1,\n"))
    assert model.open_reward.tolist() == [True, False]
    assert model.reward_sd.tolist() == [0.5, 0.0]
    assert bm.load_model(table("from,to\nA,B\nB,C\n")).open_reward.all()


def test_gains_where_they_are_allowed(table):
    model = bm.load_model(table(HEAD + "A,B,-2\nB,C,1\n", "goal=C&start=A&allow_gains=true"))
    assert model.reward.tolist() == [2.0, -1.0]
    assert model.metadata["costs"] == {"unit": "", "gains": True}


WRONG = [
    (ROADS, "start=A", 'a table of roads needs a goal: write "roads.csv?goal=NAME&start=NAME"'),
    (ROADS, "goal=C", "start is missing: write start=NAME, or start=all for every junction alike"),
    (ROADS, "goal=Cc&start=A", 'goal "Cc": no such junction: there are "A", "B", "C"'),
    (HEAD + "Mill,Church,1\n", "goal=Chruch&start=Mill", 'goal "Chruch": no such junction: did you mean "Church"?'),
    (HEAD + "Mill,Church,1\n", "goal=Church&start=Mil", 'start "Mil": no such junction: did you mean "Mill"?'),
    (ROADS, "goal=C&start=C", 'start "C" is a goal: trips begin somewhere else'),
    (ROADS, "goal=A&start=C", 'goal "A": no road leads there'),
    (ROADS + "D,E,1\n", "goal=C&start=D", 'start "D": its roads do not lead to the goal "C" for sure'),
    (ROADS, "goal=C&start=A&cost=price", 'cost=price: there is no such column: the columns are "from", "to", "cost"'),
    (ROADS, "goal=C&start=A&twoway=yes", 'twoway is "yes": write true or false'),
    (ROADS, "goal=C&start=A&speed=3", 'unknown parameter "speed": a table of roads takes goal, start'),
    (ROADS, "goal=C&start=A&nodes=none.csv", "none.csv: no such file"),
    (
        "from,cost\nA,2\n",
        "goal=C&start=A",
        'column "to" is missing: the columns are "from", "cost"; rename one, or say',
    ),
    (
        "from,to,time,length\nA,C,1,2\n",
        "goal=C&start=A",
        'columns "time", "length" may each be the cost: say which, as cost=time',
    ),
    ("from,to,cost,Cost\nA,C,1,2\n", "goal=C&start=A", 'line 1: column "cost" occurs twice: keep one of them'),
    (HEAD + "A,C,much\n", "goal=C&start=A", 'line 2, column cost: "much" is not a finite number: give one, or leave'),
    (HEAD + "A,C,nan\n", "goal=C&start=A", 'line 2, column cost: "nan" is not a finite number'),
    (HEAD + "A,C,inf\n", "goal=C&start=A", 'line 2, column cost: "inf" is not a finite number'),
    (HEAD.replace(",", ";") + "A;C;1,5\n", "goal=C&start=A", "with a decimal point, such as 1.5"),
    (HEAD + "A,C,-3\n", "goal=C&start=A", "line 2: cost is -3: costs are positive, unless allow_gains says that"),
    (HEAD + "A,C,1\nA,,1\n", "goal=C&start=A", "line 3, column to: is empty: name a junction, or remove the row"),
    (HEAD + "A,C\n", "goal=C&start=A", "line 2: has 2 cells, the first line 3: put names that contain"),
    (HEAD + 'A,"C,1\n', "goal=C&start=A", "close the quotes"),
    (HEAD, "goal=C&start=A", "the table has no roads: give at least one line below the header"),
    ("", "goal=C&start=A", "the file is empty"),
    ("\n\n", "goal=C&start=A", "the table is empty: begin with a line that names the columns"),
    (
        ROADS.replace("B", "é").encode("latin-1"),
        "goal=C&start=A",
        "not UTF-8 text (byte 15): save the table as CSV in UTF-8",
    ),
    ("from,to,sd\nA,C,-1\n", "goal=C&start=A", "line 2: sd is -1: give a number that is not negative"),
    ("from,to,oneway\nA,C,maybe\n", "goal=C&start=A", 'line 2, column oneway: "maybe": write yes or no'),
    ("from,to,from_x\nA,C,1\n", "goal=C&start=A", "positions need two columns, from_x and from_y: add the other one"),
    ("from,to,name\nA,C,x\nA,B,x\nB,C,y\n", "goal=C&start=A", 'line 3: "x" leaves "A" already in line 2: give roads'),
    (
        "from,to,name,p\nA,C,x,0.5\nA,B,x,0.4\nB,C,,\n",
        "goal=C&start=A",
        'line 2: the probabilities of "x" from "A" sum to 0.9',
    ),
    ("from,to,p\nA,C,0.5\nA,B,0.5\nB,C,\n", "goal=C&start=A", "line 2: has the probability 0.5 but no name"),
    ("from,to,name,p\nA,C,x,0\n", "goal=C&start=A", "line 2: probability is 0: give a number above 0, at most 1"),
    (
        "from,to,name,p,cost\nA,C,x,.5,1\nA,B,x,.5,2\nB,C,,,1\n",
        "goal=C&start=A",
        'line 3: "x" has another cost than in line 2',
    ),
    ("from,to,name,p\nA,C,x,.5\nA,C,x,.5\n", "goal=C&start=A", 'line 3: "x" leads to "C" already in line 2'),
    (
        "from,to,name,p,oneway\nA,C,x,.5,no\nA,B,x,.5,\nB,C,,,\n",
        "goal=C&start=A",
        "is two-way: write a line for each way",
    ),
    (HEAD + "A,C,1e150\n", "goal=C&start=A", "line 2: cost is 1e+150: it must be at most 1e+100: choose another unit"),
    (HEAD + "A,B,1\n,,\nB,C,1\n", "goal=C&start=A", "line 3, column from: is empty: name a junction, or remove the"),
    ("from,to,oneway\nA,C,-1\n", "goal=C&start=A", 'line 2, column oneway: "-1": write yes, and swap its ends'),
]


@pytest.mark.parametrize(("text", "query", "said"), WRONG)
def test_wrong_input_is_one_line(cli, table, tmp_path, text, query, said):
    code, out, err = cli("env", "export", table(text, query), "--out", str(tmp_path / "out.json"))
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert "roads.csv: " in err or "none.csv: " in err
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("given", "more", "said"),
    [
        (3, {}, "the table is the number 3: give a DataFrame, a dictionary of columns, or a list of dictionaries"),
        ([1], {}, "the table: row 0 is the number 1: give a DataFrame"),
        ({"from": ["A"], "to": ["C", "D"]}, {}, "its columns differ in length"),
        ({"from": "A", "to": ["C"]}, {}, 'the table: "from" is no column: give a list of cells'),
        ([("A", "C", None), ("A", None, 1.0)], {}, "row 1, column to: is empty"),
        ([("A", "C", np.inf)], {}, 'row 0, column cost: "inf" is not a finite number'),
        ([("A", "C", True)], {}, 'row 0, column cost: "True" is not a finite number'),
        (pandas.DataFrame([["A", "C"]], columns=["from", "from"]), {}, 'column "from" occurs twice'),
        (pandas.DataFrame({"from": ["A"], "to": ["C"], "cost": [-1.0]}, index=["x7"]), {}, "row x7: cost is -1"),
        ([("A", "C")], {"start": {"A": -1}}, 'start: the weight of "A" is the number -1'),
        ([("A", "C")], {"columns": {"price": "x"}}, 'columns: "price": they are from, to, name'),
        ([("A", "C")], {"nodes": [{"node": "C", "x": 1}]}, 'nodes: column "y" is missing'),
        (
            [("A", "C")],
            {"nodes": [{"node": "D", "x": 1, "y": 2}], "start": "D"},
            'start "D": the junction has no roads',
        ),
        ([("A", "C\ud800")], {}, "half of a surrogate pair"),
        ([], {}, "the table has no columns: give at least one row with from and to"),
        (
            [("A", "C")],
            {"nodes": [{"node": "C", "x": 1, "y": 2}, {"node": "C", "x": 3, "y": 2}]},
            'nodes: row 1, column node: "C" occurs twice: keep one of them',
        ),
    ],
)
def test_wrong_tables_in_python(given, more, said):
    with pytest.raises(BadInputError) as found:
        bm.from_edges(given, **({"goal": "C", "start": "A"} | more))
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_a_table_without_options_says_what_it_needs(cli, table):
    code, _, err = cli("solve", table(ROADS, None))
    assert (code, err.count("\n")) == (2, 1)
    assert 'roads.csv: a table of roads needs a goal: write "roads.csv?goal=NAME&start=NAME"' in err


def test_a_misspelt_column_is_noticed(table, capsys):
    bm.load_model(table("from,to,probabilty\nA,C,1\n"))
    assert 'column "probabilty" is not used: did you mean "probability"?' in capsys.readouterr().err


def test_discounts_and_parts_keep_the_lines(table):
    model = bm.load_model(table(ROADS + "D,A,1\n", "goal=C&start=A&twoway=true"))

    def lines(problem):
        frame = bm.posterior(problem, bm.Dataset.complete(problem), discount=0.9).to_edges()
        return [(row, *names) for row, *names in frame[["from", "to"]].itertuples()]

    whole = [(0, "A", "B"), (0, "B", "A"), (1, "B", "C"), (2, "A", "C"), (3, "D", "A"), (3, "A", "D")]
    assert lines(model) == whole
    far = np.array([model.state_index["D"]])
    to_d = np.isin(model.next_state, far)
    part = model.subproblem((model.pair_state != far) & ~to_d)
    assert lines(part) == whole[:4]
