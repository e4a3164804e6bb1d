"""Does stopping keep its word? `PYTHONPATH=src python validation/stops.py --problems 500 --workers 16 --out DIR`.

Problems are drawn from the prior: Q ~ N(0, 1) for every pair, rewards r = g(Q, p) of a fixed transition law p. Then Q
is the problem's optimal action values, known exactly, and the posterior's prior is the truth. `manifold` explores.
Before every episode its best policy is looked at, with its expected loss (`bellmanifold.decisions.advice`) and the
probability that nothing is better. When the loss first is at most T, the policy's true loss is noted; when that
probability first is at least 1 - delta, whether something is better after all.

- The mean true loss at that moment should be at most T, and the share of wrong policies at most delta, up to errors.
- Under a prior that is three times too narrow the promise breaks: nothing unseen looks good enough to be tried. It is
  followed until the smallest loss is promised, on fewer problems: data that contradict a prior take long walks.
- Thompson sampling explores (`right`), and on the same problems the shortest way to the unseen (`directed`).
- Episodes until then are compared with going the shortest way to everything not seen until every pair was played
  (`every pair`), and with `psrl` after as many episodes as bring its mean true loss down to the same.

Writes DIR/rows.jsonl (what was found about each problem, as it comes: a run that was cut off goes on from there),
DIR/stops.png, and prints the table. Rows depend on their index alone, whatever the number of workers.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCES = (0.3, 0.1, 0.03)
LEVELS = (0.9, 0.95, 0.99)
EXPLORERS: dict[str, dict[str, Any]] = {
    "right": {"prior_scale": 1.0},
    "directed": {"prior_scale": 1.0, "explore": "directed"},
    "narrow": {"prior_scale": 1.0 / 3.0},
}
"""Options of `manifold`; problems have the prior scale 1."""
DRAWS = 4096
MOST_EPISODES, PSRL_EPISODES = 400, 200
KINDS = ("acyclic", "leaky", "slippery")
LABELS = {"right": "Thompson", "directed": "directed", "narrow": "Thompson, narrow prior"}
COMPARED = "compared"
Row = dict[str, Any]


def law_of(kind: str) -> Any:
    """The problem whose laws are used; its rewards are not."""
    import bellmanifold as bm
    from bellmanifold.envs.building import Move, from_moves

    if kind == "acyclic":
        return bm.envs.deep_sea(depth=4)
    if kind == "slippery":
        return bm.envs.grid(rows=3, columns=3, slip=0.2).discounted(0.9)
    rng = np.random.default_rng(5)
    moves = {}
    for state in range(6):
        for action in "xyz":
            after = rng.choice(6, 2, replace=False)
            moves[str(state), action] = Move(0.0, {str(after[0]): 0.5, str(after[1]): 0.3, "goal": 0.2})
    return from_moves("leaky", moves, start="0")


def drawn_problem(kind: str, index: int) -> tuple[Any, np.ndarray]:
    """A problem from the prior, and its optimal action values."""
    model = law_of(kind)
    q = np.random.default_rng([index, KINDS.index(kind)]).standard_normal(model.n_pairs)
    return replace(model, reward=q - model.expected_next(model.best(q))), q


def true_loss(model: Any, q: np.ndarray, known: np.ndarray, policy: np.ndarray) -> float:
    """What a policy loses, if whatever comes after a pair that is not known is the best."""
    from bellmanifold.decisions.valuation import Walks

    visits = Walks(model, known).visits(policy[None], model.initial)[0]
    return float(model.initial @ model.best(q) - visits @ np.where(known, model.reward, q)[policy])


def explored(kind: str, index: int, prior: str) -> Row:
    """What happened when the agent explored one problem until it was surest."""
    from bellmanifold.agents.registry import make_agent
    from bellmanifold.decisions.advice import decide
    from bellmanifold.decisions.joint_draws import known_draws
    from bellmanifold.learning.episodes import play_episodes
    from bellmanifold.posteriors.budget import Budget

    model, q = drawn_problem(kind, index)
    agent: Any = make_agent("manifold", model, EXPLORERS[prior])
    episodes = play_episodes(model, agent, MOST_EPISODES, np.random.default_rng([index, 1]))
    stops: dict[str, list[float]] = {}
    sure: dict[str, list[float]] = {}
    seen = -1
    for episode in range(MOST_EPISODES):
        if (known := int(agent.memory.observed.sum())) > seen:
            seen = known
            decision = decide(known_draws(agent._target(), Budget(seed=index, rounds=1), DRAWS))
            found, optimal = float(decision.loss.value), float(decision.optimal.value)
            true = true_loss(model, q, agent.memory.observed, decision.policy)
            for tolerance in TOLERANCES:
                if found <= tolerance and str(tolerance) not in stops:
                    stops[str(tolerance)] = [episode, found, true]
            for level in LEVELS:
                if optimal >= level and str(level) not in sure:
                    sure[str(level)] = [episode, optimal, float(true > 1e-6)]
        if len(stops) == len(TOLERANCES) and (len(sure) == len(LEVELS) or prior == "narrow"):
            break
        next(episodes)
    return {"about": prior, "kind": kind, "index": index, "stops": stops, "sure": sure}


def compared(kind: str, index: int) -> Row:
    """Episodes until every pair was played by the shortest way, and psrl's true loss episode by episode."""
    from bellmanifold.agents.frontier import unseen
    from bellmanifold.agents.memory import Memory
    from bellmanifold.agents.registry import make_agent
    from bellmanifold.learning.episodes import play_episodes
    from bellmanifold.mdp.solver import policy_value

    model, q = drawn_problem(kind, index)

    class Nearest:
        """The shortest way to what was not seen."""

        def __init__(self) -> None:
            self.memory = Memory(model)

        def policy(self, rng: np.random.Generator) -> np.ndarray:
            return unseen(self.memory).towards_frontier(model.pair_start[:-1].copy(), rng)

        def observe(self, pairs: np.ndarray, rewards: np.ndarray) -> None:
            self.memory.add(pairs, rewards)

    nearest, every = Nearest(), None
    for episode, _ in enumerate(play_episodes(model, nearest, MOST_EPISODES, np.random.default_rng([index, 2]))):
        if nearest.memory.observed.all():
            every = episode + 1
            break
    psrl = make_agent("psrl", model, {"noise_sd": 0.1, "concentration": model.n_states + 1.0})
    played = play_episodes(model, psrl, PSRL_EPISODES, np.random.default_rng([index, 3]))
    best = float(model.initial @ model.best(q))
    losses = [best - float(model.initial @ policy_value(model, episode.policy)) for episode in played]
    return {"about": COMPARED, "kind": kind, "index": index, "every_pair": every, "psrl": losses}


def work(task: tuple[str, str, int]) -> Row:
    """What there is to say about one problem."""
    about, kind, index = task
    return compared(kind, index) if about == COMPARED else explored(kind, index, about)


class Found:
    """What was found, kept in a file of one line per problem and prior.

    Args:
        path: the file; what it holds already is read, except for a last line that was cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if len(whole) < len(lines):
            path.write_text("".join(whole))
        self.rows = {(row["about"], row["kind"], row["index"]): row for row in map(json.loads, whole)}

    def add(self, row: Row) -> None:
        """Keep one row."""
        self.rows[row["about"], row["kind"], row["index"]] = row
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def spread(values: list[float]) -> tuple[float, float]:
    """Mean and standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def summary(rows: list[Row]) -> list[Row]:
    """One line per kind of problem, prior and promise: what was promised, what was measured, whether it holds."""
    lines = []
    for kind in KINDS:
        for prior in EXPLORERS:
            own = [row for row in rows if row["kind"] == kind and row["about"] == prior]
            for name, of in (("loss", "stops"), ("wrong", "sure")):
                for key in [str(t) for t in (TOLERANCES if of == "stops" else LEVELS)]:
                    met = [row[of][key] for row in own if key in row[of]]
                    if len(met) < 2:
                        continue
                    promised = float(key) if of == "stops" else 1.0 - float(key)
                    mean, se = spread([entry[2] for entry in met])
                    line = {"kind": kind, "prior": prior, "what": name, "promised": promised, "measured": mean}
                    line |= {"expected": float(np.mean([e[1] if of == "stops" else 1.0 - e[1] for e in met]))}
                    line |= {"se": se, "problems": len(met), "of": len(own), "holds": mean <= promised + 2 * se}
                    lines.append(line | {"episodes": float(np.mean([entry[0] for entry in met]))})
    return lines


def episodes_compared(rows: list[Row], lines: list[Row]) -> list[str]:
    """Episodes until the loss was promised, until every pair was seen, and of psrl at an equal true loss."""
    told = []
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind and row["about"] == COMPARED]
        seen = [row["every_pair"] for row in own if row["every_pair"] is not None]
        if not own:
            continue
        curve = np.mean([row["psrl"] for row in own], axis=0)
        for line in (x for x in lines if x["kind"] == kind and x["prior"] != "narrow" and x["what"] == "loss"):
            enough = np.flatnonzero(curve <= max(line["measured"], 1e-9))
            after = str(enough[0] + 1) if len(enough) else f"more than {PSRL_EPISODES} (then {curve[-1]:.2g})"
            who = f"{kind}, {line['prior']}: loss {line['promised']:g} promised"
            told.append(
                f"{who} after {line['episodes']:.1f} episodes (measured {line['measured']:.3g}); "
                f"every pair seen after {np.mean(seen or [np.nan]):.1f} ({len(seen)} of {len(own)}); "
                f"psrl there after {after}"
            )
    return told


def draw(lines: list[Row], path: Path) -> None:
    """Promised against measured, for the right prior and the narrow one."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for one, (what, label) in zip(axes, (("loss", "mean true loss"), ("wrong", "share not optimal")), strict=True):
        for prior, style in (("right", "-"), ("directed", "--"), ("narrow", ":")):
            for kind, colour in zip(KINDS, ("#4477AA", "#CC6677", "#117733"), strict=True):
                own = [x for x in lines if (x["what"], x["prior"], x["kind"]) == (what, prior, kind)]
                x, y = [line["promised"] for line in own], [line["measured"] for line in own]
                name = f"{kind}, {LABELS[prior]}"
                if not own:
                    continue
                error = [[min(2 * line["se"], line["measured"]) for line in own], [2 * line["se"] for line in own]]
                one.errorbar(x, y, error, color=colour, linestyle=style, marker="o", capsize=3, label=name)
        ends = [min(line["promised"] for line in lines if line["what"] == what) / 2, 1.0 if what == "loss" else 0.3]
        one.plot(ends, ends, color="grey", linewidth=0.8)
        one.set(xscale="log", xlabel="promised", ylabel=label)
        one.set_yscale("symlog", linthresh=ends[0])
        one.set_ylim(0.0, 1.2)
    axes[0].legend(fontsize=7, frameon=False, loc="lower right")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Read the arguments, simulate, write, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=500, help="of each kind")
    parser.add_argument("--directed", type=int, default=200, help="of each kind, explored by the shortest way")
    parser.add_argument("--narrow", type=int, default=40, help="of each kind, under the narrow prior")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NPROC": "1", "JAX_PLATFORMS": "cpu"}
    given.out.mkdir(parents=True, exist_ok=True)
    sizes = {"right": given.problems, COMPARED: given.problems, "narrow": given.narrow, "directed": given.directed}
    tasks = [(about, kind, k) for about, size in sizes.items() for k in range(size) for kind in given.kinds]
    found = Found(given.out / "rows.jsonl")
    context = multiprocessing.get_context("spawn")
    with context.Pool(given.workers) as pool:
        for row in pool.imap_unordered(work, [task for task in tasks if task not in found.rows]):
            found.add(row)
    rows = [found.rows[task] for task in tasks]
    lines = summary(rows)
    for line in lines:
        what = f"{line['kind']:9} {line['prior']:6} {line['what']:5} promised {line['promised']:.2g}"
        found = f"expected {line['expected']:.3g} measured {line['measured']:.3g} (se {line['se']:.2g})"
        often = f"in {line['problems']} of {line['of']} problems, after {line['episodes']:.1f} episodes"
        print(f"{what} {found} {often}: {'holds' if line['holds'] else 'BROKEN'}")
    print("\n".join(episodes_compared(rows, lines)))
    draw(lines, given.out / "stops.png")


if __name__ == "__main__":
    main()
