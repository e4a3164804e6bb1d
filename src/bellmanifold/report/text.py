"""Text of others in a page, and numbers: names come from files, and a file may call a state `</script>`.

Whatever Python puts into the page as text goes through `escaped`; whatever the page's own program shows goes through
`embedded`, JSON in which no character can end the element it stands in, and is then set as text, never as markup.
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

from bellmanifold.errors import unstacked
from bellmanifold.figures.positions import on_grid
from bellmanifold.ssp import SSP

SHORT, LONG = 16, 200
"""Characters of a name in a drawing, and where there is room."""
_BIDI = dict.fromkeys([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def shown(name: object, limit: int = LONG) -> str:
    """A name as people see it: no controls, none that turn the direction of what follows, cut at a limit.

    >>> shown("a\\tb" + "c" * 30, limit=8)
    'a·bcccc…'
    """
    whole = str(name)
    text = unstacked(whole[: 4 * limit].translate(_BIDI))  # a little more than is shown, because some characters go
    text = "".join("·" if ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 else c for c in text)
    return text if len(text) <= limit and len(whole) <= 4 * limit else text[: limit - 1] + "…"


def escaped(name: object, limit: int = LONG) -> str:
    """A name as HTML text that keeps its direction to itself."""
    return f"<bdi>{html.escape(shown(name, limit))}</bdi>"


def asset(room: str, name: str) -> str:
    """A file of text beside the modules of a room."""
    return resources.files(f"bellmanifold.{room}").joinpath(name).read_text(encoding="utf-8")


def program(room: str, name: str) -> str:
    """A page's own program: one beside the modules of a room, and before it what draws arrows and pies on any page."""
    return asset("report", "shapes.js") + asset(room, name)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """A page with its parts in the place of their {{names}}."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def digest(text: str) -> str:
    """How a page's policy names a script or a style that may be used."""
    return f"'sha256-{base64.b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def embedded(value: Any) -> str:
    """JSON for a script element: ASCII only, and no character that HTML would look at."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def rounded(values: Iterable[float]) -> list[float | None]:
    """Numbers for JSON with few digits; None where there is none."""
    return [float(f"{value:.5g}") + 0.0 if isfinite(value) else None for value in values]


def outline(model: SSP) -> dict[str, Any]:
    """What a drawing of a problem by a page's own program begins with: names, starts and pairs."""
    return {
        "states": [shown(name) for name in model.states],
        "short": [shown(name, SHORT) for name in model.states],
        "actions": [shown(name) for name in model.actions],
        "grid": on_grid(model),
        "initial": model.initial.nonzero()[0].tolist(),
        "pair_state": model.pair_state.tolist(),
        "pair_action": model.pair_action.tolist(),
    }


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'
