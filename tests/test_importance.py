"""The fast paths of importance sampling against the plain ones."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats

from bellmanifold import envs, posterior
from bellmanifold.chart import batch_chart
from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.laws import Gaussian
from bellmanifold.noise import HalfNormal
from bellmanifold.posteriors import importance, policies
from bellmanifold.posteriors.coordinates import Coordinates, Point
from bellmanifold.posteriors.importance import (
    CALL_NUMBERS,
    FEW_POLICIES,
    PIECE,
    REPLICATES,
    Nets,
    _Sums,
    distinct,
    reference_points,
    weigh_pieces,
)
from bellmanifold.posteriors.inference import covering
from bellmanifold.posteriors.points import member_moments, uniform_points
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.target import noisy_target, relaxed_target

# --- pieces of the sum, each against a plain version ------------------------------------------------------------------


def bandit(actions=4, seen=1, epsilon=0.5, prior_scale=2.0):
    """Actions that end at once, pay -k, and of which the first few were seen."""
    model = from_moves("bandit", {("s", f"a{k}"): Move(-1.0 * k, {"goal": 1.0}) for k in range(actions)}, start="s")
    data = Dataset.from_pairs(model, [("s", f"a{k}") for k in range(seen)])
    return Coordinates(relaxed_target(data, epsilon, prior_scale), batch_chart(model))


def sums(rng, coordinates, reference, codes, **other):
    """Made-up sums over some points: what matters is that they are added up right."""
    rows, pairs = len(codes), coordinates.target.model.n_pairs
    weight = rng.random((REPLICATES, rows))
    states = coordinates.chart.slot.shape[1]
    made = {
        "reference": reference,
        "points": 64,
        "unsolvable": 3,
        "square": 0.7,
        "whole": weight.sum(axis=1),
        "first": rng.normal(size=(REPLICATES, pairs)),
        "second": 50.0 + rng.random((REPLICATES, pairs)),
        "noise_scale": np.zeros(0),
        "code": np.array(codes, dtype=np.uint64),
        "choice": np.repeat(np.array(codes, dtype=np.int64)[:, None], states, axis=1),
        "weight": weight,
        "tied": np.zeros(states, dtype=bool),
    }
    return _Sums(**(made | other))


def test_parts_are_added_up_on_one_scale(rng):
    """Two parts whose weights are relative to e^2 and e^3: policies 0, 2 and 2, 3."""
    coordinates = bandit()
    one, two = sums(rng, coordinates, 2.0, [0, 2]), sums(rng, coordinates, 3.0, [2, 3], points=192, unsolvable=5)
    found = importance._sample(coordinates, [one, two])
    share = np.exp(-1.0)
    whole = share * one.whole + two.whole
    weight = np.stack([share * one.weight[:, 0], share * one.weight[:, 1] + two.weight[:, 0], two.weight[:, 1]], axis=1)
    assert found.table.policy.ravel().tolist() == [0, 2, 3]
    np.testing.assert_allclose(found.table.weight, weight)
    assert found.points == 256
    assert found.unsolvable == 8 / 256
    assert found.effective_sample_size == pytest.approx(whole.sum() ** 2 / (0.7 * share**2 + 0.7))
    mean = whole * REPLICATES / 256
    assert found.log_evidence.value == pytest.approx(3.0 + np.log(mean.mean()))
    assert found.log_evidence.se == pytest.approx(mean.std(ddof=1) / np.sqrt(REPLICATES) / mean.mean())
    first = (share * one.first + two.first).sum(axis=0) / whole.sum()
    second = (share * one.second + two.second).sum(axis=0) / whole.sum()
    np.testing.assert_allclose(found.q_mean.value, first)
    np.testing.assert_allclose(found.q_sd, np.sqrt(second - first**2))
    assert found.noise_scale is None
    assert found.tied_states.tolist() == []


def test_evidence_has_the_targets_constant(rng):
    coordinates = bandit()
    with_constant = replace(coordinates, target=replace(coordinates.target, log_constant=1.5))
    part = sums(rng, coordinates, 2.0, [0])
    one, other = (importance._sample(c, [part]).log_evidence.value for c in (coordinates, with_constant))
    assert other - one == pytest.approx(1.5)


def test_noise_scale_and_ties_of_any_part(rng):
    coordinates = bandit()
    tied = np.ones(1, dtype=bool)
    parts = [
        sums(rng, coordinates, 0.0, [0], noise_scale=np.array([30.0, 70.0])),
        sums(rng, coordinates, 0.0, [1], noise_scale=np.array([10.0, 40.0]), tied=tied),
    ]
    found = importance._sample(coordinates, parts)
    whole = sum(part.whole.sum() for part in parts)
    mean = 40.0 / whole
    assert found.noise_scale == pytest.approx((mean, np.sqrt(110.0 / whole - mean**2)))
    assert found.tied_states.tolist() == [0]


def test_points_without_any_weight_are_no_sample(rng):
    coordinates = bandit()
    nothing = {
        "square": 0.0,
        "whole": np.zeros(REPLICATES),
        "weight": np.zeros((REPLICATES, 0)),
        "noise_scale": np.zeros(2),
        "first": np.zeros((REPLICATES, 4)),
        "second": np.zeros((REPLICATES, 4)),
    }
    found = importance._sample(coordinates, [sums(rng, coordinates, -np.inf, [], **nothing)])
    assert found.effective_sample_size == 0.0
    assert found.log_evidence.value == -np.inf
    assert np.isnan(found.noise_scale[0])
    assert len(found.table.policy) == 0


def test_weights_are_summed_by_policy(rng):
    row, weight = rng.integers(0, 3, size=(REPLICATES, 50)), rng.random((REPLICATES, 50))
    expected = [[weight[r, row[r] == k].sum() for k in range(4)] for r in range(REPLICATES)]
    np.testing.assert_allclose(importance._by_row(row, weight, 4), expected)


def made_up_pieces(rng, coordinates):
    """A piece a replicate, on scales that differ by orders of magnitude; the second has no weight at all."""
    actions, states = coordinates.chart.slot.shape
    log_weight = rng.normal(size=(REPLICATES, PIECE)) + 5.0 * rng.normal(size=(REPLICATES, 1))
    log_weight[1] = -np.inf
    log_scale = np.where(np.isfinite(log_weight.max(axis=1)), log_weight.max(axis=1), 0.0)
    own = np.exp(log_weight - log_scale[:, None])
    q = rng.normal(size=(REPLICATES, actions, states, PIECE))
    code = rng.integers(0, 3, size=(REPLICATES, PIECE)).astype(np.uint64)
    code[1] = 3
    pieces = importance._Pieces(
        log_weight=log_weight,
        choice=np.repeat(code[:, None, :], states, axis=1).astype(np.int16),
        code=code,
        noise_scale=np.zeros((REPLICATES, 0, PIECE)),
        log_scale=log_scale,
        first=np.einsum("pasn,pn->pas", q, own),
        second=np.einsum("pasn,pn->pas", q**2, own),
        tied=np.zeros((REPLICATES, states), dtype=bool),
    )
    return pieces, q


def test_moments_of_pieces_on_different_scales(rng):
    """Sums of weights relative to one reference; pairs that stand for several by their members' moments; else 0."""
    moves = {("s", f"a{k}"): Move(-1.0 * k, {"goal": 1.0}) for k in range(4)} | {("far", "in"): Move(-1.0, {"s": 1.0})}
    model = from_moves("bandit", moves, start="far")
    target = relaxed_target(Dataset.from_pairs(model, [("s", "a0")]), 0.5, 3.0)
    coordinates = Coordinates(target, batch_chart(model))
    part = importance._Part(coordinates, 0, PIECE, 7)
    pieces, q = made_up_pieces(rng, coordinates)
    reference = float(pieces.log_weight.max())
    weight = np.exp(pieces.log_weight - reference)
    found = part.moments(pieces, weight, reference)
    action, state = coordinates.chart.place
    seen, free = model.pair_index["s", "a0"], model.pair_index["s", "a1"]
    for power in (1, 2):
        values = q[:, action[seen], state[seen]] ** power
        np.testing.assert_allclose(found[power - 1][:, seen], (weight * values).sum(axis=1), rtol=1e-9, atol=1e-12)
        member = 3.0**power * member_moments(part.key, 0, 3)[power - 1].reshape(weight.shape)
        for k in range(3):
            np.testing.assert_allclose(found[power - 1][:, free + k], (weight * member).sum(axis=1), rtol=1e-9)
        np.testing.assert_array_equal(found[power - 1][:, model.pair_index["far", "in"]], 0.0)


@pytest.mark.parametrize("policies", [8, FEW_POLICIES + 1], ids=["counted", "sorted"])
def test_policies_without_weight_are_left_out(rng, policies):
    """Those with any are kept, however little it is."""
    pieces, _ = made_up_pieces(rng, bandit())
    weight = 1e-9 * np.exp(pieces.log_weight - pieces.log_weight.max())
    code, choice, by_policy = importance._merged(pieces, weight, policies)
    assert code.tolist() == [0, 1, 2]
    assert choice.ravel().tolist() == [0, 1, 2]
    expected = [[weight[r, pieces.code[r] == k].sum() for k in range(3)] for r in range(REPLICATES)]
    np.testing.assert_allclose(by_policy, expected)


def test_sums_of_a_part_are_those_of_its_points(rng, monkeypatch):
    coordinates = bandit()
    pieces, _ = made_up_pieces(rng, coordinates)
    part = importance._Part(coordinates, 0, PIECE, 7)
    monkeypatch.setattr(importance._Part, "weigh", lambda self: pieces)
    found = importance._weigh(part)
    weight = np.exp(pieces.log_weight - pieces.log_weight.max())
    assert found.reference == pieces.log_weight.max()
    assert (found.points, found.unsolvable) == (REPLICATES * PIECE, PIECE)
    assert found.square == pytest.approx((weight**2).sum())
    np.testing.assert_allclose(found.whole, weight.sum(axis=1))
    assert not found.tied.any()
    assert found.noise_scale.shape == (0,)


def test_what_each_coordinate_of_a_net_is_for():
    """Free pairs first, each with the number it stands for; then the noise scale; then residuals; then 0."""
    part = importance._Part(bandit(actions=5, seen=2), 0, PIECE, 7)
    assert part.free.tolist() == [2]
    assert part.group.tolist() == [3]
    assert part.residual.tolist() == [0, 1]
    assert part.key == (3, 0, PIECE, REPLICATES, 7)
    assert np.asarray(part.row)[:, 0].tolist() == [1, 2, 0, 3, 3]
    model = part.coordinates.target.model
    noisy = noisy_target(Dataset.from_pairs(model, [("s", "a0", 1.0), ("s", "a0", 2.0)]), HalfNormal(), 2.0, Gaussian())
    part = importance._Part(Coordinates(noisy, batch_chart(model)), 0, PIECE, 7)
    assert part.key[0] == 3
    assert np.asarray(part.row)[:, 0].tolist() == [2, 0, 3, 3, 3], "coordinate 1 is the noise scale"
    model = from_moves("uneven", {tuple(pair): Move(-1.0, {"goal": 1.0}) for pair in ("sa", "sb", "ta")}, start="s")
    complete = Coordinates(relaxed_target(Dataset.complete(model), 0.5, 2.0), batch_chart(model))
    part = importance._Part(complete, PIECE, PIECE, 7)
    slots, rows = complete.chart.slot.ravel().tolist(), np.asarray(part.row).ravel().tolist()
    assert dict(zip(slots, rows, strict=True)) == {0: 0, 1: 1, 2: 2, 3: 3}, "a slot without a pair holds 0"


def test_reference_points_are_normal_and_come_in_calls():
    """Two nets' worth of pieces, three to a call: the largest of 3, two plain ones, and 0."""
    part = (3, 0, 2 * PIECE, 2, 7)
    calls = reference_points(part, (3,), 3)
    assert [call.shape for call in calls] == [(3, 4, PIECE), (1, 4, PIECE)]
    x = np.concatenate([np.asarray(call) for call in calls]).transpose(1, 0, 2).reshape(4, -1)
    uniform = uniform_points(*part)
    np.testing.assert_allclose(stats.norm.cdf(x[0]) ** 3, uniform[0], rtol=1e-9)
    np.testing.assert_allclose(stats.norm.cdf(x[1:3]), uniform[1:], rtol=1e-9)
    np.testing.assert_array_equal(x[3], 0.0)


@pytest.mark.parametrize(("numbers", "pieces"), [(2**19, 16), (5 * 4 * PIECE, 4), (4 * PIECE, 1), (1, 1)])
def test_calls_hold_no_more_numbers_than_allowed(monkeypatch, numbers, pieces):
    """A power of two of pieces, at most 16, at least one; each has 1,024 points of 4 pairs."""
    asked = []

    def nothing(key, groups, call):
        asked.append((groups, call))
        raise StopIteration

    monkeypatch.setattr(importance, "CALL_NUMBERS", numbers)
    monkeypatch.setattr(importance, "reference_points", nothing)
    with pytest.raises(StopIteration):
        importance._Part(bandit(), 0, PIECE, 7).weigh()
    assert asked == [((3,), pieces)]


def test_a_bandit_by_the_textbook():
    """One action seen: normal conjugacy for it, the prior for the others, and the evidence of one number.

    The points are quasi-random: errors are far below the tolerances, for any seed.
    """
    nets = Nets([bandit(seen=1)], 3)
    found = nets.sample(12)
    variance = 1.0 / (1.0 / 4.0 + 1.0 / 0.25)
    np.testing.assert_allclose(found.q_mean.value, 0.0, atol=5e-3)
    np.testing.assert_allclose(found.q_sd, [np.sqrt(variance), 2.0, 2.0, 2.0], rtol=5e-3)
    assert found.log_evidence.value == pytest.approx(stats.norm.logpdf(0.0, 0.0, np.sqrt(4.25)), abs=2e-3)
    assert found.points == REPLICATES * 4096
    assert found.unsolvable == 0.0
    again = Nets([bandit(seen=1)], 3)
    assert again.sample(3).points == REPLICATES * PIECE, "the smallest net"
    grown = again.sample(12)
    np.testing.assert_allclose(grown.q_mean.value, found.q_mean.value, atol=1e-12)
    assert grown.log_evidence.value == pytest.approx(float(found.log_evidence.value), abs=1e-12)
    assert len(again.sums) == 3, "1,024 points, as many again, and 2,048 more"
    assert again.sample(11).points == grown.points, "nets do not shrink"


def test_components_of_a_mixture_have_points_of_their_own():
    one, other = bandit(seen=1), bandit(seen=1)
    nets = Nets([one, other], 3)
    found = nets.sample(10)
    assert found.points == 2 * REPLICATES * PIECE
    assert not np.array_equal(nets.sums[0].whole, nets.sums[1].whole)


# --- whole posteriors -------------------------------------------------------------------------------------------------


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
