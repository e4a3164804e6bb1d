"""What a person sees: texts of a few lines, HTML with warnings first and names escaped, tables for pandas."""

import re

import numpy as np
import pytest
from by_hand import summary_of

import bellmanifold as bm
import bellmanifold_paper as paper
from bellmanifold._util.display import Card, as_html, as_table, as_text, with_error
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.target import relaxed_target

MODEL = bm.envs.deep_sea(2)
DATA = bm.Dataset.from_pairs(MODEL, [("0,0", "right"), bm.Observation("1,1", "left", 0.5, next="goal")])
LONGEST = 600


@pytest.fixture(scope="module")
def shown():
    """One of everything a person looks at."""
    return {
        "SSP": MODEL,
        "Dataset": DATA,
        "Summary": bm.posterior(MODEL, DATA),
        "Checks": bm.check(bm.envs.swirl(3)),
        "Solution": bm.solve(MODEL),
        "Learning": bm.learn(MODEL, "bayes-td", episodes=5, runs=2),
        "Advice": bm.advise(MODEL, DATA, tolerance=0.1),
    }


NAMES = ("SSP", "Dataset", "Summary", "Checks", "Solution", "Learning", "Advice")
DRAWN = ("SSP", "Summary", "Solution", "Learning", "Advice")


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_short_and_name_their_kind(shown, name):
    text = repr(shown[name])
    assert text.startswith(f"{name}(")
    assert len(text) < LONGEST
    assert len(text.splitlines()) <= 8


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_show_tables_and_pictures(shown, name):
    html = shown[name]._repr_html_()
    assert "<table>" in html
    assert ("data:image/png;base64," in html) == (name in DRAWN)
    assert html.count("<div") == html.count("</div>") == 1


def test_pictures_leave_no_figure_open(shown):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    for name in DRAWN:
        shown[name]._repr_html_()
    assert pyplot.get_fignums() == before


TABLES = {
    "SSP": "state action reward reward_sd next",
    "Dataset": "state action reward sd next",
    "Summary": "state action observed probability probability_se q_mean q_mean_se q_sd q_sd_se",
    "Checks": "states max_mean_reward",
    "Solution": "state action q optimal value_of_state",
    "Learning": "agent run seed episode reward regret completed_regret gap_regret reached_goal "
    "optimal coverage moves capped",
    "Advice": "state action gain gain_se perfect perfect_se tried tells",
}
ROWS = {"SSP": 6, "Dataset": 2, "Summary": 6, "Checks": 1, "Solution": 6, "Learning": 10}


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_tidy(shown, name):
    frame = shown[name].to_frame()
    assert " ".join(frame.columns) == TABLES[name]
    assert len(frame) == ROWS.get(name, len(frame))


def test_tables_say_what_the_objects_say(shown):
    summary = shown["Summary"]
    frame = summary.to_frame().set_index(["state", "action"])
    for pair, (state, action) in enumerate(MODEL.pair_index):
        row = frame.loc[state, action]
        assert row.probability == summary.action_probability.value[pair]
        assert (row.q_mean, row.q_mean_se) == (summary.q_mean.value[pair], summary.q_mean.se[pair])
    routes = summary.routes_to_frame()
    assert routes.probability.tolist() == [route.probability for route in summary.routes]
    assert routes.pairs[0] == [MODEL.pair_name(pair) for pair in summary.routes[0].pairs]
    learning = shown["Learning"]
    table = learning.to_frame()
    assert table.reward.tolist() == [float(e.rewards.sum()) for run in learning.runs for e in run.played]
    assert table.groupby("run").completed_regret.sum().tolist() == pytest.approx(
        [run.completed_regret.sum() for run in learning.runs]
    )
    data = shown["Dataset"].to_frame()
    assert data.next.tolist()[1] == "goal"
    curve = paper.evidence_curve(MODEL, DATA, [1.0, 2.0])
    assert curve.to_frame().prior_scale.tolist() == [1.0, 2.0]
    assert repr(curve).startswith("EvidenceCurve(2 prior scales from 1 to 2)\n  largest log evidence -")
    assert len(repr(curve)) < 300
    assert "maximising it while exploring" in curve._repr_html_()
    assert "<td>2</td>" in curve._repr_html_()


def test_numbers_of_pairs_are_found_by_name():
    summary = bm.posterior(MODEL, DATA)
    state, action = MODEL.pair_name(3)
    for found in (summary.action_probability, summary.q_mean, summary.q_sd):
        assert (found[state, action].value, found[state, action].se) == (found.value[3], found.se[3])
        own = slice(*MODEL.pair_start[MODEL.pair_state[3] : MODEL.pair_state[3] + 2])
        np.testing.assert_array_equal(found[state].value, found.value[own])
        np.testing.assert_array_equal(found[own].value, found.value[own])
        with pytest.raises(BadInputError, match=r"estimate: unknown state .*did you mean"):
            found[state + " ", action]
        with pytest.raises(BadInputError, match=r"estimate: state .* has no action"):
            found[state, "fly"]


def test_one_of_a_thing_is_not_called_several():
    assert repr(bm.envs.two_state()) == 'SSP("two-state", 1 state, 2 pairs)'


def test_open_problems_show_themselves():
    model = MODEL.opened()
    assert model.to_frame()["next"].isna().all()
    assert "6 of them open" in model._repr_html_()


EVIL = "<script>alert('x')</script>\n\x1b[31m"


def test_names_are_escaped():
    model = from_moves(EVIL, {(EVIL, EVIL): Move(-1.0, {"goal": 1.0})}, start=EVIL)
    data = bm.Dataset.complete(model)
    found = [model, data, bm.posterior(model, data), bm.check(model), bm.solve(model), bm.advise(model, data)]
    for thing in [*found, bm.learn(model, "q-learning", episodes=2, runs=1)]:
        html = thing._repr_html_()
        assert "<script" not in html
        assert "\x1b" not in html + repr(thing)
        assert len(repr(thing)) < LONGEST


def test_long_names_do_not_make_long_texts():
    names = [f"{'long' * 50}{k}" for k in range(30)]
    moves = {(a, "x" * 200): Move(-1.0, {b: 1.0}) for a, b in zip(names, [*names[1:], "goal"], strict=True)}
    model = from_moves("n" * 500, moves, start=names[0])
    data = bm.Dataset.complete(model)
    for thing in (model, data, bm.posterior(model, data), bm.check(model), bm.solve(model)):
        assert len(repr(thing)) < LONGEST


def test_warnings_come_first():
    target = relaxed_target(bm.Dataset.complete(bm.envs.two_state()), 0.5, 2.0)
    summary = summary_of(target, [[1.0, 3.0]], doubts=("they have not mixed",))
    first = repr(summary).splitlines()[1]
    assert first == "  warning: not trustworthy: they have not mixed"
    html = summary._repr_html_()
    assert html.index("Warning:") < html.index("<table>")
    assert bm.check(bm.envs.grid(2, 2))._repr_html_().count("Warning") == 0


def test_warnings_keep_their_remedy():
    warning = " ".join(["the data contradict the prior"] * 8) + ": use prior_scale=5"
    text = as_text(Card("Summary(...)", ["a fact"], [warning]))
    assert " ".join(text.split()) == f"Summary(...) warning: {warning} a fact"
    assert max(map(len, text.splitlines())) <= 100
    curve = paper.evidence_curve(MODEL, DATA, [1.0, 2.0])
    assert "nothing is explored any more" in " ".join(repr(curve).split())


def test_cards():
    card = Card("Thing(1)", [f"fact {k}" for k in range(9)], ["mind"])
    assert as_text(card).splitlines()[-1] == "  ... and 6 more lines"
    assert as_text(Card("x" * 500)) == "\n    ".join(["x" * 96, "x" * 96, "x" * 95 + "…"])
    assert re.sub("<[^>]*>", " ", as_html(Card("a & b"))).split() == ["a", "&amp;", "b"]
    columns = {"a_b": [1.5, 2.5], "a_b_se": [0.1, 0.0], "on": [True, np.bool_(False)], "who": ["x", None]}
    assert re.findall("<t[hd]>([^<]*)", as_table(columns)) == [
        "a b",
        "on",
        "who",
        "1.5 ± 0.1",
        "yes",
        "x",
        "2.5",
        "no",
        "",
    ]
    leads = {"next": [{"a": 1.0}, {"a": 0.25, "b": 0.75}]}
    assert re.findall("<td>([^<]*)", as_table(leads)) == ["a", "a 0.25, b 0.75"]
    assert "and 3 more rows" in as_table({"n": list(range(15))})
    assert as_table({}) == as_table({"n": []}) == ""


@pytest.mark.parametrize(
    ("value", "se", "text"),
    [
        (0.123456, 0.0, "0.1235"),
        (0.123456, 0.00123, "0.123 ± 0.001"),
        (12345.6, 12.0, "1.235e+04 ± 10"),
        (1.0, 1e-9, "1 ± 1e-09"),
        (1.0, 1e-12, "1"),
        (1.0, 1e9, "1 ± 1e+09"),
        (np.nan, 1.0, "nan"),
        (1.0, np.nan, "1 ± ?"),
        (-3.0, 2.0, "-3 ± 2"),
    ],
)
def test_numbers_with_errors(value, se, text):
    assert with_error(value, se) == text


def test_estimates_are_like_arrays():
    found = Estimate.of(np.array([1.0, 2.0]), np.array([0.5, 0.0]))
    assert len(found) == 2
    assert (float(found[1]), found[0].se) == (2.0, 0.5)
    assert np.abs(found - np.array([1.0, 1.0])).tolist() == [0.0, 1.0]
    assert repr(found) == "Estimate(1.0 ± 0.5, 2)"
    assert all([found, Estimate.of(0.0, 0.0), Estimate.of(np.zeros(0), np.zeros(0))]), "something was estimated"
    assert f"{found[0]}" == "1.0 ± 0.5"
    assert repr(Estimate.of(np.zeros(9), np.zeros(9))).endswith("... 9 in all)")


def test_standard_deviations_have_errors():
    """Of 2,000 sets of 16 chains of 50 normal draws: the errors told are the spread found, up to a tenth.

    The spread of 2,000 has a relative standard error of 0.016: false alarms below 1e-8.
    """
    rng = np.random.default_rng(0)
    target = relaxed_target(bm.Dataset.complete(bm.envs.two_state()), 0.5, 2.0)
    found = [Moments.of_draws(rng.normal(size=(16, 50, 2))).estimate(target)[1] for _ in range(2000)]
    values, errors = np.array([one.value for one in found]), np.array([one.se for one in found])
    assert errors.mean(axis=0) == pytest.approx(values.std(axis=0), rel=0.1)
    exact = Moments.of_draws(np.ones((4, 5, 2))).estimate(target)[1]
    assert (exact.value.tolist(), exact.se.tolist()) == ([0.0, 0.0], [0.0, 0.0])


def test_beliefs_are_told_apart_from_observations():
    model = bm.envs.two_state()
    summary = bm.posterior(model, bm.Dataset.from_pairs(model, [("s1", "go")]), reward_belief=(-5.0, 2.0))
    assert summary.believed == 1
    assert "noisy posterior, 1 of 2 pairs observed, a belief about 1 more" in repr(summary)
    table = summary.to_frame().set_index("action")
    assert (table.observed["go"], table.observed["stay"]) == (True, False)
    assert (table.belief["go"], table.belief["stay"]) == (False, True)
    data = bm.Dataset.from_pairs(model, [("s1", "go")]).with_belief(-5.0, 2.0)
    assert " ".join(repr(data).split()).endswith(", 1 of 2 pairs observed, a belief about 1 more)")


def test_advice_shows_trials_that_tell_something():
    """`right` at the start was tried and pays what it pays; its value is uncertain because of what comes after it."""
    advice = bm.advise(MODEL, bm.Dataset.from_pairs(MODEL, [("0,0", "right")]))
    told = advice.to_frame().set_index(["state", "action"]).tells
    assert not told["0,0", "right"]
    assert told["0,0", "left"]
    html = advice._repr_html_()
    rows = html[html.index("<tbody>") : html.index("</tbody>")]
    assert "<td>0,0</td><td>left</td>" in rows
    assert "<td>0,0</td><td>right</td>" not in rows
    shown = advice._worth_trying()
    assert min(shown["perfect"]) > 0.0
    assert "gain" not in shown, "it is not known under a prior over values"


def test_a_table_of_observations_goes_back():
    model = bm.envs.two_state()
    given = [("s1", "go"), bm.Observation("s1", "stay", -1.5, sd=0.5), bm.Observation("s1", "go", next="goal")]
    data = bm.Dataset.from_pairs(model, given)
    again = bm.Dataset.from_pairs(model, data.to_frame())
    for name in ("pair", "reward", "sd", "next"):
        np.testing.assert_array_equal(getattr(again, name), getattr(data, name))


def test_a_policy_by_names_is_the_policy_by_pairs():
    model = bm.envs.two_state()
    summary = bm.posterior(model, bm.Dataset.from_pairs(model, [("s1", "go")]))
    by_name = summary.policy_probability({"s1": "go"})
    assert float(by_name) == float(summary.policy_probability(np.array([model.pair_index["s1", "go"]])))


def test_rounding_is_no_number():
    """A route of probability 1/2 by symmetry, and a value that is known exactly."""
    assert with_error(-0.05, 3e-14) == "-0.05"
    assert with_error(-0.004, 0.1) == "0.0 ± 0.1"
    assert "<td>0</td>" in as_table({"reward": [4.163e-17]})
    model = bm.envs.two_state()
    summary = bm.posterior(model, bm.Dataset.complete(model))
    assert "e-" not in summary._repr_html_().split("<img")[0]


def test_routes_name_their_pairs():
    model = bm.envs.pyramid(2)
    summary = bm.posterior(model, bm.Dataset.complete(model))
    first = summary.routes[0]
    assert repr(first).startswith(f"Route({first.probability:.4g}: 0,0 -(")
    assert repr(first).endswith(")-> goal)")
    assert first.names == [model.pair_name(pair) for pair in first.pairs]
    equal = sum(route.probability == pytest.approx(first.probability, abs=1e-9) for route in summary.routes)
    assert equal > 1
    assert f"one of {equal} equally probable routes" in repr(summary)


def test_long_tables_begin_with_what_matters():
    """In the depth of the sea only two pairs were seen; the table begins at the start and goes where they lead."""
    model = bm.envs.deep_sea(8)
    summary = bm.posterior(model, bm.Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "right")]), samples=4096)
    html = summary._repr_html_()
    body = html[html.index("<tbody>") : html.index("</tbody>")]
    assert body.count("<td>yes</td>") == 2
    assert summary.to_frame().state.tolist()[:2] == ["0,0", "0,0"], "tables for pandas keep the order of pairs"


def test_improper_mass_shows_itself():
    data = bm.Dataset.complete(bm.envs.two_state())
    found = paper.identifiability.improper_mass_sweep(data, [0.1, 1.0], [10.0], [1.0, 0.9])
    assert repr(found).startswith("ImproperMass(2 tolerances, 1 prior scale, 2 discounts)\n  largest improper mass")
    table = found.to_frame()
    assert " ".join(table.columns) == "discount prior_scale epsilon probability probability_se"
    assert table.probability.tolist() == found.probability.ravel().tolist()
    assert table.query("discount == 0.9 and epsilon == 1.0").probability.item() == found.probability[1, 0, 1]
    assert "<table>" in found._repr_html_()
