"""Tables of trips: which road a row means, its cost, and what is said where that is not clear."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import bellmanifold as bm
from bellmanifold.errors import BadInputError

ROADS = """from,to,name,minutes,oneway,probability
A,B,Main,,no,
B,C,Main,,yes,
A,B,,,yes,
A,C,ferry,,yes,0.75
A,B,ferry,,yes,0.25
B,D,,,yes,
C,B,,,yes,
A,E,,,yes,
"""


@pytest.fixture
def files(tmp_path):
    """Writes the roads and a table of trips, and returns how commands name them."""

    def write(trips, name="trips.csv", roads=ROADS):
        (tmp_path / "roads.csv").write_text(roads)
        (tmp_path / name).write_text(trips)
        return f"{tmp_path / 'roads.csv'}?goal=D&start=A", str(tmp_path / name)

    return write


@pytest.fixture
def read(files):
    def load(trips, name="trips.csv"):
        reference, path = files(trips, name)
        return bm.load_data(path, bm.load_model(reference))

    return load


def seen(data):
    names = [data.model.pair_name(pair) for pair in data.pair]
    ends = [data.model.state_name(k) if k >= 0 else None for k in data.next]
    return list(zip(names, (-data.reward).tolist(), data.sd.tolist(), ends, strict=True))


def test_roads_are_named_as_in_the_table_of_roads(read, capsys):
    data = read(
        "id,from,to,name,minutes,sd\n1,A,B,Main,4,\n2,A,B,B,5,1\n3,A,B,ferry,6,\n4,B,A,Main,7,\n5,B,,D,8,\n6,,C,ferry,9,\n"
        "7,B,A,,3,\n8,D,B,,1,\n9,A,E,,1,\n"
    )
    nan = pytest.approx(np.nan, nan_ok=True)
    assert seen(data) == [
        (("A", "Main"), 4.0, nan, "B"),
        (("A", "B"), 5.0, 1.0, "B"),
        (("A", "ferry"), 6.0, nan, "B"),
        (("B", "Main to A"), 7.0, nan, "A"),
        (("B", "D"), 8.0, nan, "D"),
        (("A", "ferry"), 9.0, nan, "C"),
        (("B", "Main to A"), 3.0, nan, "A"),
    ]
    assert data.places[-1] == "line 8"
    assert data.untried.sum() == 0, "a trip with an sd is no belief"
    said = capsys.readouterr().err.splitlines()[1:]
    assert said == [
        'the table of trips: column "id" is not used',
        "the table of trips: 2 rows skipped (line 9, line 10): about roads that are left out of the problem, out of a "
        "goal or without a way to it",
    ]


def test_trips_of_every_kind_are_the_same_data(read):
    data = read("from;to;name;minutes\nA;B;Main;4\nB;D;;5.5\n", "trips.tsv")
    frame = pandas.DataFrame({"u": ["A", "B"], "v": ["B", "D"], "road": ["Main", None], "cost": [4.0, 5.5]})
    for given in (frame, frame.to_dict("records"), frame.to_dict("list")):
        other = bm.Dataset.from_frame(data.model, given)
        assert repr(seen(other)) == repr(seen(data))
    renamed = frame.rename(columns={"cost": "what it took"})
    told = bm.Dataset.from_frame(data.model, renamed, {"cost": "what it took"})
    assert repr(seen(told)) == repr(seen(data))


def test_observations_go_on_as_before(read):
    model = read("from,to,name,cost\n").model
    frame = pandas.DataFrame(
        {"state": ["A", "B"], "action": ["Main", "D"], "reward": [-4.0, np.nan], "next": [None, "D"]}
    )
    data = bm.Dataset.from_frame(model, frame)
    old = bm.Dataset.from_pairs(model, frame)
    for name in ("pair", "reward", "sd", "next"):
        np.testing.assert_array_equal(getattr(data, name), getattr(old, name))
    belief = bm.Dataset.from_frame(model, [{"state": "A", "action": "Main", "cost": 4.0, "sd": 1.0}])
    assert belief.untried.sum() == 1
    assert belief.reward.tolist() == [-4.0]
    csv = read("state,action,cost,next\nA,Main,4,B\n")
    assert (csv.reward.tolist(), csv.next.tolist()) == ([-4.0], [csv.model.state_index["B"]])


def test_costs_count_in_problems_of_any_origin():
    model = bm.envs.roads()
    data = bm.Dataset.from_frame(model, {"from": ["J00"], "to": ["J01"], "cost": [5.9]})
    assert data.reward.tolist() == [-5.9]


def test_the_column_in_the_unit_of_the_problem_is_the_cost(read):
    data = read("from,to,distance_km,duration_minutes\nB,D,3,5\n")
    assert data.reward.tolist() == [-5.0]


@pytest.mark.parametrize(
    ("trips", "said"),
    [
        (
            "from,to,cost\nA,B,1\n",
            'line 2: several roads are meant, "Main", "B", "ferry": give its name in a column "name"',
        ),
        ("from,to,cost\nB,D,1\nB,X,1\n", 'line 3, column to: no junction is called "X": there are "A", "B", "C", "D"'),
        (
            "from,to,cost\nB,B,1\n",
            'line 2, column to: no road leads from "B" to "B": from "B" roads lead to "A", "C", "D"',
        ),
        ("u,v,name,cost\nA,B,Mian,1\n", 'line 2, column name: from "A" no road is called "Mian": did you mean "Main"?'),
        (
            "name,cost\nMain,1\n",
            'line 2: several roads are meant, "Main" from "A", "Main to A" from "B", "Main to C" from',
        ),
        ("name,cost\nMaain,1\n", 'line 2, column name: no road is called "Maain": did you mean "Main"?'),
        ("from,to,name,cost\nA,,,1\n", "line 2: does not say which road: give from and to, or its name"),
        ("from,to,cost\nB,D,-1\n", "line 2, column cost: -1 is negative, but costs are positive: correct the sign, or"),
        ("from,to,cost\nB,D,long\n", 'line 2, column cost: "long" is not a finite number'),
        ("from,to,seconds\nB,D,1\n", 'column "seconds": the problem\'s costs are in minutes: convert to minutes'),
        (
            "from,to,cost,reward\nB,D,1,-1\n",
            'columns "cost" and "reward" say the same, a cost of 5 is a reward of -5: keep',
        ),
        ("from,to,cost\nB,D,1\n,,\nB,D,1\n", "line 3: does not say which road"),
        (
            "von,nach,dauer\nB,D,1\n",
            'unknown columns "von", "nach", "dauer": a table of observations has state, action, reward, sd, next, one '
            "of trips from, to, name, cost, sd, next",
        ),
        ("from,to,time,price\nB,D,1,1\n", 'columns "time", "price" may each be the cost'),
        ("from,to,cost,sd\nB,D,1,-1\n", "line 2: sd is -1.0: give a finite number that is not negative"),
        (
            "from,name,cost,sd\nA,ferry,1,1\n",
            "line 2: the road may lead to several places: say where it led in a column",
        ),
        (
            "from,to,name,cost,next\nA,B,Main,1,C\n",
            'line 2: pair ("A", "Main") led to "C", which its law in the problem',
        ),
        ("from,to,cost\nB,D\n", "line 2: has 2 cells, the first line 3"),
    ],
)
def test_faults_are_one_line_with_line_and_remedy(cli, files, trips, said):
    code, out, err = cli("posterior", *files(trips), "--reward-belief=-5,2", "--noise-sd", "1")
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert "trips.csv: " in err.splitlines()[-1]
    assert len(err.splitlines()) == 2, "what was left out of the roads, and the fault"


def test_a_huge_cost_is_named_by_its_line(cli, files):
    code, out, err = cli(
        "posterior", *files("from,to,cost\nB,D,1\nB,D,1e150\n"), "--cost-belief=5,2", "--noise-sd", "1"
    )
    assert (code, out) == (2, "")
    assert "trips.csv: line 3: reward is -1e+150: it must lie between" in err.splitlines()[-1]


def test_a_belief_in_costs_is_not_negative_where_costs_are_not(cli, files, tmp_path):
    given = *files("from,to,cost\nB,D,1\n"), "--noise-sd", "1", "--cost-belief=-5,2"
    code, out, err = cli("posterior", *given, "--picture", str(tmp_path / "map.png"))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith(
        "--cost-belief: mean is -5: costs are positive: drop the minus, or use --reward-belief if moves pay"
    )
    code, _, err = cli("posterior", *given, "--reward-belief=-5,2")
    assert (code, err.splitlines()[-1][14:68]) == (2, "--reward-belief and --cost-belief say the same with op")
    assert not (tmp_path / "map.png").exists()
    pays = bm.from_edges([("A", "B", None), ("B", "C", None)], "C", "A", allow_gains=True)
    found = bm.posterior(pays, bm.Dataset.from_pairs(pays, []), noise_sd=1.0, cost_belief=(-5.0, 0.5), samples=4096)
    assert found.to_edges()["cost_mean"].tolist() == pytest.approx([-5.0, -5.0], abs=0.05)


def test_an_unrecorded_landing_needs_no_sd(read):
    assert read("from,name,cost\nA,ferry,1\n").next.tolist() == [-1]


def test_wrong_frames():
    model = bm.envs.roads()
    with pytest.raises(
        BadInputError, match='columns "from" and "to", or "name", say which road a row is about: add them'
    ):
        bm.Dataset.from_frame(model, {"to": ["J01"], "cost": [1.0]})
    with pytest.raises(BadInputError, match='columns: "price": they are from, to, name'):
        bm.Dataset.from_frame(model, {"to": ["J01"]}, {"price": "x"})
    with pytest.raises(BadInputError, match="row 1: "):
        bm.Dataset.from_frame(model, {"from": ["J00", ""], "to": ["J01", ""]})
