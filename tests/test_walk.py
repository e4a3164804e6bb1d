"""What is made of the records of chains, and when chains are trusted."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bellmanifold.posteriors.steps import Cost
from by_hand import walk_of

from bellmanifold import envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors import walk
from bellmanifold.posteriors.convergence import r_hat_and_effective
from bellmanifold.posteriors.coordinates import Coordinates, Point, Weighed
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.walk import Chains, diagnose, end_points


def coordinates_of(model, pairs, epsilon=0.3):
    pairs = np.asarray(pairs)
    return Coordinates(relaxed_target(Dataset(model, pairs, model.reward[pairs]), epsilon, 2.0), batch_chart(model))


@pytest.mark.parametrize(
    ("r_hat", "effective", "lost", "trusted"),
    [
        (1.019, 401.0, 0, True),
        (1.02, 401.0, 0, False),
        (1.0, 400.0, 0, False),
        (1.0, 401.0, 1, True),
        (1.0, 401.0, 2, False),
    ],
)
def test_walks_are_trusted_if_they_mixed_and_few_chains_were_lost(r_hat, effective, lost, trusted):
    """Of 20 chains one may be lost, a twentieth."""
    target = relaxed_target(Dataset.complete(envs.deep_sea(2)), 0.3, 2.0)
    weight = np.ones((20 - lost, 2))
    found = walk_of(target, weight, r_hat=r_hat, effective_sample_size=effective, lost=lost)
    assert found.trustworthy == trusted


def test_only_values_that_vary_are_diagnosed(rng):
    """A value that differs by 1e-7 of its size is rounded, one that differs by 1e-5 has to mix."""
    good = rng.normal(size=(4, 200, 1))
    step = np.where(np.arange(4)[:, None, None] < 2, 0.0, 1.0) * np.ones((4, 200, 1))
    for size in (0.0, 1e6):
        rounded, stuck = size + 1e-7 * (1 + size) * step, size + 1e-5 * (1 + size) * step
        assert diagnose(np.concatenate([good, rounded], axis=2))[0] < 1.1
        assert diagnose(np.concatenate([good, stuck], axis=2))[0] > 10
    r_hat, effective = r_hat_and_effective(np.concatenate([good, good**3], axis=2))
    found = diagnose(np.concatenate([good, good**3], axis=2))
    assert found == (r_hat.max(), effective.min())
    assert diagnose(np.ones((3, 7, 2))) == (1.0, 21.0)


def test_of_many_values_the_ends_are_looked_at(rng):
    """32 of 100, the first and the last among them."""
    values = rng.normal(size=(4, 100, 100))
    for stuck in (0, 99):
        one = values.copy()
        one[:2, :, stuck] += 10.0
        assert diagnose(one)[0] > 1.5
    one = values.copy()
    one[:2, :, 1] += 10.0
    assert diagnose(one)[0] < 1.2, "the second is not among them"


def test_states_are_recorded_evenly(monkeypatch):
    monkeypatch.setattr(walk, "MOST_RECORDED", 3)
    coordinates = coordinates_of(envs.deep_sea(3), np.arange(12))
    assert walk._recorded(coordinates).tolist() == [0, 2, 5]
    one = coordinates_of(envs.deep_sea(3), [0, 1])
    coupled = one.target.coupled[one.chart.order]
    assert walk._recorded(one).tolist() == np.flatnonzero(coupled).tolist()


def told_round(rng, coordinates, chains, lost, scales=0):
    """A round of `walk.ROUND` steps with random records; the last chains are lost."""
    actions, states = coordinates.chart.slot.shape
    steps = walk.ROUND
    log_weight = np.zeros((steps, chains))
    log_weight[:, chains - lost :] = -np.inf
    choice = rng.integers(0, actions, (steps, states, chains))
    choice[:, :, 1:] = np.where(rng.random((steps, states, chains - 1)) < 0.5, 0, choice[:, :, 1:])
    code = (choice * (actions ** np.arange(states))[:, None]).sum(axis=1).astype(np.uint64)
    record = walk._Record(
        jnp.asarray(log_weight),
        jnp.asarray(code),
        jnp.asarray(choice),
        jnp.asarray(rng.normal(size=(steps, states, chains))),
        jnp.asarray(rng.random((steps, scales, chains))),
        jnp.asarray(rng.integers(1, 9, steps)),
    )
    sums = rng.normal(size=(actions, states, chains)) * steps
    more = sums**2 / steps + rng.random((actions, states, chains)) * steps
    return walk._Round(Point(jnp.zeros((1, 1, 1)), jnp.zeros((0, 1))), record, jnp.asarray(sums), jnp.asarray(more))


@pytest.mark.parametrize("scales", [0, 1])
def test_records_are_counted_and_averaged(rng, monkeypatch, scales):
    """Two rounds of five chains, of which two found nothing: policies, moments, costs and the noise scale."""
    monkeypatch.setattr(walk, "ROUND", 40)
    monkeypatch.setattr(walk, "CHAINS", 5)
    coordinates = coordinates_of(envs.deep_sea(2), [0, 1, 2, 4])
    model, chart = coordinates.target.model, coordinates.chart
    rounds = [told_round(rng, coordinates, 5, 2, scales) for _ in range(2)]
    found = walk._summarise(coordinates, rounds)
    assert (found.lost, found.steps, found.table.weight.shape[0]) == (2, 80, 3)
    choices = np.concatenate([np.asarray(one.record.choice) for one in rounds])
    for k in range(3):
        by_state = np.empty((80, 3), dtype=int)
        by_state[:, chart.order] = np.stack([chart.slot[choices[:, s, k], s] for s in range(3)], axis=1)
        for row, count in zip(found.table.policy, found.table.weight[k], strict=True):
            assert (by_state == row).all(axis=1).sum() == count
    assert found.table.weight.sum() == 240
    mean = sum(np.asarray(one.first) for one in rounds)[:, :, :3] / 80
    square = sum(np.asarray(one.second) for one in rounds)[:, :, :3] / 80
    for i in range(model.n_pairs):
        action, state = (place[coordinates.stand_in[i]] for place in chart.place)
        own = mean[action, state]
        assert found.q_mean.value[i] == pytest.approx(own.mean())
        assert found.q_mean.se[i] == pytest.approx(own.std(ddof=1) / np.sqrt(3))
        assert found.q_sd[i] == pytest.approx(np.sqrt(square[action, state].mean() - own.mean() ** 2))
    assert found.evaluations == pytest.approx(np.mean([np.asarray(one.record.evaluations) for one in rounds]))
    if scales:
        eta = np.concatenate([np.asarray(one.record.noise_scale)[:, 0, :3] for one in rounds])
        assert found.noise_scale == pytest.approx((eta.mean(), eta.std()))
    else:
        assert found.noise_scale is None
    with pytest.raises(UnsupportedError, match="no chain found"):
        walk._summarise(coordinates, [told_round(rng, coordinates, 5, 5)])


def test_a_round_adds_up_the_moments_of_its_steps(monkeypatch):
    """Where a state has one action, that action's value is the state's, which is recorded at every step."""
    model = from_moves("row", {("s", "on"): Move(-1.0, {"t": 1.0}), ("t", "on"): Move(-2.0, {"goal": 1.0})}, start="s")
    coordinates = coordinates_of(model, [0, 1])

    def step(kind, structure, key, here):
        return here._replace(point=here.point._replace(x=here.point.x + 0.5)), Cost(jnp.array(1))

    monkeypatch.setattr(walk, "step", step)
    position = Point(jnp.asarray(np.linspace(-1.0, 1.0, 6).reshape(1, 2, 3)), jnp.zeros((0, 3)))
    run = walk._run.__wrapped__  # what is compiled would not see this step
    done = run(coordinates.kind, 4, coordinates.structure, jnp.arange(2), jax.random.key(0), position)
    np.testing.assert_array_equal(done.position.x, position.x + 2.0)
    value = np.asarray(done.record.value)
    assert value.shape == (4, 2, 3)
    np.testing.assert_allclose(done.first[0], value.sum(axis=0))
    np.testing.assert_allclose(done.second[0], (value**2).sum(axis=0))


def test_chains_warm_up_once_and_then_record_rounds(monkeypatch):
    coordinates = coordinates_of(envs.deep_sea(2), [0, 1])
    chains, done = Chains(coordinates, 0), []
    places = [chains.position] + [chains.position._replace(z=jnp.zeros((0, k))) for k in range(4)]

    def advance(kind, steps, structure, key, position):
        done.append(("warm", steps, key, position))
        return places[1]

    def run(kind, steps, structure, recorded, key, position):
        done.append(("round", steps, key, position))
        return SimpleNamespace(position=places[len(done)])

    monkeypatch.setattr(walk, "advance", advance)
    monkeypatch.setattr(walk, "_run", run)
    monkeypatch.setattr(walk, "_summarise", lambda coordinates, rounds: walk_of(coordinates.target, steps=len(rounds)))
    assert [chains.walk(rounds).steps for rounds in (2, 3, 3)] == [2, 3, 3]
    assert [name for name, *_ in done] == ["warm", "round", "round", "round"]
    assert [steps for _, steps, *_ in done] == [walk.ROUND] * 4
    assert all(done[k][-1] is places[k] for k in range(4)), "each goes on where the last one ended"
    assert len({int(jax.random.bits(key)) for _, _, key, _ in done}) == 4, "random numbers are not used twice"


def test_end_points_leave_out_chains_without_likelihood(monkeypatch):
    log_weight = np.array([0.0, -np.inf, -3.0])
    q = np.arange(6.0).reshape(1, 2, 3)
    told = Weighed(log_weight, *(None,) * 2, q, np.array([[1.0, 2.0, 3.0]]), *(None,) * 4)
    monkeypatch.setattr(walk, "weigh_normals", lambda *_: told)
    ends = end_points(Chains(coordinates_of(envs.deep_sea(2), [0, 1]), 0))
    assert ends.log_weight.tolist() == [0.0, -3.0]
    assert ends.q.tolist() == [[[0.0, 2.0], [3.0, 5.0]]]
    assert ends.noise_scale.tolist() == [[1.0, 3.0]]
