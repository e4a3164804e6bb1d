"""Packages that only some users need: each is installed by an extra that is named for what it is for.

    pip install 'bellmanifold[report]'

Whoever lacks one reads its extra in one line. Nothing is imported to find out.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from bellmanifold.errors import UnsupportedError

Extra = Literal["cluster", "gradient", "gym", "notebook", "report", "storm"]
PACKAGES: dict[Extra, str] = {
    "cluster": "distributed",
    "gradient": "blackjax",
    "gym": "gymnasium",
    "notebook": "anywidget",
    "report": "plotly",
    "storm": "stormpy",
}
"""The package that each extra installs."""


def require_extra(extra: Extra, what: str) -> None:
    """Raise unless the package of an extra is installed, without which there is no `what`.

    Raises:
        UnsupportedError: naming the extra.
    """
    if find_spec(PACKAGES[extra]) is None:
        raise UnsupportedError(f"{what} needs {PACKAGES[extra]}: install bellmanifold[{extra}]")
