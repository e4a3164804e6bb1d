"""For the API reference: what differs between docstrings in the code and on the site.

Examples (`>>> ...`) become blocks of code: Markdown would take their prompts for quotations. Special methods, which
nobody calls by name, are left out. mkdocs.yml names this file as an extension of Griffe, which reads the docstrings.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

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
    """Puts fences around the examples of every docstring, and takes those of special methods away."""

    def on_object(self, *, obj: Object, **options: Any) -> None:
        """Called once for each class, function, attribute and module that Griffe has read."""
        if obj.is_function and obj.name.startswith("__"):
            obj.docstring = None  # what has no docstring is not shown
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
