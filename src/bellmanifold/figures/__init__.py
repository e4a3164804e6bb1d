"""Pictures: arrays in, matplotlib Axes out."""

from bellmanifold.figures.improper import improper_mass
from bellmanifold.figures.problem import draw

__all__ = ["draw", "improper_mass"]
