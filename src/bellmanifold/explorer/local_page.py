"""The local page: one HTML document that carries everything it needs.

Its policy, sent as a header, allows the one program and the one style that it carries, by their digests, and requests
to the server it came from; nothing else, from nowhere else, and no other page may frame it.
"""

from __future__ import annotations

from html import escape
from typing import Any

from bellmanifold.report.text import asset, digest, embedded, filled


def make_local_page(board: dict[str, Any], view: dict[str, Any]) -> str:
    """The document, with the view it begins with."""
    parts = {
        "title": escape(board["name"]),
        "style": asset("explorer", "explore.css"),
        "program": program(),
        "data": embedded({"board": board, "view": view}),
    }
    return filled(asset("explorer", "explore.html"), parts)


def policy() -> str:
    """What the page may load."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {digest(program())}",
            f"style-src {digest(asset('explorer', 'explore.css'))}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def program() -> str:
    """What draws the page: shapes that the report draws, too, and the rest."""
    return asset("report", "shapes.js") + asset("explorer", "explore.js")
