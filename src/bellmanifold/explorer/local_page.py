"""The local page: one HTML document that carries everything it needs.

Its policy, sent as a header, allows the one program and the one style that it carries, by their digests, and requests
to the server it came from; nothing else, from nowhere else, and no other page may frame it.
"""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any

from bellmanifold.report.text import embedded, shapes


def make_local_page(board: dict[str, Any], view: dict[str, Any]) -> str:
    """The document, with the view it begins with."""
    parts = {
        "title": escape(board["name"]),
        "style": asset("explore.css"),
        "program": program(),
        "data": embedded({"board": board, "view": view}),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], asset("explore.html"))


def policy() -> str:
    """What the page may load."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_digest(program())}'",
            f"style-src '{_digest(asset('explore.css'))}'",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def program() -> str:
    """What draws the page: shapes that the report draws, too, and the rest."""
    return shapes() + asset("explore.js")


def asset(name: str) -> str:
    """A file beside this module."""
    return resources.files("bellmanifold.explorer").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")
