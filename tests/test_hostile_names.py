"""Names from files in pictures, tables and on the terminal: text, never markup or mathematics, and the layout holds."""

import json

import pytest
from hostile import call
from matplotlib import pyplot

from bellmanifold import figures
from bellmanifold.cli.terminal import save_picture
from bellmanifold.errors import limit_marks
from bellmanifold.io.problem import read_problem
from bellmanifold_lab.report.text import display_name

NAMES = (
    *(
        "<script>alert(1)</script>",
        "$\\frac{",
        "a_$x$^2_{",
        "\x1b[2J\x00\n\ttab",
        "\u202eabc \u05d0\u05d1",
        "x" * 10_000,
    ),
    *("\u05d0" * 10_000, "🚢👩\u200d🚀", "Z" + "\u0351" * 40 + "A", "%s {{title}} ${x}", "_hidden"),
)
ACTIONS = ("<img src=x onerror=alert(1)>", "$\\frac{", "long " * 2000)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A chain of states whose names are all made to do harm, and data about it."""
    monkeypatch.chdir(tmp_path)
    after = [*NAMES[1:], "goal</svg>"]
    pairs = [
        {"state": name, "action": action, "reward": -1.0, "next": {after[k]: 1.0}}
        for k, name in enumerate(NAMES)
        for action in ACTIONS
    ]
    head = {"format": "bellmanifold.ssp/1", "name": "<h1>$\\frac{\n\x1b[31m" + "n" * 10_000, "goals": ["goal</svg>"]}
    (tmp_path / "p.json").write_text(json.dumps({**head, "initial": {NAMES[0]: 1.0}, "pairs": pairs}))
    seen = [{"state": NAMES[k], "action": "$\\frac{"} for k in range(2)]
    (tmp_path / "d.json").write_text(json.dumps({"format": "bellmanifold.data/1", "observations": seen}))
    return tmp_path


def test_names_in_a_picture_keep_their_place(files):
    """No name leaves the picture, covers another one, or is taller than a line."""
    axes = figures.draw(read_problem(files / "p.json"))
    axes.figure.canvas.draw()
    texts = [text for text in axes.texts if text.get_text() not in ("", "goal")]  # arrows are texts without words
    boxes = [text.get_window_extent() for text in texts]
    page = axes.figure.bbox
    assert len(boxes) == len(NAMES) + 1, "the goal has its own name"
    for k, box in enumerate(boxes):
        assert page.x0 <= box.x0 < box.x1 <= page.x1, texts[k].get_text()
        assert box.height < 30
        assert not any(box.overlaps(other) for other in boxes[k + 1 :]), texts[k].get_text()
    pyplot.close("all")


@pytest.mark.parametrize("kind", ["png", pytest.param("pdf", marks=pytest.mark.slow), "svg"])
def test_pictures_are_drawn(files, kind):
    save_picture(files / f"x.{kind}", "draw", read_problem(files / "p.json"))
    content = (files / f"x.{kind}").read_bytes()
    assert len(content) > 1000
    assert not any(bad in content for bad in (b"<script", b"<img", b"[2J\n"))
    pyplot.close("all")


@pytest.mark.slow
def test_posteriors_are_drawn(files):
    code, _, err = call("posterior", "p.json", "d.json", "--epsilon", "0.1", "--picture", "x.svg")
    assert code in (0, 4), err
    assert "<script" not in (files / "x.svg").read_text()


def test_terminals_see_nothing_that_steers_them(files):
    for command in (("env", "show"), ("check",), ("solve",)):
        code, out, err = call(*command, "p.json")
        assert (code, err) == (0, "")
        assert all(line.isprintable() for line in out.split("\n"))
        assert max(map(len, out.split("\n"))) < 400
    code, out, err = call("check", "a\0b")
    assert (code, out, "NUL character" in err) == (2, "", True)
    code, out, err = call("sweep", "\x1b[2J\n\u202e.toml", "--out", "x")
    assert (code, out) == (2, "")
    assert err[:-1].isprintable()


def test_towers_of_marks_are_taken_down():
    assert limit_marks("e\u0301") == "e\u0301"
    assert limit_marks("e" + "\u0301" * 30 + "x") == "e\u0301x"
    assert display_name("Z" + "\u0351" * 300) == "Z\u0351"
