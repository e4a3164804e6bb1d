"""Chunks of cells, or of draws, that are small enough for working arrays to stay small."""

from __future__ import annotations


def chunks(cells: int, numbers: int, most: int) -> list[slice]:
    """Consecutive slices of cells of `numbers` numbers each; a slice has at most `most` numbers, or is a single cell.

    >>> chunks(5, numbers=10, most=25)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    size = max(1, most // max(1, numbers))
    return [slice(start, min(start + size, cells)) for start in range(0, max(1, cells), size)]
