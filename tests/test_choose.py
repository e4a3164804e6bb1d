"""Which engine suits which posterior: a table of cases."""

from dataclasses import replace

import numpy as np
import pytest

from bellmanifold import envs
from bellmanifold.chart.batch import ChartLimits
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.choose import choose, enumeration, may_enumerate
from bellmanifold.posteriors.cuts import check_exact
from bellmanifold.posteriors.kernels import Laplace, Uniform
from bellmanifold.posteriors.pieces import PIECE
from bellmanifold.posteriors.question import every_visit_target
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.dataset import Dataset

TREE = envs.deep_sea(2)
"""Three states of two pairs each: six pairs in six slots, eight cells."""
LOOP = envs.two_state()
LAPLACE = Laplace()
FLAT = ValuePrior.stated(TREE, "flat", None, None)


def complete(model, epsilon=0.5, kernel="gaussian", proper_only=False):
    return relaxed_target(Dataset.complete(model), epsilon, 10.0, kernel, proper_only)


def twice(kernel=LAPLACE):
    """Every pair seen twice, with noise whose repeats have no sufficient mean."""
    data = Dataset(TREE, np.tile(np.arange(6), 2), np.tile(TREE.reward, 2))
    return every_visit_target(data, 0.5, 2.0, kernel)


NOTHING = relaxed_target(Dataset.from_pairs(TREE, []), 0.5, 10.0)
PARTLY = relaxed_target(Dataset.from_pairs(TREE, [("0,0", "left"), ("0,0", "right")]), 0.5, 1.0)
"""Two observed pairs, and one that stands for both unobserved ones of each state next to them; or six values."""
SLIPPERY = envs.grid(3, 3, slip=0.1)


@pytest.mark.parametrize(
    ("target", "asked", "budget", "engine", "reason"),
    [
        (NOTHING, "auto", {}, "prior", "no observations: the posterior is the prior"),
        (NOTHING, "chart", {"samples": 1}, "prior", "no observations: the posterior is the prior"),
        (NOTHING, "nuts", {}, "prior", "no observations: the posterior is the prior"),
        (complete(TREE), "auto", {}, "importance", "asked for"),
        (complete(TREE, 0.0), "auto", {}, "solver", "everything is known"),
        (complete(TREE, 0.0), "chart", {}, "importance", "asked for"),
        (complete(TREE), "chart", {"samples": 10}, "importance", "asked for"),
        (complete(LOOP), "auto", {}, "importance", "asked for"),
        (complete(TREE), "mixture", {}, "mixture", "asked for"),
        (complete(TREE), "rejection", {}, "rejection", "asked for"),
        (complete(TREE), "hmc", {}, "hmc", "asked for"),
        (complete(TREE), "hmc", {"samples": 10}, "hmc", "asked for"),
        (complete(TREE), "nuts", {"samples": 10}, "nuts", "asked for"),
        (twice(), "auto", {}, "nuts", "repeats under laplace noise have no sufficient mean"),
        (twice(), "nuts", {"samples": 10}, "nuts", "asked for"),
        (twice(), "hmc", {}, "hmc", "asked for"),
        # at the limit they are taken, beyond it not
        (complete(TREE), "auto", {"coordinates": 6, "in_piece": 6 * PIECE}, "importance", "asked for"),
        (complete(TREE), "auto", {"coordinates": 5}, "walk", "6 coordinates are too many for importance sampling"),
        (complete(TREE), "chart", {"coordinates": 5}, "walk", "6 coordinates are too many for importance sampling"),
        (
            complete(TREE),
            "auto",
            {"in_piece": 6 * PIECE - 1},
            "sparse walk",
            "the padded problem has 6 pairs: too many for large batches",
        ),
        # coordinates are counted with their residuals
        (PARTLY, "auto", {"coordinates": 3}, "walk", "6 coordinates are too many for importance sampling"),
        # nothing is improper there, so that nothing is left out
        (
            replace(PARTLY, proper_only=True),
            "auto",
            {"coordinates": 5},
            "walk",
            "6 coordinates are too many for importance sampling",
        ),
        (replace(PARTLY, proper_only=True), "auto", {"coordinates": 6}, "importance", "asked for"),
        # what does not fit a batch
        (
            complete(SLIPPERY, 0.0),
            "chart",
            {"chart": ChartLimits(block=7)},
            "sparse walk",
            "a strong component has 8 states: a batch chart takes at most 7",
        ),
        (complete(SLIPPERY, 0.0), "chart", {"chart": ChartLimits(block=8)}, "importance", "asked for"),
        # loops that cannot be cut open by a few pairs
        (complete(LOOP), "auto", {"cut": 0}, "mixture", "the chart does not apply (the observed loops, "),
        (complete(LOOP), "auto", {"cut": 1}, "importance", "asked for"),
        (complete(LOOP, proper_only=True), "auto", {"cut": 0}, "importance", "asked for"),
    ],
)
def test_the_engine_of_a_posterior(target, asked, budget, engine, reason):
    choice = choose(target, asked, Budget(**budget))
    assert choice.engine == engine
    assert choice.reason.startswith(reason)
    assert (choice.cover is not None) == (engine == "importance")
    if choice.cover is not None:
        assert choice.cover.ways[0][0].target is target


NO_CUT = "can only be cut open by more than 0 pairs"


@pytest.mark.parametrize(
    ("target", "asked", "budget", "error", "message"),
    [
        *[
            (complete(TREE, proper_only=True), engine, {}, BadInputError, f"the {engine} engine has no proper_only")
            for engine in ("mixture", "rejection", "hmc", "nuts")
        ],
        *[
            (complete(TREE), engine, {"samples": 10}, BadInputError, f"the {engine} engine has no samples")
            for engine in ("mixture", "rejection")
        ],
        *[
            (twice(), engine, {}, UnsupportedError, f"{engine} takes laplace noise only where every pair was seen once")
            for engine in ("chart", "mixture", "rejection")
        ],
        (twice(Uniform()), "auto", {}, UnsupportedError, "uniform noise has no gradient"),
        (replace(twice(), proper_only=True), "auto", {}, BadInputError, "chains have no proper_only"),
        (replace(twice(), prior=FLAT), "auto", {}, UnsupportedError, "chains that have no flat prior: use gaussian"),
        (complete(LOOP), "chart", {"cut": 0}, UnsupportedError, NO_CUT),
        (complete(LOOP, kernel="uniform"), "auto", {"cut": 0}, UnsupportedError, NO_CUT),
        (
            relaxed_target(Dataset.from_pairs(LOOP, [("s1", "stay", 1.0)]), 0.0, 1.0),
            "auto",
            {},
            UnsupportedError,
            "the exact posterior does not exist",
        ),
    ],
)
def test_what_no_engine_takes(target, asked, budget, error, message):
    with pytest.raises(error, match=message):
        choose(target, asked, Budget(**budget))


@pytest.mark.parametrize(("pays", "exists"), [(-1e-9, True), (0.0, False), (1e-9, False)])
def test_the_exact_posterior_needs_loops_that_cost_something(pays, exists):
    data = Dataset.from_pairs(LOOP, [("s1", "stay", pays), ("s1", "go", -1.0)])
    target = relaxed_target(data, 0.0, 10.0)
    if exists:
        check_exact(target)
    else:
        with pytest.raises(UnsupportedError, match="the exact posterior does not exist"):
            check_exact(target)
    check_exact(relaxed_target(data, 0.1, 10.0))


@pytest.mark.parametrize(
    ("target", "asked", "may"),
    [
        (complete(TREE), "auto", True),
        (complete(TREE), "chart", False),
        (complete(TREE, 0.0), "auto", False),
        (complete(TREE, proper_only=True), "auto", False),
        (complete(TREE, kernel="uniform"), "auto", False),
    ],
)
def test_when_cells_may_be_enumerated(target, asked, may):
    """And then they are, where the chart refuses; else what was refused stays so."""
    assert may_enumerate(target, asked) == may
    refusal = UnsupportedError("cannot")
    if may:
        choice = enumeration(target, asked, refusal)
        assert (choice.engine, choice.reason) == ("mixture", "the chart does not apply (cannot)")
    else:
        with pytest.raises(UnsupportedError, match=r"^cannot$"):
            enumeration(target, asked, refusal)


def test_loops_that_need_many_cuts_are_enumerated():
    """The default budget; a round of seven states, each with a loop of its own."""
    moves = {(f"s{k}", "stay"): Move(-1.0, {f"s{k}": 1.0}) for k in range(7)}
    moves |= {(f"s{k}", "on"): Move(-1.0, {f"s{k + 1}" if k < 6 else "goal": 1.0}) for k in range(7)}
    target = complete(from_moves("seven", moves, start="s0"))
    choice = choose(target, "auto", Budget())
    assert choice.engine == "mixture"
    assert "more than 6 pairs" in choice.reason
    assert choose(target, "auto", Budget(cut=7)).engine == "importance"
