r"""For the API reference: formulas of module docstrings, which are plain text in the code, set as TeX.

`docs/formulas.toml` has those that stand by themselves and some within lines. What is left are single symbols, such as
`theta_i` and `r_i`. `docs/docstrings.py` puts them into the pages; `tests/test_site.py` checks that none is stale.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

FORMULAS = tomllib.loads((Path(__file__).parent / "formulas.toml").read_text(encoding="utf-8"))
GREEK = "theta|epsilon|sigma|Sigma|eta|xi|mu"
WORDS = "scale|mean|sd"
"""Words that are symbols where they have an index."""
SYMBOL = re.compile(
    rf"(?<![\w\\`$.])(?:(?:{GREEK})(?:_[A-Za-z]\b)?|(?:{WORDS})_[a-z]|[A-Za-z]_(?:mu|[a-z]{{1,2}}))(?![\w`])"
)
SET = re.compile(r"(`[^`]*`|\$\$.*?\$\$|\$[^$]*\$)", re.DOTALL)
"""Code and formulas, which stay as they are."""
BLOCK = re.compile(r"(?:^ {4}.+\n?)+", re.MULTILINE)


def typeset(docstring: str) -> str:
    r"""A module's docstring with its formulas as TeX.

    >>> print(typeset("The determinant is\n\n    |det A| = det(I - P_mu),\n\nfor the greedy policy mu of r_i."))
    The determinant is
    <BLANKLINE>
    $$
    |\det A| = \det(I - P_\mu),
    $$
    <BLANKLINE>
    for the greedy policy $\mu$ of $r_{i}$.
    """
    known = {_words(formula["text"]): formula["tex"].strip() for formula in FORMULAS["block"]}

    def block(found: re.Match[str]) -> str:
        tex = known.get(_words(found[0]))
        return found[0] if tex is None else f"$$\n{tex}\n$$\n"

    text = BLOCK.sub(block, docstring)
    for phrase in FORMULAS["phrase"]:
        text = _outside(text, _pattern(phrase["text"]), lambda found, tex=phrase["tex"]: f"${tex}$")
    return _outside(text, SYMBOL, lambda found: f"${_symbol(found[0])}$")


def stale(docstrings: list[str]) -> list[str]:
    """Formulas that no docstring has any more, and indented lines of docstrings that are not among the formulas."""
    known = [_words(formula["text"]) for formula in FORMULAS["block"]]
    blocks = [_words(found) for text in docstrings for found in BLOCK.findall(text)]
    phrases = [phrase["text"] for phrase in FORMULAS["phrase"]]
    whole = "\n".join(docstrings)
    gone = [text for text in known if text not in blocks] + [t for t in phrases if not _pattern(t).search(whole)]
    return gone + [text for text in blocks if text not in known]


def _words(text: str) -> str:
    return " ".join(text.split())


def _pattern(phrase: str) -> re.Pattern[str]:
    return re.compile(r"(?<![\w`$])" + r"\s+".join(map(re.escape, phrase.split())) + r"(?![\w`])")


def _outside(text: str, pattern: re.Pattern[str], put: Callable[[re.Match[str]], str]) -> str:
    """Replace what a pattern finds where neither code nor a formula is."""
    parts = SET.split(text)
    return "".join(part if k % 2 else pattern.sub(put, part) for k, part in enumerate(parts))


def _symbol(text: str) -> str:
    name, _, index = (f"\\{part}" if part in GREEK.split("|") else part for part in text.partition("_"))
    name = f"\\text{{{name}}}" if name in WORDS.split("|") else name
    return f"{name}_{{{index}}}" if index else name
