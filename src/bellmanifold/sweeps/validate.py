"""Result files of others: arrays that fit together, and settings that make sense.

A seal says that a file was not damaged, not who wrote it. Files that may come from anywhere are checked here:
that every array has the shape and every index the range that the rest of the program relies on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bellmanifold.errors import BadInputError, quote
from bellmanifold.formats.files import number, parse_json, text
from bellmanifold.sweeps.plan import LARGEST, RunSettings

LOSSES = ("expected_regret", "diagnostic_expected_loss", "diagnostic_stopped")
EACH_EPISODE = ("regret", "completed_regret", "optimal", "coverage", "total_reward", "goal_reached", "moves", *LOSSES)
SINGLE = ("seconds_total", "optimal_value")
WHOLE = ("moves", "pair", "route")


def read_settings(attributes: Mapping[str, str]) -> RunSettings:
    """The settings of a run from the attributes of its file."""
    entry = parse_json(attributes.get("settings", "").encode("utf-8", "replace"))
    for name in ("model", "agent"):
        text(entry.get(name), name)
    for name in ("episodes", "seed"):
        value = entry.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise BadInputError(f"{name} is {quote(value)}: not the settings of a run; remove the file")
    for name, value in entry.items():
        if not isinstance(value, (str, bool)):
            number(value, quote(name))
    return RunSettings.from_dict(entry)


def require_fit(found: Mapping[str, Any], required: Iterable[str], episodes: int, pairs: int | None) -> None:
    """Refuse arrays of a run that are missing or do not fit together.

    Args:
        found: arrays by name.
        required: those that must be there.
        episodes: how many were played.
        pairs: of the problem; None if it is not at hand.
    """
    for name in required:
        _require(name in found, f"{name} is missing")
    for name, array in found.items():
        _require(array.dtype.kind in ("iu" if name in WHOLE else "biuf"), f"{name} holds no such numbers")
        if name in SINGLE:
            _require(array.shape == (), f"{name} is not one number")
        if name in EACH_EPISODE:
            _require(array.shape == (episodes,), f"{name} does not have one entry per episode")
        if name in ("action_probability", "q_mean") and pairs is not None:
            _require(array.shape == (episodes, pairs), f"{name} does not have one entry per episode and pair")
    if "pair" in found and "moves" in found:
        pair, moves = found["pair"], found["moves"]
        fits = pair.ndim == 1 and np.all((moves >= 0) & (moves <= len(pair))) and moves.sum() == len(pair)
        _require(fits, "moves and pair disagree")
        _require(pairs is None or np.all((pair >= 0) & (pair < pairs)), "pair is not one of the problem's")
    if "route" in found or "route_probability" in found:
        _require_routes(found, episodes, pairs)


def _require_routes(found: Mapping[str, Any], episodes: int, pairs: int | None) -> None:
    _require("route" in found and "route_probability" in found, "routes are incomplete")
    route = found["route"]
    _require(
        route.ndim == 2 and route.shape[1] > 0 and found["route_probability"].shape == (episodes, len(route)),
        "routes and their probabilities disagree",
    )
    filled = route >= 0
    tidy = np.all(route >= -1) and filled[:, 0].all() and np.all(filled[:, :-1] >= filled[:, 1:])
    _require(tidy and (pairs is None or np.all(route < pairs)), "a route is not one of the problem's")


def _require(condition: Any, fault: str) -> None:
    if not condition:
        raise BadInputError(f"{fault}: not a result of this program, or of another version; remove it")
