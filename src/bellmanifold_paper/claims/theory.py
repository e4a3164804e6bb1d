"""Claims of the theoretical sections that can be checked on whole problems: flat likelihoods, manifolds, ties."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from bellmanifold.io.models import load_model
from bellmanifold.mdp.graph import is_proper
from bellmanifold.mdp.solver import solve
from bellmanifold.posteriors.inference import posterior
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP
from bellmanifold_paper.claims.answers import complete
from bellmanifold_paper.claims.claim import claim
from bellmanifold_paper.identifiability import (
    cell_matrix,
    flat_cones,
    flat_direction,
    improper_mass_sweep,
    likelihood_mass,
    log_likelihood_along,
)
from bellmanifold_paper.paper_runs import (
    DEEP_SEA,
    PYRAMID,
    SLIPPERY,
    SMALL_DEEP_SEA,
    SMALL_SWIRL,
    SWIRL,
    TOLERANCES,
    PaperRuns,
)
from bellmanifold_paper.route_chances import route_chances, routes_of
from bellmanifold_paper.verdicts import (
    Condition,
    Finding,
    Measurement,
    equals,
    estimated,
    exactly,
    largest,
    total_variation,
)

TWO_STATE = "env:two-state"


@claim(
    "likelihood-flat-along-u",
    "Lemma 1",
    "Where an improper policy that maximises u is greedy, the relaxed likelihood is constant along u, for every "
    "tolerance and every data set.",
    "Two-state and swirl of depth 5, half of the pairs seen and all of them, six tolerances: over steps of 0.1 to 100 "
    "the log-likelihood changes by less than 1e-9 of its size; in the two-state example u is (1, 0).",
)
def _flat_along_u(runs: PaperRuns) -> Finding:
    worst = max(_change_along_u(load_model(name), every) for name in (TWO_STATE, SWIRL) for every in (1, 2))
    off = np.abs(flat_cones(load_model(TWO_STATE))[0].direction - [1.0, 0.0]).max()
    return Finding(
        (
            Condition(exactly("largest relative change", worst), below=1e-9),
            equals(exactly("distance of u from (1, 0)", off), 0),
        )
    )


def _change_along_u(model: SSP, every: int) -> float:
    """Largest relative change of the log-likelihood along u, when every k-th pair was seen."""
    seen = np.arange(0, model.n_pairs, every)
    data = Dataset(model, seen, model.reward[seen])
    rng = np.random.default_rng(0)
    steps = np.array([0.0, 0.1, 1.0, 10.0, 100.0])
    changes = []
    for cone in flat_cones(model):
        for epsilon in TOLERANCES:
            q = rng.normal(scale=10.0, size=model.n_pairs)
            q[cone.policy] = model.best(q) + 0.1
            along = log_likelihood_along(data, q, cone.direction, steps, epsilon)
            changes.append(float(np.ptp(along) / np.abs(along).max()))
    return max(changes)


@claim(
    "likelihood-mass",
    "Lemma 2, Theorem 4",
    "The likelihood's total mass is infinite over parameters of such improper policies; over those of a proper policy "
    "it is finite, and nowhere constant along a line, when the data are complete.",
    "Two-state and swirl of depth 3, complete data, tolerance 0.1: the mass of every policy that maximises u is "
    "infinite; no proper policy, of all there are, has infinite mass.",
)
def _mass(runs: PaperRuns) -> Finding:
    finite, infinite, proper = 0, 0, 0
    for name in (TWO_STATE, SMALL_SWIRL):
        model = load_model(name)
        data = Dataset.complete(model)
        finite += sum(likelihood_mass(data, cone.policy, 0.1).finite for cone in flat_cones(model))
        own = [policy for policy in _policies(model) if is_proper(model, policy)]
        proper += len(own)
        infinite += sum(flat_direction(data, policy) is not None for policy in own)
    return Finding(
        (
            equals(exactly("maximisers of u with finite mass", finite), 0),
            equals(exactly("proper policies with infinite mass", infinite), 0),
        ),
        beside=(exactly("proper policies", proper),),
    )


def _policies(model: SSP) -> list[Int[np.ndarray, "states"]]:
    ranges = [np.arange(model.pair_start[s], model.pair_start[s + 1]) for s in range(model.n_states)]
    return list(np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, model.n_states))


@claim(
    "discount-bounds-the-mass",
    "section 4.3",
    "A discount makes every policy proper, so that the likelihood's mass is finite for all of them, and lessens the "
    "pull towards improper policies.",
    "Swirl of depth 3, complete data, tolerance 0.1, prior sd 10: with discount 0.9 no policy has infinite mass, and "
    "the probability of policies that loop in the original problem is smaller than without.",
)
def _discount(runs: PaperRuns) -> Finding:
    model = load_model(SMALL_SWIRL)
    other = model.discounted(0.9)
    infinite = sum(flat_direction(Dataset.complete(other), policy) is not None for policy in _policies(other))
    found = improper_mass_sweep(Dataset.complete(model), (0.1,), (10.0,), (1.0, 0.9))
    (without, with_it), (se, se_with) = found.probability.ravel().tolist(), found.se.ravel().tolist()
    return Finding(
        (
            equals(exactly("policies with infinite mass", infinite), 0),
            Condition(estimated("P(loop), 0.9 minus none", with_it - without, float(np.hypot(se, se_with))), below=0.0),
        ),
        beside=(
            estimated("P(loop) without discount", without, se, probability=True),
            estimated("P(loop) with 0.9", with_it, se_with, probability=True),
        ),
    )


@claim(
    "manifold-dimension",
    "Theorem 3 and the text after it",
    "The dimension of the exact posterior's support falls by one with every new state-action pair.",
    "Deep sea and swirl of depth 3 and the slippery deep sea of depth 4, pairs added one by one in a random order: at "
    "10 random points of each manifold the observed Bellman equations hold to 1e-9 and the rank of their derivative "
    "is the number n of observed pairs, so that the dimension is d - n.",
)
def _dimension(runs: PaperRuns) -> Finding:
    rng = np.random.default_rng(0)
    wrong, worst, checked = 0, 0.0, 0
    for name in (SMALL_DEEP_SEA, SMALL_SWIRL, SLIPPERY):
        model = load_model(name)
        order = rng.permutation(model.n_pairs)
        for count in range(1, model.n_pairs + 1):
            observed = np.isin(np.arange(model.n_pairs), order[:count])
            for _ in range(10):
                q = _point(model, observed, rng)
                worst = max(worst, float(np.abs(q - model.backup(model.best(q)))[observed].max()))
                rank = np.linalg.matrix_rank(cell_matrix(model, model.greedy(q))[observed])
                wrong, checked = wrong + int(rank != count), checked + 1
    return Finding(
        (
            equals(exactly("points with another rank", wrong), 0),
            Condition(exactly("largest residual", worst), below=1e-9),
        ),
        beside=(exactly("points", checked),),
    )


def _point(model: SSP, observed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A point of the manifold: values of unobserved pairs are drawn, backups settle those of observed ones."""
    q = rng.normal(scale=10.0, size=model.n_pairs)
    q[observed] = -1e3
    for _ in range(10_000):
        after = np.where(observed, model.backup(model.best(q)), q)
        if np.array_equal(after, q):
            break
        q = after
    return q


@claim(
    "ties-break-the-formula",
    "text after Theorem 3",
    "For any reward values whatever, if they come from a problem that satisfies both assumptions, the posterior is "
    "given by the density on the manifold.",
    "Pyramid, complete data: at the only point of the manifold, Q*, no state that a move leads to has tied best "
    "actions. (Where one has, the derivative does not exist, the formula leaves the point out and its normaliser is "
    "0.)",
)
def _ties(runs: PaperRuns, problem: str = PYRAMID) -> Finding:
    model, routes = load_model(problem), routes_of(problem)
    q = solve(model).q
    tied = np.add.reduceat(q > model.best(q)[model.pair_state] - 1e-12, model.pair_start[:-1]) > 1
    after = np.isin(np.arange(model.n_states), model.next_state)
    eight = route_chances(complete(problem, 0.0), routes).value[routes.is_optimal]
    return Finding(
        (equals(exactly("successor states with tied best actions", int((tied & after).sum())), 0),),
        beside=(
            exactly("smallest of the eight in the limit", eight.min()),
            exactly("largest of the eight in the limit", eight.max()),
        ),
        remark="Exact ties are the exception: they have probability 0 under the prior, but are common in practice. "
        "This library takes the limit of small tolerances, which exists and splits ties.",
    )


@claim(
    "proposition-1",
    "Proposition 1",
    "The relaxed posterior of a table is a mixture of truncated Gaussians, one for each choice of actions.",
    "Swirl of depth 3, half of the pairs seen, tolerance 0.1: route probabilities by that sum and by sampling in the "
    "chart, which does not use it, differ by less than 0.01.",
)
def _proposition_1(runs: PaperRuns) -> Finding:
    model, routes = load_model(SMALL_SWIRL), routes_of(SMALL_SWIRL)
    seen = np.arange(0, model.n_pairs, 2)
    data = Dataset(model, seen, model.reward[seen])
    by_sum, by_chart = (
        route_chances(posterior(model, data, epsilon=0.1, engine=engine), routes) for engine in ("mixture", "chart")
    )
    gap, se = by_sum.value - by_chart.value, np.hypot(by_sum.se, by_chart.se)
    return Finding((Condition(largest("largest difference of a route", gap, se), below=0.01),))


@claim(
    "small-tolerance-needed",
    "section 6",
    "Small tolerances are required for a good approximation of the posterior beliefs over optimal policies.",
    "Deep sea and pyramid of depth 5, complete data: the total variation distance of the route probabilities from "
    "those of the exact posterior is below 0.05 at 0.01 and above 0.3 at tolerances of 0.5 and more.",
)
def _small_tolerance(runs: PaperRuns) -> Finding:
    conditions: list[Condition] = []
    for name, label in ((DEEP_SEA, "deep sea"), (PYRAMID, "pyramid")):
        conditions.append(Condition(_distance(name, label, 0.01), below=0.05))
        conditions += [Condition(_distance(name, label, epsilon), 0.3) for epsilon in TOLERANCES[3:]]
    return Finding(tuple(conditions), beside=(_distance(DEEP_SEA, "deep sea", 0.1), _distance(PYRAMID, "pyramid", 0.1)))


def _distance(reference: str, label: str, epsilon: float) -> Measurement:
    """Total variation distance of the relaxed posterior's routes from the exact one's."""
    routes = routes_of(reference)
    exact, relaxed = (route_chances(complete(reference, e), routes) for e in (0.0, epsilon))
    gap, se = exact.value - relaxed.value, np.hypot(exact.se, relaxed.se)
    return total_variation(f"distance on {label} at {epsilon:g}", gap, se)


CLAIMS = (_flat_along_u, _mass, _discount, _dimension, _ties, _proposition_1, _small_tolerance)
