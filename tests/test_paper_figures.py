"""Pictures of the paper's kinds: what they show is what they were given."""

import io

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Wedge

from bellmanifold import envs
from bellmanifold.pictures.drawing import goal_places
from bellmanifold.pictures.palette import COLOURS
from bellmanifold.pictures.positions import is_triangle, landings, positions
from bellmanifold_paper.plots.bands import (
    TARGET,
    draw_acceptance,
    draw_bands,
    draw_progress,
    draw_ranked,
    draw_routes,
    scale_of,
)
from bellmanifold_paper.plots.densities import SHARES, density_levels, draw_contours, draw_marginals
from bellmanifold_paper.plots.diagram import draw_diagram
from bellmanifold_paper.plots.sequence import ORANGE, Shown, draw_episode
from bellmanifold_paper.plots.style import METHODS, PRINT, handles, printed, steps

mpl.use("Agg")


@pytest.fixture
def axes():
    return Figure(figsize=(4.0, 3.0)).add_axes((0.0, 0.0, 1.0, 1.0))


def band(collection):
    """Lower and upper edge of a filled band of n points: its outline goes there and back."""
    corners = collection.get_paths()[0].vertices
    low, high = {}, {}
    for x, y in corners:
        low[x], high[x] = min(y, low.get(x, y)), max(y, high.get(x, y))
    return np.array([low[x] for x in sorted(low)]), np.array([high[x] for x in sorted(high)])


def test_a_curve_is_the_mean_and_its_band_one_standard_deviation(axes):
    curves = {"BR": np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 7.0]]), "TD": np.zeros((2, 3))}
    draw_bands(axes, curves)
    first, second = axes.lines
    assert list(first.get_xdata()) == [1, 2, 3]
    assert list(first.get_ydata()) == [2.0, 2.0, 5.0]
    low, high = band(axes.collections[0])
    np.testing.assert_allclose(low, [2 - 2**0.5, 2.0, 5 - 8**0.5])
    np.testing.assert_allclose(high, [2 + 2**0.5, 2.0, 5 + 8**0.5])
    assert [line.get_color() for line in (first, second)] == [METHODS["BR"].colour, METHODS["TD"].colour]
    assert [line.get_label() for line in handles(axes)] == ["BR", "TD"]


def test_where_a_run_knows_nothing_there_is_a_gap(axes):
    draw_bands(axes, {"exact": np.array([[1.0, np.nan, 1.0], [1.0, 1.0, 1.0]])})
    assert np.isnan(axes.lines[0].get_ydata()).tolist() == [False, True, False]


def test_bands_of_probabilities_stay_between_0_and_1(axes):
    values = np.array([[0.0, 1.0, 0.5], [0.0, 0.6, 1.0]])
    draw_bands(axes, {"BR": values}, within=(0.0, 1.0))
    low, high = band(axes.collections[0])
    assert low.min() >= 0.0
    assert high.max() == 1.0
    draw_progress(axes, {"BR": values})
    assert band(axes.collections[1])[1].max() == 100.0


def test_a_single_run_has_no_band(axes):
    draw_bands(axes, {"BR": np.array([[1.0, 2.0]])})
    low, high = band(axes.collections[0])
    assert low.tolist() == high.tolist() == [1.0, 2.0]


def test_methods_differ_in_colour_and_in_line():
    assert len({stroke.colour for stroke in METHODS.values()}) == len(METHODS)
    assert len({str(stroke.line) for stroke in METHODS.values()}) == len(METHODS)
    ordered = steps([str(k) for k in range(6)])
    lightness = [sum(to_rgba(stroke.colour)[:3]) for stroke in ordered.values()]
    assert lightness == sorted(lightness)
    assert len({str(stroke.line) for stroke in ordered.values()}) == 6


def test_printed_fonts_are_readable_and_settings_are_put_back():
    before = mpl.rcParams["font.size"]
    with printed():
        assert min(mpl.rcParams[name] for name in PRINT if name.endswith("size") and "major" not in name) >= 6.5
    assert mpl.rcParams["font.size"] == before


def test_progress_is_in_percent(axes):
    draw_progress(axes, {"HMC": np.array([[0.25, 1.0]])})
    assert list(axes.lines[0].get_ydata()) == [25.0, 100.0]


def test_acceptance_shows_the_target(axes):
    draw_acceptance(axes, {"a": np.array([[0.5, 0.9]]), "b": np.array([[0.7, 0.7]])})
    assert list(axes.lines[0].get_ydata()) == [TARGET, TARGET]
    assert [line.get_label() for line in handles(axes)] == ["a", "b"]


def test_probabilities_are_ranked_in_each_run_before_they_are_averaged(axes):
    draw_ranked(axes, {"TD": np.array([[0.1, 0.6, 0.3], [0.8, 0.0, 0.2]])})
    uniform, curve = axes.lines
    assert uniform.get_ydata()[0] == pytest.approx(1 / 3)
    np.testing.assert_allclose(curve.get_ydata(), [0.7, 0.25, 0.05])


def test_routes_are_coloured_by_what_they_pay_and_the_best_is_on_top(axes):
    value, loops = np.array([1.0, -1.0, 0.0]), np.array([False, True, False])
    probability = np.array([[[0.5, 0.25, 0.25]], [[0.7, 0.15, 0.15]]]).repeat(2, axis=1)
    draw_routes(axes, probability, value, loops)
    scale = scale_of(value)
    by_height = sorted(axes.lines, key=lambda line: line.get_zorder())
    assert [line.get_ydata()[0] for line in by_height] == pytest.approx([0.2, 0.2, 0.6])
    assert [to_hex(line.get_color()) for line in by_height] == [to_hex(scale.to_rgba(v)) for v in (-1.0, 0.0, 1.0)]
    assert [line.get_linestyle() for line in by_height] == ["--", "-", "-"]
    assert len(axes.collections) == 3
    low, high = band(axes.collections[-1])
    np.testing.assert_allclose([low[0], high[0]], [0.6 - 0.02**0.5, 0.6 + 0.02**0.5])


def test_a_band_too_narrow_to_see_is_left_out(axes):
    probability = np.full((2, 4, 1), 0.5) + np.array([0.0, 1e-4]).reshape(2, 1, 1)
    draw_routes(axes, probability, np.zeros(1), np.zeros(1, dtype=bool))
    assert not axes.collections


def test_contours_hold_the_stated_mass(axes):
    """Of a standard normal in two dimensions the mass p lies where its log density is above log(1 - p)."""
    x, y = np.meshgrid(np.linspace(-6, 6, 801), np.linspace(-6, 6, 801), indexing="ij")
    log_density = -0.5 * (x**2 + y**2)
    np.testing.assert_allclose(density_levels(log_density), np.log(1 - np.array(SHARES)), atol=2e-3)
    draw_contours(axes, x, y, log_density)
    reach = [np.abs(path.vertices).max() for path in axes.collections[1].get_paths()]
    np.testing.assert_allclose(reach, np.sqrt(-2 * np.log(1 - np.array(SHARES))), rtol=0.02)


def test_marginals_are_on_a_logarithmic_axis(axes):
    x = np.linspace(0.0, 1.0, 3)
    draw_marginals(axes, x, {"wide": x + 1, "narrow": x + 2}, truth=0.5)
    assert axes.get_yscale() == "log"
    truth, *curves = axes.lines
    assert truth.get_xdata() == [0.5, 0.5]
    assert [list(line.get_ydata()) for line in curves] == [[1.0, 1.5, 2.0], [2.0, 2.5, 3.0]]


def arrows(axes, **look):
    return [p for p in axes.patches if isinstance(p, FancyArrowPatch) and all(f(p) for f in look.values())]


def test_an_episode_shows_beliefs_data_and_moves(axes):
    model = envs.deep_sea(2)
    pair = model.pair_index
    probability = np.full(model.n_pairs, 0.5)
    probability[[pair["0,0", "left"], pair["0,0", "right"]]] = 0.25, 0.75
    observed = np.arange(model.n_pairs) < 2
    on_route = np.zeros(model.n_pairs)
    on_route[pair["0,0", "right"]] = 0.75
    played = [pair["0,0", "left"], pair["1,0", "right"]]
    draw_episode(axes, model, Shown("episode 7", probability, observed, on_route, played))
    assert axes.get_title() == "episode 7"
    orange = arrows(axes, colour=lambda p: to_hex(p.get_facecolor()) == ORANGE.lower())
    assert [arrow.get_alpha() for arrow in orange] == [0.75]
    assert len(arrows(axes, border=lambda p: p.get_zorder() == 2.5 and p.get_facecolor()[3] == 0.0)) == 2
    thin = arrows(axes, thin=lambda p: p.get_zorder() == 1.0)
    assert [p.get_linestyle() == "-" for p in thin] == observed.tolist()
    pies = {(w.center[1], to_hex(w.get_facecolor())): w.theta2 - w.theta1 for w in axes.patches if type(w) is Wedge}
    assert pies[0.0, COLOURS[0].lower()] == pytest.approx(90.0)
    assert pies[0.0, COLOURS[1].lower()] == pytest.approx(270.0)


def test_triangles_end_in_a_row_of_goals():
    """Deep sea leans on its left edge, the pyramid is centred; the goals lie where one more row would be."""
    deep, pyramid = envs.deep_sea(3), envs.pyramid(3)
    assert is_triangle(deep)
    assert not is_triangle(envs.grid(3, 3))
    assert goal_places(deep).tolist() == [[0, -3], [1, -3], [2, -3], [3, -3]]
    assert goal_places(pyramid).tolist() == [[-1.5, -3], [-0.5, -3], [0.5, -3], [1.5, -3]]
    left = deep.pair_index["2,2", "left"]
    assert landings(deep)[deep.next_start[left]].tolist() == [1.0, -3.0]
    assert positions(pyramid)[pyramid.state_index["1,0"]].tolist() == [-0.5, -1.0]
    assert len(goal_places(envs.four_state())) == 1


def test_a_diagram_names_states_and_moves(axes):
    draw_diagram(axes, envs.two_state(), ("s", "g"), ("stay, -1", "go, -1"), "rest, 0")
    assert {text.get_text() for text in axes.texts} == {"s", "g", "stay, -1", "go, -1", "rest, 0"}
    assert len(arrows(axes)) == 3
    axes.get_figure().savefig(io.BytesIO(), format="png")
