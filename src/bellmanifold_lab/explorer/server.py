"""The local page: a server for a single user, who knows its address.

It listens on the loopback interface only. Its address contains a random token. Requests are refused if they lack the
token, if their Host is not the server's own (DNS rebinding) or if their Origin is another page. No header lets another
origin read an answer. The page is one self-contained HTML document. Its content security policy, sent as a header,
allows only its own script and style, by their digests, and requests to this server; no other page may frame it.

The main thread computes, so that interrupts reach it: Ctrl-C ends the program, the page's "stop" ends the current
computation. The server's threads only read requests and wait. The exception is advice, which takes longer than pies and
changes nothing: the thread that receives the request computes it, so that pies never wait for it.
"""

from __future__ import annotations

import json
import os
import secrets
from _thread import interrupt_main
from collections.abc import Callable
from hmac import compare_digest
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from socketserver import TCPServer
from threading import Lock, Thread
from typing import Any

from bellmanifold.errors import BadInputError, StoppedError
from bellmanifold.io.files import parse_json, reason
from bellmanifold_lab.explorer.session import Session
from bellmanifold_lab.report.text import asset, digest, embed_json, fill_template, program

LOOPBACK = "127.0.0.1"
MOST_BYTES = 2**16
"""Maximal size of a message."""
WAKING = 0.5
"""Seconds after which a waiting thread checks for interrupts; some systems do not wake it."""
FAREWELL = 10.0
"""Seconds that shutdown waits for advice being computed."""
PATIENCE = 30.0
"""Timeout of a connection, in seconds."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def make_local_page(board: dict[str, Any], view: dict[str, Any]) -> str:
    """The HTML document, with its initial view."""
    parts = {
        "title": escape(board["name"]),
        "style": asset("explorer", "explore.css"),
        "program": program("explorer", "explore.js"),
        "data": embed_json({"board": board, "view": view}),
    }
    return fill_template(asset("explorer", "explore.html"), parts)


def policy() -> str:
    """The page's content security policy."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {digest(program('explorer', 'explore.js'))}",
            f"style-src {digest(asset('explorer', 'explore.css'))}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


class LocalServer(ThreadingHTTPServer):
    """Serves the page and passes on its messages. Port 0 means any free port; an unusable port is refused."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # on other systems it would let other programs listen, too

    def __init__(self, port: int, session: Session) -> None:
        self.token, self.board, self.policy = secrets.token_urlsafe(24), session.board, policy()
        self.errands: SimpleQueue[tuple[Any, SimpleQueue[dict[str, Any]]]] = SimpleQueue()
        self.computing, self.stopping, self.turn = False, False, Lock()
        self.advising, self.session = Lock(), session
        if not 0 <= port < 2**16:
            raise BadInputError(f"--port is {port}: give a number from 0 to 65535, or leave it out")
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise BadInputError(
                f"--port {port}: cannot be used: {reason(error)}: choose another one, or leave it out"
            ) from None

    def server_bind(self) -> None:
        """Bind without looking up the host name of this machine."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The values of the Host header that are accepted."""
        return tuple(f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost"))

    @property
    def address(self) -> str:
        """Address of the page, with the token."""
        return f"http://{self.hosts[0]}/{self.token}/"

    def ask(self, message: Any) -> dict[str, Any]:
        """Let the main thread answer a message, and wait for it; a request for advice is answered in this thread."""
        if isinstance(message, dict) and message.get("kind") == "advise":
            with self.advising:
                return self.session.answer(message)
        answer: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.errands.put((message, answer))
        return answer.get()

    def stop(self) -> None:
        """Interrupt the main thread if it is computing."""
        with self.turn:
            if self.computing:
                self.stopping = True
                interrupt_main()

    def run_errands(self) -> None:
        """Answer messages until an interrupt that the page did not request."""
        while True:
            try:
                message, answer = self.errands.get(timeout=WAKING)
            except Empty:
                continue
            answer.put(self._answer(message))

    def _answer(self, message: Any) -> dict[str, Any]:
        self.computing, self.stopping = True, False
        try:
            view = self.session.answer(message)
            with self.turn:  # a later stop finds nothing to interrupt; an earlier one takes effect here
                self.computing = False
        except (StoppedError, KeyboardInterrupt):
            self.computing = False
            if not self.stopping:
                raise KeyboardInterrupt from None
            return self.session.view(message, error="stopped; nothing was changed")
        return view

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections."""


class _Handler(BaseHTTPRequestHandler):
    server: LocalServer
    server_version, sys_version = "bellmanifold", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        if self._is_admitted() and self._is_for(""):
            page = make_local_page(self.server.board, self.server.ask({"kind": "look"}))
            self._send(200, page, "text/html", {"Content-Security-Policy": self.server.policy})

    def do_POST(self) -> None:
        if not self._is_admitted():
            return
        if self.path.endswith("/stop") and self._is_for("stop"):
            self.server.stop()
            self._send(200, "stopped")
            return
        if not self._is_for("answer"):
            return
        if self.headers.get_content_type() != "application/json":
            self._send(415, "messages must be JSON")
            return
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or len(length) > 9 or int(length) > MOST_BYTES:
            self._send(413, f"a message has at most {MOST_BYTES} bytes")
            return
        try:
            message = parse_json(self.rfile.read(int(length)))
        except BadInputError as error:
            self._send(400, str(error))
            return
        self._send(200, json.dumps(self.server.ask(message), allow_nan=False), "application/json")

    def _is_admitted(self) -> bool:
        """Whether a request has the token, the right Host and no foreign Origin; others are refused."""
        hosts = self.server.hosts
        origins = self.headers.get_all("Origin", [])
        own_name = self.headers.get_all("Host", []) in [[host] for host in hosts]
        own_page = all(origin in [f"http://{host}" for host in hosts] for origin in origins)
        token = self.path.split("/")[1] if self.path.startswith("/") else ""
        known = compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if own_name and own_page and known:
            return True
        self._send(403, "refused: open the address that the program printed")
        return False

    def _is_for(self, place: str) -> bool:
        if self.path == f"/{self.server.token}/{place}":
            return True
        self._send(404, "not found")
        return False

    def _send(self, code: int, content: str, kind: str = "text/plain", more: dict[str, str] | None = None) -> None:
        body = content.encode("utf-8")
        self.send_response(code)
        own = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **(more or {})}
        for name, value in (HEADERS | own).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 (the name of the class above)
        """Do not log requests."""


def serve(session: Session, port: int, announce: Callable[[str], None]) -> None:
    """Serve a session until an interrupt; `announce` is called with the page's address once it is reachable."""
    with LocalServer(port, session) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        try:
            announce(server.address)
            server.run_errands()
        finally:
            server.shutdown()
            # compiled code must not run while Python shuts down
            server.advising.acquire(timeout=FAREWELL)
