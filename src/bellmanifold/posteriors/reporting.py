"""How a posterior's answers are shown: pictures, text and tables for display, and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import dijkstra

from bellmanifold._util.display import MOST_ROWS, Card, Columns, Words, for_json, or_null, picture, with_error
from bellmanifold.errors import quote
from bellmanifold.mdp.graph import state_graph
from bellmanifold.posteriors.route import Route, title_of_best
from bellmanifold.problem.costs import in_terms
from bellmanifold.problem.ssp import SSP

if TYPE_CHECKING:
    from bellmanifold.posteriors.summary import Summary

ROUNDING = 1e-6
"""Standard deviations below this multiple of the mean are shown as 0: they are only rounding."""


def on_the_way(model: SSP, played: Bool[np.ndarray, "pairs"]) -> Int[np.ndarray, "states"]:
    """Number of moves from the start to each state by playing these pairs; n_states if it is not reached."""
    starts = np.flatnonzero(model.initial)
    moves = dijkstra(state_graph(model, played), unweighted=True, indices=starts, min_only=True)[:-1]
    return np.minimum(moves, model.n_states).astype(np.int64)


def by_doubt(
    model: SSP, probability: Float[np.ndarray, "pairs"], touched: Bool[np.ndarray, "states"]
) -> Int[np.ndarray, "pairs"]:
    """All pairs in order of importance.

    First the states that the most probable actions lead through, nearest to the start first, then those that the data
    touch, least certain first, then all others; within a state, the most probable action first.
    """
    best = np.maximum.reduceat(probability, model.pair_start[:-1])
    moves = on_the_way(model, probability >= best[model.pair_state])
    doubt = np.where(moves < model.n_states, 0.0, np.where(touched, best, 2.0))
    state = model.pair_state
    return np.lexsort((-probability, state, doubt[state], moves[state]))


def best_pairs(summary: Summary) -> Bool[np.ndarray, "pairs"]:
    """See `Summary.best_pairs`."""
    model = summary.target.model
    best = np.zeros(model.n_pairs, dtype=bool)
    if summary.routes is not None:
        best[list(summary.routes[0].pairs if summary.routes else ())] = True
        return best
    best[model.greedy(summary.action_probability.value)] = True
    return best & (on_the_way(model, best) < model.n_states)[model.pair_state]


def words_of(summary: Summary) -> Words:
    """Title and legends of its picture."""
    model, routes = summary.target.model, summary.routes
    seen = f"{int(summary.target.observed.sum()) - summary.believed} of {model.n_pairs} moves observed"
    seen += f" and a belief about {summary.believed} more" if summary.believed else ""
    doubt = "" if summary.trustworthy else "\nnot trustworthy: a diagnostic says so"
    best = f"{title_of_best(routes)} ({routes[0].probability:.0%})" if routes else "most probable moves"
    return Words(
        f"{model.name or 'a problem'}: how probable is it that a move is optimal?\n"
        f"{seen}; slices have the colours of their moves{doubt}",
        best,
        "observed",
        "not observed" + (", at most a belief" if summary.believed else ""),
    )


def card_of(summary: Summary) -> Card:
    """Title, facts, warnings, table and picture for display."""
    model, target, evidence = summary.target.model, summary.target, summary.log_evidence
    kind = "exact" if summary.epsilon == 0 else f"epsilon {summary.epsilon or 0.0:g}"
    kind = "noisy" if summary.epsilon is None or (summary.epsilon == 0 and (target.scale > 0).any()) else kind
    seen = f"{int(target.observed.sum()) - summary.believed} of {model.n_pairs} pairs observed"
    seen += f", a belief about {summary.believed} more" if summary.believed else ""
    facts = [summary.reason]
    if evidence is not None:
        facts.append(f"log evidence {with_error(float(evidence.value), float(evidence.se))}")
    if summary.routes:
        best, title = summary.routes[0], title_of_best(summary.routes)
        facts.append(f"{title} ({with_error(best.probability, best.se)}): {best.way(end_of(summary, best))}")
    return Card(
        f"Summary({quote(model.name)}, {kind} posterior, {seen}, engine {summary.engine})",
        facts,
        summary.warnings,
        lambda: _first_columns(summary),
        lambda: picture("problem", model, summary),
    )


def _first_columns(summary: Summary) -> Columns:
    """Columns for display: the most important pairs first if there are many, and spreads of mere rounding as 0."""
    columns, order = columns_of(summary), np.arange(summary.target.model.n_pairs)
    known = summary.q_sd.value <= ROUNDING * np.abs(summary.q_mean.value)
    for name in ("q_mean_se", "q_sd", "q_sd_se"):
        columns[name] = np.where(known, 0.0, columns[name]).tolist()
    if len(order) > MOST_ROWS:
        order = by_doubt(summary.target.model, summary.action_probability.value, summary.target.coupled)
    shown = {name: [column[row] for row in order] for name, column in columns.items()}
    return in_terms(shown, summary.costs)


def columns_of(summary: Summary) -> dict[str, list[Any]]:
    """Columns with a row for each pair."""
    model, best = summary.target.model, summary.action_probability
    return {
        **model.name_columns(range(model.n_pairs)),
        "observed": summary.pies()[1].tolist(),
        **({} if summary.untried is None or not summary.believed else {"belief": summary.untried.tolist()}),
        "probability": best.value.tolist(),
        "probability_se": best.se.tolist(),
        "q_mean": summary.q_mean.value.tolist(),
        "q_mean_se": summary.q_mean.se.tolist(),
        "q_sd": summary.q_sd.value.tolist(),
        "q_sd_se": summary.q_sd.se.tolist(),
    }


def edge_columns(summary: Summary) -> dict[str, list[Any]]:
    """Columns for a table of roads, with an entry for each pair; see `Summary.to_edges`."""
    target, best, value = summary.target, summary.action_probability, summary.q_mean
    columns = {
        "observed": summary.pies()[1].tolist(),
        "probability": best.value.tolist(),
        "probability_se": best.se.tolist(),
        "best": summary.best_pairs().tolist(),
        "cost_to_goal": (0.0 - value.value).tolist(),
        "cost_to_goal_se": value.se.tolist(),
        "cost_to_goal_sd": summary.q_sd.value.tolist(),
    }
    if target.prior.flat and target.noise_scale is None and target.every_visit is None and not target.epsilon:
        columns |= {"cost_mean": (0.0 - target.reward).tolist(), "cost_sd": target.scale.tolist()}
    return columns


def route_columns(summary: Summary) -> Columns:
    """Columns with a row for each route."""
    routes, name = summary.routes or [], summary.target.model.pair_name
    return {
        "pairs": [[name(pair) for pair in route.pairs] for route in routes],
        "ends": [end_of(summary, route) for route in routes],
        "probability": [route.probability for route in routes],
        "probability_se": [route.se for route in routes],
    }


def as_json(summary: Summary) -> dict[str, Any]:
    """The `posterior` object of the interface."""
    model, best = summary.target.model, summary.action_probability
    evidence, effective, on_model = summary.log_evidence, summary.effective_sample_size, summary.improper_mass_model
    result: dict[str, Any] = {"warnings": summary.warnings} if summary.warnings else {}
    result |= {
        "engine": summary.engine,
        "reason": summary.reason,
        "trustworthy": summary.trustworthy,
        "largest_error": or_null(summary.largest_error),
        "epsilon": summary.epsilon,
        "prior_scale": "flat" if summary.target.prior.flat else _common_value(summary.target.prior.sd),
        "prior_mean": _common_value(summary.target.prior.mean),
        "proper_only": summary.target.proper_only,
        "costs_only": summary.target.costs_only,
        "observed_pairs": int(summary.target.observed.sum()),
        "dimension": summary.dimension,
        "log_evidence": None if evidence is None else or_null(evidence.value),
        "log_evidence_se": None if evidence is None else or_null(evidence.se),
        "effective_sample_size": None if effective is None else or_null(effective),
        "actions": model.by_name([as_probability(p, se) for p, se in zip(best.value, best.se, strict=True)]),
    }
    if summary.epsilon is None:
        result["noise"] = {"law": summary.target.noise_law, **_noise_scale(summary)}
    if summary.routes is not None:
        result["routes"] = [
            {
                "pairs": [list(model.pair_name(i)) for i in route.pairs],
                "ends": end_of(summary, route),
                **as_probability(route.probability, route.se),
            }
            for route in summary.routes
        ]
    if summary.result.laws is not None:
        mean, sd = summary.result.laws.concentration
        result |= {"laws": _laws(summary), "concentration": {"mean": or_null(mean), "sd": or_null(sd)}}
    return result | {
        "q_mean": model.by_name(for_json(summary.q_mean.value)),
        "q_mean_se": model.by_name(for_json(summary.q_mean.se)),
        "q_sd": model.by_name(for_json(summary.q_sd.value)),
        "improper_mass": as_probability(summary.improper_mass.value, summary.improper_mass.se),
        "improper_mass_model": None if on_model is None else as_probability(on_model.value, on_model.se),
        "diagnostics": {
            name: or_null(value) if isinstance(value, float) else value for name, value in summary.diagnostics.items()
        },
    }


def end_of(summary: Summary, route: Route) -> str:
    """How a route ends: at the goal, in a loop, or at a pair whose law is unknown."""
    no_law = summary.target.no_law
    if no_law is not None and no_law[route.pairs[-1]]:
        return "open"
    return "goal" if route.ends_at_goal else "loop"


def _laws(summary: Summary) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Posterior means of open laws: state -> action -> next state that was seen -> mean and standard error."""
    open_laws, found = summary.target.laws, summary.result.laws
    if open_laws is None:  # only pairs without a reward landed anywhere
        return {}
    assert found is not None, "every engine reports open laws"
    table: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for row, landing, mean, se in zip(*open_laws.seen, found.probability.value, found.probability.se, strict=True):
        state, action = summary.target.model.pair_name(open_laws.pairs[row])
        name = summary.target.model.state_name(landing)
        table.setdefault(state, {}).setdefault(action, {})[name] = {"mean": float(mean), "se": float(se)}
    return table


def _noise_scale(summary: Summary) -> dict[str, float | None]:
    inferred = summary.result.noise_scale
    if inferred is not None:
        return {"mean": or_null(inferred[0]), "sd": or_null(inferred[1])}
    return {"mean": summary.target.noise_sd, "sd": 0.0}


def as_probability(value: Any, se: Any) -> dict[str, float]:
    """A probability with its error for JSON, clipped to [0, 1] in case rounding took it slightly outside."""
    return {"probability": min(1.0, max(0.0, float(value))), "se": float(se)}


def _common_value(numbers: Float[np.ndarray, "pairs"]) -> float | None:
    """The number that all pairs share; None if they differ."""
    return float(numbers[0]) if (numbers == numbers[0]).all() else None
