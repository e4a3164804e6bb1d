import re
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from bellmanifold import envs, figures
from bellmanifold.decisions.advice import advise
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.io.problem import from_json, write_problem
from bellmanifold.io.road_tables import from_edges
from bellmanifold.learning.runs import learn
from bellmanifold.mdp.checks import check
from bellmanifold.pictures.drawing import MAX_ARROWS, MAX_STATES, ROUTE_COLOUR, arrows
from bellmanifold.pictures.labels import figure_of, needs_label
from bellmanifold.pictures.lines import draw_regret
from bellmanifold.pictures.palette import COLOURS, pair_colours
from bellmanifold.pictures.positions import is_mapped, on_grid, positions
from bellmanifold.posteriors.inference import posterior
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.maps import map_fault

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _close():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def wedges(axes):
    return [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]


def test_pies_have_the_given_shares():
    model = envs.two_state()
    axes = figures.draw(model, np.array([0.25, 0.75]))
    assert [round(w.theta2 - w.theta1) for w in wedges(axes)] == [90, 270]


def test_unobserved_pairs_are_dotted():
    model = envs.deep_sea(2)
    axes = figures.draw(model, observed=np.arange(model.n_pairs) < 2)
    styles = [text.arrow_patch.get_linestyle() for text in axes.texts if text.arrow_patch]
    assert styles.count("-") == 2
    assert styles.count(":") == 4


def test_grids_and_others_are_laid_out_without_overlap():
    for model in (envs.deep_sea(5), envs.swirl(5), envs.grid(4, 5, walls="1,1"), envs.four_state(), envs.two_state()):
        place = positions(model)
        assert place.shape == (model.n_states + 1, 2)
        gaps = np.linalg.norm(place[:, None] - place[None], axis=-1) + 9 * np.eye(len(place))
        assert gaps.min() > 0.6, model.name
    assert positions(envs.grid(3, 3))[-1].tolist() == [2, -2]


@pytest.mark.parametrize("grid", [None, 3, [2], [0, 2], [1, 1], ["1", 2], [1.5, 2], {"rows": 1}])
def test_metadata_of_others_that_describe_no_grid(grid):
    """Two states numbered 0 and 1: they fill a row of two cells, but only if the metadata say so rightly."""
    moves = {("0", "x"): Move(-1.0, {"1": 1.0}), ("1", "x"): Move(-1.0, {"goal": 1.0})}
    model = from_moves("two", moves, start="0")
    assert on_grid(replace(model, metadata={"grid": [1, 2]}))
    assert not on_grid(replace(model, metadata={"grid": grid}))


@pytest.mark.parametrize("name", ["<b>x</b>", "$\\frac{", "_hidden", "a" * 10_000, "‮right-to-left", "\x00\n", "🐙"])
def test_hostile_names_are_drawn(name, tmp_path):
    moves = {(name, name): Move(-1.0, {"goal": 1.0}), (name, "b"): Move(-1.0, {name: 1.0})}
    figure = figures.draw(from_moves("hostile", moves, start=name)).figure
    figure.savefig(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_too_many_states():
    with pytest.raises(ValueError, match=str(MAX_STATES)):
        figures.draw(envs.grid(50, 50))


def test_improper_mass_has_a_line_for_each_prior_scale_and_discount(tmp_path):
    epsilon, scale, discount = np.array([0.1, 1.0, 10.0]), np.array([1.0, 10.0]), np.array([1.0, 0.9])
    mass = np.arange(12.0).reshape(2, 2, 3) / 12
    axes = figures.improper_mass(epsilon, scale, discount, mass)
    assert [list(line.get_ydata()) for line in axes.lines] == mass.reshape(4, 3).tolist()
    assert [line.get_linestyle() for line in axes.lines] == ["-", "-", "--", "--"]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["prior scale 1", "prior scale 10", "no discount", "discount 0.9"]
    axes.figure.savefig(tmp_path / "x.png")
    with pytest.raises(ValueError, match="can be distinguished"):
        figures.improper_mass(epsilon, scale, np.full(5, 0.5), np.zeros((5, 2, 3)))


def test_too_many_arrows():
    states = [str(k) for k in range(72)]
    everywhere = Move(-1.0, dict.fromkeys([*states, "goal"], 1 / 73))
    model = from_moves("dense", {(s, a): everywhere for s in states for a in "xy"}, start="0")
    with pytest.raises(ValueError, match=f"10512 arrows are too many for a picture: at most {MAX_ARROWS}"):
        figures.draw(model)


def test_pictures_are_drawn_where_they_are_wanted():
    from matplotlib import pyplot

    panels = pyplot.figure().subplots(1, 3)
    curves = {"one": (np.array([1.0, 2.0]), np.array([0.0, 0.5]))}
    assert draw_regret(curves, axes=panels[0]) is panels[0]
    assert figures.improper_mass(np.ones(1), np.ones(1), np.ones(1), np.ones((1, 1, 1)), axes=panels[1]) is panels[1]
    assert figures.draw(envs.two_state(), np.array([0.5, 0.5]), axes=panels[2]) is panels[2]
    assert panels[0].lines[0].get_ydata().tolist() == [1.0, 2.0]
    assert panels[1].lines[0].get_ydata().tolist() == [1.0]
    assert len(wedges(panels[2])) == 2
    assert len(pyplot.get_fignums()) == 1


def words(axes):
    return [text.get_text() for text in axes.texts if text.get_text()]


def test_colours_differ_within_a_state():
    """Forty roads for eight colours: those of one junction differ, and opposite directions have their own."""
    model = envs.roads()
    colours = pair_colours(model)
    for state in range(model.n_states):
        own = colours[model.pair_start[state] : model.pair_start[state + 1]]
        assert len(set(own)) == len(own)
    right, left = (colours[model.pair_index[pair]] for pair in (("J09", "J10"), ("J09", "J08")))
    assert right == colours[model.pair_index["J20", "J21"]] != left
    few = envs.grid(2, 2)
    assert pair_colours(few) == [COLOURS[action] for action in few.pair_action]
    many = {("s", f"a{k:02d}"): Move(-1.0, {"goal": 1.0}) for k in range(14)}
    assert len(set(pair_colours(from_moves("many", many, start="s")))) == 14


def test_many_actions_are_named_at_their_moves_unless_the_next_state_says_it_all():
    roads = envs.roads()
    assert not needs_label(roads).any(), "roads are named by where they lead"
    assert figures.draw(roads).get_legend() is None
    moves = {("s", f"by bus {k}"): Move(-1.0, {"goal": 1.0}) for k in range(12)}
    model = from_moves("buses", moves, start="s")
    axes = figures.draw(model)
    assert axes.get_legend() is None
    assert [name for name in words(axes) if name.startswith("by bus")] == [name for _, name in moves]
    assert not needs_label(envs.grid(2, 2)).any(), "a legend names them"


def test_the_name_of_the_start_is_inside_the_picture():
    """Also on a large map, where there is room for long names elsewhere."""
    table = Path(__file__).parent.parent / "examples" / "city" / "roads.csv"
    axes = figures.draw(from_edges(table, "depot", "J1"))
    figure = figure_of(axes)
    figure.canvas.draw()
    (name,) = [text for text in axes.texts if text.get_text() == "start: J1"]
    assert name.get_window_extent().x0 >= 0


def test_the_goal_has_its_own_name():
    assert "goal" in words(figures.draw(envs.deep_sea(2)))
    assert "goal: delivered" in words(figures.draw(envs.robot()))
    assert "goal: J39" in words(figures.draw(envs.roads()))


def test_maps_are_drawn_where_their_positions_say():
    model = envs.roads()
    place, given = positions(model), model.metadata["positions"]
    assert is_mapped(model)
    assert not on_grid(model)
    scale = (place[7, 0] - place[0, 0]) / (given["J07"][0] - given["J00"][0])
    for name, at in zip((*model.states, "J39"), place, strict=True):
        np.testing.assert_allclose(at, scale * np.array(given[name]), atol=1e-9)
    gaps = np.linalg.norm(place[:, None] - place[None], axis=-1) + 9 * np.eye(len(place))
    assert gaps.min() > 0.6
    without_goal = replace(model, metadata={"positions": {name: given[name] for name in model.states}})
    assert positions(without_goal)[-1, 0] > positions(without_goal)[:-1, 0].max()


@pytest.mark.parametrize(
    "given",
    [None, [], "x", {"J00": [0, 0]}, "all", [0, 1], [float("nan"), 0.0], ["0", 1], [True, 2], [1e300, 0.0], [0, 1, 2]],
)
def test_metadata_of_others_that_describe_no_map(given):
    model = envs.roads()
    places = dict.fromkeys(model.states, given) if not isinstance(given, dict | None) else given
    assert not is_mapped(replace(model, metadata={"positions": places})) or given == [0, 1]
    assert positions(replace(model, metadata={"positions": places})).shape == (model.n_states + 1, 2)


def road_map(**changes):
    """The roads with some places changed; None takes one away."""
    model = envs.roads()
    places = {**model.metadata["positions"], **changes}
    return replace(model, metadata={"positions": {name: at for name, at in places.items() if at is not None}})


SLIPS = (
    ({"J05": None}, 'metadata.positions: "J05" has no position (two numbers), so the map is not used'),
    (
        {"J05": None, "j05": [0.0, 0.0]},
        'metadata.positions: no state is called "j05" (did you mean "J05"?) and "J05" has no position (two numbers), '
        "so the map is not used",
    ),
    ({"town": [0.0, 0.0]}, 'metadata.positions: no state is called "town" (the problem has "J00", "J01", "J02"'),
    ({"J05": [0.0], "J06": "here", "J07": None}, 'metadata.positions: "J05" (and 2 more) has no position'),
)


@pytest.mark.parametrize(("changes", "said"), SLIPS)
def test_slips_in_a_map_are_told(changes, said):
    """Once where a picture is drawn, and by `check`; what is no map at all is not our business."""
    model = road_map(**changes)
    assert check(model).messages[-1].startswith(said)
    with pytest.warns(UserWarning, match=re.escape(said)):
        figures.draw(model)
    assert is_mapped(model) == ("not used" not in map_fault(model))


@pytest.mark.parametrize(
    ("changes", "said"), [SLIPS[0], *(pytest.param(*slip, marks=pytest.mark.slow) for slip in SLIPS[1:])]
)
def test_slips_in_a_map_are_told_beside_an_answer(changes, said, cli, tmp_path):
    write_problem(road_map(**changes), tmp_path / "roads.json")
    (tmp_path / "data.csv").write_text("state,action,reward\nJ00,J01,-4\n")
    arguments = ("posterior", str(tmp_path / "roads.json"), str(tmp_path / "data.csv"), "--reward-belief", "-5,2")
    code, _, err = cli(*arguments, "--samples", "1", "--picture", str(tmp_path / "x.png"))
    assert code in (0, 4)
    assert err.startswith(f"bellmanifold: warning: {tmp_path}/roads.json: {said}")


@pytest.mark.parametrize("given", [None, [], "x", {}, {"elsewhere": [0, 1]}, {"J00": "north"}])
def test_metadata_of_others_are_not_commented_on(given):
    assert map_fault(replace(envs.roads(), metadata={"positions": given})) == ""
    assert map_fault(envs.roads()) == ""


def test_the_best_route_lies_on_a_band():
    model = envs.deep_sea(3)
    data = Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "right"), ("2,2", "right")])
    summary = posterior(model, data)
    best = summary.best_pairs()
    assert set(np.flatnonzero(best)) == set(summary.routes[0].pairs)
    axes = figures.draw(model, summary)
    bands = [
        text for text in axes.texts if text.arrow_patch and text.arrow_patch.get_edgecolor() == to_rgba(ROUTE_COLOUR)
    ]
    assert len(bands) == best.sum()
    assert keys(axes)[2:] == [f"most probable route ({summary.routes[0].probability:.0%})", "observed", "not observed"]


def keys(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_picture_of_a_posterior_explains_itself():
    """Title, start, goal, the best route with its probability, probabilities at moves: all without a caption."""
    model = envs.deep_sea(3)
    summary = posterior(model, Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "left"), ("2,0", "right")]))
    axes = figures.draw(model, summary)
    assert axes.get_title().startswith("deep-sea-3: how probable is it that a move is optimal?\n3 of 12 moves observed")
    assert "start" in words(axes)
    figure = axes.get_figure(root=True)
    figure.canvas.draw()
    assert axes.title.get_window_extent().y1 <= figure.bbox.y1, "the title is not cut off"
    numbers = [word for word in words(axes) if word.endswith("%")]
    known = summary.action_probability.value[np.abs(summary.action_probability.value - 0.5) > 0.005]
    assert set(numbers) == {f"{p:.0%}" for p in known}, "where nothing is known no number says so"
    doubtful = replace(summary, result=replace(summary.result, doubts=("no",)))
    assert "not trustworthy" in figures.draw(model, doubtful).get_title()


def test_a_picture_without_a_posterior_has_no_pies():
    axes = figures.draw(envs.two_state())
    assert not wedges(axes)
    assert axes.get_title() == "two-state"


def test_numbers_that_do_not_fit_are_left_out():
    """Eight moves between two places: their numbers would lie on each other."""
    moves = {("s", f"a{k}"): Move(-1.0, {"goal": 1.0}) for k in range(8)}
    model = from_moves("many", moves, start="s")
    summary = posterior(model, Dataset.from_pairs(model, []))
    assert 1 <= sum(word.endswith("%") for word in words(figures.draw(model, summary))) < 8
    small = Figure(figsize=(1.0, 1.0)).subplots()
    assert not any(word.endswith("%") for word in words(figures.draw(model, summary, axes=small)))


def test_many_starts_are_explained_in_the_legend():
    moves = {(str(k), "x"): Move(-1.0, {"goal": 1.0}) for k in range(8)}
    model = replace(from_moves("many", moves, start="0"), initial=np.full(8, 1 / 8))
    assert keys(figures.draw(model)) == ["x", "start"]
    assert not any(word.startswith("start") for word in words(figures.draw(model)))


def test_a_picture_of_advice_explains_itself():
    model = envs.deep_sea(3)
    advice = advise(model, Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "left")]), tolerance=1e-3)
    axes = figures.draw_advice(model, advice)
    title, value = axes.get_title().replace("\n", " "), float(advice.decision.value.value)
    assert title == f"deep-sea-3: the best policy is worth {value:.3g} on average Go on. " + " ".join(
        advice.sentences()
    )
    assert keys(axes)[2].startswith("best policy (optimal: ")
    assert f"{advice.picture()[1].max():.2g}" in words(axes)


def test_the_best_moves_of_random_problems():
    """Without routes: what the most probable actions play from the start on, wherever that leads."""
    model = envs.grid(2, 2, slip=0.2)
    summary = posterior(model, Dataset.complete(model))
    best = summary.best_pairs()
    greedy = model.greedy(summary.action_probability.value)
    assert set(np.flatnonzero(best)) == set(greedy.tolist())
    likely = [arrow for arrow in arrows(model) if best[arrow.pair] and arrow.is_likeliest]
    assert len(likely) == best.sum()


OPEN = {
    "format": "bellmanifold.ssp/2",
    "goals": ["office"],
    "initial": {"home": 1.0},
    "pairs": [
        {"state": "home", "action": "bus", "reward": -3.0, "next": {"office": 1.0}},
        {"state": "home", "action": "shortcut"},
        {"state": "home", "action": "ask"},
    ],
}


def test_pairs_that_lead_nobody_knows_where_have_a_stub():
    model = from_json(OPEN)
    for axes in (
        figures.draw(model),
        figures.draw_advice(
            model, np.array([True, False, False]), np.array([0.0, 1.0, 0.5]), np.array([True, False, False])
        ),
    ):
        assert words(axes).count("?") == 2
        stubs = [text for text in axes.texts if text.get_text() == "?"]
        inside = zip(axes.get_xlim(), axes.get_ylim(), strict=True)
        (left, low), (right, high) = inside
        assert all(left < text.xy[0] < right and low < text.xy[1] < high for text in stubs), "or they are not drawn"
    stubs = [arrow for arrow in arrows(model) if arrow.is_stub]
    (x, y), (to_x, to_y), _ = stubs[0].ends
    assert x < 0 or to_x < 0 or to_y != y, "away from the arrow to the office"


def test_regret_can_be_drawn_from_the_package():
    curve = (np.array([1.0, 2.0]), np.array([0.5, 0.5]))
    axes = figures.draw_regret({"manifold": curve}, measure="cumulative completed regret")
    assert axes.get_ylabel() == "cumulative completed regret"


def test_regret_of_learnings_is_drawn():
    from matplotlib import pyplot

    learning = learn(envs.two_state(), "q-learning", episodes=3, runs=2)
    lost = np.cumsum([run.completed_regret for run in learning.runs], axis=1).mean(axis=0)
    for given, labels in (
        (learning, ["q-learning"]),
        ([learning, learning], ["q-learning", "q-learning 2"]),
        ({"a": learning, "b": learning}, ["a", "b"]),
    ):
        axes = figures.draw_regret(given)
        assert axes.get_ylabel() == "cumulative completed regret"
        assert [line.get_label() for line in axes.lines] == labels
        assert axes.lines[-1].get_ydata().tolist() == lost.tolist()
        pyplot.close(axes.figure)
    before = pyplot.get_fignums()
    with pytest.raises(BadInputError, match=r"give what bm\.learn returned"):
        figures.draw_regret(["text"])
    assert pyplot.get_fignums() == before, "no empty figure is left"
