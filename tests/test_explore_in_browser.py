"""Exploring in a real browser: the local page and the widget's front end, which are one program with two transports.

Skipped, and says so, where there is no Chromium; `.ci/run` installs it.
"""

import json
import time

import browser as browsers
import numpy as np
import pytest
from test_explore import HOSTILE, OPEN, exploring

import bellmanifold as bm
from bellmanifold_lab.explorer.session import QUICK_SAMPLES
from bellmanifold_lab.report.text import asset

pytestmark = pytest.mark.skipif(browsers.PROGRAM is None, reason="no Chromium here: apt-get install chromium")
MODEL = "env:deep-sea?depth=3"


@pytest.fixture(scope="module")
def open_page(tmp_path_factory):
    with browsers.browser(tmp_path_factory.mktemp("profile")) as opens:
        yield opens


@pytest.fixture(scope="module")
def address():
    with exploring(MODEL, "--epsilon", "0.1") as (_, found):
        yield found


@pytest.fixture
def page(open_page, address):
    """The page without data; it must log nothing and ask nobody but its own server."""
    opened = open_page(address, width=1300, height=1000)
    ready(opened)
    while not opened.ask("document.querySelector('.side section:last-child button').disabled"):
        click_button(opened, "undo")
    yield opened
    assert opened.complaints == []
    assert {url for url in opened.requests if not url.startswith("blob:")} <= {
        address,
        f"{address}answer",
        f"{address}stop",
        "data:,",
    }


def ready(page):
    """Wait until the page is drawn."""
    page.until("document.querySelector('[data-followed]') !== null")


def after(page, action):
    """Do something, and wait until its answer is shown."""
    followed = "Number(document.querySelector('[data-followed]').dataset.followed)"
    before = page.ask(followed)
    action()
    page.until(f"{followed} > {before}", 120)


def click_button(page, text):
    after(
        page,
        lambda: page.ask(
            f"[...document.querySelectorAll('button')].find((b) => b.textContent === {json.dumps(text)}).click()"
        ),
    )


def add(page, pair, value):
    """Click at an arrow, type what it paid, press the button."""
    click_arrow(page, pair)
    page.call("Input.insertText", text=value)
    after(page, lambda: page.click("form .add"))


def click_arrow(page, pair):
    """With the mouse, near the beginning of the arrow, where no other crosses it."""
    path = f"document.querySelector('[data-pair=\"{pair}\"] .hit')"
    page.ask(f"{path}.scrollIntoView({{block: 'center'}})")
    place = page.ask(
        f"""(() => {{ const path = {path}, at = path.getPointAtLength(path.getTotalLength() * 0.25);
        const on = new DOMPoint(at.x, at.y).matrixTransform(path.getScreenCTM()); return {{x: on.x, y: on.y}}; }})()"""
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)


def pies(page):
    return page.ask("[...document.querySelectorAll('[data-pie]')].map((node) => node.getAttribute('d'))")


def text(page, selector):
    return page.ask(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")


def slide(page, name, step):
    after(
        page,
        lambda: page.ask(
            f"""(() => {{ const input = document.querySelector('input[aria-label="{name}"]');
            input.value = "{step}"; input.dispatchEvent(new Event("input")); }})()"""
        ),
    )


def test_a_click_and_a_value_move_the_pies(page, tmp_path):
    model = bm.load_model(MODEL)
    before = pies(page)
    assert len(before) == model.n_pairs
    add(page, 1, "2.5")
    assert text(page, ".error") == ""
    assert pies(page) != before
    assert text(page, ".observations li span") == "0,0: right paid 2.5"
    data = bm.Dataset.from_pairs(model, [(*model.pair_name(1), 2.5)])
    found = bm.posterior(model, data, epsilon=0.1, samples=QUICK_SAMPLES).action_probability
    shown = [
        float(part.split(" ")[0])
        for part in page.ask("[...document.querySelectorAll('.chance')].map((n) => n.textContent)")
    ]
    np.testing.assert_allclose(shown, found.value[:2], atol=6e-4)
    page.screenshot(tmp_path / "explore.png")
    assert (tmp_path / "explore.png").stat().st_size > 20_000


def test_advice_and_routes_stand_beside_the_pies(page):
    """They come by themselves once nobody does anything, and a click does not wait for them."""
    add(page, 1, "2.5")
    page.until("document.querySelector('.advice .told') !== null", 120)
    assert "If you stop now, you expect to lose" in text(page, ".advice .told")
    assert len(page.ask("[...document.querySelectorAll('.advice .way')].map((n) => n.textContent)")) == 3
    page.click(".advice .trial")
    state, move = text(page, ".advice .trial").split(": ")
    assert text(page, ".moves .chosen .name") == move
    assert page.ask("document.querySelector('.which select').selectedOptions[0].textContent") == state
    click_button(page, "undo")
    assert text(page, ".advice .told") == ""


def test_names_stay_readable_in_a_small_picture(open_page):
    with exploring("env:roads") as (_, found):
        for width in (1300, 400):
            page = open_page(found, width=width, height=1000)
            ready(page)
            scale = "document.querySelector('.paper svg').getScreenCTM().a"
            size = "parseFloat(getComputedStyle(document.querySelector('.state text')).fontSize)"
            page.until(f"{size} * {scale} > {12 if width > 1000 else 8}")
            assert text(page, ".state.start text") == "start: J00"


def test_a_value_left_empty_is_the_problem_s(page):
    click_arrow(page, 0)
    after(page, lambda: page.click("form .add"))
    paid = bm.load_model(MODEL).reward[0]
    assert text(page, ".observations li span") == f"0,0: left paid {paid:.3g}"


def test_beliefs_undo_and_removal(page):
    before = pies(page)
    page.click("[data-move='0']")
    page.ask("document.querySelector('[aria-label=\"mean of the belief\"]').focus()")
    page.call("Input.insertText", text="1")
    page.key("Tab")
    page.call("Input.insertText", text="0.5")
    after(page, lambda: page.key("Enter", "\r"))
    assert text(page, ".observations li span") == "0,0: left pays 1 ± 0.5"
    believed = pies(page)
    assert believed != before
    add(page, 3, "1")
    assert len(page.ask("[...document.querySelectorAll('.observations li')]")) == 2
    after(page, lambda: page.click(".observations li:first-child .remove"))
    assert pies(page) == believed
    click_button(page, "undo")
    state, action = bm.load_model(MODEL).pair_name(3)
    assert text(page, ".observations li span") == f"{state}: {action} paid 1"
    click_button(page, "undo")
    click_button(page, "undo")
    assert pies(page) == before


def test_sliders(page):
    add(page, 1, "1.5")
    before = pies(page)
    slide(page, "prior scale", 25)
    assert text(page, ".slider output") == "1"
    smaller = pies(page)
    assert smaller != before
    slide(page, "epsilon", 100)
    assert page.ask("[...document.querySelectorAll('.slider output')].map((n) => n.textContent)") == ["1", "10"]
    assert pies(page) != smaller
    slide(page, "epsilon", 0)
    assert page.ask("[...document.querySelectorAll('.slider output')][1].textContent") == "0 (exact)"
    slide(page, "prior scale", 50)
    page.ask("document.querySelector('input[type=range]').focus()")
    after(page, lambda: page.key("ArrowRight"))
    assert float(text(page, ".slider output")) > 10, "sliders listen to arrow keys"


def test_what_contradicts_is_said_and_changes_nothing(page):
    add(page, 2, "1")
    before = pies(page)
    add(page, 2, "4")
    assert "paid 4 but 1 before: deterministic rewards must repeat" in text(page, ".alerts .error")
    assert page.ask("document.querySelector('.alerts p').className") == "error", "errors come first"
    assert pies(page) == before
    assert page.ask("document.querySelectorAll('.observations li').length") == 1
    click_button(page, "undo")
    assert text(page, ".alerts .error") == "", "what was done next says nothing of it"


def test_the_keyboard_alone(page):
    """Tab leads from the state to its moves and their form; every control has a name and shows its focus."""
    page.ask("document.querySelector('.which select').focus()")
    page.key("Tab")
    assert page.ask("document.activeElement.dataset.move") == "0"
    page.key("Tab")
    page.key(" ", " ")
    assert page.ask("document.activeElement.getAttribute('aria-label')") == "what it paid"
    assert page.ask("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.call("Input.insertText", text="0.25")
    after(page, lambda: page.key("Enter", "\r"))
    assert text(page, ".observations li span") == "0,0: right paid 0.25"
    controls = "[...document.querySelectorAll('button, input, select')]"
    assert page.ask(f"{controls}.filter((n) => !n.labels?.length && !n.ariaLabel && !n.textContent).length") == 0


def saved_data(directory, model):
    """What the page saves there, once it has."""
    for _ in range(200):
        if (directory / "data.json").exists():
            break
        time.sleep(0.05)
    return bm.load_data(directory / "data.json", model)


def test_the_data_file_is_saved_and_read_back(page, tmp_path):
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    add(page, 1, "2.5")
    click_button(page, "save data file")
    data = saved_data(tmp_path, bm.load_model(MODEL))
    assert (data.pair.tolist(), data.reward.tolist()) == ([1], [2.5])
    assert not page.ask("document.querySelector('.unsaved') !== null")


def test_it_fits_small_and_large_windows(page):
    """Nothing is wider than the window; the picture is beside the lists where there is room, and above them else."""
    for width in (1300, 400, 320):
        page.resize(width, 1000)
        time.sleep(0.2)
        assert page.ask("document.documentElement.scrollWidth") <= width
        boxes = "['.side', '.paper'].map((name) => document.querySelector(name).getBoundingClientRect())"
        assert page.ask(f"(([side, paper]) => side.top < paper.bottom)({boxes})") == (width == 1300)


def test_another_page_gets_nothing(open_page, address):
    """Even one that knows the address: neither an answer nor a frame."""
    stranger = open_page("about:blank")
    ask = f"fetch('{address}').then((a) => 'read ' + a.status, (e) => e.name)"
    assert stranger.ask(ask) == "TypeError"
    post = "{method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'}"
    assert stranger.ask(f"fetch('{address}answer', {post}).then((a) => 'read', (e) => e.name)") == "TypeError"
    blind = f"fetch('{address}answer', {{method: 'POST', mode: 'no-cors', body: '{{\"kind\": \"undo\"}}'}})"
    assert stranger.ask(f"{blind}.then((a) => a.type, (e) => e.name)") == "TypeError"


def test_names_stay_text(open_page, tmp_path):
    (tmp_path / "open.json").write_text(json.dumps(OPEN | {"name": "<img src=x onerror=alert(1)>"}))
    with exploring(tmp_path / "open.json") as (_, address):
        page = open_page(address)
        ready(page)
        assert page.ask("document.querySelectorAll('img, script:not([type])').length") == 0
        assert text(page, "h2") == "<img src=x onerror=alert(1)>"
        assert HOSTILE in text(page, ".moves")
        page.click("[data-move='0']")
        assert (
            page.ask("document.querySelector('select[aria-label=\"where it led\"]').closest('label').hidden") is False
        )
        page.call("Input.insertText", text="-1")
        page.ask("document.querySelector('select[aria-label=\"where it led\"]').value = '1'")
        after(page, lambda: page.click("form .add"))
        assert text(page, ".observations li span") == f"dock: {HOSTILE} paid −1 → {HOSTILE}"
        assert not [event for event in page.events if event.get("method") == "Page.javascriptDialogOpening"]
        assert page.complaints == []


def test_a_page_without_its_program_says_so(open_page):
    with exploring("env:two-state") as (process, address):
        page = open_page(address)
        ready(page)
        process.terminate()
        process.wait(60)
        page.click("[data-move='1']")
        after(page, lambda: page.click("form .add"))
    assert "the program behind this page has ended" in text(page, ".alerts .error")


# ---- in a notebook: `render` with a model that stands in for the notebook's ----------------------------------------

NOTEBOOK = """<!doctype html><html><head><meta charset="utf-8"><style>{css}</style></head><body><div id="cell"></div>
<script type="module">
const source = {source}, state = {state}, heard = new Map();
window.sent = [];
const model = {{
  get: (name) => state[name],
  send: (message) => window.sent.push(message),
  on: (event, action) => heard.set(event, action),
  off: (event) => heard.delete(event),
}};
window.receive = (view) => {{ state.view = view; heard.get("change:view")?.(); }};
const {{ default: widget }} = await import(URL.createObjectURL(new Blob([source], {{ type: "text/javascript" }})));
window.leave = widget.render({{ model, el: document.getElementById("cell") }});
</script></body></html>"""


class Notebook:
    """A widget of this process, shown by a page."""

    def __init__(self, open_page, path, widget):
        self.widget = widget
        state = json.dumps({"board": widget.board, "view": widget.view})
        path.write_text(
            NOTEBOOK.format(css=asset("explorer", "explore.css"), source=json.dumps(widget._esm), state=state)
        )
        self.page = open_page(path.as_uri(), width=900, height=1000)
        self.page.until("document.querySelector('[data-followed]') !== null")

    def pump(self):
        """Carry messages to Python and views back, until there are no more; returns their kinds."""
        kinds = []
        for _ in range(5):
            time.sleep(0.15)
            for message in self.page.ask("window.sent.splice(0)"):
                kinds.append(message["kind"])
                self.widget._handle_custom_msg(message, [])
                self.page.ask(f"receive({json.dumps(self.widget.view)})")
        return kinds


def test_the_widget_s_front_end(open_page, tmp_path):
    model = bm.load_model(MODEL)
    notebook = Notebook(open_page, tmp_path / "notebook.html", bm.explore(model, epsilon=0.1))
    page = notebook.page
    assert notebook.pump() == ["warm", "warm", "warm"]
    before = pies(page)
    click_arrow(page, 1)
    page.call("Input.insertText", text="2.5")
    page.click("form .add")
    assert notebook.pump() == ["observe"]
    assert pies(page) != before
    assert notebook.widget.data.reward.tolist() == [2.5]
    assert text(page, ".observations li span") == "0,0: right paid 2.5"
    assert page.ask("document.querySelector('.halt')") is None, "the notebook has its own interrupt"
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.ask("[...document.querySelectorAll('button')].find((b) => b.textContent === 'save data file').click()")
    assert notebook.pump() == ["save"]
    assert saved_data(tmp_path, model).reward.tolist() == [2.5]
    page.ask("window.leave()")
    assert page.complaints == []
