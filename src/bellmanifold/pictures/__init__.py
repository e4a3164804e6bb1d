"""Pictures drawn with matplotlib: functions take arrays or results and return Axes."""

from bellmanifold.pictures.drawing import draw
from bellmanifold.pictures.gains import draw_advice
from bellmanifold.pictures.lines import draw_regret, improper_mass

__all__ = ["draw", "draw_advice", "draw_regret", "improper_mass"]
