"""Untrusted text and numbers in a page: names come from files, and a file may call a state `</script>`.

Text that Python writes into the page goes through `escape_name`. Data for the page's script go through `embed_json`,
JSON in which no character can end the enclosing element; the script sets it as text, never as markup.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib import resources
from math import isfinite
from typing import Any

from bellmanifold.errors import limit_marks
from bellmanifold.pictures.positions import on_grid
from bellmanifold.problem.ssp import SSP

SHORT, LONG = 16, 200
"""Maximal number of characters of a name, in a drawing and elsewhere."""
_BIDI = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def display_name(name: object, limit: int = LONG) -> str:
    """A name for display: without control characters or changes of text direction, cut at a limit.

    >>> display_name("a\\tb" + "c" * 30, limit=8)
    'a·bcccc…'
    """
    whole = str(name)
    text = limit_marks(whole[: 4 * limit].translate(_BIDI))  # more than is shown, since some characters are removed
    text = "".join("·" if ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 else c for c in text)
    return text if len(text) <= limit and len(whole) <= 4 * limit else text[: limit - 1] + "…"


def escape_name(name: object, limit: int = LONG) -> str:
    """A name as HTML text, isolated from the direction of surrounding text."""
    return f"<bdi>{html.escape(display_name(name, limit))}</bdi>"


def asset(room: str, name: str) -> str:
    """The text of a file beside the modules of a subpackage."""
    return resources.files(f"bellmanifold_lab.{room}").joinpath(name).read_text(encoding="utf-8")


def program(room: str, name: str) -> str:
    """A page's script, preceded by `shapes.js`, which draws arrows and pies on every page."""
    return asset("report", "shapes.js") + asset(room, name)


def fill_template(template: str, parts: Mapping[str, str]) -> str:
    """Replace each {{name}} in a template by the part of that name."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def digest(text: str) -> str:
    """The digest by which a content security policy allows a script or a style."""
    return f"'sha256-{base64.b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def embed_json(value: Any) -> str:
    """JSON for a script element: ASCII only, without characters special to HTML."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def round_values(values: Iterable[float]) -> list[float | None]:
    """Numbers rounded to five digits for JSON; None for those that are not finite."""
    return [float(f"{value:.5g}") + 0.0 if isfinite(value) else None for value in values]


def outline(model: SSP) -> dict[str, Any]:
    """The part of a problem's drawing data that all pages share: names, initial states and pairs."""
    return {
        "states": [display_name(name) for name in model.states],
        "short": [display_name(name, SHORT) for name in model.states],
        "actions": [display_name(name) for name in model.actions],
        "grid": on_grid(model),
        "initial": model.initial.nonzero()[0].tolist(),
        "pair_state": model.pair_state.tolist(),
        "pair_action": model.pair_action.tolist(),
    }


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; cells are HTML already."""
    top = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'
