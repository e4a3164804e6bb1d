"""The page on this machine: a server for one person, who has its address.

It listens on the loopback alone. Its address holds a random token; a request without it is refused, and so is one whose
Host is not the server's own (a name that somebody's DNS points here) or whose Origin is another page's. No header lets
another origin read an answer. The page is one HTML document that carries everything it needs. Its policy, sent as a
header, allows the one program and the one style that it carries, by their digests, and requests to the server it came
from; nothing else, from nowhere else, and no other page may frame it.

The main thread computes, so that an interrupt reaches it: Ctrl-C ends the program, the page's "stop" what it is
computing. The threads of the server only read requests and wait; but advice, which takes longer than pies and changes
nothing, is computed by the thread that was asked for it, so that pies never wait for it.
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
from bellmanifold.explorer.session import Session
from bellmanifold.formats.files import parse_json, reason
from bellmanifold.report.text import asset, digest, embedded, filled, program

LOOPBACK = "127.0.0.1"
MOST_BYTES = 2**16
"""Of a message."""
WAKING = 0.5
"""Seconds after which a thread that waits looks whether it was interrupted; some systems do not wake it."""
FAREWELL = 10.0
"""Seconds that the end waits for advice that is being computed."""
PATIENCE = 30.0
"""Seconds a connection may take to say what it wants."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def make_local_page(board: dict[str, Any], view: dict[str, Any]) -> str:
    """The document, with the view it begins with."""
    parts = {
        "title": escape(board["name"]),
        "style": asset("explorer", "explore.css"),
        "program": program("explorer", "explore.js"),
        "data": embedded({"board": board, "view": view}),
    }
    return filled(asset("explorer", "explore.html"), parts)


def policy() -> str:
    """What the page may load."""
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
    """Hands the page out and messages in. Port 0 is a free one; one that cannot be used is refused."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere it would let others listen, too

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
        """As usual, without asking a name server what this machine is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    @property
    def hosts(self) -> tuple[str, ...]:
        """What requests may call this server."""
        return tuple(f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost"))

    @property
    def address(self) -> str:
        """Of the page, with the token."""
        return f"http://{self.hosts[0]}/{self.token}/"

    def ask(self, message: Any) -> dict[str, Any]:
        """Have a message answered by the main thread, and wait for it; one that asks for advice is answered here."""
        if isinstance(message, dict) and message.get("kind") == "advise":
            with self.advising:
                return self.session.answer(message)
        answer: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.errands.put((message, answer))
        return answer.get()

    def stop(self) -> None:
        """Interrupt the main thread, if it is computing."""
        with self.turn:
            if self.computing:
                self.stopping = True
                interrupt_main()

    def run_errands(self) -> None:
        """Answer messages; ends by an interrupt that the page did not ask for."""
        while True:
            try:
                message, answer = self.errands.get(timeout=WAKING)
            except Empty:
                continue
            answer.put(self._answered(message))

    def _answered(self, message: Any) -> dict[str, Any]:
        self.computing, self.stopping = True, False
        try:
            view = self.session.answer(message)
            with self.turn:  # a stop that comes now finds nothing to interrupt, and one that came before is felt here
                self.computing = False
        except (StoppedError, KeyboardInterrupt):
            self.computing = False
            if not self.stopping:
                raise KeyboardInterrupt from None
            return self.session.view(message, error="stopped; nothing was changed")
        return view

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: LocalServer
    server_version, sys_version = "bellmanifold", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        if self._admitted() and self._is_for(""):
            page = make_local_page(self.server.board, self.server.ask({"kind": "look"}))
            self._send(200, page, "text/html", {"Content-Security-Policy": self.server.policy})

    def do_POST(self) -> None:
        if not self._admitted():
            return
        if self.path.endswith("/stop") and self._is_for("stop"):
            self.server.stop()
            self._send(200, "stopped")
            return
        if not self._is_for("answer"):
            return
        if self.headers.get_content_type() != "application/json":
            self._send(415, "messages are JSON")
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

    def _admitted(self) -> bool:
        """Refuse whoever has not got the token, calls the server by another name, or comes from another page."""
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
        self._send(404, "there is nothing here")
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
        """Requests are no news."""


def serve(session: Session, port: int, announce: Callable[[str], None]) -> None:
    """Serve a session until an interrupt; `announce` is told the page's address once it answers."""
    with LocalServer(port, session) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        try:
            announce(server.address)
            server.run_errands()
        finally:
            server.shutdown()
            # compiled code must not be at work while Python takes itself apart
            server.advising.acquire(timeout=FAREWELL)
