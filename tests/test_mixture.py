"""Proposition 1 against published answers, quadrature and weighted prior draws."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.gaussian.maximum import largest
from bellmanifold.io.problem import from_json
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.estimated import ratio, systematic
from bellmanifold.posteriors.policies import PolicyTable, action_probabilities
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.target import Target, ValuePrior, noisy_target, relaxed_target
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP
from bellmanifold_paper.engines import cells as cells_module
from bellmanifold_paper.engines import mixture as engine
from bellmanifold_paper.engines.mixture import USUAL, mixture
from bellmanifold_paper.engines.orthant import orthants

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())


def route_probabilities(model: SSP, table: PolicyTable) -> dict[tuple[tuple[str, str], ...], float]:
    """Probability of every route of a deterministic problem: played until the goal or the first repeated state."""
    column = {int(s): k for k, s in enumerate(np.flatnonzero(table.coupled))}
    found: dict[tuple[tuple[str, str], ...], float] = defaultdict(float)

    def follow(state: int, route: list[int], policy: np.ndarray, weight: float) -> None:
        if state == model.n_states or state in model.pair_state[route]:
            found[tuple(model.pair_name(i) for i in route)] += weight
            return
        own = range(model.pair_start[state], model.pair_start[state + 1])
        played = [policy[column[state]]] if state in column else own
        for pair in played:
            follow(int(model.next_state[pair]), [*route, int(pair)], policy, weight / len(played))

    total = table.weight.sum()
    for policy, weight in zip(table.policy, table.weight.sum(axis=0) / total, strict=True):
        follow(int(np.argmax(model.initial)), [], policy, float(weight))
    return found


def assert_sound(model: SSP, found: Result) -> None:
    """Finite, normalised, no negative spread."""
    action = action_probabilities(model, found.table)
    assert np.all(np.isfinite(action.value))
    assert np.all(np.isfinite(action.se))
    assert np.add.reduceat(action.value, model.pair_start[:-1]) == pytest.approx(np.ones(model.n_states))
    for array in (
        found.q_mean.value,
        found.q_mean.se,
        found.q_sd.value,
        [found.log_evidence.value, found.log_evidence.se],
    ):
        assert np.all(np.isfinite(array))
    assert np.all(found.q_sd.value >= 0)
    assert 0 <= found.diagnostics["dropped_bound"] <= 1.1e-6


def bandit(rewards: list[float]) -> SSP:
    """One state whose actions end at once."""
    return from_moves("bandit", {("s", f"a{k}"): Move(r, {"goal": 1.0}) for k, r in enumerate(rewards)}, start="s")


def test_four_independent_values_by_the_textbook():
    """All actions seen: four normal numbers, which of them is the largest by quadrature.

    False alarms: 9 comparisons at 6 standard errors with 15 degrees of freedom, 2e-4 in all. Standard deviations come
    without an error; 2 % is five times the most that they were off by with twenty seeds.
    """
    model = bandit([-1.0, -0.6, 0.2, -3.0])
    found = mixture(relaxed_target(Dataset.complete(model), 0.8, 2.0), Budget(accuracy=2e-4))
    variance = 1.0 / (1.0 / 4.0 + 1.0 / 0.64)
    mean = variance * model.reward / 0.64
    best = largest(mean[None], np.full((1, 4), np.sqrt(variance))).probability[0]
    action = action_probabilities(model, found.table)
    assert np.all(np.abs(action.value - best) <= 6 * action.se)
    assert action.se.max() <= 2e-4
    assert np.all(np.abs(found.q_mean.value - mean) <= 6 * found.q_mean.se)
    assert found.q_mean.se.max() < 1e-3
    assert found.q_sd.value == pytest.approx(np.full(4, np.sqrt(variance)), rel=2e-2)
    evidence = norm.logpdf(model.reward, scale=np.sqrt(4.64)).sum()
    assert abs(found.log_evidence.value - evidence) <= 6 * found.log_evidence.se
    assert (found.diagnostics["cells"], found.diagnostics["dropped_bound"]) == (4, 0.0)


def test_the_usual_way_through_the_cells():
    """What frozen answers were computed with."""
    assert (USUAL.negligible, USUAL.pilot, USUAL.most, USUAL.growth) == (1e-6, 131072, 65536, 16.0)
    assert (USUAL.chunk, USUAL.first_block, USUAL.block, USUAL.stored) == (262144, 128, 1024, 67108864)


WALLED = {
    ("a", "x"): Move(-0.5, {"b": 0.5, "goal": 0.5}),
    ("a", "y"): Move(-1.0, {"goal": 1.0}),
    ("a", "z"): Move(0.2, {"goal": 1.0}),
    ("b", "x"): Move(-0.3, {"goal": 1.0}),
    ("b", "y"): Move(-0.7, {"goal": 1.0}),
    ("c", "x"): Move(-0.4, {"b": 1.0}),
    ("c", "y"): Move(-0.9, {"goal": 1.0}),
}


def walled_target() -> Target:
    """A successor with two actions, and states with three and two that are none."""
    seen = [("a", "x"), ("a", "y"), ("b", "y"), ("c", "x")]
    return relaxed_target(Dataset.from_pairs(from_moves("walled", WALLED, start="a"), seen), 0.4, 1.5)


def walled() -> cells_module.Cells:
    """Its twelve cells."""
    return cells_module.cells_of(walled_target(), 12)


def test_bounds_are_evidence_times_the_least_probable_wall():
    """Wall by wall from means and covariances; in chunks and without keeping the Gaussians just the same."""
    cells = walled()
    expected = []
    for cell in range(12):
        gaussians = cells.compute(np.array([cell // cells.fastest]))
        greedy, other = (rows[0] for rows in cells.walls(np.array([cell])))
        covariance = gaussians.factor[0] @ gaussians.factor[0].T
        walls = []
        for i, j in zip(greedy, other, strict=True):
            sd = np.sqrt(covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j])
            walls.append(norm.logcdf((gaussians.mean[0, i] - gaussians.mean[0, j]) / sd))
        expected.append(gaussians.log_evidence[0] + min(walls))
    bound, kept = engine._bounds(cells)
    assert bound == pytest.approx(expected, abs=1e-10)
    assert kept is not None
    assert kept.mean == pytest.approx(cells.compute(np.arange(2)).mean)
    again, kept = engine._bounds(cells, replace(USUAL, chunk=1, stored=0))
    assert again == pytest.approx(bound)
    assert kept is None


def test_gaussians_are_kept_while_they_are_few():
    """Two choices of 7 x 7 numbers."""
    for numbers, kept in ((98, True), (97, False)):
        assert (engine._bounds(walled(), replace(USUAL, stored=numbers))[1] is not None) == kept


def with_own(cells: cells_module.Cells, compute) -> cells_module.Cells:
    """The same cells, whose Gaussians are computed by a function of the cells and the choices."""

    class Own(cells_module.Cells):
        def compute(self, choice):
            return compute(cells, choice)

    return Own(**{field.name: getattr(cells, field.name) for field in fields(cells)})


def test_choices_are_treated_in_chunks_of_limited_size():
    """Six cells of 7 x 7 numbers belong to each of the two choices."""
    sizes = []

    def counted(cells, choice):
        sizes.append(len(choice))
        return cells.compute(choice)

    for numbers, expected in ((2 * 6 * 49, [2]), (2 * 6 * 49 - 1, [1, 1]), (1, [1, 1])):
        sizes.clear()
        engine._bounds(with_own(walled(), counted), replace(USUAL, chunk=numbers))
        assert sizes == expected


def test_differences_that_do_not_vary_are_walls_or_none():
    """Values 1 and 2 for certain: the first is never the larger one, the second always; and equal ones may be."""
    cells = cells_module.cells_of(relaxed_target(Dataset.complete(bandit([1.0, 2.0])), 0.4, 1.5), 2)
    for mean, expected in (([1.0, 2.0], [-np.inf, 0.5]), ([2.0, 2.0], [0.5, 0.5])):
        fixed = cells_module.Gaussians(np.array([0.5]), np.array([mean]), np.zeros((1, 2, 2)))
        assert engine._bounds(with_own(cells, lambda cells, choice, fixed=fixed: fixed))[0].tolist() == expected


@pytest.mark.parametrize("difference", [1.0, 1e-2, 1e-9])
def test_sds_of_differences_survive_cancellation(difference):
    """Two rows of a factor of size 1e3 that differ by little: a covariance has no digits of that left."""
    factor = np.array([[[1e3, 2e3, 0.0], [1e3, 2e3, difference * 1e3], [5.0, 0.0, 0.0]]])
    row, greedy, other = np.array([[0]]), np.array([[0, 2]]), np.array([[1, 0]])
    found = engine._wall_sd(factor, row, greedy, other)
    assert found[0] == pytest.approx([difference * 1e3, np.hypot(995.0, 2e3)], rel=1e-9)


def test_sds_of_differences_from_covariances():
    """Rows (2, 0, 0), (1, 2, 0) and (-1, 1, 0) of a factor: lengths of their differences, without any cancellation."""
    factor = np.array([[[2.0, 0.0, 0.0], [1.0, 2.0, 0.0], [-1.0, 1.0, 0.0]]])
    found = engine._wall_sd(factor, np.array([[0]]), np.array([[0, 0, 1]]), np.array([[1, 2, 2]]))
    assert found[0] == pytest.approx(np.sqrt([5.0, 10.0, 5.0]))


def test_without_competitors_there_is_no_wall():
    """One action, seen with a tolerance of 0.4: the bound of its one cell is the evidence itself."""
    target = relaxed_target(Dataset.complete(bandit([-1.0])), 0.4, 1.5)
    (bound,) = engine._bounds(cells_module.cells_of(target, 1))[0]
    assert bound == pytest.approx(norm.logpdf(-1.0, scale=np.hypot(0.4, 1.5)))


def test_cells_are_taken_best_first_until_the_rest_is_negligible():
    cells = walled()
    bound, _ = engine._bounds(cells)
    work = replace(USUAL, first_block=2, block=3, negligible=1e-300)
    blocks, rest = engine._best_first(cells, bound, np.random.default_rng(0), work)
    assert [len(block.cell) for block in blocks] == [2, 3, 3, 3, 1]
    taken = np.concatenate([block.cell for block in blocks])
    assert sorted(taken.tolist()) == list(range(12))
    assert np.all(np.diff(bound[taken]) <= 0)
    assert rest == -np.inf
    blocks, rest = engine._best_first(cells, bound, np.random.default_rng(0), replace(work, negligible=0.5))
    taken = np.concatenate([block.cell for block in blocks])
    assert len(taken) < 12
    assert rest == pytest.approx(np.logaddexp.reduce(np.delete(bound, taken)))
    total = np.logaddexp.reduce([np.logaddexp.reduce(b.log_weight().mean(axis=0)) for b in blocks])
    assert rest <= total + np.log(0.5) + 0.1
    found = engine._result(walled_target(), cells, blocks, rest, "test", np.random.default_rng(0))
    assert found.diagnostics["dropped_bound"] == pytest.approx(np.exp(rest - found.log_evidence.value))


@pytest.mark.parametrize(("pilot", "points"), [(2**17, 64), (16 * 12 * 4, 4), (1, 1)])
def test_first_estimates_have_few_points(pilot, points):
    """A power of two between 1 and 64 for each cell and replicate, as many as the pilot's share allows."""
    cells, generator = walled(), np.random.default_rng(0)
    blocks, _ = engine._best_first(cells, engine._bounds(cells)[0], generator, replace(USUAL, pilot=pilot))
    assert {int(n) for block in blocks for n in block.points} == {points}
    assert {int(n) for block in blocks for n in block.spent} == {points}


def test_points_go_where_the_variance_is():
    """In proportion to standard deviations, a power of two, and so many that the variance is divided as asked."""
    weight = np.array([[1.0, 1.0, 1.0], [9.0, 3.0, 1.5], [5.0, 2.0, 1.25], [5.0, 2.0, 1.25]])
    points = np.array([16, 16, 16])
    found = engine._allocation(weight, points, 30.0)
    assert np.all(np.log2(found) % 1 == 0)
    single = weight.var(axis=0, ddof=1) * points
    before, after = (single / points).sum(), (single / found).sum()
    assert before / 30.0 / 2.0 <= after <= before / 30.0
    exact = np.sqrt(single)
    assert np.all(found / exact < 2.0 * (found / exact).min() * (1 + 1e-12))
    assert np.array_equal(engine._allocation(weight, np.array([2**12, 2**12, 2**12]), 1e-9), [2**12] * 3), "never fewer"


def test_a_lucky_estimate_is_not_believed():
    """Replicates that agree exactly: a tenth of the weight counts as standard deviation. And nobody gets too many."""
    weight = np.array([[4.0, 1.0], [4.0, 1.0], [4.0, 1.0]])
    assert engine._allocation(weight, np.array([4, 4]), 16.0).tolist() == [128, 32]
    assert engine._allocation(weight, np.array([4, 4]), 1e12).tolist() == [USUAL.most] * 2


# --- sums over cells, written out -------------------------------------------------------------------------------------


def many_walls() -> Target:
    """Four states of three and two actions, widths and priors of their own: 24 cells, of five walls each."""
    more = {("d", "x"): Move(-0.4, {"b": 0.3, "goal": 0.7}), ("d", "y"): Move(-0.9, {"goal": 1.0})}
    model = from_moves("many walls", WALLED | more, start="a")
    observed = np.isin(np.arange(9), [0, 1, 4, 5, 7])
    prior = ValuePrior(np.linspace(-1.5, 0.6, 9), np.linspace(0.6, 1.8, 9))
    scale = np.where(observed, 0.4 + 0.1 * np.arange(9), 0.0)
    return Target(model, observed, np.where(observed, model.reward, 0.0), scale, prior, log_constant=0.3)


def in_blocks() -> tuple[cells_module.Cells, list[engine._Block]]:
    """Its cells in three blocks; those of the second were estimated again, with two or eight points instead of four."""
    cells = cells_module.cells_of(many_walls(), 24)
    work = replace(USUAL, first_block=5, block=10, pilot=16 * 24 * 4, negligible=1e-300)
    blocks, _ = engine._best_first(cells, engine._bounds(cells)[0], np.random.default_rng(3), work)
    points = np.where(np.arange(len(blocks[1].cell)) % 3 == 0, 2, 8)
    blocks[1] = engine._again(blocks[1], points, np.random.default_rng(4))
    return cells, blocks


def test_blocks_hold_the_differences_of_their_cells():
    """Means and factors of the walls; and what was spent counts all rounds."""
    cells, blocks = in_blocks()
    assert [len(block.cell) for block in blocks] == [5, 10, 9]
    assert [set(block.spent.tolist()) for block in blocks] == [{4}, {6, 12}, {4}]
    for block in blocks:
        greedy, other = cells.walls(block.cell)
        gaussians = cells.compute(block.cell // cells.fastest)
        stairs = block.staircase
        np.testing.assert_array_equal(block.log_evidence, gaussians.log_evidence)
        for k in range(len(block.cell)):
            mean = (gaussians.mean[k, greedy[k]] - gaussians.mean[k, other[k]])[stairs.order[k]]
            factor = (gaussians.factor[k, greedy[k]] - gaussians.factor[k, other[k]])[stairs.order[k]]
            np.testing.assert_allclose(stairs.scale[k] * stairs.mean[k], mean, rtol=1e-9)
            rebuilt = stairs.scale[k][:, None] * stairs.lower[k] @ stairs.direction[k].T
            np.testing.assert_allclose(rebuilt, factor, atol=1e-12)


def test_estimating_again_gives_every_cell_its_own_points():
    """In ascending order of these, each number with all of its cells."""
    _, blocks = in_blocks()
    points, generator = np.where(np.arange(5) < 2, 8, 2), np.random.default_rng(7)
    found = engine._again(blocks[0], points, np.random.default_rng(7))
    for number, rows in ((2, [2, 3, 4]), (8, [0, 1])):
        alone = orthants(blocks[0].staircase.cells(np.array(rows)), number, 16, generator)
        np.testing.assert_array_equal(found.estimate.log_probability[:, rows], alone.log_probability)
        np.testing.assert_array_equal(found.estimate.first[:, rows], alone.first)
        np.testing.assert_array_equal(found.estimate.spread[rows], alone.spread)
    assert found.points.tolist() == points.tolist()
    assert found.spent.tolist() == (4 + points).tolist()


def noise_of(blocks: list[engine._Block], weight: np.ndarray) -> np.ndarray:
    points = np.concatenate([block.points for block in blocks])
    return weight.var(axis=0, ddof=1) + weight.mean(axis=0) ** 2 / points


def test_cells_that_are_looked_at_again_stand_for_all():
    """16 draws in proportion to the noise, each for its share of all noise; fewer than 17 cells for themselves."""
    cells, blocks = in_blocks()
    _, weight = engine._weights(blocks)
    noise, cell = noise_of(blocks, weight), np.concatenate([block.cell for block in blocks])
    found = engine._again_apart(blocks, weight, np.random.default_rng(6))
    times = np.bincount(systematic(noise, 16, np.random.default_rng(6)), minlength=24)
    expected = {int(cell[k]): times[k] * noise.sum() / 16 / noise[k] for k in np.flatnonzero(times)}
    taken = {int(c): w for block, rows, own in found for c, w in zip(block.cell[rows], own, strict=True)}
    assert taken == pytest.approx(expected)
    assert times.max() > 1
    for block, rows, _ in found:
        assert any(block is one for one in blocks)
        assert len(set(block.points[rows].tolist())) == 1, "those of a part have as many points"
    for number in (16, 17):
        few = [*blocks[:2], engine._estimate(cells, blocks[2].cell[: number - 15], 4, np.random.default_rng(5))]
        alone = engine._again_apart(few, engine._weights(few)[1], np.random.default_rng(6))
        assert all((own == 1.0).all() for _, _, own in alone) == (number == 16)
        assert (sum(len(rows) for _, rows, _ in alone) == number) == (number == 16)
    assert engine._again_apart(blocks, weight[:1], np.random.default_rng(6)) == [], "one replicate is exact"


def value_moments(cells, block, k, first, spread):
    """Mean and covariance of the own values in a cell, from those of w: theta = mu + H w + rest with H = G Q."""
    gaussians = cells.compute(block.cell[[k]] // cells.fastest)
    mu, g = gaussians.mean[0], gaussians.factor[0]
    h = g @ block.staircase.direction[k][: len(cells.own)]
    return mu + h @ first, h @ spread @ h.T + g @ g.T - h @ h.T


def test_moments_cell_by_cell():
    """Means, standard deviations and the errors of both, from the definitions; with all 24 cells, and with 15."""
    cells, blocks = in_blocks()
    for some in (blocks, blocks[:2]):
        top, weight = engine._weights(some)
        again = engine._again_apart(some, weight, np.random.default_rng(6))
        found = engine._moments(many_walls(), cells, some, again, top, weight, np.random.default_rng(8))
        part, square, column = np.zeros((16, 9)), np.zeros(9), 0
        for block in some:
            for k in range(len(block.cell)):
                own, estimate = weight[:, column], block.estimate
                for r in range(16):
                    part[r] += own[r] * value_moments(cells, block, k, estimate.first[r, k], np.eye(5))[0]
                mean, covariance = value_moments(cells, block, k, estimate.mean()[k], estimate.spread[k])
                square += own.mean() * (mean**2 + np.diag(covariance))
                column += 1
        expected = ratio(part, weight.sum(axis=1))
        np.testing.assert_allclose(found[0].value, expected.value, rtol=1e-10)
        np.testing.assert_allclose(found[0].se, expected.se, rtol=1e-8)
        variance = square / weight.mean(axis=0).sum() - expected.value**2
        np.testing.assert_allclose(found[1].value, np.sqrt(variance), rtol=1e-9)
        generator, total = np.random.default_rng(8), np.zeros(9)
        for block, rows, stands_for in again:
            once = orthants(block.staircase.cells(np.repeat(rows, 16)), int(block.points[rows[0]]), 1, generator)
            for place, k in enumerate(rows):
                errors = []
                for j in range(16 * place, 16 * place + 16):
                    mean, covariance = value_moments(cells, block, k, once.first[0, j], once.spread[j])
                    apart = (mean - expected.value) ** 2 + np.diag(covariance) - variance
                    errors.append(np.exp(block.log_evidence[k] + once.log_probability[0, j] - top) * apart)
                total += stands_for[place] * np.var(errors, axis=0, ddof=1)
        error = np.sqrt(total / 16) / weight.mean(axis=0).sum() / (2.0 * np.sqrt(variance))
        np.testing.assert_allclose(found[1].se, error, rtol=1e-6)


def test_the_answer_of_some_blocks():
    """Evidence, its error and the bound on what was left out from the sums of the weights; points of both looks."""
    cells, blocks = in_blocks()
    found = engine._result(many_walls(), cells, blocks, -4.0, "test", np.random.default_rng(6))
    total = np.exp(np.concatenate([block.log_weight() for block in blocks], axis=1)).sum(axis=1)
    assert found.log_evidence.value == pytest.approx(np.log(total.mean()), rel=1e-12)
    assert found.log_evidence.se == pytest.approx(total.std(ddof=1) / 4.0 / total.mean(), rel=1e-9)
    assert found.diagnostics["dropped_bound"] == pytest.approx(np.exp(-4.0) / total.mean(), rel=1e-9)
    assert found.table.resolution == found.diagnostics["dropped_bound"]
    again = engine._again_apart(blocks, engine._weights(blocks)[1], np.random.default_rng(6))
    spent = sum(block.spent.sum() for block in blocks) + sum(block.points[rows].sum() for block, rows, _ in again)
    assert found.diagnostics["points"] == 16 * spent
    assert found.diagnostics["cells"] == 24
    assert (found.dimension, found.reason) == (9, "test: enumeration of 24 cells")
    share = np.concatenate([np.exp(block.log_weight()) for block in blocks], axis=1).sum(axis=0)
    cell = np.concatenate([block.cell for block in blocks])
    for pair in range(9):
        played = (cells.own[cells.policies(cell)] == pair).any(axis=1)
        action = action_probabilities(many_walls().model, found.table)
        assert action.value[pair] == pytest.approx(share[played].sum() / share.sum(), rel=1e-9)


def test_a_round_multiplies_points_as_the_accuracy_asks_and_the_budget_allows():
    """A little more than the variance has to fall by, no more than sixteen times; all or nothing of a round."""
    target, (cells, blocks) = many_walls(), in_blocks()
    _, weight = engine._weights(blocks)
    worst = float(action_probabilities(target.model, engine._table(target, cells, blocks, weight)).se.max())
    before = np.concatenate([block.points for block in blocks])
    spent = sum(int(block.spent.sum()) for block in blocks)
    for factor, growth in ((2.0, (2.0 / 0.9) ** 2), (100.0, 16.0)):
        after = engine._allocation(weight, before, growth)
        needed = 16 * (spent + int(after.sum()) + int(np.sort(after)[-16:].sum()))
        for allowed, expected in ((needed, after), (needed - 1, before)):
            budget = Budget(accuracy=worst / factor, cell_points=allowed)
            found = engine._refine(target, cells, blocks, budget, np.random.default_rng(0), USUAL)
            assert np.array_equal(np.concatenate([block.points for block in found]), expected)
    enough = Budget(accuracy=worst, cell_points=10**9)
    assert engine._refine(target, cells, blocks, enough, np.random.default_rng(0), USUAL) is blocks


def test_points_in_proportion_to_standard_deviations(rng):
    """Cell by cell; at least a tenth of a weight counts, at least one point and at most so many are given."""
    weight, points = rng.uniform(0.9, 1.1, size=(5, 6)) * [1.0, 5.0, 0.01, 2.0, 1e-9, 0.0], np.array([1, 2, 4, 8, 1, 4])
    weight[:, 3] = 2.0
    for growth, most in ((3.7, 64), (40.0, 64), (3.7, 8)):
        single = [max(np.std(own, ddof=1), 0.1 * own.mean()) * n**0.5 for own, n in zip(weight.T, points, strict=True)]
        per_point = growth * sum(single) / sum(s**2 / n for s, n in zip(single, points, strict=True))
        expected = [max(n, 2 ** int(np.ceil(np.log2(min(max(per_point * s, 1.0), most)))))
                    for s, n in zip(single, points, strict=True)]  # fmt: skip
        assert engine._allocation(weight, points, growth, most).tolist() == expected


@pytest.fixture
def spent(monkeypatch):
    """Points of every call of `orthants`."""
    points_of = []

    def counting(staircase, points, replicates, generator):
        points_of.append(len(staircase.mean) * points * replicates)
        return orthants(staircase, points, replicates, generator)

    monkeypatch.setattr(engine, "orthants", counting)
    return points_of


def test_no_more_points_are_spent_than_allowed(spent):
    """An accuracy that cannot be reached: it ends with what it has before the next round would exceed the budget."""
    for most, rounds in ((2**18, 1), (10**6, 2)):
        spent.clear()
        found = mixture(walled_target(), Budget(accuracy=1e-9, cell_points=most))
        assert found.diagnostics["points"] == sum(spent) <= most, "with the second look at the heaviest cells"
        assert len(spent) >= rounds, "a round was possible"


def test_small_spreads_of_huge_values_survive():
    """Values of -1e6 known to 1e-3, beside a cell without weight in which they are -2e6: sds e, e and e sqrt(2)."""
    moves = {
        ("a", "on"): Move(-1.0, {"b": 1.0}),
        ("b", "x"): Move(-1e6, {"goal": 1.0}),
        ("b", "y"): Move(-2e6, {"goal": 1.0}),
    }
    found = mixture(relaxed_target(Dataset.complete(from_moves("huge", moves, start="a")), 1e-3, 1e7))
    assert found.q_sd.value == pytest.approx([np.sqrt(2.0) * 1e-3, 1e-3, 1e-3], rel=1e-4)
    assert found.q_mean.value == pytest.approx([-1e6 - 1.0, -1e6, -2e6], abs=1e-2)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=[case["name"] for case in GOLDEN["cases"]])
def test_golden(case):
    """False alarms: the standard errors are below 2e-5, a tenth of the tolerance; negligible."""
    model = from_json(GOLDEN["models"][case["model"]])
    data = Dataset.from_pairs(model, [tuple(pair) for pair in case["observed"]])
    found = mixture(relaxed_target(data, case["epsilon"], float(case["prior_scale"])), Budget(accuracy=2e-5))
    action = action_probabilities(model, found.table)
    truth = np.array([case["actions"][s][a] for s, a in map(model.pair_name, range(model.n_pairs))])
    assert action.value == pytest.approx(truth, abs=2e-4)
    assert action.se.max() <= 2e-5
    if "routes" in case:
        routes = route_probabilities(model, found.table)
        listed = {tuple((s, a) for s, a in route): probability for route, probability in case["routes"]}
        assert {route for route, p in routes.items() if p > 2e-4} <= listed.keys()
        for route, probability in listed.items():
            assert routes.get(route, 0.0) == pytest.approx(probability, abs=2e-4), route


def test_four_states():
    model = envs.four_state()
    found = mixture(relaxed_target(Dataset.complete(model), 0.01, 2.0))
    routes = route_probabilities(model, found.table)
    assert routes[("1", "to-2"), ("2", "to-3"), ("3", "to-4")] == pytest.approx(0.5057769735, abs=1e-6)
    assert routes[("1", "to-2"), ("2", "to-4")] == pytest.approx(0.4942230265, abs=1e-6)
    assert found.diagnostics["points"] == 0
    assert not action_probabilities(model, found.table).se.any()


def test_four_states_seen_ten_times():
    model = envs.four_state()
    every = np.ones(model.n_pairs, dtype=bool)
    scale = np.full(model.n_pairs, 0.01 / np.sqrt(10.0))
    found = mixture(Target(model, every, model.reward, scale, ValuePrior.same(model, 2.0)))
    routes = route_probabilities(model, found.table)
    assert routes[("1", "to-2"), ("2", "to-3"), ("3", "to-4")] == pytest.approx(0.5018228465, abs=1e-6)
    assert routes[("1", "to-2"), ("2", "to-4")] == pytest.approx(0.4981771535, abs=1e-6)


def panels(breaks: list[float], nodes: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Composite Gauss-Legendre nodes and weights."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    low, width = np.array(breaks[:-1])[:, None], np.diff(breaks)[:, None]
    return (low + width * (x + 1) / 2).ravel(), (width * w / 2).ravel()


@pytest.mark.parametrize("seen", [("stay", "go"), ("stay",), ("go",)])
@pytest.mark.parametrize(("epsilon", "prior_scale"), [(0.3, 2.0), (1.5, 0.7), (0.05, 10.0)])
def test_two_states_against_quadrature(seen, epsilon, prior_scale):
    """Theta = (stay, go): residuals stay - max(stay, go) and go, integrated over go and stay - go."""
    model = envs.two_state()
    found = mixture(relaxed_target(Dataset.from_pairs(model, [("s1", a) for a in seen]), epsilon, prior_scale))
    wide, narrow = (
        np.linspace(-9 * prior_scale, 9 * prior_scale, 200),
        np.linspace(-1 - 9 * epsilon, -1 + 9 * epsilon, 40),
    )
    go, go_weight = panels(sorted([*wide, *narrow]), 8)
    side = list(np.geomspace(1e-3, 18 * prior_scale, 80))
    gap, gap_weight = panels(sorted([-g for g in side] + [0.0, *side] + [g for g in narrow if g < 0]), 8)
    stay = go[:, None] + gap
    log_density = norm.logpdf(go, scale=prior_scale)[:, None] + norm.logpdf(stay, scale=prior_scale)
    if "stay" in seen:
        log_density = log_density + norm.logpdf(-1.0, np.minimum(gap, 0.0), epsilon)
    if "go" in seen:
        log_density = log_density + norm.logpdf(-1.0, go, epsilon)[:, None]
    mass = np.exp(log_density) * go_weight[:, None] * gap_weight
    total = mass.sum()
    mean = np.array([(mass * stay).sum(), (mass * go[:, None]).sum()]) / total
    square = np.array([(mass * stay**2).sum(), (mass * go[:, None] ** 2).sum()]) / total
    action = action_probabilities(model, found.table)
    assert found.log_evidence.value == pytest.approx(np.log(total), abs=1e-8)
    assert action.value[0] == pytest.approx(mass[:, gap > 0].sum() / total, abs=1e-8)
    assert found.q_mean.value == pytest.approx(mean, abs=1e-7)
    assert found.q_sd.value == pytest.approx(np.sqrt(square - mean**2), rel=1e-6)


def odd_problem() -> SSP:
    """Three actions, a single action, a self-loop, a cycle, chance, and a state nobody reaches."""
    moves = {
        ("a", "x"): Move(-0.5, {"b": 0.5, "c": 0.5}),
        ("a", "y"): Move(-1.0, {"a": 0.3, "goal": 0.7}),
        ("a", "z"): Move(0.2, {"b": 1.0}),
        ("b", "x"): Move(-0.3, {"a": 1.0}),
        ("b", "y"): Move(-0.7, {"c": 0.6, "goal": 0.4}),
        ("c", "only"): Move(-0.4, {"b": 0.2, "goal": 0.8}),
        ("far", "x"): Move(-1.0, {"goal": 1.0}),
        ("far", "y"): Move(-1.0, {"a": 1.0}),
    }
    return from_moves("odd", moves, start="a")


def weighted_prior_draws(target: Target, draws: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws of all action values from the prior, and their likelihoods: slow, and nothing to get wrong."""
    model = target.model
    theta = target.prior.mean + target.prior.sd * generator.standard_normal((draws, model.n_pairs))
    value = np.maximum.reduceat(theta, model.pair_start[:-1], axis=1)
    value = np.concatenate([value, np.zeros((draws, 1))], axis=1)
    log_likelihood = np.zeros(draws)
    for i in np.flatnonzero(target.observed):
        successors = slice(model.next_start[i], model.next_start[i + 1])
        residual = theta[:, i] - value[:, model.next_state[successors]] @ model.next_prob[successors]
        log_likelihood += norm.logpdf(target.reward[i], residual, target.scale[i])
    return theta, np.exp(log_likelihood)


SAME_PRIOR = ValuePrior.same(odd_problem(), 1.3)
OWN_PRIORS = ValuePrior(np.linspace(-1.5, 0.6, 8), np.linspace(0.4, 1.8, 8))
"""Another mean and sd for each of the eight pairs of the odd problem."""


@pytest.mark.parametrize(
    ("seen", "prior"),
    [
        pytest.param(
            seen, prior, id=f"{seen}, {name}", marks=[] if (name == "same prior") == same else [pytest.mark.slow]
        )
        for seen, same in (((0, 1, 2, 3, 4, 5), True), ((0, 3, 6), False), ((1,), False), ((5, 7), True))
        for name, prior in (("same prior", SAME_PRIOR), ("own priors", OWN_PRIORS))
    ],
)
def test_odd_problem_against_weighted_prior_draws(seen, prior):
    """Different widths for every pair, and different priors. False alarms: about 120 comparisons at 5 standard errors,
    below 2e-4 in all."""
    model = odd_problem()
    observed = np.isin(np.arange(model.n_pairs), seen)
    scale = np.where(observed, 0.4 + 0.1 * np.arange(model.n_pairs), 0.0)
    reward = np.where(observed, model.reward, 0.0)
    target = Target(model, observed, reward, scale, prior, log_constant=0.25)
    found = mixture(target, Budget(accuracy=1e-4))
    assert_sound(model, found)
    theta, likelihood = weighted_prior_draws(target, 10**6, np.random.default_rng(11))
    greedy = np.stack([theta[:, i] == theta[:, model.pair_state == model.pair_state[i]].max(axis=1) for i in range(8)])
    share = likelihood / likelihood.sum()
    probability = greedy @ share
    error = np.sqrt(((greedy - probability[:, None]) ** 2) @ share**2)
    action = action_probabilities(model, found.table)
    assert np.all(np.abs(action.value - probability) <= 5 * np.hypot(error, action.se) + 1e-12)
    mean = share @ theta
    mean_error = np.sqrt(share**2 @ (theta - mean) ** 2)
    assert np.all(np.abs(found.q_mean.value - mean) <= 5 * np.hypot(mean_error, found.q_mean.se))
    variance = share @ (theta - mean) ** 2
    variance_error = np.sqrt(share**2 @ ((theta - mean) ** 2 - variance) ** 2)
    assert np.all(np.abs(found.q_sd.value**2 - variance) <= 5 * variance_error + 1e-3)
    evidence = likelihood.mean()
    evidence_error = likelihood.std() / np.sqrt(len(likelihood)) / evidence
    assert abs(found.log_evidence.value - 0.25 - np.log(evidence)) <= 5 * np.hypot(
        evidence_error, found.log_evidence.se
    )


def test_no_data_leaves_the_prior():
    model = envs.deep_sea(3)
    found = mixture(relaxed_target(Dataset.from_pairs(model, []), 0.1, 2.0))
    assert found.diagnostics["cells"] == 1
    assert found.log_evidence.value == 0.0
    assert np.array_equal(action_probabilities(model, found.table).value, np.full(12, 0.5))
    assert np.array_equal(found.q_sd.value, np.full(12, 2.0))


@pytest.mark.parametrize("prior_scale", [1e-3, pytest.param(1.0, marks=pytest.mark.slow), 1e6])
@pytest.mark.parametrize("epsilon", [1e-8, 1e-4, 1.0, 1e3])
@pytest.mark.parametrize("half", [False, True])
def test_extremes_are_finite_and_normalised(epsilon, prior_scale, half):
    for model in (envs.two_state(), envs.four_state(), envs.swirl(2), envs.deep_sea(3)):
        pairs = np.arange(model.n_pairs)[:: 2 if half else 1]
        data = Dataset(model, pairs, model.reward[pairs])
        assert_sound(model, mixture(relaxed_target(data, epsilon, prior_scale), Budget(accuracy=0.01)))


@pytest.mark.parametrize("epsilon", [1e-10, 1e-8, 1e-6])
def test_tie_is_split_by_the_determinant(epsilon):
    """Two actions worth -1; the one that stays with probability 1/2 has |det A| = 1/2 and so twice the weight."""
    moves = {("a", "go"): Move(-1.0, {"goal": 1.0}), ("a", "dawdle"): Move(-0.5, {"a": 0.5, "goal": 0.5})}
    model = from_moves("tie", moves, start="a")
    found = mixture(relaxed_target(Dataset.complete(model), epsilon, 10.0))
    assert action_probabilities(model, found.table).value == pytest.approx([1 / 3, 2 / 3], abs=1e-5)
    assert found.q_mean.value == pytest.approx([-1.0, -1.0], abs=1e-5)


def test_huge_rewards():
    model = from_moves(
        "huge",
        {
            ("a", "x"): Move(-1e6, {"b": 1.0}),
            ("a", "y"): Move(-3e6, {"goal": 1.0}),
            ("b", "x"): Move(-1e6, {"goal": 1.0}),
            ("b", "y"): Move(-2e6, {"goal": 1.0}),
        },
        start="a",
    )
    found = mixture(relaxed_target(Dataset.complete(model), 1e-3, 10.0))
    assert_sound(model, found)


def test_small_epsilon_finds_the_optimal_policy():
    model = envs.deep_sea(4)
    found = mixture(relaxed_target(Dataset.complete(model), 1e-6, 10.0))
    routes = route_probabilities(model, found.table)
    best = max(routes, key=lambda route: routes[route])
    assert routes[best] == pytest.approx(1.0, abs=1e-3)
    assert [action for _, action in best] == ["right"] * 4


def test_cells_left_out_do_not_matter():
    """False alarms: |z| > 6 in 20 comparisons with 15 degrees of freedom, 5e-4 in all."""
    model = envs.deep_sea(4)
    target = relaxed_target(Dataset.complete(model), 0.03, 10.0)
    few = replace(USUAL, first_block=32)
    pruned = mixture(target, work=few)
    assert len(pruned.table.policy) < pruned.diagnostics["cells"] == 1024
    assert pruned.diagnostics["dropped_bound"] <= 1e-6
    complete = mixture(target, Budget(seed=1), work=replace(few, negligible=1e-300, stored=0))
    assert len(complete.table.policy) == 1024
    one, other = (action_probabilities(model, found.table) for found in (pruned, complete))
    assert np.all(np.abs(one.value - other.value) <= 6 * np.hypot(one.se, other.se) + 1e-6)
    assert abs(pruned.log_evidence.value - complete.log_evidence.value) < 6 * np.hypot(
        pruned.log_evidence.se, complete.log_evidence.se
    )


def test_accuracy_is_reached_or_the_budget_spent():
    model = envs.deep_sea(3)
    target = relaxed_target(Dataset.complete(model), 0.5, 10.0)
    for accuracy in (1e-2, 1e-3, 1e-4):
        found = mixture(target, Budget(accuracy=accuracy))
        assert action_probabilities(model, found.table).se.max() <= accuracy
    assert mixture(target, Budget(accuracy=1e-9, cell_points=10**6)).diagnostics["points"] <= 10**6


def test_points_of_every_round_are_counted(spent):
    found = mixture(relaxed_target(Dataset.complete(envs.deep_sea(3)), 0.5, 10.0), Budget(accuracy=1e-5))
    assert len(spent) > 1
    assert found.diagnostics["points"] == sum(spent)


@pytest.mark.slow
def test_standard_errors_are_honest():
    """40 runs with few points against one with many.

    z^2 averaged over 40 runs and 6 states (of two actions each) lies in [0.4, 2.5] unless something is wrong: were all
    of a run's answers perfectly dependent its standard deviation would be 0.28, so false alarms are below 1e-3.
    """
    model = envs.deep_sea(3)
    target = relaxed_target(Dataset.complete(model), 0.3, 10.0)
    truth = action_probabilities(model, mixture(target, Budget(accuracy=1e-5, seed=99)).table).value
    runs = [action_probabilities(model, mixture(target, Budget(accuracy=1.0, seed=seed)).table) for seed in range(40)]
    z = np.array([(run.value - truth)[::2] / run.se[::2] for run in runs])
    assert 0.4 < np.mean(z**2) < 2.5


@pytest.mark.parametrize(
    ("depth", "every", "epsilon", "prior_scale"),
    [(2, 1, 0.3, 1.0), pytest.param(3, 1, 0.3, 1.0, marks=pytest.mark.slow), (3, 2, 0.01, 10.0)],
)
def test_standard_errors_of_moments_are_honest(depth, every, epsilon, prior_scale):
    """40 runs: what means and standard deviations vary by, and what they say they do; with 8 cells, and with 512.

    With every other pair seen and a small epsilon the heaviest cells are known best: others make the errors.

    The ratio of two variances, pooled over all pairs, lies in [0.5, 2] unless something is wrong: were all of a run's
    answers perfectly dependent its standard deviation would be 0.23, so false alarms are below 1e-3.
    """
    model = envs.deep_sea(depth)
    seen = np.arange(0, model.n_pairs, every)
    target = relaxed_target(Dataset(model, seen, model.reward[seen]), epsilon, prior_scale)
    runs = [mixture(target, Budget(accuracy=1.0, seed=seed)) for seed in range(40)]
    for name in ("q_mean", "q_sd"):
        value, se = (np.array([getattr(getattr(run, name), part) for run in runs]) for part in ("value", "se"))
        assert (se > 0).all()
        assert 0.5 < (value.var(axis=0, ddof=1) / (se**2).mean(axis=0)).mean() < 2.0


def test_seed_repeats():
    target = relaxed_target(Dataset.complete(envs.deep_sea(3)), 0.5, 10.0)
    assert np.array_equal(mixture(target, Budget(seed=5)).q_mean.value, mixture(target, Budget(seed=5)).q_mean.value)


def test_refusals():
    with pytest.raises(UnsupportedError, match=r'2097152 cells.*engine="chart".*proper_only=True.*nuts') as refusal:
        mixture(relaxed_target(Dataset.complete(envs.deep_sea(6)), 0.1, 10.0))
    assert refusal.value.exit_code == 3
    data = Dataset.complete(envs.deep_sea(2))
    with pytest.raises(UnsupportedError, match=r"exact posterior.*chart"):
        mixture(relaxed_target(data, 0.0, 10.0))
    with pytest.raises(UnsupportedError, match=r"uniform.*chart"):
        mixture(relaxed_target(data, 0.1, 10.0, "uniform"))
    with pytest.raises(UnsupportedError, match="8 cells"):
        mixture(relaxed_target(data, 0.1, 10.0), Budget(cells=7))
    huge = Dataset.from_pairs(envs.two_state(), [("s1", "go", 1e90), ("s1", "stay", -1e90)])
    with np.errstate(over="ignore"), pytest.raises(UnsupportedError, match=r"leave the range.*larger epsilon"):
        mixture(noisy_target(huge, 1e-90, 10.0))
    with pytest.raises(BadInputError, match="accuracy"):
        mixture(relaxed_target(data, 0.1, 10.0), Budget(accuracy=0.0))


def test_one_state_one_action():
    """theta ~ N(0, 4), observed through noise of variance 1/4: textbook conjugacy."""
    model = from_moves("one", {("a", "x"): Move(-1.0, {"goal": 1.0})}, start="a")
    found = mixture(relaxed_target(Dataset.complete(model), 0.5, 2.0))
    variance = 1.0 / (1.0 / 4.0 + 4.0)
    assert found.q_mean.value == pytest.approx([-4.0 * variance])
    assert found.q_sd.value == pytest.approx([np.sqrt(variance)])
    assert found.log_evidence.value == pytest.approx(norm.logpdf(-1.0, 0.0, np.sqrt(4.25)))


def test_bound_is_the_smallest_wall():
    """Two unobserved actions tie: the bound of either cell is evidence times 1/2."""
    model = envs.two_state()
    cells = cells_module.cells_of(relaxed_target(Dataset.from_pairs(model, [("s1", "go")]), 1e-3, 1.0), 10)
    bound, _ = engine._bounds(cells)
    evidence = norm.logpdf(-1.0, 0.0, np.sqrt(1.0 + 1e-6))
    gap = 1.0 / (1 + 1e-6) / np.sqrt(1.0 + 1.0 / (1.0 + 1e6))
    assert bound == pytest.approx(evidence + log_ndtr(np.array([gap, -gap])), abs=1e-9)
