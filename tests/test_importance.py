"""The fast paths of importance sampling against the plain ones."""

import jax
import numpy as np
import pytest

from bellmanifold import envs, posterior
from bellmanifold.chart import batch_chart
from bellmanifold.data import Dataset
from bellmanifold.posteriors import policies
from bellmanifold.posteriors.coordinates import Point
from bellmanifold.posteriors.importance import CALL_NUMBERS, FEW_POLICIES, PIECE, distinct, weigh_pieces
from bellmanifold.posteriors.inference import covering
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.target import relaxed_target


def test_problems_with_more_pairs_than_a_call_has_room_for():
    """One piece at a time, then: 930 pairs, of which the two of the start are seen and pay almost the same."""
    model = envs.deep_sea(depth=30)
    assert model.n_pairs * PIECE > CALL_NUMBERS
    found = posterior(model, Dataset(model, np.array([0, 1]), model.reward[:2]), epsilon=0.1, samples=2**15)
    np.testing.assert_allclose(found.action_probability.value[:2], [0.5, 0.5], atol=0.02)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("seen", [5, 12])
def test_pieces_are_weighed_as_all_points_at_once(rng, epsilon, seen):
    """Swirl has loops: non-centred coordinates at epsilon 0, a cut at 0.1."""
    model = envs.swirl(depth=3)
    pairs = np.sort(rng.permutation(model.n_pairs)[:seen])
    target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), epsilon, 10.0)
    coordinates = covering(target, batch_chart(model), proper_only=False)[0][0]
    x = rng.normal(size=(2, *coordinates.chart.slot.shape, PIECE))
    point = Point(jax.numpy.asarray(x), jax.numpy.zeros((2, 0, PIECE)))
    pieces = weigh_pieces(coordinates.kind, coordinates.structure, coordinates.subsets_used, point)
    together = Point(jax.numpy.asarray(np.concatenate(x, axis=-1)), jax.numpy.zeros((0, 2 * PIECE)))
    whole = coordinates.weigh(together)
    np.testing.assert_allclose(np.ravel(pieces.log_weight), whole.log_weight, rtol=1e-13)
    np.testing.assert_array_equal(np.ravel(pieces.code), whole.code)
    np.testing.assert_array_equal(np.concatenate(pieces.choice, axis=-1), whole.choice)
    np.testing.assert_array_equal(np.any(pieces.tied, axis=0), whole.tied)
    scale = np.exp(np.asarray(pieces.log_scale) - float(whole.log_scale))[:, None, None]
    for name in ("first", "second"):
        total = (scale * np.asarray(getattr(pieces, name))).sum(axis=0)
        np.testing.assert_allclose(total, getattr(whole, name), rtol=1e-9, atol=1e-9)


def test_policies_are_counted_as_they_are_sorted(rng):
    codes = rng.integers(0, 50, size=1000).astype(np.uint64) ** np.uint64(2)
    counted, sorted_ = distinct(codes, 50**2), distinct(codes, FEW_POLICIES + 1)
    np.testing.assert_array_equal(counted[0], sorted_[0])
    np.testing.assert_array_equal(counted[2], sorted_[2])
    np.testing.assert_array_equal(codes[counted[1]], counted[0])


def test_action_probabilities_of_many_and_of_few_weights(rng, monkeypatch):
    model = envs.deep_sea(depth=3)
    policy = np.unique(rng.integers(0, 2, size=(40, 6)), axis=0) + model.pair_start[:-1]
    weight = np.where(rng.random((8, len(policy))) < 0.5, rng.random((8, len(policy))), 0.0)
    table = PolicyTable(np.ones(6, dtype=bool), policy, weight)
    found = []
    for dense in (0.0, 1.0):
        monkeypatch.setattr(policies, "DENSE", dense)
        found.append(policies.action_probabilities(model, table))
    np.testing.assert_allclose(found[0].value, found[1].value, rtol=1e-13)
    np.testing.assert_allclose(found[0].se, found[1].se, rtol=1e-10)


def test_fewer_points_than_the_first_look_may_be_asked_for():
    """The answers of 32 nets of 1,024 and of 4,096 points: within 6 combined standard errors, all 12 of them; six are
    1/2 but for rounding.

    A false alarm has a probability below 1e-6 for a fresh seed.
    """
    model = envs.deep_sea(depth=3)
    data = Dataset(model, np.arange(6), model.reward[:6])
    few, many = (posterior(model, data, epsilon=0.1, engine="chart", samples=n) for n in (2**15, 2**17))
    assert few.diagnostics["points"] == 2**15
    gap = np.abs(few.action_probability.value - many.action_probability.value)
    assert (gap <= 6 * np.hypot(few.action_probability.se, many.action_probability.se) + 1e-12).all()
