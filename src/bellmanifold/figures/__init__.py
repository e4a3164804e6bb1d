"""Pictures: arrays in, matplotlib Axes out."""

from bellmanifold.figures.problem import draw

__all__ = ["draw"]
