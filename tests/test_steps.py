"""What a step of a walk looks at and moves, on a problem of three states solved by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bellmanifold import envs
from bellmanifold.chart.batch import Block, batch_chart
from bellmanifold.data import Dataset
from bellmanifold.kernels import Gaussian
from bellmanifold.posteriors import steps
from bellmanifold.posteriors.coordinates import Coordinates, Kind, Point
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.samplers import coordinatewise, elliptical

SIGMA, EPSILON, CHAINS = 2.0, 0.3, 40
SEEN = np.array([0, 1, 2])
"""The start's pairs, and the first of the state below on the left; three pairs were not seen."""


def coordinates_of(epsilon, centred=False):
    model = envs.deep_sea(2)
    target = relaxed_target(Dataset(model, SEEN, model.reward[SEEN]), epsilon, SIGMA)
    return Coordinates(target, batch_chart(model), centred=centred)


def some_point(coordinates, rng):
    shape = (*coordinates.chart.slot.shape, CHAINS)
    return Point(jnp.asarray(rng.normal(size=shape)), jnp.zeros((0, CHAINS)))


def by_hand(coordinates, x, epsilon):
    """Action values of all six pairs, unobserved ones at sigma x, and the log weight: normal densities of seen ones."""
    model = coordinates.target.model
    q = SIGMA * x
    for i in (2, 0, 1):
        after = model.next_state[model.next_start[i]]
        ahead = 0.0 if after == 3 else q[2 * after : 2 * after + 2].max(axis=0)
        q[i] = model.reward[i] + epsilon * x[i] + ahead
    return q, stats.norm.logpdf(q[SEEN], scale=SIGMA).sum(axis=0)


@pytest.mark.parametrize("epsilon", [0.0, EPSILON])
def test_heights_and_ceilings_by_hand(rng, epsilon):
    """Unobserved pairs below the best of their state are idle below it; residuals are never, or, exactly, always."""
    coordinates = coordinates_of(epsilon)
    point = some_point(coordinates, rng)
    height = steps.look(coordinates.kind, coordinates.structure, point)
    place = coordinates.chart.place
    q, log_weight = by_hand(coordinates, np.asarray(point.x)[place], epsilon)
    np.testing.assert_allclose(height.log_likelihood, log_weight, rtol=1e-12)
    ceiling = np.asarray(height.ceiling).reshape(point.x.shape)[place]
    assert (ceiling[SEEN] == (-np.inf if epsilon else np.inf)).all()
    best = q.reshape(3, 2, CHAINS).max(axis=1)
    for i in (3, 4, 5):
        idle = q[i] < best[i // 2]
        assert 0 < idle.sum() < CHAINS
        np.testing.assert_allclose(ceiling[i], np.where(idle, best[i // 2] / SIGMA, -np.inf), rtol=1e-12)


def test_in_centred_coordinates_nothing_is_idle(rng):
    coordinates = coordinates_of(EPSILON, centred=True)
    point = some_point(coordinates, rng)
    height = steps.look(coordinates.kind, coordinates.structure, point)
    assert height.ceiling.shape == (6, CHAINS)
    assert (height.ceiling == -jnp.inf).all()
    np.testing.assert_array_equal(height.log_likelihood, coordinates.weigh(point).log_weight)


@pytest.mark.parametrize(
    ("exact", "centred", "cyclic", "sweeps", "ignored"),
    [
        (True, False, False, False, True),
        (True, False, True, True, True),
        (True, False, True, False, False),
        (False, False, False, False, False),
        (True, True, False, False, False),
    ],
)
def test_residuals_matter_unless_they_change_neither_weight_nor_determinant(exact, centred, cyclic, sweeps, ignored):
    blocks = (Block(0, 1, False), Block(1, 3, cyclic, sweeps))
    assert steps.ignores_residuals(Kind(blocks, Gaussian(), centred, exact)) == ignored


@pytest.mark.parametrize(
    ("epsilon", "centred", "turns", "visits"), [(EPSILON, False, 1, 1), (0.0, False, 0, 1), (EPSILON, True, 1, 0)]
)
def test_what_a_step_is_made_of(rng, monkeypatch, epsilon, centred, turns, visits):
    """Residuals turn, or all values in centred coordinates; three unobserved pairs are visited and refreshed."""
    coordinates = coordinates_of(epsilon, centred)
    kind, structure = coordinates.kind, coordinates.structure
    point = some_point(coordinates, rng)
    here = steps.stand(kind, structure, point)
    seen, done = np.zeros(6, dtype=bool), []
    seen[SEEN] = True

    def turn(key, state, log_likelihood, turning):
        done.append("turn")
        which = np.asarray(turning.x)[coordinates.chart.place]
        assert which.tolist() == (np.ones(6, dtype=bool) if centred else seen).tolist()
        moved = Point(state.position.x + jnp.where(turning.x[..., None], 1.0, 0.0), state.position.z)
        return elliptical.State(moved, log_likelihood(moved)), elliptical.Info(jnp.array(5))

    def visit(key, state, evaluate, visited, picks):
        done.append("visit")
        assert int(picks) == int(visited.number) == 3
        own = np.zeros(6, dtype=bool)
        own[np.asarray(visited.coordinates)[:3]] = True
        assert own.reshape(2, 3)[coordinates.chart.place].tolist() == (~seen).tolist()
        np.testing.assert_allclose(evaluate(state.position).log_likelihood, state.height.log_likelihood)
        return state._replace(position=state.position + 1.0), jnp.array(7)

    def refresh(key, state):
        done.append("refresh")
        return state._replace(position=state.position + 10.0)

    monkeypatch.setattr(elliptical, "step", turn)
    monkeypatch.setattr(coordinatewise, "visit", visit)
    monkeypatch.setattr(coordinatewise, "refresh", refresh)
    there, cost = steps.step(kind, structure, jax.random.key(0), here)
    assert done == ["turn"] * turns + ["visit", "refresh"] * visits
    assert int(cost.evaluations) == 5 * turns + 7 * visits
    turned = np.ones(6) if centred else seen.astype(float)
    expected = np.asarray(point.x)[coordinates.chart.place] + turns * turned[:, None] + 11.0 * visits
    np.testing.assert_allclose(np.asarray(there.point.x)[coordinates.chart.place], expected)
    if not visits:
        np.testing.assert_allclose(there.height.log_likelihood, coordinates.weigh(there.point).log_weight)


def test_no_more_pairs_are_visited_than_a_step_picks(rng, monkeypatch):
    monkeypatch.setattr(steps, "PICKS", 2)
    coordinates = coordinates_of(0.0)
    picked = []

    def visit(key, state, evaluate, visited, picks):
        picked.append(int(picks))
        return state, jnp.array(0)

    monkeypatch.setattr(coordinatewise, "visit", visit)
    here = steps.stand(coordinates.kind, coordinates.structure, some_point(coordinates, rng))
    steps.step(coordinates.kind, coordinates.structure, jax.random.key(0), here)
    assert picked == [2]


def test_advancing_takes_so_many_steps_of_its_own_keys(rng, monkeypatch):
    """Each step adds what its key says: three steps add three different numbers."""
    coordinates = coordinates_of(0.0)
    key = jax.random.key(3)

    def moved(kind, s, key, here):
        added = jax.random.normal(key)
        return here._replace(point=here.point._replace(x=here.point.x + added)), steps.Cost(jnp.array(0))

    monkeypatch.setattr(steps, "step", moved)
    point = some_point(coordinates, rng)
    there = steps.advance.__wrapped__(coordinates.kind, 3, coordinates.structure, key, point)
    expected = sum(float(jax.random.normal(jax.random.fold_in(key, k))) for k in range(3))
    np.testing.assert_allclose(there.x - point.x, expected)
