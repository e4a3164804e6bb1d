"""What a step of a walk evaluates and moves, on a problem of three states solved by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from bellmanifold import envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors import batch_walk
from bellmanifold.posteriors.batch_walk import BatchWalker, advance, draw_proposals, evaluate, init, step
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.laws import open_laws
from bellmanifold.posteriors.system import Point, system_of
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.posteriors.weight import weigh_normals
from bellmanifold.problem.dataset import Dataset
from bellmanifold.samplers import coordinatewise, elliptical

MEAN, SIGMA, EPSILON, CHAINS = 0.4, 2.0, 0.3, 40
SEEN = np.array([0, 1, 2])
"""The start's pairs, and the first of the state below on the left; three pairs were not seen."""


def system_at(epsilon, centred=False):
    model = envs.deep_sea(2)
    prior = ValuePrior(np.full(6, MEAN), np.full(6, SIGMA))
    target = relaxed_target(Dataset(model, SEEN, model.reward[SEEN]), epsilon, prior)
    return system_of(Coordinates(target, centred=centred), batch_chart(model))


def some_point(system, rng):
    return Point(jnp.asarray(rng.normal(size=(len(system.solved), CHAINS))), *(jnp.zeros((0, CHAINS)),) * 2)


def by_hand(x, epsilon):
    """Action values of all six pairs, unobserved ones at mu + sigma x, and the log weight: densities of seen ones."""
    model = envs.deep_sea(2)
    q = MEAN + SIGMA * x
    for i in (2, 0, 1):
        after = model.next_state[model.next_start[i]]
        ahead = 0.0 if after == 3 else q[2 * after : 2 * after + 2].max(axis=0)
        q[i] = model.reward[i] + epsilon * x[i] + ahead
    return q, stats.norm.logpdf(q[SEEN], MEAN, SIGMA).sum(axis=0)


@pytest.mark.parametrize("epsilon", [0.0, EPSILON])
def test_log_weights_and_ceilings_by_hand(rng, epsilon):
    """Unobserved pairs below the best of their state are idle below it; residuals are never, or, exactly, always."""
    system = system_at(epsilon)
    point = some_point(system, rng)
    found = evaluate(system, point)
    q, log_weight = by_hand(np.asarray(point.x), epsilon)
    np.testing.assert_allclose(found.log_likelihood, log_weight, rtol=1e-12)
    ceiling = np.asarray(found.ceiling)
    assert (ceiling[SEEN] == (-np.inf if epsilon else np.inf)).all()
    best = q.reshape(3, 2, CHAINS).max(axis=1)
    for i in (3, 4, 5):
        idle = q[i] < best[i // 2]
        assert 0 < idle.sum() < CHAINS
        np.testing.assert_allclose(ceiling[i], np.where(idle, (best[i // 2] - MEAN) / SIGMA, -np.inf), rtol=1e-12)


def test_in_centred_coordinates_nothing_is_idle(rng):
    system = system_at(EPSILON, centred=True)
    point = some_point(system, rng)
    found = evaluate(system, point)
    assert found.ceiling.shape == (6, CHAINS)
    assert (found.ceiling == -jnp.inf).all()
    np.testing.assert_array_equal(found.log_likelihood, weigh_normals(system, point).log_weight)


@pytest.mark.parametrize(
    ("exact", "centred", "way", "ignored"),
    [
        (True, False, "once", True),
        (True, False, "sweeps", True),
        (True, False, "windows", True),
        (True, False, "policies", False),
        (False, False, "once", False),
        (True, True, "once", False),
    ],
)
def test_residuals_matter_unless_they_change_neither_weight_nor_determinant(exact, centred, way, ignored):
    system = system_at(0.0)
    first, *others = system.layout.blocks
    layout = replace(system.layout, blocks=(first._replace(way=way), *others))
    assert replace(system, layout=layout, exact=exact, centred=centred).ignores_residuals == ignored


def crowd(seen):
    """A state with twelve actions, some of which were seen."""
    model = from_moves("crowd", {("s", f"a{k:02}"): Move(-1.0, {"goal": 1.0}) for k in range(12)}, start="s")
    target = relaxed_target(Dataset(model, np.arange(seen), model.reward[:seen]), EPSILON, SIGMA)
    return system_of(Coordinates(target), batch_chart(model))


@pytest.mark.parametrize(
    ("made", "turns", "visits", "picked"),
    [
        pytest.param(lambda: system_at(EPSILON), 1, 1, 3, id="relaxed"),
        pytest.param(lambda: system_at(0.0), 0, 1, 3, id="exact"),
        pytest.param(lambda: system_at(EPSILON, centred=True), 1, 0, 0, id="centred"),
        pytest.param(lambda: crowd(4), 1, 1, 8, id="as many as a step picks"),
        pytest.param(lambda: crowd(1), 1, 1, 8, id="more than a step picks"),
        pytest.param(lambda: crowd(12), 1, 1, 0, id="none"),
    ],
)
def test_what_a_step_is_made_of(rng, monkeypatch, made, turns, visits, picked):
    """Residuals turn, or all values in centred coordinates; some unobserved pairs are visited, and all refreshed."""
    system = made()
    point, pairs = some_point(system, rng), len(system.solved)
    here = init(system, point)
    seen, done = np.asarray(system.solved), []

    def turn(key, state, log_likelihood, turning):
        done.append("turn")
        assert np.asarray(turning.x).tolist() == (np.ones(pairs, dtype=bool) if system.centred else seen).tolist()
        moved = state.position._replace(x=state.position.x + jnp.where(turning.x[..., None], 1.0, 0.0))
        return elliptical.State(moved, log_likelihood(moved)), jnp.array(5)

    def visit(key, state, evaluate, visited, picks):
        done.append("visit")
        number = int(visited.number)
        assert number == (~seen).sum()
        assert int(picks) == picked
        own = np.zeros(pairs, dtype=bool)
        own[np.asarray(visited.coordinates)[:number]] = True
        assert own.tolist() == (~seen).tolist()
        np.testing.assert_allclose(evaluate(state.position).log_likelihood, state.evaluation.log_likelihood)
        return state._replace(position=state.position + 1.0), jnp.array(7)

    def refresh(key, state):
        done.append("refresh")
        return state._replace(position=state.position + 10.0)

    monkeypatch.setattr(elliptical, "step", turn)
    monkeypatch.setattr(coordinatewise, "visit", visit)
    monkeypatch.setattr(coordinatewise, "refresh", refresh)
    there, evaluations = step(system, jax.random.key(0), here)
    assert done == ["turn"] * turns + ["visit", "refresh"] * visits
    assert int(evaluations) == 5 * turns + 7 * visits
    turned = np.ones(pairs) if system.centred else seen.astype(float)
    expected = np.asarray(point.x) + turns * turned[:, None] + 11.0 * visits
    np.testing.assert_allclose(there.point.x, expected)
    if not visits:
        weight = weigh_normals(system, there.point).log_weight
        np.testing.assert_allclose(there.evaluation.log_likelihood, weight)


def test_advancing_takes_so_many_steps_of_its_own_keys(rng):
    """Three steps by their keys, one after the other; another key leads elsewhere."""
    system, key = system_at(0.0), jax.random.key(3)
    point = some_point(system, rng)
    here, move = init(system, point), jax.jit(step)
    for k in range(3):
        here, _ = move(system, jax.random.fold_in(key, k), here)
    np.testing.assert_allclose(advance(system, 3, key, point).x, here.point.x, rtol=1e-12)
    assert (np.asarray(advance(system, 3, jax.random.key(4), point).x) != here.point.x).any()


def test_growing_data_do_not_compile_anew(rng, no_programs):
    """What was seen is an argument of the compiled programs: chains that go on with more data run the same ones."""
    model, walker = envs.deep_sea(3), None
    counts = []
    for last in (2, 5, 9, 12):
        target = relaxed_target(Dataset(model, np.arange(last), model.reward[:last]), EPSILON, SIGMA)
        walker = BatchWalker(Coordinates(target), batch_chart(model), rng, 3, walker)
        walker.advance(rng, 2 * last)
        walker.draw(1)
        counts.append([program._cache_size() for program in (batch_walk.advance, weigh_normals)])
    assert counts[1:] == counts[:-1]


def test_a_draw_is_where_one_chain_is(rng):
    """Its greedy policy, what the start is worth, and values of unobserved pairs as means of those they stand for."""
    model = envs.deep_sea(3)
    target = relaxed_target(Dataset(model, np.arange(9), model.reward[:9]), EPSILON, SIGMA)
    walker = BatchWalker(Coordinates(target), batch_chart(model), rng, 3)
    assert (walker.least, walker.most) == (4, 2**62)
    q = np.asarray(weigh_normals(walker.system, walker.point).q)
    for chain in (2, 0):
        drawn = walker.draw(chain)
        own = q[:, chain]
        np.testing.assert_array_equal(drawn.policy[target.coupled], model.greedy(own)[target.coupled])
        assert drawn.at_start == pytest.approx(own[model.pair_state == np.argmax(model.initial)].max())
        np.testing.assert_allclose(drawn.q_mean[:9], own[:9], rtol=1e-12)


def test_every_other_law_is_proposed_anew():
    """So many landings that a law is their share, and the total of a pair's gamma numbers their number."""
    counts = 1e14 * np.array([[1.0, 2.0, 5.0], [4.0, 4.0, 8.0]])
    concentration = np.array([0.5, 2.0])
    laws = open_laws(csr_array(counts), np.arange(2), 1.0)
    found = draw_proposals(np.random.default_rng(0), laws, 30, concentration)
    row, landing = np.asarray(found.row), np.asarray(found.landing)
    assert (set(row.ravel()), set(landing.ravel())) == ({0, 1}, {0, 1, 2})
    assert (np.asarray(found.is_local) == [False, True, False, True]).all()
    share = counts / counts.sum(axis=1, keepdims=True)
    anew = np.exp(np.asarray(found.log_law)[:, ::2])
    np.testing.assert_allclose(anew, np.broadcast_to(share[row[:, ::2]][..., None], anew.shape), rtol=1e-5)
    total = np.exp(np.asarray(found.log_total))
    np.testing.assert_allclose(total, np.broadcast_to(counts.sum(axis=1)[row][..., None], total.shape), rtol=1e-5)
    np.testing.assert_allclose(found.shape, counts[row, landing][..., None] + concentration / 3, rtol=1e-15)
    assert found.shift.shape == (30, 4, 2)
