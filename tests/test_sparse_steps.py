"""Moves on sparse systems with random numbers that are given, so that every step can be followed by hand."""

import numpy as np
import pytest
from bellmanifold.posteriors.sparse_coordinates import Place, SparseCoordinates
from bellmanifold.posteriors.sparse_steps import _slice, refresh, step, turn, visit
from scipy import stats

from bellmanifold import envs
from bellmanifold.data import Dataset
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors import sparse_steps, sparse_walk
from bellmanifold.posteriors.target import relaxed_target

SIGMA = 2.0


class Given(np.random.Generator):
    """A generator that gives out uniform and normal numbers from lists."""

    def __init__(self, uniform=(), normal=()):
        super().__init__(np.random.PCG64(0))
        self.uniform, self.normal = list(uniform), list(normal)

    def random(self, size=None):
        return self.uniform.pop(0) if size is None else np.array([self.uniform.pop(0) for _ in range(size)])

    def standard_normal(self, size=None):
        return self.normal.pop(0) if size is None else np.array([self.normal.pop(0) for _ in range(size)])


def place(log_likelihood, x=0.0):
    return Place(np.array([x]), np.zeros(1), log_likelihood, np.zeros(1, dtype=np.int64))


def test_a_bracket_shrinks_towards_the_place():
    """Angles 3/2 pi, then -1/4 pi and 5/8 pi: from the bracket, cut where the last angle was, on its side of 0."""
    tried = []

    def at(angle):
        tried.append(angle / np.pi)
        return place(-1.0 if len(tried) < 4 else 0.0, angle)

    found = _slice(place(0.0), at, Given([0.5, 0.75, 0.125, 0.5, 0.25]))
    assert tried == pytest.approx([1.5, -0.25, 0.625, -0.25 + 0.25 * 0.875])
    assert found.x[0] == pytest.approx(np.pi * tried[-1])


@pytest.mark.parametrize(("height", "accepted"), [(-0.69, True), (-0.70, False)])
def test_a_point_must_be_above_the_level(height, accepted):
    """The level is log u below the place: log 0.5 = -0.693; the second angle is accepted for certain."""
    heights = iter([height, 0.0])
    found = _slice(place(0.0), lambda angle: place(next(heights), angle), Given([0.5, 0.25, 0.5]))
    assert (found.x[0] == pytest.approx(0.5 * np.pi)) == accepted


@pytest.fixture
def coordinates():
    """Deep sea 2: the start's pairs were seen; the first of the two pairs of each state below stands for both."""
    model = envs.deep_sea(2)
    return SparseCoordinates(relaxed_target(Dataset.from_pairs(model, [("0,0", "left"), ("0,0", "right")]), 0.3, SIGMA))


def test_all_residuals_turn_together(coordinates):
    """A third of a turn with the level far below: cos and sin of 2 pi / 3, unobserved values stay."""
    x = np.array([0.1, 0.2, 0.3, 0.4])
    here = coordinates.place(x, None)
    there = turn(coordinates, here, Given([1e-300, 1 / 3], [1.0, -1.0]))
    cos, sin = np.cos(2 * np.pi / 3), np.sin(2 * np.pi / 3)
    np.testing.assert_allclose(there.x, [0.1, 0.2, 0.3 * cos + sin, 0.4 * cos - sin])
    np.testing.assert_allclose(there.q, coordinates.place(there.x, None).q)


def seen_below(epsilon=0.3):
    """All pairs but the last of the state below on the left were seen: that one is idle or not."""
    model = envs.deep_sea(2)
    pairs = [0, 1, 2, 4, 5]
    return SparseCoordinates(relaxed_target(Dataset(model, np.array(pairs), model.reward[pairs]), epsilon, SIGMA))


def test_a_visit_that_stays_idle_costs_nothing(monkeypatch):
    coordinates = seen_below()
    here = coordinates.place(np.array([-2.0, 0, 0, 0, 0, 0]), None)
    ceiling = here.q[2]
    assert here.q[3] == -4.0 < ceiling, "it is not the best pair of its state"
    looked = []
    solve = coordinates.place
    monkeypatch.setattr(coordinates, "place", lambda *point: looked.append(point) or solve(*point))
    there = visit(coordinates, here, 0, Given([0.5, 0.25], [-1.0]))
    assert not looked
    np.testing.assert_allclose(there.x, [-1.0, 0, 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(there.q, [*here.q[:3], -2.0, *here.q[4:]])
    assert there.log_likelihood == here.log_likelihood
    above = visit(coordinates, here, 0, Given([1e-300, 0.25], [1.0]))
    assert len(looked) == 1, "above the ceiling everything may change"
    assert above.q[3] == pytest.approx(2.0)
    assert above.policy[1] == 3
    visit(coordinates, above, 0, Given([1e-300, 0.25], [-2.0]))
    assert len(looked) == 2, "the best pair is not idle, wherever it goes"
    assert here.x[0] == -2.0, "places are not written on"


def test_refreshed_values_follow_their_law_below_the_ceiling():
    """Of k values below c the largest is below t with probability (Phi(t) / Phi(c))^k: u of it at the drawn u."""
    model = envs.deep_sea(2)
    pairs = np.array([0, 1, 2])
    coordinates = SparseCoordinates(relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.3, SIGMA))
    x = np.array([-2.0, 0.5, 0.0, 0.0, 0.0])
    here = coordinates.place(x, None)
    assert coordinates.alternatives.tolist() == [1, 2]
    there = refresh(coordinates, here, Given([0.3, 0.6]))
    ceiling = here.q[2] / SIGMA
    assert stats.norm.cdf(there.q[3] / SIGMA) == pytest.approx(0.3 * stats.norm.cdf(ceiling), rel=1e-12)
    assert there.x[0] == pytest.approx(there.q[3] / SIGMA)
    assert (there.x[1:] == x[1:]).all(), "a best value is not idle, nor is a residual"
    assert (np.delete(there.q, 3) == np.delete(here.q, 3)).all()
    assert here.x[0] == -2.0
    worse = Place(x, np.where(np.arange(6) == 2, 1.0, here.q), 0.0, np.array([0, 2, 5]))
    both = refresh(coordinates, worse._replace(q=np.array([0, 0, 1.0, -1, 0.4, 0.8])), Given([0.3, 0.6]))
    expected = 0.6 * stats.norm.cdf(0.8 / SIGMA) ** 2
    assert stats.norm.cdf(both.x[1]) == pytest.approx(expected, rel=1e-12)
    assert stats.norm.cdf(both.q[4] / SIGMA) ** 2 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("free", "log_likelihood", "visits", "refreshed"), [(True, -1.0, 8, 1), (True, -np.inf, 0, 0), (False, -1.0, 0, 1)]
)
def test_what_a_step_is_made_of(monkeypatch, free, log_likelihood, visits, refreshed):
    """A turn, eight visits of unobserved values if there are any, and a refreshment; just turns where all is lost."""
    coordinates = seen_below() if free else complete()
    done = []
    here = coordinates.place(np.zeros(coordinates.size), None)
    here = here._replace(log_likelihood=log_likelihood, policy=here.policy if np.isfinite(log_likelihood) else None)
    monkeypatch.setattr(sparse_steps, "turn", lambda *_: done.append("turn") or here)
    monkeypatch.setattr(sparse_steps, "visit", lambda *_: done.append("visit") or here)
    monkeypatch.setattr(sparse_steps, "refresh", lambda *_: done.append("refresh") or here)
    step(coordinates, here, np.random.default_rng(0))
    assert done == ["turn"] + ["visit"] * visits + ["refresh"] * refreshed


def complete():
    model = envs.deep_sea(2)
    return SparseCoordinates(relaxed_target(Dataset.complete(model), 0.3, SIGMA))


@pytest.mark.parametrize("lost", [0, 1, 4])
def test_chains_are_counted_and_averaged(monkeypatch, coordinates, lost):
    """Steps that draw any action values: tables, moments and lost chains, written out."""
    model, walked, steps_taken = coordinates.target.model, [], []

    def drawn(_, here, rng):
        steps_taken.append(rng)
        chain = len({id(generator) for generator in steps_taken}) - 1
        q = np.where(coordinates.stand_in == np.arange(6), rng.normal(size=6), -np.inf)
        if chain >= lost:
            walked.append((chain, q))
        return here._replace(q=q, log_likelihood=-np.inf if chain < lost else 0.0)

    monkeypatch.setattr(sparse_walk, "step", drawn)
    if lost == 4:
        with pytest.raises(UnsupportedError, match="no chain found"):
            sparse_walk.sparse_walk(coordinates, 10, 3, seed=1)
        return
    found = sparse_walk.sparse_walk(coordinates, 10, 3, seed=1)
    assert len(steps_taken) == (4 - lost) * 13 + lost * 3
    assert (found.lost, found.steps, len(found.table.weight)) == (lost, 10, 4 - lost)
    q = np.array([[own for chain, own in walked if chain == c][3:] for c in range(lost, 4)])
    policies = np.array([[model.greedy(one) for one in chain] for chain in q])
    for k, weight in enumerate(found.table.weight):
        for row, count in zip(found.table.policy, weight, strict=True):
            assert (policies[k] == row).all(axis=1).sum() == count
    moments = np.array([[coordinates.moments(one) for one in chain] for chain in q]).mean(axis=1)
    mean, square = moments.mean(axis=0)[:, coordinates.stand_in]
    np.testing.assert_allclose(found.q_mean.value, mean, rtol=1e-12)
    np.testing.assert_allclose(found.q_sd, np.sqrt(square - mean**2), rtol=1e-9)
    error = moments[:, 0, coordinates.stand_in].std(axis=0, ddof=1) / np.sqrt(4 - lost)
    np.testing.assert_allclose(found.q_mean.se, error, rtol=1e-9)
