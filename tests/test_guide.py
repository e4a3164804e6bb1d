"""The guide's code runs, and prints what its pages show; its files and pictures are what its scripts make."""

import json
import runpy
from pathlib import Path

import pytest
from guide_pages import blocks_of, differences, run_page

import bellmanifold as bm

ROOT = Path(__file__).parent.parent
BESIDE = ("choosing", "improper", "theory")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("docs/guide/*.md"), *(ROOT / "docs" / f"{name}.md" for name in BESIDE)]
)


@pytest.fixture(autouse=True)
def agents_stay_as_they_were():
    """A page registers an agent of its own."""
    from bellmanifold.agents import registry

    known = dict(registry.AGENTS)
    yield
    registry.AGENTS.clear()
    registry.AGENTS.update(known)


def complaints(page, slow):
    found = []
    for printed in run_page(ROOT / page, slow):
        shown = "" if printed.shown is None else printed.shown
        if difference := differences(shown, printed.got):
            found.append((printed.code.split("\n", 1)[0], *difference))
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/choosing.md"])
def test_page_prints_what_it_shows(page):
    assert complaints(page, slow=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_whole_page_prints_what_it_shows(page):
    assert complaints(page, slow=True) == []


def test_a_page_that_lies_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 2\nprint('x is', x, 0.1234)\n```\n\n```text\nx is 2 0.1235\n```\n")
    (true,) = run_page(page)
    assert differences(true.shown, true.got) == []
    for wrong in ("x is 3 0.1234", "x is 2 0.1236", "y is 2 0.1234", "x is 2 0.1234\nmore", "x is 2", "..."):
        assert bool(differences(wrong, true.got)) == (wrong != "...")


def test_rough_numbers_and_gaps():
    assert differences("a ~12 s\n...\nlast 1", "a ~7 s\nb\nc\nlast 1") == []
    assert differences("a ~12 s\n...\nlast 1", "a ~7 s\nb\nlast 2") != []


def test_a_page_cannot_drift_from_the_file_it_shows(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\n# examples/which_move.py\nprint('something else')\n```\n")
    with pytest.raises(AssertionError, match="differ"):
        list(run_page(page))


def test_commands_are_run_and_their_exit_codes_kept(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ bellmanifold check gym:FrozenLake-v1\n...\n$ echo $?\n1\n```\n")
    (printed,) = run_page(page)
    assert differences(printed.shown, printed.got) == []
    assert differences(printed.shown.replace("\n1\n", "\n0\n"), printed.got) != []


def test_the_robot_file_is_what_its_map_says():
    built = runpy.run_path(str(ROOT / "examples/robot/build.py"))["robot"]()
    model = bm.load_model(ROOT / "examples/robot/robot.json")
    assert model == built
    assert model.pair_name(model.pair_index["2,1", "right"]) == ("2,1", "right")


def test_the_robot_slides_as_the_page_says():
    """Moves stated by hand, not by the script."""
    text = json.loads((ROOT / "examples/robot/robot.json").read_text())
    moves = {(pair["state"], pair["action"]): (pair["reward"], pair["next"]) for pair in text["pairs"]}
    assert moves["2,1", "right"] == (-1.0, {"1,1": 0.1, "2,1": 0.1, "2,2": 0.8})
    assert moves["0,1", "right"] == (-3.0, {"0,2": 1.0})
    assert moves["0,3", "hand over"] == (10.0, {"delivered": 1.0})
    assert {action for state, action in moves if state == "2,1"} == {"up", "left", "right"}


def test_pictures_are_small_and_have_their_script():
    made = runpy.run_path(str(ROOT / "examples/pictures.py"))["PICTURES"]
    shown = {name for page in PAGES for name in _pictures(ROOT / page)}
    assert shown == set(made)
    assert all((ROOT / "docs/images" / f"{name}.png").stat().st_size < 150_000 for name in made)


def _pictures(page):
    return [part.split(".png)")[0].split("/")[-1] for part in page.read_text().split("![")[1:]]


def gallery():
    """Functions of the script that makes the gallery's pictures."""
    return runpy.run_path(str(ROOT / "examples/gallery.py"))


def test_the_gallery_shows_what_its_code_makes():
    shown = [name for name in _pictures(ROOT / "docs/gallery.md") if name.startswith("gallery-")]
    assert [f"{name}.png" for name in shown] == list(gallery()["codes"]())
    assert all((ROOT / "docs/images" / f"{name}.png").stat().st_size < 80_000 for name in shown)


@pytest.mark.parametrize("name", ["gallery-pies.png", pytest.param("gallery-evidence.png", marks=pytest.mark.slow)])
def test_code_of_the_gallery_runs(name):
    assert len(gallery()["make"](name, gallery()["codes"]()[name])) > 5000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grid", "advice", "regret", "improper"])
def test_longer_code_of_the_gallery_runs(name):
    picture = f"gallery-{name}.png"
    assert len(gallery()["make"](picture, gallery()["codes"]()[picture])) > 5000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["robot", "ridge", "swirl-pies", "improper-mass", "manifold"])
def test_pictures_can_be_made_again(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    figure = runpy.run_path("examples/pictures.py")["PICTURES"][name]()
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000


def test_every_python_block_of_the_pages_is_run():
    """Only the languages the helper runs, and plain text, are used."""
    languages = {block.language for page in PAGES for block in blocks_of((ROOT / page).read_text())}
    assert languages <= {"python", "console", "text"}
