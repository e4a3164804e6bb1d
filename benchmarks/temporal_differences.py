"""Bayesian TD: an episode in closed form against Monte Carlo with the paper's numbers of samples.

An episode is one update and the answers: 30 action probabilities and 32 routes. TD-Max's update needs E[max], which the
paper averages over 100,000 draws; TD-En keeps 100 draws, by definition, on both sides. The Monte Carlo side reads its
answers off 100,000 draws of the new posterior; ours integrates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from measuring import Row, compiled, report, timed
from posteriors import half_seen
from published_method import PublishedMethod

import bellmanifold as bm
from bellmanifold.posteriors.target import Target, relaxed_target
from bellmanifold_paper import td

SAMPLES = 100_000
Answers = tuple[np.ndarray, np.ndarray]
"""Action probabilities and route probabilities."""


def sampled_answers(
    model: bm.SSP, posterior: td.TDPosterior, routes: Sequence[Sequence[int]], rng: np.random.Generator
) -> Answers:
    """Shares of draws in which a pair is the best of its state, and in which all pairs of a route are."""
    draws = td.draw(posterior, rng, SAMPLES)
    best = draws == np.maximum.reduceat(draws, model.pair_start[:-1], axis=1)[:, model.pair_state]
    return best.mean(axis=0), np.array([best[:, list(route)].all(axis=1).mean() for route in routes])


def sampled_maximum(previous: td.TDPosterior, target: Target, rng: np.random.Generator) -> td.TDPosterior:
    """TD-Max's update with E[max] averaged over draws."""
    model, sigma, observed = target.model, target.prior.scale, target.observed
    best = np.maximum.reduceat(td.draw(previous, rng, SAMPLES), model.pair_start[:-1], axis=1).mean(axis=0)
    goal = model.expected_next(best)
    shrink = 1.0 / (1.0 + (target.scale / sigma) ** 2)
    mean = np.where(observed, shrink * (target.reward + goal), 0.0)
    return td.TDPosterior(np.ones(1), mean[None], np.where(observed, target.scale**2 * shrink, sigma**2))


def rows(quick: bool) -> Iterator[Row]:
    """TD-Max and TD-En."""
    sea = bm.envs.deep_sea(depth=5)
    data = half_seen(sea)
    target, rng = relaxed_target(data, 0.01, 10.0), np.random.default_rng(0)
    routes = [list(route.values()) for route in PublishedMethod(data, 0.01).routes()]
    start = td.initial(sea, 10.0)

    def closed(posterior: td.TDPosterior) -> Answers:
        return td.action_probabilities(sea, posterior), td.route_probabilities(sea, posterior, routes)

    def ensemble() -> td.TDPosterior:
        return td.update_td_en(start, target, rng, td.MEMBERS)

    kinds: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
        (
            "TD-Max",
            lambda: closed(td.update_td_max(start, target)),
            lambda: sampled_answers(sea, sampled_maximum(start, target, rng), routes, rng),
        ),
        ("TD-En (100)", lambda: closed(ensemble()), lambda: sampled_answers(sea, ensemble(), routes, rng)),
    ]
    for name, ours, peer in kinds:
        exact, first = compiled("closed form", ours, 20)
        sampled = timed(f"Monte Carlo, {SAMPLES:,} draws", peer, 2 if quick else 5)
        note = "ours has no standard error; the peer's is up to 0.0016"
        yield Row(f"{name}: one episode at depth 5", exact, sampled, compile_seconds=first, notes=note)


if __name__ == "__main__":
    report(rows)
