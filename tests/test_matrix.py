"""Whoever is asked, and however it is computed: the same answer, or the same refusal.

{batch, sparse} x {posterior, agent} x {exact, relaxed, known noise, inferred noise} x {no loop, loop, loop hardly ever
left}. The question is about one state: `stay` was seen, comes back with probability 1 - L and pays r; `exit` was not.
Beside it lie states with one observed move each that pays nothing. They are 3 and end at once (then the problem is
small enough for batches), or 41 in a random round, which is too large for them and is walked on sparse systems; in
either case they know nothing of the question, except what they say about an unknown noise. With q the value of `stay`,
x that of `exit`, a prior N(0, 1) of both and a kernel of width e

    a(e) = int phi(q) Phi(q) N(L q - r; 0, e^2) dq                           (stay is the better one)
    b(e) = int phi(x) int_{q < x} phi(q) N(q - (1 - L) x - r; 0, e^2) dq dx  (exit is),

and P(stay) = a / (a + b), for an unknown noise with both averaged over its scale: its prior, the scatter of the repeats
and the evidence N(0; 0, (I - P)(I - P)' + e^2 I) of these states. Without a tolerance: Phi(r) for L = 1, 0 for L = 0.

A sparse walk cannot show that it has met policies that stay where a loop is hardly ever left, and says so: posterior
and agent alike. Its numbers are compared nevertheless. Exact posteriors are met, since values are flipped: they are
right. With a tolerance the window in which `stay` is the better one has a width of 1e-9 of the coordinates and is never
met: the answer is the posterior given that nobody stays, with P(stay) = 0 and x distributed as the integrand of b.
"""

import functools
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.registry import make_agent
from bellmanifold.agents.walking import Walk
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.cuts import MISSED
from bellmanifold.posteriors.policies import action_probabilities
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.walk import by_sparse_walk

BESIDE = {"batch": 3, "sparse": 41}
REPEATS, SCATTER, WIDTH = 4, 0.6, 0.3
"""Noisy pairs are seen four times, with noise of sd 0.6; their means have the width that the relaxed kernel has."""
LOOPS = {"no loop": (1.0, -0.4), "loop": (0.0, -0.3), "hardly ever left": (1e-9, -4.4e-9)}
"""The leak L and the reward r of `stay`."""
KINDS = {
    "exact": ({"epsilon": 0.0}, "manifold", {}),
    "relaxed": ({"epsilon": WIDTH}, "bayes-br", {"epsilon": WIDTH}),
    "known noise": ({"noise_sd": SCATTER}, "bayes-br", {"noise_sd": SCATTER}),
    "inferred noise": ({"infer_noise": True}, "bayes-br", {"infer_noise": True}),
}
DRAWS = {"batch": 400, "sparse": 100}
SLACK = {"batch": 2e-3, "sparse": 0.03}
"""Added to 4.5 standard errors of a posterior; those of a sparse walk come from four chains and are rough."""
GRID = np.linspace(-9.0, 9.0, 6_001)


def problem(size, loop):
    """The question and its surroundings."""
    leak, reward = LOOPS[loop]
    stay = {"s": 1 - leak, "goal": leak}
    moves = {
        ("s", "stay"): Move(reward, {state: p for state, p in stay.items() if p > 0}),
        ("s", "exit"): Move(0.0, {"goal": 1.0}),
    }
    for k in range(BESIDE[size]):
        leads = {"goal": 1.0} if size == "batch" else {f"r{(k + 1) % BESIDE[size]}": 0.5, "goal": 0.5}
        moves[f"r{k}", "go"] = Move(0.0, leads)
    return from_moves("question", moves, start="s")


def observations(model, kind):
    """Every pair but `exit`: once, or with noise four times, evenly around its mean."""
    pairs = np.delete(np.arange(model.n_pairs), 1)
    if "noise" not in kind:
        return bm.Dataset(model, pairs, model.reward[pairs])
    deviation = SCATTER * np.array([-1.0, 1.0, -1.0, 1.0])
    rewards = model.reward[pairs][:, None] + deviation
    return bm.Dataset(model, np.repeat(pairs, REPEATS), rewards.ravel())


def truth(size, kind, loop):
    """P(stay) as the module's docstring has it."""
    leak, reward = LOOPS[loop]
    if kind == "exact" and leak in (0.0, 1.0):
        return float(norm.cdf(reward)) if leak else 0.0
    if kind == "exact":
        worth = reward / leak
        above = np.linspace(worth, 9.0, 60_001)
        stays = norm.cdf(worth) * norm.pdf(worth) / leak
        leaves = trapezoid(norm.pdf(above) * norm.pdf(reward + (1 - leak) * above), above)
        return float(stays / (stays + leaves))
    if kind != "inferred noise":
        stays, leaves = both(leak, reward, WIDTH)
        return stays / (stays + leaves)
    etas = np.linspace(0.2, 3.0, 201)
    weights = scale_weight(size, etas)
    parts = np.array([both(leak, reward, eta / np.sqrt(REPEATS)) for eta in etas])
    stays, leaves = weights @ parts
    return float(stays / (stays + leaves))


def exit_value(size, kind, leak, reward):
    """The mean of x; with a tolerance, given that `exit` is the better one."""
    if kind == "exact":
        worth = reward / leak
        stays = norm.pdf(worth) / leak * np.array([norm.cdf(worth), -norm.pdf(worth)])
        above = np.linspace(worth, 9.0, 60_001)
        density = norm.pdf(above) * norm.pdf(reward + (1 - leak) * above)
        mass, first = stays + np.array([trapezoid(density, above), trapezoid(above * density, above)])
        return float(first / mass)
    etas = np.linspace(0.2, 3.0, 201) if kind == "inferred noise" else np.array([WIDTH * np.sqrt(REPEATS)])
    weights = scale_weight(size, etas)
    densities = [exit_density(leak, reward, eta / np.sqrt(REPEATS)) for eta in etas]
    density = weights @ np.array(densities)
    return float(trapezoid(GRID * density, GRID) / trapezoid(density, GRID))


def exit_density(leak, reward, width):
    """The integrand of b at every x of the grid."""
    target = (1 - leak) * GRID + reward
    spread = 1 + width**2
    below = norm.cdf((GRID - target / spread) * np.sqrt(spread) / width)
    return norm.pdf(GRID) * norm.pdf(target, scale=np.sqrt(spread)) * below


def both(leak, reward, width):
    """a and b."""
    stays = trapezoid(norm.pdf(GRID) * norm.cdf(GRID) * norm.pdf(leak * GRID - reward, scale=width), GRID)
    return float(stays), float(trapezoid(exit_density(leak, reward, width), GRID))


def scale_weight(size, etas):
    """What is known of the noise without the question: half-normal prior, scatter of all, evidence of the rest."""
    beside = BESIDE[size]
    pairs = beside + 1
    log = -(etas**2) / 2 - pairs * (REPEATS - 1) * np.log(etas) - pairs * REPEATS * SCATTER**2 / (2 * etas**2)
    round_trip = np.eye(beside) - (0.5 * np.roll(np.eye(beside), 1, axis=1) if size == "sparse" else 0.0)
    spread = np.linalg.eigvalsh(round_trip @ round_trip.T)
    log -= 0.5 * np.log(spread + etas[:, None] ** 2 / REPEATS).sum(axis=1)
    return np.exp(log - log.max())


@dataclass(frozen=True)
class Outcome:
    """What was said.

    Attributes:
        refused: nothing.
        covered: it is trusted, or not reported as `proper_only`.
        missed: the doubt is that policies which stay may not have been met.
        share, error: P(stay).
        exit, exit_error: mean value of `exit`; an agent has none.
    """

    refused: bool = False
    covered: bool = True
    missed: bool = False
    share: float = 0.0
    error: float = 0.0
    exit: float = 0.0
    exit_error: float = np.inf


def asked_of_the_posterior(size, kind, loop):
    """The summary's P(stay)."""
    model = problem(size, loop)
    try:
        summary = bm.posterior(model, observations(model, kind), prior_scale=1.0, **KINDS[kind][0])
    except UnsupportedError:
        return Outcome(refused=True)
    return outcome_of(summary.result, summary.action_probability)


def outcome_of(result, found):
    """Of a result and its action probabilities."""
    share, error = float(found.value[0]), float(found.se[0])
    value, value_error = float(result.q_mean.value[1]), float(result.q_mean.se[1])
    return Outcome(False, bool(result.trustworthy), MISSED in result.doubts, share, error, value, value_error)


def asked_of_an_agent(size, kind, loop):
    """The share of policies that stay. Draws that follow one another are worth half as many independent ones."""
    model = problem(size, loop)
    _, name, options = KINDS[kind]
    data, rng = observations(model, kind), np.random.default_rng(11)
    agent = make_agent(name, model, {"prior_scale": 1.0, **options})
    agent.observe(data.pair, data.reward)
    try:
        stays = np.array([agent.policy(rng)[0] == 0 for _ in range(DRAWS[size])])
    except UnsupportedError:
        return Outcome(refused=True)
    right = truth(size, kind, loop)
    independent = 1 / (1 / agent.diagnostics.get("effective_sample_size", np.inf) + 2 / len(stays))
    error = np.sqrt(right * (1 - right) / independent)
    covered = bool(agent.diagnostics.get("proper_only", 0.0) == 0.0)
    return Outcome(covered=covered, missed=not covered, share=float(stays.mean()), error=float(error))


def assert_right(outcome, right, loop, slack):
    """A covered answer is right; one that leaves improper parameters out never stays in a closed loop."""
    if outcome.covered:
        assert abs(outcome.share - right) <= 4.5 * outcome.error + slack, (outcome, right)
    elif loop == "loop":
        assert outcome.share <= slack, outcome


def assert_doubted_and_right_nevertheless(outcomes, kind, right, value, slack):
    """Everybody says that policies which stay may have been missed. Exactly they were not; else they were, all of them.

    Then the rest is as if nobody stayed. The slack is for errors of means, which come from four chains and are rough.
    """
    for outcome in outcomes:
        assert (outcome.refused, outcome.covered, outcome.missed) == (False, False, True)
        if kind == "exact":
            assert abs(outcome.share - right) <= 4.5 * outcome.error, (outcome, right)
        else:
            assert outcome.share == 0.0, outcome
        assert abs(outcome.exit - value) <= 4.5 * outcome.exit_error + slack, (outcome, value)


QUICK = [("exact", loop) for loop in LOOPS] + [("relaxed", "loop"), ("inferred noise", "no loop")]
"""Of the sparse walks, those that are made together first."""
COSTLY = [(kind, loop) for kind in KINDS for loop in LOOPS if (kind, loop) not in QUICK]
ALWAYS = [("relaxed", "loop"), ("inferred noise", "no loop")]
"""Cells on a batch that every run of the tests asks, beside `test_lingering_exact.py`; `make test-slow` asks all."""
CELLS = [
    pytest.param(size, kind, loop, marks=[] if size == "batch" and (kind, loop) in ALWAYS else [pytest.mark.slow])
    for size in DRAWS
    for kind in KINDS
    for loop in LOOPS
]


def asked(size, kind, loop):
    """What the posterior says, and what an agent does.

    Sparse walks take thousands of small steps, and checking the types of each would take ten times as long as the
    steps: they are made in a process that does not.
    """
    if size == "batch":
        return asked_of_the_posterior(size, kind, loop), asked_of_an_agent(size, kind, loop)
    together = QUICK if (kind, loop) in QUICK else COSTLY
    found = elsewhere(tuple(together))[together.index((kind, loop))]
    return Outcome(**found[0]), Outcome(**found[1])


@functools.cache
def elsewhere(asked_for):
    """The outcomes of sparse cells, or on the grid, computed in a process of its own."""
    here = Path(__file__).resolve()
    path = os.pathsep.join([str(here.parent.parent / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(here), json.dumps(asked_for)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(("size", "kind", "loop"), CELLS)
def test_the_same_answer_or_the_same_refusal(size, kind, loop):
    """Posterior and agent against the truth, and against each other. False-alarm rate: below 1e-3 for all 24 together.

    Small problems are answered by both. What the posterior refuses the agent refuses, too, or it says that it leaves
    improper parameters out; what the posterior is trusted with the agent does not refuse.
    """
    right = truth(size, kind, loop)
    summary, agent = asked(size, kind, loop)
    if size == "sparse" and loop == "hardly ever left":
        assert np.isfinite(summary.exit_error)
        value, rough = exit_value(size, kind, *LOOPS[loop]), max(summary.error, 0.02)
        outcomes = (replace(summary, error=rough), agent)
        assert_doubted_and_right_nevertheless(outcomes, kind, right, value, 0.1)
        return
    if size == "batch":
        assert not summary.refused, "small problems are answered"
        assert summary.covered, "small problems are answered, loops included"
    if not summary.refused and summary.covered:
        assert_right(summary, right, loop, SLACK[size])
        assert not agent.refused, "the posterior is trusted with it"
        assert agent.covered, "the posterior is trusted with it"
    if summary.refused:
        assert agent.refused or not agent.covered, "the posterior refuses it"
    if not agent.refused:
        assert_right(agent, right, loop, 2 / DRAWS[size])


STEPS, DRAWN = 32, 50
"""Steps of each of four chains, and draws of an agent."""


@pytest.mark.parametrize("kind", ["exact", pytest.param("relaxed", marks=pytest.mark.slow)])
def test_a_small_loop_that_is_hardly_ever_left_walked_on_a_sparse_system(kind):
    """The same question without large surroundings: what a posterior and an agent say when they walk.

    Eight visits and as many flips lie between two draws: 128 are worth more than 100 independent ones (ArviZ), and
    P(stay) is asked for within 4.5 standard errors of so many. False-alarm rate: below 1e-3.
    """
    model = problem("batch", "hardly ever left")
    target = relaxed_target(observations(model, kind), KINDS[kind][0]["epsilon"], 1.0)
    result = by_sparse_walk(target, Budget(samples=4 * STEPS), "asked for")
    right, value = truth("batch", kind, "hardly ever left"), exit_value("batch", kind, *LOOPS["hardly ever left"])
    summary = outcome_of(result, action_probabilities(model, result.table))
    rng = np.random.default_rng(11)
    walk = Walk(target, None, rng)
    walk.walker.least = 2
    stays = float(np.mean([walk.draw(rng)[0] == 0 for _ in range(DRAWN)]))
    left_out = walk.diagnostics["proper_only"] == 1.0
    agent = Outcome(covered=not left_out, missed=left_out, share=stays)
    outcomes = [
        replace(outcome, error=float(np.sqrt(right * (1 - right) / draws)))
        for outcome, draws in ((summary, 4 * STEPS), (agent, DRAWN))
    ]
    assert 4.5 * max(outcome.error for outcome in outcomes) < right, "a walk that never stays is noticed"
    assert_doubted_and_right_nevertheless(outcomes, kind, right, value, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "loop", "flag"), [("exact", "no loop", 0.0), ("exact", "loop", 0.0), ("relaxed", "loop", 1.0)]
)
def test_a_sparse_walk_says_whether_it_leaves_improper_parameters_out(kind, loop, flag):
    """`proper_only` is a diagnostic of every walk."""
    model = problem("sparse", loop)
    data, rng = observations(model, kind), np.random.default_rng(0)
    agent = make_agent(KINDS[kind][1], model, {"prior_scale": 1.0, **KINDS[kind][2]})
    agent.observe(data.pair, data.reward)
    agent.policy(rng)
    assert agent.diagnostics["proper_only"] == flag


@pytest.mark.slow
@pytest.mark.parametrize("size", ["batch", pytest.param("sparse", marks=pytest.mark.slow)])
def test_many_loops_that_are_hardly_ever_left_are_covered_or_reported(size):
    """Ten such loops and a tolerance: too many to cut open, so that an agent walks. It must not say it covers them."""
    moves = {}
    for k in range(10):
        moves[f"s{k}", "stay"] = Move(-1e-9, {f"s{k}": 1 - 1e-9, "goal": 1e-9})
        moves[f"s{k}", "exit"] = Move(0.0, {"goal": 1.0})
    around = BESIDE["sparse"] if size == "sparse" else 0
    for k in range(around):
        moves[f"r{k}", "go"] = Move(0.0, {f"r{(k + 1) % around}": 0.5, "goal": 0.5})
    model = from_moves("loops", moves, start="s0")
    pairs = np.flatnonzero([model.pair_name(i)[1] != "exit" for i in range(model.n_pairs)])
    agent, rng = make_agent("bayes-br", model, {"epsilon": 0.01, "prior_scale": 1.0}), np.random.default_rng(5)
    agent.observe(pairs, model.reward[pairs])
    try:
        first = agent.policy(rng)
    except UnsupportedError:
        return
    if agent.diagnostics.get("proper_only", 0.0) == 1.0:
        return
    policies = [first, *(agent.policy(rng) for _ in range(9))]
    share = np.mean([policy[:10] == model.pair_start[:10] for policy in policies])
    stays, leaves = norm.pdf(0.0, scale=0.01) / 2, 1 / (4 * np.sqrt(np.pi))  # a and b for a leak and a reward of 0
    assert abs(share - stays / (stays + leaves)) < 0.25


def asked_on_the_grid():
    """The share of states in which an agent's policies are optimal, and whether it leaves improper parameters out.

    The posterior is asked for the same: without `proper_only` it is refused.
    """
    model = envs.grid(rows=8, columns=8, slip=0.1)
    rng = np.random.default_rng(2)
    pairs = np.repeat(np.arange(model.n_pairs), 5)
    data = bm.Dataset(model, pairs, model.reward[pairs] + 0.1 * rng.standard_normal(len(pairs)))
    with pytest.raises(UnsupportedError, match="use proper_only=True"):
        bm.posterior(model, data, infer_noise=True, samples=40)
    bm.posterior(model, data, infer_noise=True, proper_only=True, samples=40)
    agent = make_agent("bayes-br", model, {"infer_noise": True})
    agent.observe(data.pair, data.reward)
    policies = [agent.policy(rng) for _ in range(3)]
    q = bm.solve(model).q
    best = np.maximum.reduceat(q, model.pair_start[:-1])
    share = float(np.mean([q[policy] > best - 0.05 for policy in policies]))
    return share, agent.diagnostics["proper_only"]


@pytest.mark.slow
def test_an_agent_that_infers_the_noise_of_a_large_random_problem():
    """A slippery grid of 63 states, all pairs seen five times, noise of sd 0.1: right, and it says what it leaves out.

    A noise scale of 1 would hide most differences between actions: optimal in 40% of the states, where the posterior is
    optimal in 95%. False-alarm rate: far below 1e-6.
    """
    share, proper_only = elsewhere("grid")
    assert share > 0.8
    assert proper_only == 1.0


if __name__ == "__main__":
    asked_for = json.loads(sys.argv[1])
    if asked_for == "grid":
        print(json.dumps(asked_on_the_grid()))
    else:
        cells = [("sparse", *cell) for cell in asked_for]
        outcomes = [[asdict(asked_of_the_posterior(*cell)), asdict(asked_of_an_agent(*cell))] for cell in cells]
        print(json.dumps(outcomes))
