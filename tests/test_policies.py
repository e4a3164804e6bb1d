"""Answers from weighted policies, against tables that are written out policy by policy."""

import itertools
import tracemalloc
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from problems import all_policies, chain, closure, random_problem
from scipy.sparse import csc_array

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.estimated import Estimate, ratio, resolution_of
from bellmanifold.posteriors.most_probable import ALL, TooManyRoutesError, largest_error, most_probable_routes
from bellmanifold.posteriors.policies import (
    SMALL,
    PolicyTable,
    _all_reach_goal,
    action_probabilities,
    entries,
    improper_mass,
    improper_mass_model,
    policy_probability,
    weights_of,
)
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.problem.dataset import Dataset


def stands_for(target):
    """The first unobserved pair of a coupled state for all of them, every other pair for itself."""
    model, stand = target.model, np.arange(target.model.n_pairs)
    for s in np.flatnonzero(target.coupled):
        own = np.arange(model.pair_start[s], model.pair_start[s + 1])
        unseen = own[~target.observed[own]]
        stand[unseen] = unseen[:1]
    return stand


def random_table(rng, model, replicates=5, rows=6, share=0.5):
    """A table as an engine hands it over when a random part of the pairs was seen, and the target it belongs to."""
    pairs = np.flatnonzero(rng.random(model.n_pairs) < share)
    target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.5, 2.0)
    stand = stands_for(target)
    policy = stand[np.array([model.greedy(rng.normal(size=model.n_pairs)) for _ in range(rows)])]
    policy = np.unique(policy[:, target.coupled], axis=0)
    weight = rng.random((replicates, len(policy))) * (rng.random((replicates, len(policy))) < 0.8)
    return target, PolicyTable(target.coupled, policy, weight, stand)


def written_out(model, table):
    """Every policy with its weight in each replicate: pairs that share a stand-in, or an idle state, share equally."""
    stand = np.arange(model.n_pairs) if table.stand_in is None else table.stand_in
    found = {}
    for row, weight in zip(table.policy, table.weight.T, strict=True):
        at, own = iter(row), []
        for s in range(model.n_states):
            mine = range(model.pair_start[s], model.pair_start[s + 1])
            pair = next(at) if table.coupled[s] else None
            own.append([i for i in mine if pair is None or stand[i] == pair])
        for policy in itertools.product(*own):
            share = 1.0 / np.prod([len(choices) for choices in own])
            found[policy] = found.get(policy, 0.0) + share * weight
    return found


def as_ratio(part, whole):
    """The ratio of sums, and its error from what is left of each replicate."""
    value = part.sum() / whole.sum()
    left = part - value * whole
    return value, np.sqrt(len(whole) / (len(whole) - 1) * (left**2).sum()) / whole.sum()


def assert_sum(estimate, everything, counts):
    """An answer is the share of all weight that policies of one kind have."""
    whole = np.sum(list(everything.values()), axis=0)
    part = np.sum([np.zeros_like(whole)] + [w for policy, w in everything.items() if counts(policy)], axis=0)
    value, se = as_ratio(part, whole)
    np.testing.assert_allclose([estimate[0], estimate[1]], [value, se], rtol=1e-9, atol=1e-12)


def test_ratio_by_hand():
    """Replicates (1, 2), (3, 2), (2, 4) of part and whole: 6/8, residuals -1/2, 3/2, -1; error sqrt(3/2 7/2) / 8."""
    found = ratio(np.array([1.0, 3.0, 2.0]), np.array([2.0, 2.0, 4.0]))
    assert float(found.value) == 0.75
    assert float(found.se) == pytest.approx(np.sqrt(1.5 * 3.5) / 8)


def test_ratio_of_equal_wholes_is_a_mean_with_its_standard_error(rng):
    part = rng.normal(size=(12, 3, 2))
    found = ratio(part, np.full(12, 2.0))
    np.testing.assert_allclose(found.value, part.mean(axis=0) / 2)
    np.testing.assert_allclose(found.se, part.std(axis=0, ddof=1) / np.sqrt(12) / 2)


def test_ratio_of_two_replicates_has_an_error_and_of_one_has_none():
    assert float(ratio(np.array([1.0, 0.0]), np.ones(2)).se) == pytest.approx(0.5)
    assert float(ratio(np.array([1.0]), np.ones(1)).se) == 0.0
    assert np.isnan(ratio(np.zeros(3), np.zeros(3)).value), "nothing has any weight: nothing is known"


def test_counting_the_policies_of_chains():
    policy, row = np.array([[0, 3], [1, 2], [1, 3]]), np.array([[0, 2, 0], [2, 2, 1]])
    table = PolicyTable.of_chains(np.array([True, False, True]), policy, row)
    assert table.weight.tolist() == [[2, 0, 1], [0, 1, 2]]
    assert table.whole.tolist() == [3, 3]
    np.testing.assert_allclose(table.share, np.array([2, 1, 3]) / 6)
    assert table.column.tolist() == [0, -1, 1]
    assert np.isnan(PolicyTable(table.coupled, table.policy, np.zeros((1, 3))).share).all()


def test_every_answer_against_the_policies_written_out(rng):
    """Actions, whole policies and both improper masses, with stand-ins, idle states and any law."""
    masses = []
    for _ in range(12):
        model = random_problem(rng, states=int(rng.integers(2, 5)))
        target, table = random_table(rng, model, share=0.7)
        everything = written_out(model, table)
        actions = action_probabilities(model, table)
        for i in range(model.n_pairs):
            found = actions.value[i], actions.se[i]
            assert_sum(found, everything, lambda policy, i=i: i in policy)
        for policy in list(all_policies(model))[:20]:
            estimate = policy_probability(model, table, policy)
            assert_sum((estimate.value, estimate.se), everything, lambda other, own=policy: other == tuple(own))

        def is_improper(policy, model=model, observed=target.observed):
            matrix = chain(model, np.array(policy))
            for s, i in enumerate(policy):
                if not observed[i]:
                    matrix[s] = np.eye(model.n_states + 1)[-1]
            return not closure(matrix)[:, -1].all()

        mass = improper_mass(model, table, target.observed)
        assert_sum((mass.value, mass.se), everything, is_improper)
        masses.append(float(mass.value))
    assert min(masses) == 0.0
    assert max(masses) > 0.1


def resolved(certain=None):
    """Three states of two pairs; half of the weight goes left at the first, all of it at the others."""
    model = envs.deep_sea(2)
    policy = np.array([[0, 2, 4], [1, 2, 4]])
    weight = np.array([[0.6, 0.4], [0.4, 0.6]])
    return model, PolicyTable(np.ones(3, dtype=bool), policy, weight, resolution=0.01, certain=certain)


@pytest.mark.parametrize("layout", [np.asarray, csc_array], ids=["array", "sparse"])
def test_states_may_be_added_up_a_few_at_a_time(rng, layout):
    """Of a large table: one state, two or all of them, to the bit."""
    model = envs.deep_sea(depth=3)
    policy = model.pair_start[:-1] + rng.integers(0, 2, size=(40, model.n_states))
    weight = layout(np.where(rng.random((8, 40)) < 0.5, rng.random((8, 40)), 0.0))
    table = PolicyTable(np.ones(model.n_states, dtype=bool), policy, weight)
    together = action_probabilities(model, table)
    assert together.value.reshape(-1, 2).sum(axis=1) == pytest.approx(np.ones(model.n_states))
    for added in (1, 80):
        found = action_probabilities(model, table, added)
        np.testing.assert_array_equal(found.value, together.value)
        np.testing.assert_array_equal(found.se, together.se)


def test_what_no_point_met_is_not_certain():
    """The least error is that of an action's mean after so many failures; where there is a spread it stays."""
    assert resolution_of(98.0) == 0.01
    model, table = resolved()
    actions = action_probabilities(model, table)
    assert actions.value.tolist() == [0.5, 0.5, 1.0, 0.0, 1.0, 0.0]
    np.testing.assert_allclose(actions.se, [0.1, 0.1, 0.01, 0.01, 0.01, 0.01])
    never = policy_probability(model, table, np.array([0, 3, 4]))
    assert (float(never.value), float(never.se)) == (0.0, 0.01)
    assert float(policy_probability(model, table, np.array([0, 2, 4])).se) == pytest.approx(0.1)
    mass = improper_mass(model, table, np.ones(6, dtype=bool))
    assert (float(mass.value), float(mass.se)) == (0.0, 0.01)
    exact = PolicyTable(table.coupled, table.policy, table.weight)
    np.testing.assert_allclose(action_probabilities(model, exact).se, [0.1, 0.1, 0, 0, 0, 0], atol=1e-15)


def test_states_and_routes_that_are_certain_have_no_error():
    """Certain are the first two states: what is said of them, and of routes through them, is exact."""
    model, table = resolved(np.array([True, True, False]))
    assert table.least_error.tolist() == [0.0, 0.0, 0.01]
    np.testing.assert_allclose(action_probabilities(model, table).se, [0.1, 0.1, 0, 0, 0.01, 0.01], atol=1e-15)
    whole = PolicyTable(table.coupled, table.policy[:1], np.ones((2, 1)), resolution=0.01, certain=table.certain)
    (route,) = most_probable_routes(model, whole, 10)
    assert (route.pairs, route.probability, route.se) == ((0, 2), 1.0, 0.0)
    other = PolicyTable(table.coupled, table.policy[1:], np.ones((2, 1)), resolution=0.01, certain=table.certain)
    (route,) = most_probable_routes(model, other, 10)
    assert (route.pairs, route.probability, route.se) == ((1, 4), 1.0, 0.01)
    assert float(policy_probability(model, whole, np.array([0, 2, 4])).se) == 0.01, "it speaks of the third state, too"


def test_states_without_a_choice_have_no_error():
    """One action, exchangeable ones that stand for each other, or no data at all: shares are known."""
    moves = {("a", "only"): Move(-1.0, {"b": 1.0})} | {("b", name): Move(-1.0, {"c": 1.0}) for name in "xyz"}
    moves |= {("c", name): Move(-1.0, {"goal": 1.0}) for name in "xy"}
    model = from_moves("choices", moves, start="a")
    first = model.pair_start[:-1]
    stand = np.where(model.pair_state == 1, first[1], np.arange(model.n_pairs))
    table = PolicyTable(np.array([True, True, False]), first[None, :2], np.ones((2, 1)), stand, resolution=0.01)
    actions = action_probabilities(model, table)
    np.testing.assert_allclose(actions.value, [1.0, 1 / 3, 1 / 3, 1 / 3, 0.5, 0.5])
    assert not actions.se.any()


def improper(model):
    return lambda policy: not closure(chain(model, np.array(policy)))[:, -1].all()


def test_improper_mass_under_the_true_transitions_without_anything_to_draw(rng):
    """Every pair stands for itself: an exact sum."""
    masses = []
    for _ in range(10):
        model = random_problem(rng, states=int(rng.integers(2, 5)), goal_share=0.3)
        policy = np.unique([model.greedy(rng.normal(size=model.n_pairs)) for _ in range(5)], axis=0)
        table = PolicyTable(np.ones(model.n_states, dtype=bool), policy, rng.random((4, len(policy))))
        mass = improper_mass_model(model, table, rng)
        assert_sum((mass.value, mass.se), written_out(model, table), improper(model))
        masses.append(float(mass.value))
    assert min(masses) < max(masses)


@pytest.mark.parametrize("replicates", [1, 8])
def test_improper_mass_under_the_true_transitions_is_drawn_where_pairs_share(rng, replicates):
    """Within 6 standard errors; they are those of 4,096 draws in each replicate, of which one table counts as 64.

    Five comparisons of a mean and of its error: their false-alarm rate is below 1e-2 with 7 degrees of freedom.
    """
    masses = []
    for _ in range(5):
        model = random_problem(rng, states=4, goal_share=0.3)
        _, table = random_table(rng, model, share=0.4)
        weight = np.tile(table.weight[:1] + 0.1, (replicates, 1))
        table = PolicyTable(table.coupled, table.policy, weight, table.stand_in)
        everything = written_out(model, table)
        total = sum(w[0] for w in everything.values())
        expected = sum(w[0] for policy, w in everything.items() if improper(model)(policy)) / total
        found = improper_mass_model(model, table, rng)
        assert abs(float(found.value) - expected) <= 6 * float(found.se) + 1e-12
        drawn = 4096 * (64 if replicates == 1 else replicates) if len(everything) > len(table.policy) else np.inf
        binomial = np.sqrt(expected * (1 - expected) / drawn)
        assert binomial / 3 <= float(found.se) <= 3 * binomial
        masses.append(expected)
    assert min(masses) < max(masses)


def test_replicates_without_weight_say_nothing(rng):
    """Half of swirl 2's policies play the loop's first move; the second replicate has no weight at all."""
    model = envs.swirl(2)
    stand = model.pair_start[model.pair_state]
    coupled = np.ones(model.n_states, dtype=bool)
    table = PolicyTable(coupled, model.pair_start[None, :-1], np.array([[1.0], [0.0], [1.0]]), stand)
    found = improper_mass_model(model, table, rng)
    assert float(found.value) == pytest.approx(0.25, abs=0.05), "both moves of the loop: a quarter of all policies"
    empty = PolicyTable(coupled, np.zeros((0, model.n_states), dtype=np.int64), np.zeros((2, 0)))
    nothing = improper_mass(model, empty, np.ones(model.n_pairs, dtype=bool))
    assert (float(nothing.value), float(nothing.se)) == (0.0, 0.0)


def followed(model, policy):
    """The pairs a policy plays from the start until the goal, or until a state repeats; and whether it is the goal."""
    state, visited, pairs = int(np.argmax(model.initial)), [], []
    while state < model.n_states and state not in visited:
        visited.append(state)
        pairs.append(int(policy[state]))
        state = int(model.next_state[model.next_start[policy[state]]])
    return tuple(pairs), state == model.n_states


@pytest.mark.parametrize("model", [envs.swirl(3), envs.deep_sea(3)], ids=lambda model: model.name)
def test_routes_against_the_policies_written_out(rng, model):
    """All routes with their errors, most probable first; a shorter list is the beginning of a longer one."""
    for share in (0.3, 0.8):
        _, table = random_table(rng, model, rows=20, share=share)
        everything = written_out(model, table)
        routes = most_probable_routes(model, table, 1000)
        expected = {}
        for policy, weight in everything.items():
            route = followed(model, policy)
            expected[route] = expected.get(route, 0.0) + weight
        expected = {route: weight for route, weight in expected.items() if weight.sum() > 0}
        assert {(route.pairs, route.ends_at_goal) for route in routes} == set(expected)
        for route in routes:
            own = (route.pairs, route.ends_at_goal)
            assert_sum(
                (route.probability, route.se), everything, lambda policy, own=own: followed(model, policy) == own
            )
        order = [route.probability for route in routes]
        assert order == sorted(order, reverse=True)
        for limit in (1, 3, len(routes)):
            short = most_probable_routes(model, table, limit)
            assert [r.pairs for r in short] == [r.pairs for r in routes[:limit]]
        assert most_probable_routes(model, table, 0) == []


def test_routes_that_are_equally_probable_come_in_the_order_of_their_pairs():
    model = envs.deep_sea(3)
    table = PolicyTable(np.zeros(6, dtype=bool), np.zeros((1, 0), dtype=np.int64), np.ones((1, 1)))
    routes = most_probable_routes(model, table, 5)
    every = sorted({followed(model, policy)[0] for policy in all_policies(model)})
    assert [route.pairs for route in routes] == every[:5]
    assert [route.probability for route in routes] == [0.125] * 5
    assert [route.se for route in routes] == [0.0] * 5


UNKNOWN = np.zeros((1, 0), dtype=np.int64)
"""The policies of a table that speaks about no state."""


def knowing_nothing(model):
    return PolicyTable(np.zeros(model.n_states, dtype=bool), UNKNOWN, np.ones((1, 1)))


def megabytes(call, *arguments):
    """The most memory that a call takes at a time."""
    tracemalloc.start()
    try:
        with suppress(TooManyRoutesError):
            call(*arguments)
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def test_all_routes_or_none(monkeypatch):
    """Deep sea 8 has 256 routes. More are refused where they are asked for, and left out of a list of fewer."""
    model = envs.deep_sea(8)
    every = most_probable_routes(model, knowing_nothing(model), ALL)
    assert len(every) == 256
    monkeypatch.setattr("bellmanifold.posteriors.most_probable.MOST_ROUTES", 255)
    with pytest.raises(TooManyRoutesError, match="top is 256, and there are more than 255 routes"):
        most_probable_routes(model, knowing_nothing(model), 256)
    assert most_probable_routes(model, knowing_nothing(model), 255) == every[:255]


def test_many_actions_take_no_more_memory_than_few():
    """Two routes are asked for, so 32 beginnings are kept; with 200 moves each these would take 2 MB."""
    moves = {("a", str(k)): Move(-1.0, {"b": 1.0}) for k in range(40)}
    moves |= {("b", str(k)): Move(-1.0, {"c": 1.0}) for k in range(200)}
    model = from_moves("wide", moves | {("c", "on"): Move(-1.0, {"goal": 1.0})}, start="a")
    assert megabytes(most_probable_routes, model, knowing_nothing(model), 2) < 0.5


def test_exchangeable_moves_share_their_rows(rng):
    """59 unobserved moves of a state, in 90% of 20,000 policies: one array of rows, not 59."""
    moves = {("a", str(k)): Move(-1.0, {"b": 1.0}) for k in range(60)}
    model = from_moves("shared", moves | {("b", str(k)): Move(-1.0, {"goal": 1.0}) for k in range(2)}, start="a")
    policy = np.stack([np.where(rng.random(20_000) < 0.1, 0, 1), 60 + rng.integers(0, 2, 20_000)], axis=1)
    stand = np.concatenate([[0], np.ones(59, dtype=np.int64), [60, 61]])
    table = PolicyTable(np.ones(2, dtype=bool), policy, np.ones((1, 20_000)), stand)
    assert megabytes(most_probable_routes, model, table, 1000) < 14.0, (
        "59 x 18,000 rows are 8 MB, and those of the next state as many again"
    )
    routes = most_probable_routes(model, table, 1000)
    assert len(routes) == 120
    assert sum(route.probability for route in routes) == pytest.approx(1.0)


def test_sparse_weights_answer_as_full_ones_do(rng):
    """Nearly every policy met by one replicate only, as on large problems: all answers are those of the full array."""
    model = envs.deep_sea(depth=4)
    rows, replicates = 9000, 32
    policy = rng.integers(0, 2, size=(rows, model.n_states)) + model.pair_start[:-1]
    replicate, row, weight = (
        rng.integers(replicates, size=2 * rows),
        rng.integers(rows, size=2 * rows),
        rng.random(2 * rows),
    )
    sparse = weights_of(replicate, row, weight, (replicates, rows))
    assert isinstance(sparse, csc_array)
    full = np.zeros((replicates, rows))
    np.add.at(full, (replicate, row), weight)
    np.testing.assert_allclose(sparse.toarray(), full, rtol=1e-13)
    again = weights_of(*entries(sparse), (replicates, rows))
    np.testing.assert_array_equal(again.toarray(), sparse.toarray())
    coupled = np.ones(model.n_states, dtype=bool)
    stand = np.arange(model.n_pairs)
    stand[1::2] = np.where(np.arange(model.n_states) < 3, stand[0::2], stand[1::2])
    for standing in (None, stand):
        own = policy if standing is None else standing[policy]
        tables = [PolicyTable(coupled, own, weights, standing, resolution=1e-3) for weights in (sparse, full)]
        for found, expected in zip(*(all_answers(model, table, policy) for table in tables), strict=True):
            np.testing.assert_allclose(found.value, expected.value, rtol=1e-12)
            np.testing.assert_allclose(found.se, expected.se, rtol=1e-9, atol=1e-15)


def all_answers(model, table, policy):
    """Everything that a table is asked for."""
    yield action_probabilities(model, table)
    yield policy_probability(model, table, policy[0])
    yield improper_mass(model, table, np.ones(model.n_pairs, dtype=bool))
    yield improper_mass_model(model, table, np.random.default_rng(3))
    routes = most_probable_routes(model, table, 40)
    yield Estimate(*(np.array([getattr(route, name) for route in routes]) for name in ("probability", "se")))


def test_policies_that_arrive_are_found_by_following_them(rng):
    """Moves that are not random are followed twice as far each time: as a search by single moves finds."""
    moves = {
        (str(k), str(a)): Move(-1.0, {str(rng.integers(9)) if rng.random() < 0.8 else "goal": 1.0})
        for k in range(9)
        for a in range(3)
    }
    model = from_moves("anywhere", moves, start="0")
    policy = rng.integers(0, 3, size=(3000, 9)) + model.pair_start[:-1]
    solved = rng.random(model.n_pairs) < 0.9
    ends = np.where(solved, model.next_state[model.next_start[:-1]], 9)
    found = _all_reach_goal(model, policy, solved)
    assert 0 < found.sum() < len(found)
    for row, arrives in zip(policy[:300], found[:300], strict=True):
        reached = {9}
        for _ in range(9):
            reached |= {state for state in range(9) if ends[row[state]] in reached}
        assert arrives == (len(reached) == 10)


def test_what_is_close_to_nothing_or_everything_may_be_off_by_the_heaviest_point():
    """Shares below 1/16 or above 15/16, the heaviest point's, have at least that error, others the resolution; where a
    state is known exactly neither counts. At 1/16 and 15/16 themselves the resolution does."""
    part = np.array([[1 / 32, 1 / 16, 1 / 2, 15 / 16, 31 / 32]])
    table = PolicyTable(np.ones(2, dtype=bool), np.zeros((1, 2), dtype=np.int64), np.ones((1, 1)), heaviest=1 / 16)
    assert table.share_of(part, np.full(5, 0.01)).se.tolist() == [1 / 16, 0.01, 0.01, 0.01, 1 / 16]
    assert table.share_of(part, np.full(5, 0.25)).se.tolist() == [0.25] * 5
    assert table.share_of(part, np.array([0.0, 0.0, 0.5, 0.0, 0.01])).se.tolist() == [0.0, 0.0, 0.5, 0.0, 1 / 16]
    assert table.share_of(part).se.tolist() == [0.0] * 5, "its own resolution is 0"
    spread = replace(table, weight=np.ones((2, 1)), resolution=0.01)
    found = spread.share_of(np.array([[0.5, 0.03], [0.3, 0.01]]))
    np.testing.assert_allclose(found.value, [0.4, 0.02])
    np.testing.assert_allclose(found.se, [0.1, 1 / 16])
    part, whole = np.array([2.0, 1.0]), np.array([5.0, 1.0])
    found = spread.share_of(part[:, None], np.zeros(1), whole)
    assert (float(found.value[0]), float(found.se[0])) == pytest.approx(as_ratio(part, whole))


def test_actions_that_are_known_not_to_be_best_have_no_error():
    """The beaten pair's probability is exactly 0; the others of its state keep the resolution."""
    model, table = resolved()
    beaten = np.array([False, False, False, True, False, False])
    found = action_probabilities(model, replace(table, beaten=beaten)).se
    np.testing.assert_allclose(found, [0.1, 0.1, 0.01, 0.0, 0.01, 0.01])


def test_weights_are_sparse_where_they_are_many_and_mostly_nothing():
    """Up to 2^18 of them are an array; of more than that, those are sparse of which a quarter at most is positive."""
    small, large = (2, SMALL // 2), (4, SMALL // 2)
    few = weights_of(np.array([1, 1]), np.array([3, 3]), np.array([0.5, 0.25]), small)
    assert isinstance(few, np.ndarray)
    assert (few[1, 3], few.sum()) == (0.75, 0.75)
    for more in (0, 1):
        count = 2 * SMALL // 4 + more
        row = np.arange(count) % large[1]
        found = weights_of(np.arange(count) // large[1], row, np.ones(count), large)
        assert isinstance(found, np.ndarray) == bool(more)
        assert found.sum() == count
    assert weights_of(*(np.zeros(0, dtype=np.int64),) * 2, np.zeros(0), (2, 3)).dtype == np.float64


def test_entries_of_an_array_are_those_that_are_not_nothing():
    replicate, row, weight = entries(np.array([[0.0, 2.0, 0.0], [3.0, 0.0, 5.0]]))
    assert (replicate.tolist(), row.tolist(), weight.tolist()) == ([0, 1, 1], [1, 0, 2], [2.0, 3.0, 5.0])
    sparse = csc_array(np.array([[0.0, 2.0, 0.0], [3.0, 0.0, 5.0]]))
    assert [part.tolist() for part in entries(sparse)] == [[1, 0, 1], [0, 1, 2], [3.0, 2.0, 5.0]]


def test_the_largest_error_is_that_of_an_action_or_of_a_route():
    """Two states of two actions each, whose weights make routes less certain than actions; random moves have none."""
    moves = {(s, name): Move(-1.0, {"goal": 1.0} if s == "b" else {"b": 1.0}) for s in "ab" for name in "xy"}
    model = from_moves("row", moves, start="a")
    policy = np.array([[0, 2], [0, 3], [1, 2], [1, 3]])
    weight = np.array([[0.4, 0.1, 0.1, 0.4], [0.1, 0.4, 0.4, 0.1]])
    table = PolicyTable(np.ones(2, dtype=bool), policy, weight)
    np.testing.assert_allclose(action_probabilities(model, table).se, 0.0, atol=1e-15)
    assert largest_error(model, table, 4) == pytest.approx(0.15)
    assert largest_error(model, table, 0) == pytest.approx(0.0, abs=1e-15)
    uneven = replace(table, weight=np.array([[0.4, 0.3, 0.1, 0.2], [0.1, 0.2, 0.4, 0.3]]))
    error = float(action_probabilities(model, uneven).se.max())
    assert error == pytest.approx(0.2)
    assert largest_error(model, uneven, 4, error) == error, "routes have 0.15 at most"
    sure = replace(table, weight=np.array([[0.5, 0.2, 0.1, 0.2], [0.1, 0.4, 0.3, 0.2]]))
    error = float(action_probabilities(model, sure).se.max())
    assert largest_error(model, sure, 4) == pytest.approx(max(error, 0.2))
    assert largest_error(model, sure, 4, error) == pytest.approx(max(error, 0.2)), "not larger than enough"
    assert largest_error(model, sure, 4, np.nextafter(error, 0.0)) == error, "larger, so routes are not looked at"
    spread = replace(model, initial=np.array([0.5, 0.5]))
    chance = from_moves("chance", moves | {("a", "x"): Move(-1.0, {"b": 0.5, "goal": 0.5})}, start="a")
    assert [most_probable_routes(one, sure, 4) is None for one in (model, spread, chance)] == [False, True, True]
    assert largest_error(chance, sure, 4) == error
