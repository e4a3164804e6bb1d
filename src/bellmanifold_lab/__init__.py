"""The laboratory: experiments at scale, and pages to look at.

Its commands plug into the library by entry points. The public name below is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bellmanifold_lab.explorer.notebook import explore as explore

__all__ = ["explore"]


def __getattr__(name: str) -> Any:
    if name != "explore":
        raise AttributeError(f"module 'bellmanifold_lab' has no attribute {name!r}")
    from bellmanifold_lab.explorer.notebook import explore

    return explore
