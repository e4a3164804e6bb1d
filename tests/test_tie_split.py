"""Ties that are split: the small problem against dense linear algebra, its policies against all of them."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from problems import random_problem

import bellmanifold as bm
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors import known as of_known
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.known import _Split, by_prior, by_solver, everything_known
from bellmanifold.posteriors.target import noisy_target, relaxed_target
from bellmanifold.posteriors.tie_split import Ties, tie_problem
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.dataset import Dataset


def leaking(rng, states=6, actions=3):
    """A random problem in which every pair may end, three actions in some states and two or one in others."""
    model = random_problem(rng, states=states, actions=actions)
    ends = 0.2 * np.bincount(model.next_pair, model.next_state == model.n_states, model.n_pairs)
    return model if (ends > 0).all() else model.discounted(0.8)


def laws_of(model):
    laws = np.zeros((model.n_pairs, model.n_states + 1))
    np.add.at(laws, (model.next_pair, model.next_state), model.next_prob)
    return laws[:, :-1]


def split_of(model):
    """All pairs of states with several, and those that are alone."""
    several = (np.bincount(model.pair_state) > 1)[model.pair_state]
    return np.flatnonzero(several), np.flatnonzero(~several)


def problems(count):
    rng = np.random.default_rng(12)
    while count:
        model = leaking(rng)
        tied, unique = split_of(model)
        if len(tied) > 4 and len(unique) > 1:
            count -= 1
            yield model, tied, unique


def test_the_small_problem_by_dense_algebra():
    """M = P_TS + B P_US and cov eta = I + B B' with B = P_TU (I - P_UU)^-1; a factor of the covariance."""
    for model, tied, unique in problems(5):
        laws, others = laws_of(model), model.pair_state[unique]
        states = np.unique(model.pair_state[tied])
        through = laws[np.ix_(tied, others)] @ np.linalg.inv(np.eye(len(unique)) - laws[np.ix_(unique, others)])
        found = tie_problem(model, tied, unique)
        np.testing.assert_array_equal(found.states, states)
        assert found.start.tolist() == [*np.searchsorted(model.pair_state[tied], states), len(tied)]
        np.testing.assert_allclose(found.moves, laws[np.ix_(tied, states)] + through @ laws[np.ix_(unique, states)])
        np.testing.assert_allclose(found.cov, np.eye(len(tied)) + through @ through.T)
        np.testing.assert_allclose(found.factor @ found.factor.T, found.cov, atol=1e-12)


def test_without_unique_or_tied_pairs():
    moves = {("s", "a"): Move(-1.0, {"t": 0.5, "goal": 0.5}), ("s", "b"): Move(-1.0, {"goal": 1.0})}
    moves |= {("t", "a"): Move(-1.0, {"s": 0.25, "goal": 0.75}), ("t", "b"): Move(-1.0, {"goal": 1.0})}
    model = from_moves("ties", moves, start="s")
    found = tie_problem(model, np.arange(4), np.zeros(0, dtype=np.int64))
    np.testing.assert_array_equal(found.cov, np.eye(4))
    np.testing.assert_array_equal(found.moves, laws_of(model))
    nothing = tie_problem(model, np.zeros(0, dtype=np.int64), np.array([0, 2]))
    assert nothing.start.tolist() == [0]
    assert nothing.log_det(np.zeros(0, dtype=np.int64)) == 0.0


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 1, 3], [3, 0, 4, 2, 1]])
def test_components_come_after_what_they_lead_to(order):
    """State 0 leads to 1 and 2, which lead to each other and to 3; 4 is on its own; however they are numbered."""
    leads = np.zeros((5, 5))
    leads[0, [1, 2]], leads[1, 2], leads[2, [1, 3]] = 0.3, 0.5, 0.4
    moves = np.zeros((10, 5))
    moves[::2] = leads[np.ix_(order, order)]
    found = Ties(np.arange(5), 2 * np.arange(6), moves, np.eye(10))
    parts = [sorted(order[state] for state in part) for part in found.components]
    assert sorted(parts) == [[0], [1, 2], [3], [4]]
    assert parts.index([3]) < parts.index([1, 2]) < parts.index([0])


def several_components(rng):
    """Two loops of two states and a state between them, with two or three tied pairs each."""
    start = np.array([0, 2, 5, 7, 9, 12])
    leads = np.zeros((5, 5), dtype=bool)
    for state, after in ((3, 1), (1, 3), (3, 4), (4, 0), (4, 2), (0, 2), (2, 0)):
        leads[state, after] = True
    moves = rng.random((12, 5)) * np.repeat(leads, np.diff(start), axis=0)
    mixing = rng.standard_normal((12, 12))
    return Ties(np.arange(5), start, 0.9 * moves / (1.0 + moves.sum(axis=1, keepdims=True)), mixing @ mixing.T)


def test_the_best_of_tied_pairs_against_all_policies():
    """At every point the policy whose values no other one exceeds, with its determinant; of several components, too."""
    rng = np.random.default_rng(5)
    apart = several_components(rng)
    assert sorted(len(part) for part in apart.components) == [1, 2, 2]
    for ties in (apart, *(tie_problem(*problem) for problem in problems(4))):
        normals = rng.standard_normal((len(ties.cov), 7))
        eta = ties.factor @ normals
        choice, log_det = ties.greedy(normals)
        own = [range(ties.start[s], ties.start[s + 1]) for s in range(len(ties.states))]
        for point in range(7):
            best, policy = None, None
            for one in product(*own):
                matrix = np.eye(len(one)) - ties.moves[list(one)]
                value = np.linalg.solve(matrix, eta[list(one), point])
                if best is None or value.sum() > best.sum():
                    best, policy = value, one
            assert choice[:, point].tolist() == list(policy)
            determinant = np.log(np.linalg.det(np.eye(len(policy)) - ties.moves[list(policy)]))
            assert log_det[point] == pytest.approx(determinant, abs=1e-12)
            assert ties.log_det(np.array(policy)) == pytest.approx(determinant, abs=1e-12)


def test_codes_tell_policies_apart():
    ties = Ties(np.arange(3), np.array([0, 2, 5, 9]), np.zeros((9, 3)), np.eye(9))
    every = np.array(list(product(range(2), range(2, 5), range(5, 9))))
    assert ties.code(every).tolist() == list(range(24)), "digits to the bases 2, 3 and 4"


# --- everything known -----------------------------------------------------------------------------------------------

HALF = {
    ("s", "a"): Move(-1.0, {"t": 0.5, "goal": 0.5}),
    ("s", "b"): Move(-2.0, {"goal": 1.0}),
    ("s", "c"): Move(-9.0, {"goal": 1.0}),
    ("t", "a"): Move(-2.0, {"goal": 1.0}),
    ("u", "a"): Move(-1.0, {"s": 1.0}),
    ("u", "b"): Move(-3.0, {"goal": 1.0}),
    ("u", "c"): Move(-2.5, {"s": 0.25, "goal": 0.75}),
}
"""s is worth -2 by a and b, t is worth -2, u is worth -3 by all of a, b and c."""


def known_of(budget=None, mean=0.5, sd=3.0, **options):
    model = from_moves("half", HALF, start="u")
    prior = ValuePrior(mean + 0.1 * np.arange(model.n_pairs), sd + 0.2 * np.arange(model.n_pairs))
    target = replace(relaxed_target(Dataset.complete(model), 0.0, prior), log_constant=0.3, **options)
    return everything_known(target, budget or Budget())


def test_the_point_that_everything_known_leaves():
    known = known_of()
    assert known.q == pytest.approx([-2.0, -2.0, -9.0, -2.0, -3.0, -3.0, -3.0])
    assert known.tied.tolist() == [0, 1, 4, 5, 6]
    assert known.unique.tolist() == [3]
    prior = known.target.prior
    log_prior = (-0.5 * ((known.q - prior.mean) / prior.sd) ** 2 - np.log(np.sqrt(2 * np.pi) * prior.sd)).sum()
    assert known.log_weight == pytest.approx(log_prior + 0.3), "no loop: determinants are 1"
    assert known.most_points(Budget(points=70)) == 70
    assert known.most_points(Budget(points=10**9, held=807)) == 807 // 8


def test_a_tie_is_left_to_engines_where_points_are_few():
    """Five tied pairs and three states: 8 numbers a point, and 2^15 points at least."""
    assert known_of(Budget(held=8 * 2**15)) is not None
    assert known_of(Budget(held=8 * 2**15 - 1)) is None
    assert known_of(Budget(points=2**15 - 1)) is None


def test_answers_of_one_point():
    """Moments without errors; s is a tie of two whose x come from normals of their own and of t; u one of three."""
    known = known_of(budget := Budget(samples=2**12))
    found = by_solver(known, budget)
    np.testing.assert_array_equal(found.q_mean.value, known.q)
    assert not found.q_mean.se.any()
    assert not found.q_sd.value.any()
    assert not found.q_sd.se.any()
    assert found.diagnostics == {"points": 2**12, "ties_split": ["s", "u"]}
    assert found.effective_sample_size == pytest.approx(2**12)
    assert found.log_evidence.value == pytest.approx(known.log_weight)
    assert found.log_evidence.se == pytest.approx(0.0, abs=1e-12)
    assert found.points.shape == (7, 8192)
    np.testing.assert_array_equal(found.points, np.repeat(known.q[:, None], 8192, axis=1))
    table = found.table
    assert table.certain.tolist() == [True, True, False]
    assert table.beaten.tolist() == [False, False, True, False, False, False, False]
    assert table.resolution == pytest.approx(1 / (2**12 + 2))
    first = table.weight.mean(axis=0) @ (table.policy[:, 0] == 0) / table.weight.mean(axis=0).sum()
    assert first == 0.5
    kept = by_solver(known, replace(budget, kept=7 * 300)).points
    assert kept.shape == (7, 300)
    assert by_solver(known, replace(budget, kept=7)).points.shape == (7, 256)


def test_nothing_is_split_where_nothing_ties():
    moves = {**HALF, ("s", "b"): Move(-2.5, {"goal": 1.0}), ("u", "a"): Move(-0.5, {"s": 1.0})}
    target = relaxed_target(Dataset.complete(from_moves("clear", moves, start="u")), 0.0, 3.0)
    known = everything_known(target, Budget())
    found = by_solver(known, Budget())
    assert found.diagnostics == {"points": 0, "ties_split": []}
    assert found.effective_sample_size is None
    assert (found.log_evidence.value, found.log_evidence.se) == (pytest.approx(known.log_weight), 0.0)
    assert found.table.policy.tolist() == [[0, 3, 4]]
    assert found.table.weight.tolist() == [[1.0]]
    assert found.table.resolution == 0.0
    assert found.table.certain.all()
    assert "ties of" not in found.reason


def test_a_tie_of_two_is_certain_only_if_every_net_splits_it_evenly():
    """v goes on to the tie of s or ends at once: going on wins more often, by a share that nets estimate."""
    moves = {key: HALF[key] for key in list(HALF)[:4]}
    moves |= {("v", "a"): Move(-1.0, {"s": 1.0}), ("v", "b"): Move(-3.0, {"goal": 1.0})}
    target = relaxed_target(Dataset.complete(from_moves("uneven", moves, start="v")), 0.0, 3.0)
    table = by_solver(everything_known(target, Budget()), Budget(samples=2**12)).table
    assert table.certain.tolist() == [True, True, False]
    share = table.weight @ (table.policy[:, 2] == 4) / table.weight.sum(axis=1)
    assert 0.55 < share.mean() < 0.75


def test_the_evidence_has_the_error_of_determinants():
    """Staying, which doubles a weight, against leaving for a tie: replicates differ in how often it is greedy."""
    moves = {("s", "stay"): Move(-2.0, {"s": 0.5, "goal": 0.5}), ("s", "leave"): Move(-3.0, {"t": 1.0})}
    moves |= {("t", action): Move(-1.0, {"goal": 1.0}) for action in "ab"}
    target = relaxed_target(Dataset.complete(from_moves("leave", moves, start="s")), 0.0, 3.0)
    known = everything_known(target, Budget())
    found = by_solver(known, Budget(samples=2**11))
    mean = found.table.weight.sum(axis=1) / 64
    assert 1.0 < mean.mean() < 2.0
    assert found.log_evidence.value == pytest.approx(np.log(mean.mean()) + known.log_weight)
    error = mean.std(ddof=1) / np.sqrt(32) / mean.mean()
    assert found.log_evidence.se == pytest.approx(error, rel=1e-6)
    assert error > 1e-4
    assert found.effective_sample_size < 2**11


def test_how_many_points_are_asked_for():
    """A power of 2 for each of 32 nets and their mirror images, no fewer than asked for, and at least one."""
    known = known_of()
    for samples, points in ((1, 64), (64, 64), (65, 128), (4096, 4096), (4097, 8192)):
        assert by_solver(known, Budget(samples=samples)).diagnostics["points"] == points


def test_points_are_doubled_while_memory_holds_them():
    """2^11 points of a net are too few for the accuracy; twice as many are not held, or are."""
    first = 64 * 2**11
    for held, points in ((8 * 2 * first - 1, first), (8 * 2 * first, 2 * first), (8 * 4 * first - 1, 2 * first)):
        budget = Budget(accuracy=1e-9, held=held)
        assert by_solver(known_of(budget), budget).diagnostics["points"] == points
    assert by_solver(known_of(), Budget(accuracy=0.5)).diagnostics["points"] == first


def test_two_splits_as_one():
    """Rows of the same policy are added up replicate by replicate; squares and points, too."""
    ties = Ties(np.arange(2), np.array([0, 2, 5]), np.zeros((5, 2)), np.eye(5))
    rng = np.random.default_rng(2)
    policies = [np.array([[0, 2], [1, 4], [1, 2]]), np.array([[1, 4], [0, 3]])]
    weights = [rng.random((of_known.REPLICATES, len(policy))) for policy in policies]
    one, other = (
        _Split(policy, weight, square, points)
        for policy, weight, square, points in zip(policies, weights, (2.5, 0.75), (30, 12), strict=True)
    )
    found = of_known._together(ties, one, other)
    assert (found.square, found.points) == (3.25, 42)
    expected = {(0, 2): weights[0][:, 0], (1, 4): weights[0][:, 1] + weights[1][:, 0]}
    expected |= {(1, 2): weights[0][:, 2], (0, 3): weights[1][:, 1]}
    assert len(found.policy) == 4
    for policy, weight in zip(found.policy.tolist(), found.weight.T, strict=True):
        np.testing.assert_allclose(weight, expected[tuple(policy)])
    assert found.effective == pytest.approx(found.weight.sum() ** 2 / 3.25)


def test_points_continue_their_nets():
    """The first 16 points of each net and the next 16 are its first 32."""
    known = known_of()
    both = of_known._together(known.ties, *(of_known._weigh(known, begin, 16, 3) for begin in (0, 16)))
    once = of_known._weigh(known, 0, 32, 3)
    assert both.points == once.points == 2 * 32 * of_known.REPLICATES
    np.testing.assert_array_equal(both.policy, once.policy)
    np.testing.assert_allclose(both.weight, once.weight)
    assert both.square == pytest.approx(once.square)


def test_determinants_weigh_policies():
    """Staying with probability 1/2 or leaving at once, equally good: weights 2 and 1 where either is greedy."""
    moves = {("s", "stay"): Move(-1.0, {"s": 0.5, "goal": 0.5}), ("s", "leave"): Move(-2.0, {"goal": 1.0})}
    target = relaxed_target(Dataset.complete(from_moves("stay", moves, start="s")), 0.0, 1.0)
    known = everything_known(target, Budget())
    split = of_known._weigh(known, 0, 64, 0)
    points = 2 * 64
    for policy, weight in zip(split.policy[:, 0].tolist(), split.weight.T, strict=True):
        count = weight / (2.0 if known.tied[policy] == 0 else 1.0)
        np.testing.assert_allclose(count, np.round(count))
        assert (count < points).all()
    counts = split.weight @ np.array([1.0 / (2.0 if known.tied[p] == 0 else 1.0) for p in split.policy[:, 0]])
    np.testing.assert_allclose(counts, points)
    assert known.log_weight + np.log(split.weight.sum() / split.points) == pytest.approx(
        float(by_solver(known, Budget(samples=32 * 128)).log_evidence.value)
    )
    log_prior = 2 * (-0.5 * 4.0 - 0.5 * np.log(2 * np.pi))
    assert known.log_weight == pytest.approx(log_prior)


def test_what_is_not_a_single_point():
    """Noisy rewards, unseen pairs, and loops that cost nothing: the engines answer, or say why not."""
    model = from_moves("half", HALF, start="u")
    prior = 3.0
    noise = noisy_target(Dataset.from_pairs(model, [("s", "c", r) for r in (-9.0, -8.5)]), lambda eta: -eta, prior)
    assert everything_known(noise, Budget()) is None
    assert everything_known(replace(noise, noise_scale=None, scale=0.0 * noise.scale), Budget()) is None, (
        "b was not seen"
    )
    assert everything_known(relaxed_target(Dataset.from_pairs(model, list(HALF)[:6]), 0.0, prior), Budget()) is None
    some = relaxed_target(Dataset.from_pairs(model, [("t", "a")]), 0.0, prior)
    assert everything_known(some, Budget()).q.tolist() == [-2.0], "the only state that the data touch"
    rarely = {("s", "stay"): Move(-1e-3, {"s": 0.999, "goal": 0.001}), ("s", "leave"): Move(-1.0, {"goal": 1.0})}
    for cost, is_tied in ((-1.0, True), (-1.5, False)):
        moves = {**rarely, ("s", "leave"): Move(cost, {"goal": 1.0})}
        lingering = relaxed_target(Dataset.complete(from_moves("rare", moves, start="s")), 0.0, prior)
        assert (everything_known(lingering, Budget()) is None) == is_tied


def test_nothing_known_is_the_prior():
    model = from_moves("half", HALF, start="u")
    prior = ValuePrior(np.arange(7.0), 1.0 + np.arange(7.0))
    target = replace(relaxed_target(Dataset.from_pairs(model, []), 0.0, prior), log_constant=0.4)
    found = by_prior(target, "nothing was seen")
    np.testing.assert_array_equal(found.q_mean.value, np.arange(7.0))
    np.testing.assert_array_equal(found.q_sd.value, 1.0 + np.arange(7.0))
    assert not found.q_mean.se.any()
    assert not found.q_sd.se.any()
    assert (float(found.log_evidence.value), float(found.log_evidence.se)) == (0.4, 0.0)
    assert (found.engine, found.reason, found.dimension, found.noise_scale) == ("prior", "nothing was seen", 0, None)
    data = Dataset.from_pairs(model, [("s", "c", reward) for reward in (-9.0, -8.5)])
    table = noisy_target(data, lambda eta: -eta, prior).noise_scale
    assert by_prior(replace(target, noise_scale=table), "").noise_scale == table.moments()
    assert found.table.weight.tolist() == [[1.0]]
    assert found.table.policy.shape == (1, 0)
    assert bm.posterior(model, Dataset.from_pairs(model, [])).engine == "prior"
