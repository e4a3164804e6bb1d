from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from bellmanifold import envs, figures
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.figures.drawing import MAX_ARROWS, MAX_STATES
from bellmanifold.figures.lines import draw_regret
from bellmanifold.figures.positions import on_grid, positions

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
    with pytest.raises(ValueError, match="told apart"):
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
