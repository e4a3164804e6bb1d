"""What an engineer with a road map of her own met: wrong signs, dead ends, typing errors, pictures for her boss."""

from __future__ import annotations

import json

import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.io.problem import from_json
from bellmanifold_lab.explorer.session import Session

ROADS = [("Depot", "Mill"), ("Depot", "Bridge"), ("Mill", "Market"), ("Bridge", "Market"), ("Market", "Hospital")]
PLACES = {"Depot": [0, 1], "Mill": [1, 2], "Bridge": [1, 0], "Market": [2, 1], "Hospital": [3, 1]}
DRIVES = "Depot,Bridge,-3.5,1,Bridge\nDepot,Bridge,-5.4,1,Bridge\nBridge,Market,-4.2,1,Market\n"
BELIEF = ("--reward-belief", "-5,2")


def town(roads=ROADS, **more):
    """A problem file's content: every road leads to the junction it is named after, and no cost is known."""
    pairs = [{"state": begin, "action": end, "next": {end: 1.0}} for begin, end in roads]
    own = {"format": "bellmanifold.ssp/2", "name": "my town", "goals": ["Hospital"], "initial": {"Depot": 1.0}}
    return own | {"metadata": {"positions": PLACES}, "pairs": pairs} | more


@pytest.fixture
def files(tmp_path):
    """Writes the map and the drives, and returns their paths."""

    def write(content=None, drives=DRIVES):
        (tmp_path / "town.json").write_text(json.dumps(town() if content is None else content), encoding="utf-8")
        (tmp_path / "drives.csv").write_text("state,action,reward,sd,next\n" + drives, encoding="utf-8")
        return str(tmp_path / "town.json"), str(tmp_path / "drives.csv")

    return write


@pytest.fixture
def loaded(files):
    """The map and the drives as objects."""
    model = bm.load_model(files()[0])
    return model, bm.load_data(files()[1], model)


def test_costs_with_the_wrong_sign_are_no_reason_to_stop(cli, files):
    """Each is 4 sds from its belief, which might happen to one of them; it does not happen to all."""
    wrong = DRIVES.replace(",-", ",")
    code, out, _ = cli("advise", *files(drives=wrong), *BELIEF, "--tolerance", "0.5")
    assert code == 4
    assert out.startswith("warning: not trustworthy: rewards of (")
    assert "and of 1 more, beliefs included, differ by many of their sds: check their signs" in out
    assert "stop: undecided" in out
    assert "Stop." not in out


@pytest.mark.parametrize(("reward", "trusted"), [(-9.0, True), (9.0, False)])
def test_an_exact_reward_is_compared_with_its_belief(loaded, reward, trusted):
    """It overrules the belief, and nothing else would tell that its sign is wrong."""
    data = bm.Dataset.from_pairs(loaded[0], [("Depot", "Mill", reward)])
    assert bm.posterior(loaded[0], data, reward_belief=(-5.0, 2.0)).trustworthy is trusted


def test_what_is_known_of_a_road_is_told(loaded):
    """Driven twice, and never driven but believed to cost something."""
    session = Session(*loaded, reward_belief=(-5.0, 2.0))
    view = session.view()
    known = dict(zip((loaded[0].pair_name(pair) for pair in range(5)), view["known"], strict=True))
    assert known["Depot", "Bridge"] == "played twice, paid −4.45 on average; believed to pay −5 ± 2"
    assert known["Bridge", "Market"] == "played once, paid −4.2 ± 1; believed to pay −5 ± 2"
    assert known["Depot", "Mill"] == "not played; believed to pay −5 ± 2"
    assert sum(view["tried"]) == 2


def test_roads_that_are_only_believed_are_dotted(loaded):
    """In pictures of a posterior as in those of an advice."""
    model, data = loaded
    summary = bm.posterior(model, data, reward_belief=(-5.0, 2.0))
    assert summary.pies()[1].tolist() == (data.tries > 0).tolist()
    legend = bm.figures.draw(model, summary).get_legend()
    assert [text.get_text() for text in legend.get_texts()][-2:] == ["observed", "not observed, at most a belief"]


def test_the_picture_of_an_advice_is_for_someone_who_decides(loaded):
    """Its title is whole sentences with the value and the next trial, nothing is cut off."""
    model, data = loaded
    advice = bm.advise(model, data, reward_belief=(-5.0, 2.0), tolerance=0.01)
    axes = bm.figures.draw_advice(model, advice)
    figure = axes.get_figure(root=True)
    figure.canvas.draw()
    title = axes.get_title()
    assert title.startswith(f"my town: the best policy is worth {float(advice.decision.value.value):.3g} on average")
    assert "Go on." in title
    assert "Next, try " in title
    bar = figure.axes[1]
    assert bar.yaxis.label.get_window_extent().x1 < figure.bbox.x1, "the label is on the paper"


def test_moves_without_a_gain_do_not_stand_out(loaded):
    """Untried ones are grey as all others, which the legend explains; they had the first colour of the scale."""
    from matplotlib.colors import to_rgba

    from bellmanifold.pictures.gains import SETTLED_COLOUR

    model, tried = loaded[0], loaded[1].tries > 0
    gain = np.where(np.arange(5) == 0, 1.0, 0.0)
    axes = bm.figures.draw_advice(model, np.zeros(5, dtype=bool), gain, tried)
    colours = [text.arrow_patch.get_edgecolor() for text in axes.texts if text.arrow_patch]
    assert colours.count(to_rgba(SETTLED_COLOUR)) == 4
    assert "not worth a trial" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_dead_end_names_what_can_be_done(cli, files):
    """A belief comes with a flat prior, which holds proper policies only: there is no option to leave out."""
    roads = [*ROADS, ("Mill", "Quarry"), ("Quarry", "Quarry")]
    places = {"positions": PLACES | {"Quarry": [0, 2]}}
    code, _, err = cli("advise", *files(town(roads, metadata=places)), *BELIEF)
    assert code == 3
    assert "trap Quarry:" in err
    assert "remove it and all moves that lead there from the problem (--prune), or use --discount 0.99" in err
    assert "--proper-only" not in err
    code, *_ = cli("advise", *files(town(roads, metadata=places)), *BELIEF, "--discount", "0.99")
    assert code == 0
    code, _, err = cli("advise", *files(town(roads, metadata=places)), *BELIEF, "--prune")
    assert code == 0
    assert 'dropped 1 dead end ("Quarry")' in err


@pytest.mark.parametrize(
    ("change", "drives", "said"),
    [
        (
            {},
            "Mill,Market,-4,1,Marekt\n",
            'line 2: next state "Marekt" is not a goal and has no pair in the problem',
        ),
        ({"initial": {"Depott": 1.0}}, DRIVES, 'initial: unknown state "Depott"'),
        ({"goals": ["Hopsital"]}, DRIVES, 'next state "Hospital" is not a goal and has no pair'),
        (
            {"pairs": [{"state": "Depot", "action": "x", "next": {"Depto": 1.0}}]},
            DRIVES,
            'next state "Depto" is not a goal',
        ),
    ],
)
def test_names_that_were_meant(cli, files, change, drives, said):
    code, _, err = cli("advise", *files(town(**change), drives), *BELIEF)
    assert code == 2
    assert said in err
    assert "did you mean " in err
    assert err.count("\n") == 1


def test_the_problem_comes_first(cli, files):
    code, _, err = cli("advise", *reversed(files()))
    assert code == 2
    assert "drives.csv: a table of observations is not a problem file: give the problem first, then the data" in err


def test_a_comma_before_the_decimals(cli, files):
    code, _, err = cli("advise", *files(), "--tolerance", "0,5")
    assert code == 2
    assert "'--tolerance': that is not a number: write decimals with a point, such as 0.5" in err


def test_beliefs_that_costs_pay(cli, files):
    """The likely cause comes first."""
    roads = [*ROADS, ("Mill", "Depot"), ("Bridge", "Depot")]
    code, _, err = cli("advise", *files(town(roads), "Depot,Mill,5,0.1,Mill\n"), "--reward-belief", "50,0.1")
    assert code == 3
    assert "fits the data: costs are negative rewards, check the signs" in err


def test_a_belief_in_the_data_takes_a_flat_prior():
    """The refusal names it where it applies: every pair has a belief."""
    model = bm.envs.roads()
    data = bm.Dataset.from_pairs(model, []).with_belief(-5.0, 2.0)
    with pytest.raises(UnsupportedError, match=r'prior_scale="?flat"?, since every pair has a reward or a belief'):
        bm.advise(model, data)


def test_trials_that_save_nothing_are_left_out(cli, files):
    """They would hide those that matter; --all prints them."""
    given = ("advise", *files(), *BELIEF)
    rows, every = (cli(*given, *more)[1].split("would save:\n")[1].splitlines() for more in ((), ("--all",)))
    gains = [float(row.split()[2]) for row in rows[1:-2]]
    assert min(gains) > 0
    assert rows[-2] == f"... and {len(every) - 2 - len(gains)} more pairs (--all prints them)"


def test_an_agent_without_an_option_names_those_that_have_it():
    with pytest.raises(BadInputError, match=r"or use one that has it: .*bayes-br"):
        bm.learn(bm.envs.two_state(), "manifold", infer_noise=True)


def test_learning_needs_costs_and_says_what_regret_is(cli, files):
    """An open map is refused with the commands that take it; elsewhere the table is explained, and what may help."""
    code, _, err = cli("learn", files()[0], "--agent", "manifold")
    assert code == 2
    assert "or use `posterior` or `advise`, which take open problems" in err
    given = ("learn", "env:deep-sea?depth=6", "--agent", "manifold", "--episodes", "2", "--runs", "1")
    assert "completed regret: the loss so far" in cli(*given)[1]


def test_agents_that_rarely_arrive_are_told_what_may_help():
    from bellmanifold.cli.learn import _hints

    options = {"explore": "thompson", "replan": False}
    (hint,) = _hints({"options": options, "goal_reached_mean": [0.0, 0.1]})
    assert hint == "only 5% of the episodes arrived: --explore directed --replan seeks what was not seen"
    assert not _hints({"options": options, "goal_reached_mean": [0.9, 1.0]})
    assert not _hints({"options": options | {"explore": "directed"}, "goal_reached_mean": [0.0]})
    assert not _hints({"options": {}, "goal_reached_mean": [0.0]})


def test_episodes_are_whole_numbers():
    axes = bm.figures.draw_regret({"agent": (np.arange(10.0), np.ones(10))})
    assert all(tick == round(tick) for tick in axes.get_xticks())


def test_a_map_under_a_name_that_is_nearly_right(cli, files, tmp_path):
    """It is told, as a warning about that file."""
    problem, drives = files(town(metadata={"position": PLACES}))
    code, _, err = cli("posterior", problem, drives, *BELIEF, "--picture", str(tmp_path / "town.png"))
    assert code == 0
    assert f'warning: {problem}: metadata.position: did you mean "positions"? A map under this name is not used' in err


def test_a_junction_that_the_start_never_leads_to_is_told():
    priced = [pair | {"reward": -1.0} for pair in town([*ROADS, ("Island", "Market")])["pairs"]]
    model = from_json(town(pairs=priced))
    assert 'the start never leads to "Island": check where moves lead' in bm.check(model).messages
