"""The report in a real browser: the player moves, nothing is logged, nothing is asked of a network, names stay text.

Skipped, and says so, where there is no Chromium; `.ci/run` installs it.
"""

import json
import time

import browser as browsers
import pytest
from test_report import HOSTILE, SWIRL, hostile_problem, keep

from bellmanifold_lab.report.page import write_report

pytestmark = pytest.mark.skipif(browsers.PROGRAM is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The address of a report: two agents on the swirl, and a problem whose names want to be markup."""
    root = tmp_path_factory.mktemp("report")
    keep(root, model=SWIRL, agent="bayes-td-max", episodes=12)
    keep(root, model=SWIRL, agent="bayes-td-max", episodes=12, seed=1)
    keep(root, model=SWIRL, agent="q-learning")
    keep(root, model=hostile_problem(root / "hostile.json"), agent="bayes-td")
    keep(root, model="gym:CliffWalking-v1", agent="q-learning", episodes=2)
    keep(root, model="gym:FrozenLake-v1", agent="q-learning")
    keep(root, model="env:deep-sea?depth=3", agent="manifold", episodes=20, prior_scale=1.0, until_loss=0.1)
    write_report(root, root / "report.html")
    return (root / "report.html").as_uri()


@pytest.fixture(scope="module")
def page(tmp_path_factory, report):
    """The report in a browser; after the last test it must have logged nothing and asked for nothing but itself."""
    with browsers.browser(tmp_path_factory.mktemp("profile")) as open_page:
        opened = open_page(report)
        yield opened
        assert opened.requests == [report]
        assert opened.complaints == []


def choose(page, name, wanted):
    """Choose the entry of a select element that begins like this."""
    found = page.ask(
        f"""(() => {{ const select = document.getElementById("{name}");
        const k = [...select.options].findIndex((option) => option.textContent.includes("{wanted}"));
        select.selectedIndex = k; select.dispatchEvent(new Event("change")); return k; }})()"""
    )
    assert found >= 0


def drawing(page):
    """What the drawing shows: wedges, which arrows are played, which are untried, and the halos."""
    return page.ask(
        """[...document.querySelectorAll("#drawing .state path, #drawing .arrow, #drawing .halo")]
        .map((node) => [node.getAttribute("d"), node.getAttribute("class"), node.getAttribute("opacity")]).join(" ")"""
    )


def at(page):
    """The episode on the slider, on the drawing and in words."""
    slider = page.ask("Number(document.getElementById('episode').value)")
    assert page.ask("Number(document.getElementById('drawing').dataset.episode)") == slider
    assert page.ask("document.getElementById('news').textContent").startswith(f"Episode {slider} of ")
    return slider


def count(page, selector):
    return page.ask(f"document.querySelectorAll({json.dumps(selector)}).length")


def test_the_player_moves(page, tmp_path):
    choose(page, "choose-scene", "swirl")
    choose(page, "choose-agent", "bayes-td-max")
    assert at(page) == 1
    first = drawing(page)
    untried = count(page, "#drawing .untried")
    assert count(page, "#drawing .played") >= 3
    page.click("#forward")
    assert at(page) == 2
    assert drawing(page) != first
    page.ask("document.getElementById('drawing').focus()")
    page.key("ArrowRight")
    assert at(page) == 3
    page.key("ArrowLeft")
    page.key("ArrowLeft")
    assert at(page) == 1
    assert drawing(page) == first, "going back shows what was shown"
    page.key("End")
    assert at(page) == 12
    assert count(page, "#drawing .untried") < untried
    page.key("Home")
    assert at(page) == 1
    page.ask("document.getElementById('episode').focus()")
    page.key("ArrowRight")
    assert at(page) == 2, "the slider itself listens to arrow keys"
    page.key(" ", " ")
    assert page.ask("document.getElementById('play').textContent") == "pause"
    page.until("Number(document.getElementById('episode').value) >= 4")
    page.key(" ", " ")
    stopped = at(page)
    time.sleep(0.8)
    assert at(page) == stopped
    page.click("#play")
    page.until(f"Number(document.getElementById('episode').value) > {stopped}")
    page.screenshot(tmp_path / "playing.png")
    assert (tmp_path / "playing.png").stat().st_size > 20_000
    assert page.complaints == []


def test_expected_and_true_loss(page, tmp_path):
    """Two lines and a diamond for the agent that stops; no plot where nobody was told to."""
    choose(page, "choose-problem", "deep-sea")
    page.until("document.querySelectorAll('#loss-plot .scatterlayer .trace').length === 3")
    assert not page.ask("document.getElementById('loss-plot').closest('figure').hidden")
    assert count(page, "#loss-plot .point") == 1
    names = page.ask("[...document.querySelectorAll('#loss-plot .legendtext')].map((node) => node.textContent)")
    assert names == ["manifold, expected", "manifold, true"]
    page.ask("document.getElementById('loss-plot').scrollIntoView()")
    page.screenshot(tmp_path / "losses.png")
    choose(page, "choose-scene", "deep-sea")
    assert ", true loss of the policy played " in page.ask("document.getElementById('news').textContent")
    assert "; still exploring." in page.ask("document.getElementById('news').textContent")
    page.click("#last")
    assert "; stopped exploring before episode " in page.ask("document.getElementById('news').textContent")
    choose(page, "choose-problem", "swirl")
    assert page.ask("document.getElementById('loss-plot').closest('figure').hidden")
    choose(page, "choose-scene", "swirl")
    assert "Expected loss" not in page.ask("document.getElementById('news').textContent")


def test_pies_and_halos_are_what_is_believed(page):
    """The first episode of TD: all pies are halves, and each pair of the start is on half of the sampled routes."""
    choose(page, "choose-scene", "swirl")
    choose(page, "choose-agent", "bayes-td-max")
    page.key("Escape")
    page.hover("[data-state='0']")
    tip = page.ask("document.getElementById('tip').textContent")
    assert "state 0,0" in tip
    assert tip.count("optimal with probability 0.500, mean value 0") == 2
    assert count(page, "#drawing [data-state='0'] path") == 2
    assert float(page.ask("document.querySelector('.halo').getAttribute('opacity')")) == pytest.approx(0.12 + 0.35)
    page.ask("document.getElementById('numbers').open = true")
    page.until("document.getElementById('numbers-body').rows.length === 12")
    row = page.ask("[...document.getElementById('numbers-body').rows[0].cells].map((cell) => cell.textContent)")
    assert row[0] == "0,0"
    assert row[3:6] == ["0.500", "0", "0.500"]
    choose(page, "choose-agent", "q-learning")
    page.hover("[data-state='0']")
    assert "not recorded" in page.ask("document.getElementById('tip').textContent")
    assert "not recorded in this run" in page.ask("document.getElementById('news').textContent")
    assert count(page, "#drawing [data-state] path") == 0


def test_keyboard_alone(page):
    """Tab reaches every control in order and a focus ring is drawn; a focused state shows its numbers."""
    page.ask("document.activeElement.blur(); scrollTo(0, 0)")
    page.call("Input.dispatchMouseEvent", type="mousePressed", x=5, y=5, button="left", clickCount=1)
    page.call("Input.dispatchMouseEvent", type="mouseReleased", x=5, y=5, button="left", clickCount=1)
    reached = []
    for _ in range(12):
        page.key("Tab")
        reached.append(page.ask("document.activeElement.id || document.activeElement.getAttribute('data-state')"))
    assert reached[:4] == ["choose-scene", "choose-agent", "choose-run", "drawing"]
    assert page.ask("getComputedStyle(document.activeElement).outlineStyle") != "none" or reached[-1].isdigit()
    states = [k for k in reached if k.isdigit()]
    assert states[0] == "0"
    page.ask("document.querySelector(\"[data-state='1']\").focus()")
    assert page.ask("document.activeElement.getAttribute('aria-label')").startswith("state ")
    page.key("ArrowRight")
    assert at(page) == 2
    controls = "[...document.querySelectorAll('button, input, select')]"
    names = page.ask(f"{controls}.filter((node) => !node.labels?.length && !node.ariaLabel).length")
    assert names == 0, "every control has a name"
    assert page.complaints == []


def test_arrow_keys_work_before_the_player_has_focus(page):
    choose(page, "choose-scene", "swirl")
    page.ask("document.activeElement.blur()")
    page.key("ArrowRight")
    assert at(page) == 2
    page.key("End")
    assert at(page) == 2, "End scrolls the page"
    page.ask("document.querySelector('.wide').focus()")
    page.key("ArrowRight")
    assert at(page) == 2, "a table scrolls"


def test_grids_of_gymnasium_are_readable(page):
    """Cliff walking is four rows of twelve cells, as broad as the page; states are circles of at least 30 pixels."""
    choose(page, "choose-scene", "CliffWalking")
    places = page.ask(
        """[...document.querySelectorAll("#drawing .rim, #drawing .goal")]
        .map((circle) => [circle.cx.baseVal.value, circle.cy.baseVal.value])"""
    )
    assert len(places) == 38
    assert (len({x for x, _ in places}), len({y for _, y in places})) == (12, 4)
    assert places[-1] == [max(x for x, _ in places), max(y for _, y in places)]
    assert page.ask("document.querySelector('#drawing .rim').getBoundingClientRect().width") >= 30
    choose(page, "choose-scene", "swirl")
    assert not page.ask("document.querySelector('.stage').classList.contains('broad')")


def test_what_is_unknown_is_called_so(page):
    choose(page, "choose-scene", "FrozenLake")
    news = page.ask("document.getElementById('news').textContent")
    assert "completed regret unknown, gap regret unknown; whether the policy was optimal is unknown." in news
    assert "sampled routes" not in page.ask("document.getElementById('legend').textContent")
    choose(page, "choose-problem", "FrozenLake")
    assert page.ask("document.getElementById('optimal-plot').closest('figure').hidden")
    assert not page.ask("document.getElementById('coverage-plot').closest('figure').hidden")
    choose(page, "choose-scene", "swirl")
    choose(page, "choose-agent", "bayes-td-max")
    assert "sampled routes" in page.ask("document.getElementById('legend').textContent")
    assert page.complaints == []


def test_hostile_names_are_text(page):
    choose(page, "choose-scene", "hostile")
    shown = page.ask("[...document.querySelectorAll('#drawing text')].map((node) => node.textContent)")
    assert shown[0] == HOSTILE[0][:15] + "…"
    assert shown[1] == "</script>"
    assert shown[3] == "x" * 15 + "…"
    assert "<img src=x onerror=alert(1)>" in page.ask("document.getElementById('legend').textContent")
    page.hover("[data-state='0']")
    assert "state <script>alert(1)</script>" in page.ask("document.getElementById('tip').textContent")
    assert count(page, "img, b, iframe") == 0
    assert count(page, "script") == 4
    choose(page, "choose-problem", "hostile")
    assert page.complaints == []


def test_plots_are_drawn_and_follow_the_choice(page):
    choose(page, "choose-problem", "swirl")
    legend = "[...document.querySelectorAll('#regret-plot .legendtext')].map((node) => node.textContent)"
    page.until(f"{legend}.length === 2")
    assert sorted(page.ask(legend)) == ["bayes-td-max", "q-learning"]
    choose(page, "choose-problem", "hostile")
    page.until(f"{legend}.join() === 'bayes-td'")
    assert count(page, "#routes-plot .scatterlayer .trace") == 8
    assert page.complaints == []


def test_dark_narrow_and_printed(page):
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('#regret-plot .xtitle').style.fill"
    page.resize(380, 800)
    page.until("document.documentElement.scrollWidth <= 380")
    assert page.ask(background) == "rgb(255, 255, 255)"
    page.media(dark=True)
    page.until(f"{ink} === 'rgb(232, 234, 237)'")
    assert page.ask(background) == "rgb(20, 23, 28)"
    page.media(dark=True, kind="print")
    page.until(f"{ink} === 'rgb(0, 0, 0)'")
    assert page.ask(background) == "rgb(255, 255, 255)"
    assert page.ask("getComputedStyle(document.querySelector('.controls')).display") == "none"
    page.media(dark=False)
    page.until(f"{ink} === 'rgb(27, 31, 36)'")
    assert page.complaints == []
