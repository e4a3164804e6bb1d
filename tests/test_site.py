"""The documentation as a site: every page is found, set and searched without asking the network for anything."""

import ast
import functools
import http.server
import json
import os
import re
import runpy
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import PROGRAM, browser

ROOT = Path(__file__).parent.parent
WIDTHS = (1300, 400)
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
REMOTE = re.compile(r"^\s*(https?:)?//")
in_a_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")


def build(folder, out):
    """Run MkDocs in a folder with the options of `make docs`."""
    (options,) = re.findall(r"/mkdocs build (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "mkdocs", "build", *options.split(), "--site-dir", str(out)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    built = build(ROOT, out)
    assert built.returncode == 0, built.stderr
    return out


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("[a page](other.md#there) and [a place](#here)", True),
        ("[no page](nowhere.md)", False),
        ("[no place](other.md#nowhere)", False),
        ("[no place](#nowhere)", False),
        ("![no picture](images/nowhere.png)", False),
    ],
)
def test_the_build_fails_on_dead_links(tmp_path, text, passes):
    """A site of two pages with the settings of ours: only what leads somewhere is built."""
    settings = f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: pages\nnav: [index.md, other.md]\nplugins: []\n"
    (tmp_path / "mkdocs.yml").write_text(settings)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text(f"# One page\n\n## Here\n\n{text}\n")
    (tmp_path / "pages" / "other.md").write_text("# Another page\n\n## There\n")
    built = build(tmp_path, tmp_path / "site")
    assert (built.returncode == 0) == passes, built.stderr


def pages(site):
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


class Resources(HTMLParser):
    """What a browser would load for a page; links that a reader may follow are none of it."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        said = dict(attrs)
        if tag == "link" and said.get("rel") in ("canonical", "next", "prev"):
            return
        if tag in LOADED and said.get(LOADED[tag]):
            self.found.append(said[LOADED[tag]])
        self.found += re.findall(r"url\(['\"]?([^)'\"]+)", said.get("style") or "")


def test_every_page_of_the_folder_is_in_the_navigation(site):
    written = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    built = {path.relative_to(site).with_suffix("").as_posix() for path in pages(site)}
    assert built == written
    listed = re.findall(r"^ +- .*: (\S+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(written)


def test_no_page_loads_anything_from_elsewhere(site):
    for page in [*pages(site), site / "404.html"]:
        text = page.read_text()
        styles = "".join(re.findall(r"<style>.*?</style>", text, re.DOTALL))
        wanted = [*Resources(text).found, *re.findall(r"url\(['\"]?([^)'\"]+)|@import", styles)]
        assert not [address for address in wanted if REMOTE.match(address)], page.name


def test_no_stylesheet_loads_anything_from_elsewhere(site):
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        addresses = re.findall(r"url\(['\"]?([^)'\"]+)", sheet.read_text())
        assert not [address for address in addresses if REMOTE.match(address)], sheet.name
        local = [address for address in addresses if not address.startswith(("data:", "#"))]
        assert all((sheet.parent / address).exists() for address in local), sheet.name


def test_references_lead_somewhere(site):
    """What the API reference does not know is left as `[text][name]` by MkDocs, without a word."""
    for page in pages(site):
        prose = re.sub(r"<(pre|script|code)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert not re.findall(r"\]\[[a-z_.]*\]", prose), page.name


def test_formulas_of_docstrings_are_set(site):
    """Every formula of `docs/formulas.toml` is in a docstring, and every indented line there is one of them."""
    modules = re.findall(r"^::: (\S+)", (ROOT / "docs" / "api" / "inside.md").read_text(), re.MULTILINE)
    files = [ROOT / "src" / (name.replace(".", "/") + ".py") for name in modules]
    stale = runpy.run_path(str(ROOT / "docs" / "formulas.py"))["stale"]
    assert stale([ast.get_docstring(ast.parse(path.read_text())) for path in files]) == []
    page = (site / "api" / "inside.html").read_text()
    assert r"\theta_i &amp;= \text{payment}_i + \sum_{s'}" in page
    assert "theta_i" not in re.sub(r'<(span|div) class="arithmatex">.*?</\1>|<pre.*?</pre>', "", page, flags=re.DOTALL)


def test_what_others_wrote_carries_its_licence(site):
    for part in ("katex", "iframe-worker"):
        assert "free of charge" in " ".join((site / "assets" / part / "LICENSE.txt").read_text().split())


def test_code_is_highlighted_and_the_search_knows_every_page(site):
    assert '<span class="kn">import</span>' in (site / "guide" / "robot.html").read_text()
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] or "index.html" for entry in index["docs"]}
    assert {path.relative_to(site).as_posix() for path in pages(site)} <= found


@pytest.fixture(scope="module")
def served(site):
    """The site on a port of the loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


WIDER = "document.scrollingElement.scrollWidth > window.innerWidth + 1"
UNSET = "document.querySelectorAll('.katex-error, .arithmatex:not(:has(.katex))').length"


@in_a_browser
def test_pages_fit_and_their_formulas_are_set(site, served, tmp_path):
    """At both widths, in the light and in the dark; nothing is asked of anybody else, and nothing is complained of."""
    with browser(tmp_path) as opened:
        page = opened("about:blank")
        for address in (f"{served}/{path.relative_to(site).as_posix()}" for path in pages(site)):
            page.call("Page.navigate", url=address)
            page.until(f"location.href === {address!r} && document.readyState === 'complete'")
            for width in WIDTHS:
                page.resize(width, 900)
                page.media(dark=width == WIDTHS[1])
                page.until(f"window.innerWidth === {width} && !({WIDER})", seconds=5)  # menus take a moment to fold
            assert page.ask(UNSET) == 0, address
        assert page.complaints == []
        assert not [asked for asked in page.requests if not asked.startswith((served, "data:", "about:"))]


@in_a_browser
def test_the_search_works_from_a_folder(site, tmp_path):
    with browser(tmp_path) as opened:
        page = opened((site / "index.html").as_uri())
        page.ask("document.querySelector('.md-search__input').focus()")
        page.call("Input.insertText", text="calibration")
        page.until("document.querySelectorAll('.md-search-result__item').length > 0")
        first = page.ask("document.querySelector('.md-search-result__link').href")
        assert "calibration" in first
        assert not [asked for asked in page.requests if not asked.startswith(("file:", "data:", "about:"))]
