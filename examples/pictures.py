"""The pictures of the guide: `python examples/pictures.py docs/images` makes them again.

Names after the directory (`robot`, `advice`, `city`, `city-advice`, `tables`, `forest`, `ridge`, `swirl-pies`,
`improper-mass`, `manifold`) make only those.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

import bellmanifold as bm
import bellmanifold_paper as paper
from bellmanifold.envs.building import Move, from_moves
from bellmanifold_paper.identifiability import flat_cones, improper_mass_sweep

mpl.use("Agg")
from matplotlib import pyplot


def robot() -> Figure:
    """What the delivery robot knows after two trips."""
    model = bm.load_model("examples/robot/robot.json")
    data = bm.load_data("examples/robot/trips.json", model)
    return bm.figures.draw(model, bm.posterior(model, data, prior_scale=5.0)).figure


def advice() -> Figure:
    """What the delivery robot should do and try after two trips."""
    model = bm.load_model("examples/robot/robot.json")
    data = bm.load_data("examples/robot/trips.json", model)
    axes = bm.figures.draw_advice(model, bm.advise(model, data, prior_scale=5.0))
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def city() -> Figure:
    """How probable it is that each road of the city is the best choice, after 200 drives."""
    model, data = _city()
    figure, axes = pyplot.subplots(figsize=(5.4, 5.6), layout="constrained")
    bm.figures.draw(model, bm.posterior(model, data, cost_belief=(5.0, 2.0), noise_sd=1.5), axes=axes)
    return figure


def city_advice() -> Figure:
    """Which way the van should take through the city, and which roads are worth another drive."""
    model, data = _city()
    figure, axes = pyplot.subplots(figsize=(6.6, 5.4), layout="constrained")
    advised = bm.advise(model, data, tolerance=0.5, cost_belief=(5.0, 2.0), noise_sd=1.5)
    bm.figures.draw_advice(model, advised, axes=axes)
    return figure


def _city() -> tuple[bm.SSP, bm.Dataset]:
    model = bm.load_model("examples/city/roads.csv?goal=depot&start=J1")
    return model, bm.load_data("examples/city/trips.csv", model)


def tables() -> Figure:
    """The little map of the page about tables, after its five trips."""
    page = Path("docs/guide/tables.md").read_text(encoding="utf-8")
    with TemporaryDirectory() as folder:
        for name in ("roads", "trips"):
            found = re.search(rf'^(?:table|{name}) = """(.*?)"""', page, re.DOTALL | re.MULTILINE)
            assert found is not None
            Path(folder, f"{name}.csv").write_text(found[1], encoding="utf-8")
            page = page[found.end() :]
        model = bm.from_edges(f"{folder}/roads.csv", goal="office", start="home")
        data = bm.load_data(f"{folder}/trips.csv", model)
    figure, axes = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
    bm.figures.draw(model, bm.posterior(model, data, cost_belief=(5.0, 2.0), noise_sd=1.0), axes=axes)
    return figure


def forest() -> Figure:
    """What a forester knows who waited twice and cut once; the problem is given as matrices."""
    wait = [[0.1, 0.9, 0.0], [0.1, 0.0, 0.9], [0.1, 0.0, 0.9]]
    cut = [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    names = {"states": ["young", "middle", "old"], "actions": ["wait", "cut"], "name": "forest"}
    rewards = [[0.0, 0.0], [0.0, 1.0], [4.0, 2.0]]
    model = bm.from_arrays([wait, cut], rewards, discount=0.9, initial="young", **names)
    places = {"young": [0, 0], "middle": [2, 1], "old": [2, -1], "goal": [4, 0]}
    model = replace(model, metadata={"positions": places})
    data = bm.Dataset.from_pairs(model, [("young", "wait"), ("middle", "wait"), ("old", "cut")])
    return bm.figures.draw(model, bm.posterior(model, data, prior_mean=20.0, prior_scale=20.0)).figure


def ridge() -> Figure:
    """The two-state posterior, complete data: a ridge along u that only the prior ends."""
    model = bm.envs.two_state()
    (cone,) = flat_cones(model)
    stay, go = np.meshgrid(np.linspace(-12, 40, 500), np.linspace(-12, 10, 300))
    figure, axes = pyplot.subplots(1, 3, figsize=(8.0, 2.9), layout="constrained", sharey=True)
    for ax, epsilon in zip(axes, (2.0, 1.0, 0.5), strict=True):
        best = np.maximum(stay, go)
        log_likelihood = -((stay - best + 1.0) ** 2 + (go + 1.0) ** 2) / (2 * epsilon**2)
        log_density = log_likelihood - (stay**2 + go**2) / (2 * 10.0**2)
        ax.contourf(stay, go, np.exp(log_density - log_density.max()), levels=LEVELS, cmap="Blues", norm="log")
        ax.axline((0, 0), slope=1, color="grey", linewidth=0.8, linestyle=":")
        ax.plot(-2, -1, "k*", markersize=8)
        ax.set(title=f"epsilon {epsilon:g}", xlabel="value of stay", xlim=(-12, 40), ylim=(-12, 10))
    axes[0].set_ylabel("value of go")
    axes[0].annotate("", (34, 6), (20, 6), arrowprops={"arrowstyle": "-|>", "color": "#AA4499"})
    axes[0].annotate(f"u = ({cone.direction[0]:g}, {cone.direction[1]:g})", (20, 7.2), color="#AA4499", fontsize=9)
    axes[0].annotate("stay is best", (18, -11), fontsize=8)
    axes[0].annotate("go is best", (-11, 7.5), fontsize=8)
    return figure


def manifold() -> Figure:
    """The surface of all action values that agree with one observation, and the curve that two observations leave."""
    moves = {("A", "walk"): Move(-1.0, {"B": 1.0}), ("B", "left"): Move(-0.5, {"goal": 1.0})}
    model = from_moves("crease", moves | {("B", "right"): Move(0.0, {"goal": 1.0})}, start="A")
    known = paper.hausdorff.tabular_manifold(bm.Dataset.from_pairs(model, [("A", "walk")]), prior_scale=1.0)
    left, right = np.meshgrid(np.linspace(-2.5, 2.5, 101), np.linspace(-2.5, 2.5, 101))
    walk = model.reward[0] + np.maximum(left, right)
    density = np.exp(jax.vmap(known.log_density)(np.stack([walk, left, right], axis=-1).reshape(-1, 3)))
    density = np.asarray(density).reshape(walk.shape)
    figure = pyplot.figure(figsize=(8.0, 3.6), layout="constrained")
    surface = figure.add_subplot(1, 2, 1, projection="3d", computed_zorder=False)
    shades = mpl.colormaps["Blues"](0.12 + 0.8 * density / density.max())
    surface.plot_surface(left, right, walk, facecolors=shades, rstride=2, cstride=2, linewidth=0, shade=False)
    line = np.linspace(-2.5, 2.5, 101)
    surface.plot(line, line, line - 1.0, color="black", linewidth=1.0, linestyle=":")
    surface.plot(-0.5 + 0 * line, line, np.maximum(-0.5, line) - 1.0, color=ORANGE, linewidth=2.0)
    surface.set(xlabel="left", ylabel="right", zlabel="walk", title="walk tried: a surface")
    surface.view_init(elev=24, azim=-118)
    surface.set_box_aspect(None, zoom=0.88)
    both = bm.Dataset.from_pairs(model, [("A", "walk"), ("B", "left")])
    found = bm.posterior(model, both, prior_scale=1.0).to_dict()["actions"]["B"]
    return _with_curve(figure, line, {name: found[name]["probability"] for name in ("left", "right")})


def _with_curve(figure: Figure, line: np.ndarray, share: dict[str, float]) -> Figure:
    """The density along the curve, in the coordinate of the pair that was not tried."""
    axes = figure.add_subplot(1, 2, 2)
    along = np.exp(-0.5 * (line**2 + (np.maximum(-0.5, line) - 1.0) ** 2))
    along /= along.sum() * (line[1] - line[0])
    axes.plot(line, along, color=ORANGE, linewidth=2.0)
    for name, own in (("left", line <= -0.5), ("right", line >= -0.5)):
        axes.fill_between(line[own], along[own], color=COLOURS[name == "right"], alpha=0.5, linewidth=0)
        axes.annotate(
            f"{name} is best\n{share[name]:.2f}", (-1.6 if name == "left" else 0.5, 0.13), ha="center", fontsize=9
        )
    axes.axvline(-0.5, color="black", linewidth=1.0, linestyle=":")
    axes.set(xlabel="value of right", ylabel="posterior density", ylim=(0, None), title="left tried, too: a curve")
    return figure


def swirl_pies() -> Figure:
    """The swirl with every pair seen: three posteriors of the same data."""
    model = bm.envs.swirl(3)
    data = bm.Dataset.complete(model)
    figure, axes = pyplot.subplots(1, 3, figsize=(8.0, 3.6), layout=ConstrainedLayoutEngine(rect=(0, 0, 1, 0.94)))
    settings = {
        "epsilon 0.1": {"epsilon": 0.1},
        "epsilon 0.1, proper only": {"epsilon": 0.1, "proper_only": True},
        "exact": {},
    }
    for ax, (title, options) in zip(axes, settings.items(), strict=True):
        summary = bm.posterior(model, data, **options)
        bm.figures.draw(model, summary, axes=ax)
        ax.set_title(f"{title}\nimproper mass {float(summary.improper_mass.value):.2f}", fontsize=9)
        ax.get_legend().remove()
    handles = [mpl.patches.Patch(facecolor=COLOURS[k], label=name) for k, name in enumerate(model.actions)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def improper_mass() -> Figure:
    """Improper mass against the tolerance, for two problems."""
    epsilon = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0])
    figure, axes = pyplot.subplots(1, 2, figsize=(8.0, 3.0), layout="constrained", sharey=True)
    two = bm.envs.two_state()
    found = improper_mass_sweep(bm.Dataset.complete(two), list(epsilon), [1.0, 10.0, 100.0], [1.0, 0.9])
    bm.figures.improper_mass(found.epsilon, found.prior_scale, found.discount, found.probability, axes=axes[0])
    swirl = bm.envs.swirl(3)
    found = improper_mass_sweep(bm.Dataset.complete(swirl), list(epsilon), [1.0, 10.0, 100.0], [1.0])
    bm.figures.improper_mass(found.epsilon, found.prior_scale, found.discount, found.probability, axes=axes[1])
    axes[0].set_title("two-state", fontsize=10)
    axes[1].set_title("swirl of depth 3", fontsize=10)
    axes[1].set_ylabel("")
    axes[1].get_legend().remove()
    axes[0].get_legend().remove()
    lines = [mpl.lines.Line2D([], [], color=COLOURS[k], label=f"prior scale {x}") for k, x in enumerate((1, 10, 100))]
    style = {"color": "black", "linestyle": "--", "marker": "s", "markersize": 3.5}
    lines.append(mpl.lines.Line2D([], [], label="discount 0.9", **style))
    figure.legend(handles=lines, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
ORANGE = "#E08214"
COLOURS = ("#CC6677", "#4477AA", "#DDCC77", "#117733")
PICTURES = {
    "robot": robot,
    "advice": advice,
    "forest": forest,
    "city": city,
    "city-advice": city_advice,
    "tables": tables,
    "ridge": ridge,
    "swirl-pies": swirl_pies,
    "improper-mass": improper_mass,
    "manifold": manifold,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name in sys.argv[2:] or PICTURES:
        figure = PICTURES[name]()
        figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None}, pil_kwargs={"optimize": True})
        pyplot.close(figure)
        print(f"{name}.png: {(folder / f'{name}.png').stat().st_size // 1000} kB")
