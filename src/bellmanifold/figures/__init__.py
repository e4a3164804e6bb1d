"""Pictures drawn with matplotlib: functions take arrays or results and return Axes."""

from bellmanifold.figures.drawing import draw
from bellmanifold.figures.gains import draw_advice
from bellmanifold.figures.lines import draw_regret, improper_mass

__all__ = ["draw", "draw_advice", "draw_regret", "improper_mass"]
