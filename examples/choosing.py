"""The tables of docs/choosing.md: `python examples/choosing.py kinds`, `tolerance`, `prior` or `engines`."""

import sys
import time

import bellmanifold as bm

SWIRL = bm.envs.swirl(3)
DEEP_SEA = bm.envs.deep_sea(5)


def best_route(model: bm.SSP) -> tuple[int, ...]:
    """The pairs that an optimal policy plays from the start."""
    policy, state, route = model.greedy(bm.solve(model).q), int(model.initial.argmax()), []
    while state < model.n_states:
        route.append(int(policy[state]))
        state = int(model.next_state[model.next_start[policy[state]]])
    return tuple(route)


def probability(summary: bm.Summary, route: tuple[int, ...]) -> float:
    """How probable the summary thinks it is that this route is optimal."""
    return next((found.probability for found in summary.routes or () if found.pairs == route), 0.0)


def kinds() -> None:
    """Every pair of the swirl was seen: what does each posterior make of it?"""
    data, route = bm.Dataset.complete(SWIRL), best_route(SWIRL)
    print("posterior (swirl of depth 3, all seen)   optimal route   improper mass")
    rows = {
        "exact": {},
        "epsilon 0.01": {"epsilon": 0.01},
        "epsilon 0.1": {"epsilon": 0.1},
        "epsilon 0.5": {"epsilon": 0.5},
        "epsilon 0.1, proper only": {"epsilon": 0.1, "proper_only": True},
        "epsilon 0.5, proper only": {"epsilon": 0.5, "proper_only": True},
        "noise sd 0.1": {"noise_sd": 0.1},
    }
    for name, options in rows.items():
        summary = bm.posterior(SWIRL, data, **options)
        print(f"{name:38}{probability(summary, route):16.3f}{float(summary.improper_mass.value):16.3f}")


def tolerance() -> None:
    """Deep sea has no loops: how small must the tolerance be?"""
    data, route = bm.Dataset.complete(DEEP_SEA), best_route(DEEP_SEA)
    print("epsilon (deep sea of depth 5, all seen)   optimal route   right at the start   sd of its value")
    for epsilon in (0.0, 0.01, 0.1, 0.2, 0.5, 1.0, 5.0):
        summary = bm.posterior(DEEP_SEA, data, epsilon=epsilon)
        pair = DEEP_SEA.pair_index["0,0", "right"]
        chance, sd = summary.action_probability.value[pair], summary.q_sd.value[pair] if epsilon else 0.0
        print(f"{epsilon:<39g}{probability(summary, route):16.3f}{chance:21.3f}{sd:18.3f}")


def prior() -> None:
    """Half of the deep sea was seen; the treasure was not."""
    seen = [pair for pair in range(DEEP_SEA.n_pairs) if DEEP_SEA.pair_name(pair)[1] == "left"]
    data = bm.Dataset.from_pairs(DEEP_SEA, [DEEP_SEA.pair_name(pair) for pair in seen])
    print("prior scale (deep sea, left seen)   right at the start   sd of its value   log evidence")
    for scale in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0):
        summary = bm.posterior(DEEP_SEA, data, prior_scale=scale)
        pair = DEEP_SEA.pair_index["0,0", "right"]
        chance, sd, evidence = summary.action_probability.value[pair], summary.q_sd.value[pair], summary.log_evidence
        print(f"{scale:<33g}{chance:21.3f}{sd:18.3f}{float(evidence or 0.0):15.1f}")


def engines() -> None:
    """The same posterior by every engine that can compute it."""
    data = bm.Dataset.complete(SWIRL)
    pair = SWIRL.pair_index["0,0", "right"]
    print("engine (swirl of depth 3, epsilon 0.5)   right at the start       se   improper mass   trust   seconds")
    for engine in ("chart", "mixture", "nuts", "hmc"):
        began = time.perf_counter()
        summary = bm.posterior(SWIRL, data, epsilon=0.5, engine=engine)
        found, trust = summary.action_probability, "yes" if summary.trustworthy else "no"
        mass, seconds = float(summary.improper_mass.value), time.perf_counter() - began
        numbers = f"{found.value[pair]:21.3f}{found.se[pair]:9.1g}{mass:16.3f}"
        print(f"{engine:38}{numbers}{trust:>8}{f'~{seconds:.0f}':>10}")


if __name__ == "__main__":
    {"kinds": kinds, "tolerance": tolerance, "prior": prior, "engines": engines}[sys.argv[1]]()
