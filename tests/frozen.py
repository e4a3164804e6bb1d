"""What posteriors and agents answered at one time, kept as an oracle for rebuilding the code behind them.

`CASES` asks `bm.posterior` some fifty questions and `PLAYS` lets agents play; both use the public interface only.
`tests/data/frozen` holds the answers, and `tests/test_frozen.py` asks again. A posterior is compared in one of two
ways, which the table says case by case.

*same*: every number is the old one up to the order of sums, |new - old| <= 1e-12 max(1, |old|). Standard deviations of
action values are compared as second moments, since sqrt(E[q^2] - E[q]^2) turns a last bit into half the digits.

*error*: the new numbers estimate the same quantities. For every probability p (of an action, a route or an improper
policy) with standard error s, and for the log evidence,

    |p_new - p_old| <= 5 sqrt(s_old^2 + s_new^2) + 1e-9.

The frozen answers have no errors of action values, so theirs are taken to be the new ones: means and standard
deviations of action values may differ by 5 sqrt(2) new errors. An inferred noise scale has none at all and gets one
from the others: n, the number of independent points that would have the summary's errors, is the least of the
effective sample size, p (1 - p) / s^2 over its probabilities and 1 / s^2 of its log evidence. Then its mean may
differ by 5 sd sqrt(1/n_old + 1/n_new), and its standard deviation by twice as much. So that large errors do not
excuse everything, the largest error of a probability must not exceed twice the old one plus 1e-3. The dimension and
the effective sample size are the engine's own affair then, the engine and whether it trusts its answer are not.

Probabilities below 1e-3 or above 0.999 rest on few points, or on none, whose spread says nothing about what was missed
(a probability of 0 has a standard error of 0). Their standard errors are not compared at all, and in the second way
they may always differ by 1e-3.

False alarms, if old and new use independent points. Importance sampling has 32 replicates on either side, and Student's
t with 31 to 62 degrees of freedom exceeds 5 with probability 5e-6 to 2e-5; walks and chains have 64 or more. With about
1,000 probabilities that is 1% or less for all cases together. The walks on sparse systems are the exception: four
chains on either side have 3 to 6 degrees of freedom (2.5e-3 to 1.5e-2), for some 300 dependent probabilities.

The numbers are those of one thread of one machine. More threads, another processor or another version of JAX may round
otherwise. That is far less than 1e-12 for sums, but walks, chains, agents and the ties of exact posteriors decide, and
one day a last bit decides for them. HMC with an inferred noise scale is not frozen, as it does so with every change.

`python tests/frozen.py tests/data/frozen` asks everything again and writes the answers; names of cases after the
directory write only those anew and keep the others. A case whose answer changes for a good reason says so in the table.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Literal, NamedTuple

import numpy as np

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.registry import make_agent
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.learning.environment import ONE_THREAD
from bellmanifold.learning.episodes import run_episodes
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP

DIRECTORY = Path(__file__).parent / "data" / "frozen"
POSTERIORS, AGENTS = "posteriors.json", "agents.json"
ROUTES = 20
FEW = 2**15
"""The fewest points of importance sampling."""

SAME = 1e-12
LIMIT = 5.0
RARE = 1e-3
"""Probabilities closer to 0 or 1 than this have no standard error worth comparing."""

ERRORS = "errors_of_values"
Comparison = Literal["same", "error"]
Answer = Mapping[str, Any]


# Problems


def leaky(leak: float) -> SSP:
    """Wait in a until it is left with probability `leak`; b leads back to a, or out."""
    moves = {
        ("a", "wait"): Move(-1.0, {"a": 1.0 - leak, "b": leak}),
        ("a", "on"): Move(-1.0, {"b": 1.0}),
        ("b", "back"): Move(-0.5, {"a": 1.0}),
        ("b", "out"): Move(-2.0, {"goal": 1.0}),
    }
    return from_moves("leaky", moves, start="a")


def richer(model: SSP, factor: float) -> SSP:
    """The problem with larger rewards, which a prior of scale 1 hardly explains: importance weights fail."""
    return replace(model, reward=factor * model.reward)


def starting_anywhere(model: SSP) -> SSP:
    """The problem with three initial states."""
    initial = np.zeros(model.n_states)
    initial[:3] = 0.5, 0.25, 0.25
    return replace(model, initial=initial)


TINY_SEA, SEA, LARGER_SEA = envs.deep_sea(2), envs.deep_sea(3), envs.deep_sea(4)
SLIPPERY_SEA, BRANCHING_SEA = envs.deep_sea(3, slip=0.3), starting_anywhere(SEA)
NOISY_SEA = envs.deep_sea(4, convention="bsuite", stochastic=True)
RICH_SEA, RICH_SWIRL, RICHER_SWIRL = (richer(LARGER_SEA, 10.0), richer(envs.swirl(4), 4.0), richer(envs.swirl(3), 10.0))
PYRAMID, TINY_SWIRL, SWIRL, LARGER_SWIRL = envs.pyramid(3), envs.swirl(2), envs.swirl(3), envs.swirl(4)
TWO, FOUR = envs.two_state(), envs.four_state()
LEAKY, HARDLY_LEFT = leaky(0.1), leaky(0.001)
GRID, SLIPPERY_GRID, LARGE_GRID = envs.grid(3, 3), envs.grid(3, 3, slip=0.2), envs.grid(7, 7, slip=0.2)
NARROW_GRID = envs.grid(2, 3, slip=0.2)


# The table


@dataclass(frozen=True, eq=False)
class Case:
    """A question to `bm.posterior`.

    Attributes:
        name: names the answer.
        model: the problem.
        seen: which pairs were seen, repeated along all pairs: "110" leaves every third one out.
        options: of `bm.posterior`.
        visits: how often each of them was seen; their rewards vary unless this is 0, which means once and as it is.
        comparison: how the answer is compared with the old one.
        reason: why it is not "same" any more, or was frozen again.
    """

    name: str
    model: SSP
    seen: str
    options: Mapping[str, Any] = field(default_factory=dict)
    visits: int = 0
    comparison: Comparison = "same"
    reason: str = ""


CHART = {"engine": "chart"}
"""Where everything is known the solver would answer."""
WALK = {"prior_scale": 1.0, "engine": "chart", "samples": FEW}
SPARSE = {"epsilon": 0.1, "proper_only": True, "samples": 40}
STREAM = "one walker for posteriors and agents: each round has a key of its own, and numbers are drawn per pair"
ORDERED = "frozen again: rows of a cell are taken in another order, and some are tilted that were not"
AGAIN = (
    f"frozen again ({STREAM}; later: values in turn and on the line, leaps, least errors): "
    "ten steps of four chains are no estimate that errors could be compared of"
)
RESOLUTION = "frozen again: some standard errors were below 1 / (effective sample size + 2), and none is now"

CASES = (
    # Nothing was seen
    Case("prior", SEA, "0", {"prior_scale": 3.0}),
    Case("prior of noise", SWIRL, "0", {"infer_noise": True}),
    # Exact posteriors: non-centred coordinates
    Case("exact sea", SEA, "110"),
    Case("exact sea, complete", SEA, "1", CHART),
    Case("exact larger sea", LARGER_SEA, "1011"),
    Case("exact pyramid, complete: ties", PYRAMID, "1", CHART),
    Case("exact pyramid: ties", PYRAMID, "1101", reason=RESOLUTION),
    Case("exact slippery sea", SLIPPERY_SEA, "110"),
    Case("exact four states: ties", FOUR, "1", CHART),
    Case("exact swirl, complete", SWIRL, "1", CHART),
    Case("exact swirl", SWIRL, "1101"),
    Case("exact swirl, discounted", SWIRL, "1101", {"discount": 0.9}),
    Case("exact leaky loop", LEAKY, "1110", {"prior_scale": 3.0}),
    Case("exact slippery grid, complete", SLIPPERY_GRID, "1", {**CHART, "samples": FEW}),
    Case("exact slippery grid", SLIPPERY_GRID, "110", {"samples": FEW}),
    # Relaxed posteriors without loops: non-centred coordinates, and centred ones where the kernel is wide
    Case("sea, narrow", SEA, "110", {"epsilon": 0.01}),
    Case("sea, wide: centred", SEA, "110", {"epsilon": 1.0, "prior_scale": 1.0, "samples": 2**17}),
    Case("sea, complete and very wide: centred", SEA, "1", {"epsilon": 3.0, "prior_scale": 1.0}),
    Case("sea, uniform", SEA, "110", {"epsilon": 0.3, "prior_scale": 2.0, "kernel": "uniform"}),
    Case("sea, several initial states", BRANCHING_SEA, "110", {"epsilon": 0.1}),
    Case("slippery sea", SLIPPERY_SEA, "110", {"epsilon": 0.1}),
    Case("pyramid, complete", PYRAMID, "1", {"epsilon": 0.05}),
    Case("four states", FOUR, "10111", {"epsilon": 0.1}),
    # Relaxed posteriors with loops: cut coordinates, non-centred ones if only proper policies count
    Case("two states", TWO, "1", {"epsilon": 0.5, "prior_scale": 1.0}),
    Case("two states, staying seen", TWO, "10", {"epsilon": 0.3, "prior_scale": 2.0}),
    Case("two states, uniform", TWO, "1", {"epsilon": 1.5, "prior_scale": 1.0, "kernel": "uniform"}),
    Case("two states, discounted", TWO, "1", {"epsilon": 0.3, "prior_scale": 1.0, "discount": 0.9}),
    Case("swirl, complete", SWIRL, "1", {"epsilon": 0.05}),
    Case("swirl", SWIRL, "1101", {"epsilon": 0.05, "prior_scale": 1.0}),
    Case("swirl, proper only", SWIRL, "1", {"epsilon": 0.05, "proper_only": True}),
    Case("swirl, wide", SWIRL, "1", {"epsilon": 1.0, "prior_scale": 1.0, "samples": 2**17}),
    Case("larger swirl", LARGER_SWIRL, "1", {"epsilon": 0.2, "prior_scale": 1.0, "samples": FEW}),
    Case("leaky loop", LEAKY, "1", {"epsilon": 0.3, "prior_scale": 3.0}),
    Case("loop that is hardly ever left", HARDLY_LEFT, "1", {"epsilon": 0.3, "prior_scale": 3.0}),
    Case("narrow slippery grid", NARROW_GRID, "1000", {"epsilon": 0.1, "samples": FEW}),
    Case("slippery grid, proper only", SLIPPERY_GRID, "110", {"epsilon": 0.1, "proper_only": True, "samples": FEW}),
    Case("grid, proper only", GRID, "110", {"epsilon": 0.1, "proper_only": True, "samples": FEW}),
    # Noisy rewards
    Case("noisy sea", SEA, "110", {"noise_sd": 0.5}, visits=3),
    Case("noisy sea, Student's t", SEA, "110", {"noise_sd": 0.3, "noise": "student-t:4"}, visits=1),
    Case("noisy sea, Laplace", SEA, "110", {"noise_sd": 0.3, "noise": "laplace"}, visits=1),
    Case("noisy sea, inferred", SEA, "110", {"infer_noise": True}, visits=3),
    Case("noisy sea, inferred Student's t", SEA, "110", {"infer_noise": True, "noise": "student-t:4"}, visits=1),
    Case("noisy swirl", SWIRL, "1", {"noise_sd": 0.5, "samples": 2**17}, visits=2),
    Case("noisy slippery grid", SLIPPERY_GRID, "100", {"noise_sd": 0.5, "proper_only": True, "samples": FEW}, visits=2),
    # Enumeration and rejection
    Case(
        "tiny sea by enumeration",
        TINY_SEA,
        "110",
        {"epsilon": 0.3, "prior_scale": 1.0, "engine": "mixture"},
        reason=ORDERED,
    ),
    Case(
        "tiny swirl by enumeration",
        TINY_SWIRL,
        "1",
        {"epsilon": 0.3, "prior_scale": 1.0, "engine": "mixture"},
        reason=ORDERED,
    ),
    Case(
        "uneven weights: enumeration",
        RICHER_SWIRL,
        "1",
        {"epsilon": 1.0, "prior_scale": 1.0, "samples": FEW},
        reason=ORDERED,
    ),
    Case(
        "tiny sea by rejection",
        TINY_SEA,
        "101",
        {"epsilon": 0.5, "prior_scale": 1.0, "kernel": "uniform", "engine": "rejection"},
    ),
    # Chains that follow gradients
    Case("hmc", TWO, "1", {"epsilon": 1.0, "prior_scale": 1.0, "engine": "hmc", "samples": 25600}),
    Case("nuts", TWO, "1", {"epsilon": 1.0, "prior_scale": 1.0, "engine": "nuts", "samples": 12800}),
    Case(
        "hmc, Student's t with repeats",
        FOUR,
        "10111",
        {"noise_sd": 1.0, "noise": "student-t:4", "prior_scale": 2.0, "engine": "hmc", "samples": 12800},
        visits=3,
    ),
    Case(
        "nuts, inferred Laplace with repeats",
        TWO,
        "1",
        {"infer_noise": True, "noise": "laplace", "prior_scale": 1.0, "samples": 12800},
        visits=4,
    ),
    # Slice chains
    Case("walk", RICH_SEA, "110", {**WALK, "epsilon": 0.5}, comparison="error", reason=STREAM),
    Case("walk: centred", RICH_SWIRL, "1101", {**WALK, "epsilon": 1.0}, comparison="error", reason=STREAM),
    Case("exact sparse walk", LARGE_GRID, "1101", {"samples": 40}, reason=AGAIN),
    Case("sparse walk, proper only", LARGE_GRID, "1101", SPARSE, reason=AGAIN),
)


@dataclass(frozen=True, eq=False)
class Play:
    """Episodes of an agent.

    Attributes:
        name: names the episodes.
        agent: its name in the registry.
        model: the problem.
        episodes: how many.
        options: of the agent.
        reason: why the episodes were frozen again.
    """

    name: str
    agent: str
    model: SSP
    episodes: int
    options: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


DRAWN = "frozen again: normal numbers are drawn per pair, no longer per padded action and state"
PLAYS = (
    Play("manifold in a sea", "manifold", LARGER_SEA, 15, reason=DRAWN),
    Play("manifold in a swirl", "manifold", LARGER_SWIRL, 15, reason=DRAWN),
    Play("manifold on a slippery grid", "manifold", NARROW_GRID, 6, reason=DRAWN),
    Play("bayes-br in a sea", "bayes-br", LARGER_SEA, 15, reason=DRAWN),
    Play("bayes-br in a swirl", "bayes-br", LARGER_SWIRL, 15, {"epsilon": 0.1}, reason=DRAWN),
    Play("bayes-br on a slippery grid", "bayes-br", NARROW_GRID, 6, {"epsilon": 0.1}, reason=DRAWN),
    Play("bayes-br with noise", "bayes-br", NOISY_SEA, 12, {"noise_sd": 1.0}, reason=DRAWN),
    Play("bayes-br-hmc", "bayes-br-hmc", SEA, 6, {"epsilon": 0.1}),
    Play("bayes-td", "bayes-td", LARGER_SEA, 30),
    Play("psrl", "psrl", LARGER_SEA, 30),
)


# Asking


NOISE = (0.3, -0.2, 0.1, -0.45, 0.25)
"""What rewards of noisy cases are off by, in turn."""


def observations(case: Case) -> Dataset:
    """What was seen."""
    model = case.model
    pairs = np.array([i for i in range(model.n_pairs) if case.seen[i % len(case.seen)] == "1"], dtype=np.int64)
    if not case.visits:
        return Dataset(model, pairs, model.reward[pairs])
    played = np.tile(pairs, case.visits)
    noise = np.resize(NOISE, len(played))
    return Dataset(model, played, model.reward[played] + noise)


def ask(case: Case) -> Answer:
    """What `bm.posterior` answers, without its words and diagnostics."""
    summary = bm.posterior(case.model, observations(case), top=ROUTES, **case.options)
    told, values = summary.to_dict(), (summary.q_mean, summary.q_sd)
    kept = ("engine", "trustworthy", "dimension", "log_evidence", "log_evidence_se", "effective_sample_size")
    answer = {name: told[name] for name in kept}
    answer["pairs"] = {
        f"{state} {action}": [*_estimate(found), *(float(of[state, action].value) for of in values)]
        for state, actions in told["actions"].items()
        for action, found in actions.items()
    }
    if "routes" in told:
        answer["routes"] = {_route_name(route): _estimate(route) for route in told["routes"]}
    answer[ERRORS] = {
        f"{state} {action}": [float(of[state, action].se) for of in values] for state, action in case.model.pair_index
    }
    if "infer_noise" in case.options:
        answer["noise"] = [told["noise"]["mean"], told["noise"]["sd"]]
    return answer | {name: _estimate(told[name]) for name in ("improper_mass", "improper_mass_model")}


def _estimate(found: Mapping[str, float]) -> list[float]:
    return [found["probability"], found["se"]]


def _route_name(route: Mapping[str, Any]) -> str:
    """The actions of a route and how it ends; the initial state and the moves are certain."""
    return " ".join([*(action for _, action in route["pairs"]), "-", route["ends"]])


def play(played: Play) -> Answer:
    """The pairs and rewards of every episode."""
    agent = make_agent(played.agent, played.model, played.options)
    episodes = run_episodes(played.model, agent, played.episodes, seed=1)
    return {
        "pairs": [episode.pairs.tolist() for episode in episodes],
        "rewards": [episode.rewards.tolist() for episode in episodes],
    }


# Comparing


class Difference(NamedTuple):
    """One number that was compared; `allowed` is the largest difference that passes."""

    what: str
    old: Any
    new: Any
    difference: float
    allowed: float

    @property
    def excess(self) -> float:
        """The difference in units of what is allowed; above 1 it fails."""
        return self.difference / self.allowed if self.allowed else math.inf if self.difference else 0.0

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.old!r} became {self.new!r}, off by {self.difference:.3g}, allowed {self.allowed:.3g}"
        )


class Probability(NamedTuple):
    """A probability with its standard error, in both answers."""

    what: str
    old: float
    old_se: float
    new: float
    new_se: float

    @property
    def is_rare(self) -> bool:
        """Does its standard error, or that of its complement, rest on few points?"""
        return not all(RARE <= p <= 1.0 - RARE for p in (self.old, self.new))


def compare(comparison: Comparison, old: Answer, new: Answer) -> list[Difference]:
    """Everything that was compared, the largest excess first."""
    found = list(_compare_same(old, new) if comparison == "same" else _compare_by_error(old, new))
    return sorted(found, key=lambda difference: -difference.excess)


def _compare_same(old: Answer, new: Answer) -> Iterator[Difference]:
    yield from (_equal(name, old[name], new[name]) for name in ("engine", "trustworthy", "dimension"))
    for name in ("log_evidence", "log_evidence_se", "effective_sample_size"):
        yield _close(name, old[name], new[name], SAME)
    for p in _probabilities(old, new):
        yield _close(p.what, p.old, p.new, SAME)
        if not p.is_rare:
            yield _close(f"standard error of {p.what}", p.old_se, p.new_se, SAME)
    for what, before, after in _moments(old, new):
        yield _close(f"mean of {what}", before[0], after[0], SAME)
        yield _close(f"second moment of {what}", _second_moment(before), _second_moment(after), SAME)


def _compare_by_error(old: Answer, new: Answer) -> Iterator[Difference]:
    yield from (_equal(name, old[name], new[name]) for name in ("engine", "trustworthy"))
    if old["log_evidence"] is None or new["log_evidence"] is None:
        yield _equal("log_evidence", old["log_evidence"], new["log_evidence"])
    else:
        allowed = LIMIT * math.hypot(old["log_evidence_se"], new["log_evidence_se"]) + 1e-9
        yield _within("log_evidence", old["log_evidence"], new["log_evidence"], allowed)
    probabilities = list(_probabilities(old, new))
    for p in probabilities:
        allowed = LIMIT * math.hypot(p.old_se, p.new_se) + 1e-9
        yield _within(p.what, p.old, p.new, max(allowed, RARE) if p.is_rare else allowed)
    before, after = (max(errors, default=0.0) for errors in zip(*_errors(probabilities), strict=True))
    yield _within("largest standard error", before, max(before, after), before + 1e-3)
    share = math.hypot(_one_over_root(old), _one_over_root(new))
    for what, before, after in _moments(old, new):
        plain = share * max(before[1], after[1])
        errors = [math.sqrt(2.0) * se for se in after[2:]] or [plain, 2.0 * plain]
        for name, one, other, error in zip(("mean", "standard deviation"), before, after, errors, strict=False):
            yield _within(f"{name} of {what}", one, other, LIMIT * error + 1e-6 * max(1.0, abs(before[0])))


def _errors(probabilities: list[Probability]) -> list[tuple[float, float]]:
    return [(p.old_se, p.new_se) for p in probabilities if not p.is_rare] or [(0.0, 0.0)]


def _one_over_root(answer: Answer) -> float:
    """1 / sqrt(n) for the number n of independent points that would have the errors of an answer."""
    shares = [answer["log_evidence_se"] or 0.0]
    if answer["effective_sample_size"]:
        shares.append(answer["effective_sample_size"] ** -0.5)
    for p, se in _estimates(answer).values():
        if RARE <= p <= 1.0 - RARE:
            shares.append(se / math.sqrt(p * (1.0 - p)))
    return max(shares)


def _estimates(answer: Answer) -> dict[str, list[float]]:
    """All probabilities of an answer with their standard errors, but for routes."""
    found = {f"probability of {name}": numbers[:2] for name, numbers in answer["pairs"].items()}
    return found | {name: answer[name] for name in ("improper_mass", "improper_mass_model")}


def _probabilities(old: Answer, new: Answer) -> Iterator[Probability]:
    before, after = _estimates(old), _estimates(new)
    if before.keys() != after.keys() or ("routes" in old) != ("routes" in new):
        raise KeyError("the two answers are about different problems")
    for what, (p, se) in before.items():
        yield Probability(what, p, se, *after[what])
    known, found = old.get("routes", {}), new.get("routes", {})
    for name in known | found:
        one, other = known.get(name), found.get(name)
        yield Probability(f"route {name}", *(one or _unlisted(known, other)), *(other or _unlisted(found, one)))


def _unlisted(routes: Mapping[str, list[float]], elsewhere: list[float] | None) -> list[float]:
    """A route that is not among the most probable ones: no more probable than the last of a full list, else 0."""
    if elsewhere is None:
        raise KeyError("the route is in neither list")
    last = min(p for p, _ in routes.values()) if len(routes) == ROUTES else 0.0
    return [min(elsewhere[0], last), elsewhere[1]]


def _moments(old: Answer, new: Answer) -> Iterator[tuple[str, list[float], list[float]]]:
    """Means and standard deviations of action values, and of an inferred noise scale."""
    for name, numbers in old["pairs"].items():
        errors = new.get(ERRORS, {}).get(name, [])
        yield f"value of {name}", numbers[2:], [*new["pairs"][name][2:], *errors]
    if "noise" in old:
        yield "noise scale", old["noise"], new["noise"]


def _second_moment(mean_and_sd: list[float]) -> float:
    return mean_and_sd[0] ** 2 + mean_and_sd[1] ** 2


def _equal(what: str, old: Any, new: Any) -> Difference:
    return Difference(what, old, new, 0.0 if old == new else math.inf, 0.0)


def _close(what: str, old: float | None, new: float | None, relative: float) -> Difference:
    if old is None or new is None:
        return _equal(what, old, new)
    return _within(what, old, new, relative * max(1.0, abs(old)))


def _within(what: str, old: float, new: float, allowed: float) -> Difference:
    return Difference(what, old, new, abs(new - old), allowed)


def compare_plays(old: Answer, new: Answer) -> str | None:
    """The first episode in which other pairs were played, or other rewards paid; None if there is none."""
    for k, (before, after) in enumerate(zip(old["pairs"], new["pairs"], strict=True), start=1):
        if before != after:
            return f"episode {k}: pairs {before} became {after}"
    for k, (before, after) in enumerate(zip(old["rewards"], new["rewards"], strict=True), start=1):
        if not np.allclose(before, after, rtol=SAME, atol=SAME):
            return f"episode {k}: rewards {before} became {after}"
    return None


# Files


def load(name: str) -> dict[str, Answer]:
    """The frozen answers of a file, by the names of their cases."""
    return json.loads((DIRECTORY / name).read_text())


def save(path: Path, answers: Mapping[str, Answer]) -> None:
    """Write answers without the errors of action values, one on a line; numbers keep all their digits."""
    kept = {name: {k: part for k, part in answer.items() if k != ERRORS} for name, answer in answers.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(answer, allow_nan=False)}" for name, answer in kept.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def freeze(directory: Path, names: list[str]) -> None:
    """Ask all cases, or those of some names while the others are kept, and write what they answer."""
    directory.mkdir(parents=True, exist_ok=True)
    unknown = set(names) - {entry.name for entry in (*CASES, *PLAYS)}
    if unknown:
        raise SystemExit(f"no case is called {', '.join(sorted(unknown))}: see CASES and PLAYS in {__file__}")
    for file, table, answer in ((POSTERIORS, CASES, ask), (AGENTS, PLAYS, play)):
        path = directory / file
        known = json.loads(path.read_text()) if names else {}
        answers = {}
        for entry in table:
            began = process_time()
            answers[entry.name] = known[entry.name] if names and entry.name not in names else answer(entry)
            print(f"{process_time() - began:7.2f} s  {entry.name}", flush=True)
        save(path, answers)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(f"usage: {sys.argv[0]} DIRECTORY [NAME ...]")
    if not ONE_THREAD.items() <= os.environ.items():  # BLAS reads them when NumPy is imported: too late here
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    start = perf_counter()
    freeze(Path(sys.argv[1]), sys.argv[2:])
    print(f"{perf_counter() - start:7.2f} s  in all")
