"""Pictures: arrays in, matplotlib Axes out."""

from bellmanifold.figures.drawing import draw
from bellmanifold.figures.lines import improper_mass

__all__ = ["draw", "improper_mass"]
