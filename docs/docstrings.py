"""For the API reference: what differs between docstrings in the code and on the site.

Examples (`>>> ...`) become blocks of code: Markdown would take their prompts for quotations. Special methods, which
are not called by name, are left out. Formulas of modules are set (`docs/formulas.py`). mkdocs.yml names this file as an
extension of Griffe, which reads the docstrings.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from griffe import Extension, Object

sys.path.insert(0, str(Path(__file__).parent))
from formulas import typeset

EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    """The docstring with each example between fences.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found[0]}\n{found['indent']}```", docstring)


class ForReaders(Extension):
    """Puts fences around the examples of every docstring, sets formulas, and drops docstrings of special methods."""

    def on_object(self, *, obj: Object, **options: Any) -> None:
        """Called once for each class, function, attribute and module that Griffe has read."""
        if obj.is_function and obj.name.startswith("__"):
            obj.docstring = None  # what has no docstring is not shown
        if obj.docstring is not None:
            plain = obj.docstring.value
            text = typeset(plain) if obj.is_module and ">>>" not in plain else plain
            obj.docstring.value = fenced(text)
