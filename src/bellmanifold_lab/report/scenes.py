"""Data of the episode player: problems as positions and arrows, runs as moves, outcomes and beliefs.

Beliefs are many numbers. They are stored as 16-bit integers in base 64, with 65535 for "unknown", and a belief that
does not change from one episode to the next is stored once.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.io.files import label, locate_errors
from bellmanifold.learning.record import LOSSES, require_fit
from bellmanifold.learning.routes import read_routes
from bellmanifold.learning.run_file import read_arrays
from bellmanifold.pictures.positions import on_grid, positions
from bellmanifold.problem.costs import cost_unit
from bellmanifold.problem.ssp import SSP
from bellmanifold_lab.report.overview import describe, own_choices
from bellmanifold_lab.report.reading import RunFile, gaps, losses
from bellmanifold_lab.report.text import LONG, SHORT, display_name, outline, round_values

MOST_STATES, MOST_CELLS, MOST_ARROWS = 150, 400, 4000
"""Limits on the problems that are drawn; grids may have more states than others, because they are easier to read."""
MOST_MOVES = 200
"""Maximal number of moves shown per episode."""
MOST_ROUTES = 8
"""Maximal number of routes whose probabilities are plotted for a run."""
UNKNOWN = 65535
HAPPENED = ("completed_regret", "total_reward", "goal_reached", "optimal", "moves", "pair", "optimal_value")
BELIEVED = ("action_probability", "q_mean", "route", "route_probability")
GOAL_BELOW = 0.7
"""Additional distance of a grid's goal below the last row, so that arrows to it do not overlap."""


def fits(model: SSP) -> bool:
    """Whether the problem is small enough to be drawn."""
    return model.n_states <= (MOST_CELLS if on_grid(model) else MOST_STATES) and len(model.next_state) <= MOST_ARROWS


def scene(model: SSP, reference: str) -> dict[str, Any]:
    """A problem as data for the player."""
    start, place = model.next_start.tolist(), positions(model)
    if on_grid(model) and "goal_cell" not in model.metadata:
        place[-1, 1] -= GOAL_BELOW
    successor, probability = model.next_state.tolist(), model.next_prob.tolist()
    return {
        **outline(model),
        "name": display_name(reference),
        "goal": display_name(", ".join(model.goals[:3]), SHORT),
        "place": [round_values(spot) for spot in place],
        "reward": round_values(model.reward),
        "costs": (costs := cost_unit(model)) and costs.unit,
        "next": [
            [[successor[e], float(f"{probability[e]:.4g}")] for e in range(start[i], start[i + 1])]
            for i in range(model.n_pairs)
        ],
    }


def run_of(file: RunFile, model: SSP, number: int) -> dict[str, Any]:
    """A run as data for the player; `number` is that of its problem's scene."""
    found, _ = read_arrays(file.path, (*HAPPENED, *LOSSES, "gap_regret", *BELIEVED))
    with locate_errors(label(file.path)):
        require_fit(found, HAPPENED, file.settings.episodes, model.n_pairs)
    begin = np.concatenate([[0], np.cumsum(found["moves"])])
    pair = found["pair"]
    played = [pair[begin[k] : begin[k + 1]][:MOST_MOVES].tolist() for k in range(len(begin) - 1)]
    return {
        "scene": number,
        "agent": display_name(file.settings.agent),
        "settings": display_name(describe(own_choices(file.settings)), LONG),
        "seed": file.settings.seed,
        "moves": played,
        "length": found["moves"].tolist(),
        "first": _first_played(pair, begin, model.n_pairs),
        "reward": round_values(found["total_reward"]),
        "regret": round_values(np.round(found["completed_regret"], 12)),
        "gap": round_values(np.round(gaps(found), 12)),
        "goal": found["goal_reached"].astype(int).tolist(),
        "optimal": None if np.isnan(found["optimal_value"]) else found["optimal"].astype(int).tolist(),
        **_losses(found),
        **_beliefs(found, model.n_pairs),
        **_routes(found, model),
    }


def _losses(found: dict[str, np.ndarray]) -> dict[str, Any]:
    """Losses of each episode, and the first one, counted from 0, without exploration; None without `until_loss`."""
    expected, true, stopped = losses(found)
    if not np.isfinite(expected).any():
        return {"expected_loss": None, "true_loss": None, "stopped": None}
    first = int(np.argmax(stopped)) if stopped.any() else None
    return {"expected_loss": round_values(expected), "true_loss": round_values(true), "stopped": first}


def _first_played(pair: Int[np.ndarray, "moves"], begin: Int[np.ndarray, "_"], pairs: int) -> list[int]:
    """The episode, counted from 0, in which each pair was first played; -1 if never."""
    first = np.full(pairs, -1)
    seen, where = np.unique(pair, return_index=True)
    first[seen] = np.searchsorted(begin, where, side="right") - 1
    return first.tolist()


def _beliefs(found: dict[str, np.ndarray], pairs: int) -> dict[str, Any]:
    """Pies, mean values and the probability that a sampled route plays each pair, one row per distinct belief."""
    episodes = len(found["goal_reached"])
    unknown = np.full((episodes, pairs), np.nan)
    pie, value = found.get("action_probability", unknown), found.get("q_mean", unknown)
    on_route = _on_routes(found, pairs) if "route" in found else unknown
    rows = np.concatenate([pie, value, on_route], axis=1, dtype=np.float32)
    changed = np.ones(episodes, dtype=bool)
    changed[1:] = [not np.array_equal(rows[k], rows[k - 1], equal_nan=True) for k in range(1, episodes)]
    known = value[np.isfinite(value)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    high = high if high > low else low + 1.0
    return {
        "belief": (np.cumsum(changed) - 1).tolist(),
        "pie": pack(pie[changed]) if "action_probability" in found else None,
        "value": pack((value[changed] - low) / (high - low)) if "q_mean" in found else None,
        "value_range": [low, high],
        "on_route": pack(on_route[changed]) if "route" in found else None,
    }


def _on_routes(found: dict[str, np.ndarray], pairs: int) -> Float[np.ndarray, "episodes pairs"]:
    """The probability that a route drawn from the belief plays each pair."""
    route, probability = found["route"], found["route_probability"]
    plays = np.zeros((len(route), pairs + 1))
    plays[np.arange(len(route))[:, None], route] = 1.0  # padding (-1) goes to the last column
    return probability @ plays[:, :-1]


def _routes(found: dict[str, np.ndarray], model: SSP) -> dict[str, Any]:
    """The most probable routes at any time, optimal ones preferred, with their probabilities in each episode."""
    if "route" not in found:
        return {"routes": None}
    probability = np.nan_to_num(found["route_probability"])
    best = read_routes(model, found["route"]).collecting(float(found["optimal_value"]))
    chosen = np.argsort(-(probability.max(axis=0) + probability.mean(axis=0) + best), kind="stable")[:MOST_ROUTES]
    named = [
        " ".join(display_name(model.pair_name(i)[1], 12) for i in found["route"][k] if i >= 0)[:120]
        for k in chosen.tolist()
    ]
    return {
        "routes": [[name, bool(best[k])] for name, k in zip(named, chosen.tolist(), strict=True)],
        "route_probability": pack(found["route_probability"][:, chosen].T),
    }


def pack(share: Float[np.ndarray, "rows columns"]) -> str:
    """Pack numbers from 0 to 1, or NaN, as 16-bit integers in base 64."""
    scaled = np.round(np.clip(np.nan_to_num(share), 0.0, 1.0) * (UNKNOWN - 1))
    whole = np.where(np.isfinite(share), scaled, UNKNOWN).astype("<u2")
    return base64.b64encode(whole.tobytes()).decode("ascii")
