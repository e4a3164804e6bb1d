"""A real browser for tests: Chromium without a window, asked through its DevTools protocol."""

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from contextlib import ExitStack, contextmanager

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-port=0"
)
START_SECONDS = 60


@contextmanager
def browser(profile):
    """Start Chromium with a fresh profile; hands over a function that opens pages."""
    process = subprocess.Popen(
        [PROGRAM, *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with ExitStack() as sockets:
        try:
            port = _port(profile, process)
            yield lambda url, **size: Page(sockets.enter_context(_connect(port)), url, **size)
        finally:  # before the sockets are closed: pages that say goodbye one by one take ten seconds each
            process.kill()
            process.wait()


def _port(profile, process):
    written = profile / "DevToolsActivePort"
    for _ in range(10 * START_SECONDS):
        if written.exists() and "\n" in (text := written.read_text()):
            return int(text.splitlines()[0])
        assert process.poll() is None, "chromium ended at once"
        time.sleep(0.1)
    raise AssertionError("chromium did not start")


def _connect(port):
    """A socket to a new page."""
    from websockets.sync.client import connect

    request = urllib.request.Request(f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT")
    with urllib.request.urlopen(request) as answer:
        return connect(json.load(answer)["webSocketDebuggerUrl"], max_size=None, close_timeout=0.2)


class Page:
    """A page: what it logged, which requests it made, and keys, clicks and questions to it."""

    def __init__(self, socket, url, width=1280, height=900, dark=False):
        self.socket = socket
        self.numbers, self.events = itertools.count(1), []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.media(dark)
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def call(self, method, **parameters):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def ask(self, expression):
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression, seconds=30):
        for _ in range(20 * seconds):
            if self.ask(expression):
                return
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}")

    def key(self, name, text=""):
        for kind in ("keyDown", "keyUp"):
            code = {"key": name, "code": "Space" if name == " " else name, "windowsVirtualKeyCode": KEY_CODES[name]}
            self.call(
                "Input.dispatchKeyEvent", type=kind, **code, **({"text": text} if text and kind == "keyDown" else {})
            )

    def middle(self, selector):
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        return self.ask(f"(b => ({{x: b.x + b.width / 2, y: b.y + b.height / 2}}))({box})")

    def click(self, selector):
        self.ask(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **self.middle(selector))

    def hover(self, selector):
        self.ask(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self.middle(selector))

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, dark, kind=""):
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=scheme)

    def screenshot(self, path):
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    @property
    def complaints(self):
        """Errors and warnings that were logged, and exceptions."""
        self.ask("0")
        found = []
        for event in self.events:
            kind, said = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(said["exceptionDetails"])
            if kind == "Log.entryAdded" and said["entry"]["level"] in ("warning", "error"):
                found.append(said["entry"])
            if kind == "Runtime.consoleAPICalled" and said["type"] in ("warning", "error", "assert"):
                found.append(said)
        return found

    @property
    def requests(self):
        """Addresses that were asked for; what an address holds in itself is asked of nobody."""
        self.ask("0")
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [url for request in sent if not (url := request["request"]["url"]).startswith("data:")]


KEY_CODES = {"Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9, "Escape": 27, " ": 32}
