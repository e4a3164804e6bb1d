"""Elimination of chains and what the layout says of pairs, written out with loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_problem

from bellmanifold.chart.batch import batch_chart
from bellmanifold.chart.elimination import UNROLLED, censor, chosen, eliminate_batch, eliminate_in_loops
from bellmanifold.chart.narrow import LEAST_STATES, divisor, narrow_block
from bellmanifold.chart.ways import Block, Own, expected_next

TRAP = np.array([[0.1, 0.3, 0.2, 0.1], [0.2, 0.1, 0.1, 0.2], [0.0, 0.0, 0.4, 0.6], [0.0, 0.0, 0.7, 0.3]])
"""Four states of which the last two are never left."""


def chains(rng):
    """Two chains with self-loops that leave, and one that does not; right-hand sides. Chains along the last axis."""
    moves = np.append(rng.random((2, 4, 4)) / 5, TRAP[None], axis=0)
    out = 1.0 - moves.sum(axis=2)
    out[2, 2:] = 0.0
    return [np.moveaxis(array, 0, -1) for array in (moves, out, rng.normal(size=(3, 4)))]


@pytest.mark.parametrize("eliminate", [eliminate_batch, eliminate_in_loops])
def test_elimination_against_dense_solutions(rng, eliminate):
    """Pivots multiply up to det(I - P), and (I - P) x = right; a trap has one pivot of 0 and spoils no other number."""
    moves, out, right = chains(rng)
    pivots, x = jax.jit(eliminate)(*map(jnp.asarray, (moves, out, right)))
    for k in range(2):
        system = np.eye(4) - moves[..., k]
        np.testing.assert_allclose(x[:, k], np.linalg.solve(system, right[:, k]), rtol=1e-12)
        assert np.prod(pivots[:, k]) == pytest.approx(np.linalg.det(system), rel=1e-12)
    trapped = np.asarray(pivots)[:, 2]
    assert (trapped == 0).tolist() == [False, False, True, False]
    assert trapped[3] == pytest.approx(0.7)
    assert np.isfinite(x).all()


def test_traps_that_are_not_watched_have_no_determinant(rng):
    """Watched at two states: log 0 for what is never left, and moves that stay numbers; watched at all, nothing."""
    moves, out, _ = map(jnp.asarray, chains(rng))
    log_det, inner, leaving = jax.jit(censor, static_argnums=2)(moves, out, 2)
    assert np.isfinite(log_det).tolist() == [True, True, False]
    assert log_det[2] == -np.inf
    assert np.isfinite(inner).all()
    assert inner.shape == (2, 2, 3)
    assert leaving.shape == (2, 3)
    log_det, inner, leaving = censor(moves, out, 4)
    assert not np.asarray(log_det).any()
    np.testing.assert_array_equal(inner, moves)
    np.testing.assert_array_equal(leaving, out)


def test_only_what_is_positive_divides():
    assert divisor(jnp.array([0.0, 1e-300, 0.5])).tolist() == [1.0, 1e-300, 0.5]


@pytest.mark.parametrize("actions", [1, UNROLLED, UNROLLED + 3])
@pytest.mark.parametrize("rest", [(), (2,)])
def test_what_belongs_to_chosen_actions(rng, actions, rest):
    """For all members of a batch, and for each."""
    policy = rng.integers(0, actions, (3, 5))
    for kind, last in ((float, 5), (int, 1)):
        table = rng.integers(-9, 9, (actions, 3, *rest, last)).astype(kind)
        found = jax.jit(chosen)(jnp.asarray(table), jnp.asarray(policy))
        assert found.dtype == table.dtype
        for state, member in np.ndindex(3, 5):
            own = table[policy[state, member], state, ..., member if last == 5 else 0]
            np.testing.assert_array_equal(found[state, ..., member], own)


def layouts(rng):
    """A problem whose pairs are in another order, states having more or fewer actions, and one that is neither."""
    met = {}
    while len(met) < 2:
        chart = batch_chart(random_problem(rng, states=4, actions=2, successors=3, goal_share=0.4))
        if chart.layout.permuted != chart.layout.actions > 0:
            met.setdefault(chart.layout.permuted, chart)
    return met.values()


@jax.jit
def asked(layout, law, q):
    """What a layout says of action values and laws."""
    choice, best = layout.greedy(q)
    each = jnp.repeat(law[..., None], q.shape[1], axis=-1)
    sorted_q = layout.sort(q)
    by_block = [
        (layout.slots(block), layout.chosen(block, sorted_q[block.own], choice[block.states]))
        for block in layout.blocks
    ]
    ahead = layout.ahead(law, best), layout.ahead(each, best)
    return choice, best, layout.of_state(best), ahead, layout.by_action(sorted_q), by_block


def test_layouts_answer_pair_by_pair(rng):
    """The first best action and its value, what follows on average, tables by state and action, chosen rows."""
    for chart in layouts(rng):
        model, layout = chart.model, chart.layout
        q = np.round(rng.normal(size=(model.n_pairs, 3)), 0)  # some tie
        order, counts = np.asarray(layout.state), np.diff(model.pair_start)
        choice, best, of_state, ahead, table, by_block = jax.tree.map(
            np.asarray, asked(layout, chart.law, jnp.asarray(q))
        )
        for place, state in enumerate(order):
            own = q[model.pair_state == state]
            np.testing.assert_array_equal(choice[place], own.argmax(axis=0))
            np.testing.assert_array_equal(best[place], own.max(axis=0))
            np.testing.assert_array_equal(table[place, : counts[state]], own)
            assert (table[place, counts[state] :] == -np.inf).all()
        of_problem = best[np.argsort(order)]
        np.testing.assert_array_equal(of_state, of_problem[model.pair_state])
        for found in ahead:
            np.testing.assert_allclose(found, model.expected_next(of_problem.T).T, atol=1e-14)
        assert table.shape == (4, counts.max(), 3)
        for block, (slots, found) in zip(layout.blocks, by_block, strict=True):
            pairs = np.asarray(layout.pair)[block.own]
            np.testing.assert_array_equal(found, best[block.states])
            for row, state in zip(slots, order[block.states], strict=True):
                assert pairs[row[: counts[state]]].tolist() == np.flatnonzero(model.pair_state == state).tolist()
                assert (row[counts[state] :] == len(pairs)).all()


def test_moves_that_leave_a_block():
    """States 2 and 3 of six, the goal being the last: those before, those behind and the goal are elsewhere."""
    own = Own(
        Block(2, 4, (5, 7), "policies", 1),
        jnp.array([[1, 2, 3, 4], [3, 6, 2, 0]]),
        jnp.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])[..., None],
        jnp.array([[0], [1]]),
    )
    leaving = jax.jit(lambda law: own._replace(law=law).leaving)(own.law)
    np.testing.assert_array_equal(leaving[..., 0], [[0.1, 0.0, 0.0, 0.4], [0.0, 0.3, 0.0, 0.1]])
    assert (own.block.states, own.block.own) == (slice(2, 4), slice(5, 7))


@pytest.mark.parametrize("each", [False, True])
def test_what_follows_on_average(rng, each):
    successor, best = rng.integers(0, 4, (3, 2)), rng.normal(size=(4, 5))
    law = rng.random((3, 2, 5) if each else (3, 2))
    found = jax.jit(expected_next)(*map(jnp.asarray, (successor, law, best)))
    for pair, member in np.ndindex(3, 5):
        own = law[pair, :, member] if each else law[pair]
        assert found[pair, member] == pytest.approx(sum(own * best[successor[pair], member]), rel=1e-13)


def corridor(states):
    """Moves to the next state and to the one before, of which that of state 0 leads outside, and one that stays."""
    state = np.repeat(np.arange(states), 2)
    action = np.tile([0, 1], states)
    successor = np.stack([state + np.where(action == 0, 1, -1), state], axis=1)
    return state, action, successor, np.ones(successor.shape, dtype=bool)


def test_a_corridor_is_eliminated_from_its_ends():
    """A block of few states is not narrow. Else each step has one neighbour, and makes no entry that is new."""
    assert narrow_block(*corridor(LEAST_STATES - 1), LEAST_STATES - 1) is None
    found = narrow_block(*corridor(LEAST_STATES), LEAST_STATES)
    assert found is not None
    assert found.entries == len(found.source) == 2 * (LEAST_STATES - 1)
    assert found.state.tolist() == list(range(LEAST_STATES))
    assert found.near[:, 0].tolist() == [*range(1, LEAST_STATES), LEAST_STATES]
    law = jnp.asarray(np.tile([0.75, 0.25], (2 * LEAST_STATES, 1)))
    table = jax.jit(lambda law: found.moves(law, 2))(law)
    np.testing.assert_array_equal(table.sum(axis=1), 0.75)


def test_states_without_neighbours_are_eliminated_alone():
    """Twenty states that only stay or leave."""
    state = np.arange(20)
    successor = np.stack([state, np.full(20, 20)], axis=1)
    found = narrow_block(state, np.zeros(20, dtype=np.int64), successor, np.ones((20, 2), dtype=bool), 20)
    assert found is not None
    assert found.near.tolist() == [[20]] * 20
    assert found.entries == 0
    out, right = jnp.full((20, 1), 0.25), jnp.ones((20, 1))
    pivots, x = jax.jit(found.eliminate)(jnp.zeros((0, 1)), out, right)
    assert (pivots == 0.25).all()
    assert (x == 4.0).all()
