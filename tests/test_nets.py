"""Weighing nets of points: the pieces of the sum against plain versions, and a posterior from the textbook."""

from collections import OrderedDict
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bellmanifold import envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.gaussian.exchangeable import member_moments
from bellmanifold.gaussian.points import normal_points, uniform_points
from bellmanifold.gaussian.stretch import Stretch, stretch_points
from bellmanifold.posteriors import nets, pieces
from bellmanifold.posteriors.coordinates import Coordinates, Loop
from bellmanifold.posteriors.cuts import covering
from bellmanifold.posteriors.kernels import Gaussian
from bellmanifold.posteriors.nets import FEW_POLICIES, Nets, _Sums, distinct
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.pieces import (
    CALL_NUMBERS,
    FEW_ROWS,
    PIECE,
    REPLICATES,
    Arranged,
    Pieces,
    reference_calls,
    weigh_pieces,
)
from bellmanifold.posteriors.policies import weights_of
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.system import Point, system_of
from bellmanifold.posteriors.target import ValuePrior, noisy_target, relaxed_target
from bellmanifold.posteriors.weight import weigh
from bellmanifold.problem.dataset import Dataset


def bandit(actions=4, seen=1, epsilon=0.5, prior_scale=2.0):
    """Actions that end at once, pay -k, and of which the first few were seen."""
    model = from_moves("bandit", {("s", f"a{k}"): Move(-1.0 * k, {"goal": 1.0}) for k in range(actions)}, start="s")
    data = Dataset.from_pairs(model, [("s", f"a{k}") for k in range(seen)])
    return Coordinates(relaxed_target(data, epsilon, prior_scale))


def chart_of(coordinates):
    return batch_chart(coordinates.target.model)


def arranged_of(coordinates):
    return Arranged(coordinates, chart_of(coordinates))


def pieces_of(arranged):
    """A piece in each replicate."""
    return (arranged.dimension, 0, PIECE, REPLICATES, 7)


def sums(rng, coordinates, reference, codes, **other):
    """Made-up sums over some points: what matters is that they are added up right."""
    rows, pairs = len(codes), coordinates.target.model.n_pairs
    weight = rng.random((REPLICATES, rows))
    states = coordinates.target.model.n_states
    mean, square = rng.normal(size=(REPLICATES, pairs)), 50.0 + rng.random((REPLICATES, pairs))
    made = {
        "reference": reference,
        "points": 64,
        "unsolvable": 3,
        "square": 0.7,
        "moments": Moments(weight.sum(axis=1), mean, square),
        "noise_scale": None,
        "code": np.array(codes, dtype=np.uint64),
        "choice": np.repeat(np.array(codes, dtype=np.int64)[None], states, axis=0),
        "weight": weight,
        "tied": np.zeros(states, dtype=bool),
    }
    return _Sums(**(made | other))


def test_parts_are_added_up_on_one_scale(rng):
    """Two parts whose weights are relative to e^2 and e^3: policies 0, 2 and 2, 3."""
    coordinates = bandit()
    one, two = sums(rng, coordinates, 2.0, [0, 2]), sums(rng, coordinates, 3.0, [2, 3], points=192, unsolvable=5)
    found = nets._result(coordinates, chart_of(coordinates), [one, two])
    share = np.exp(-1.0)
    whole = share * one.moments.weight + two.moments.weight
    weight = np.stack([share * one.weight[:, 0], share * one.weight[:, 1] + two.weight[:, 0], two.weight[:, 1]], axis=1)
    assert found.table.policy.ravel().tolist() == [0, 2, 3]
    np.testing.assert_allclose(found.table.weight, weight)
    assert found.diagnostics["points"] == 256
    assert found.diagnostics["unsolvable_share"] == 8 / 256
    assert found.effective_sample_size == pytest.approx(whole.sum() ** 2 / (0.7 * share**2 + 0.7))
    mean = whole * REPLICATES / 256
    assert found.log_evidence.value == pytest.approx(3.0 + np.log(mean.mean()))
    assert found.log_evidence.se == pytest.approx(mean.std(ddof=1) / np.sqrt(REPLICATES) / mean.mean())
    first, second = 0.0, 0.0
    for scale, of in ((share, one.moments), (1.0, two.moments)):
        first += scale * (of.weight[:, None] * of.mean).sum(axis=0) / whole.sum()
        second += scale * (of.square + of.weight[:, None] * of.mean**2).sum(axis=0) / whole.sum()
    np.testing.assert_allclose(found.q_mean.value, first)
    np.testing.assert_allclose(found.q_sd.value, np.sqrt(second - first**2))
    assert found.noise_scale is None
    assert found.diagnostics["ties_split"] == []


def test_evidence_has_the_targets_constant(rng):
    coordinates = bandit()
    with_constant = replace(coordinates, target=replace(coordinates.target, log_constant=1.5))
    part = sums(rng, coordinates, 2.0, [0])
    chart = chart_of(coordinates)
    one, other = (nets._result(c, chart, [part]).log_evidence.value for c in (coordinates, with_constant))
    assert other - one == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("stays", "proper_only", "epsilon", "cut", "whole"),
    [
        ({"a": 1.0}, False, 0.5, True, True),
        ({"a": 1.0}, True, 0.5, False, False),
        ({"a": 1.0}, True, 0.0, False, True),
        ({"a": 0.999, "goal": 0.001}, True, 0.5, True, True),
        ({"goal": 1.0}, True, 0.5, False, True),
    ],
)
def test_a_part_of_the_parameters_has_no_evidence(rng, stays, proper_only, epsilon, cut, whole):
    """A closed loop that is not cut holds others; one that is rarely left does not, nor does an exact posterior."""
    moves = {("a", "stay"): Move(-1.0, stays), ("a", "out"): Move(-2.0, {"goal": 1.0})}
    target = relaxed_target(
        Dataset.complete(from_moves("loop", moves, start="a")), epsilon, 2.0, "gaussian", proper_only
    )
    coordinates = covering(target).ways[0][0]
    found = nets._result(coordinates, chart_of(coordinates), [sums(rng, coordinates, 2.0, [0, 1])])
    assert found.diagnostics["cut"] == ([["a", "stay"]] if cut else [])
    assert (found.log_evidence is not None) == whole
    flat = replace(coordinates, target=replace(target, prior=replace(target.prior, flat=True)))
    assert nets._result(flat, chart_of(flat), [sums(rng, flat, 2.0, [0, 1])]).log_evidence is None


def noisy_bandit():
    """The bandit with noise of unknown scale: its first action was tried twice."""
    data = Dataset.from_pairs(bandit().target.model, [("s", "a0", 1.0), ("s", "a0", 2.0)])
    return Coordinates(noisy_target(data, HalfNormal(), 2.0, Gaussian()))


def test_noise_scale_and_ties_of_any_part(rng):
    """Parts on scales of their own: the moments of the noise scale are those of all points together."""
    coordinates = noisy_bandit()
    eta = rng.random((2, REPLICATES, PIECE)) + np.array([1.0, 3.0])[:, None, None]
    made = [made_up_pieces(rng, coordinates)[0]._replace(noise_scale=own[:, None]) for own in eta]
    made[1] = made[1]._replace(log_weight=made[1].log_weight + 1.5, tied=np.ones((REPLICATES, 1), dtype=bool))
    found = nets._result(coordinates, chart_of(coordinates), [nets._sums(coordinates, one) for one in made])
    weight = np.exp(np.stack([one.log_weight for one in made]))
    mean = (weight * eta).sum() / weight.sum()
    assert found.noise_scale == pytest.approx((mean, np.sqrt((weight * (eta - mean) ** 2).sum() / weight.sum())))
    assert found.diagnostics["ties_split"] == ["s"]


def test_points_without_any_weight_are_no_sample(rng):
    coordinates = noisy_bandit()
    made, _ = made_up_pieces(rng, coordinates)
    nothing = np.full_like(made.log_weight, -np.inf)
    made = made._replace(log_weight=nothing, weight=np.zeros(REPLICATES), noise_scale=np.ones((REPLICATES, 1, PIECE)))
    found = nets._result(coordinates, chart_of(coordinates), [nets._sums(coordinates, made)])
    assert found.effective_sample_size == 0.0
    assert found.diagnostics["unsolvable_share"] == 1.0
    assert found.log_evidence.value == -np.inf
    assert np.isnan(found.noise_scale).all()
    assert np.isnan(found.q_mean.value).all()
    assert np.isnan(found.q_sd.value).all()
    assert len(found.table.policy) == 0


def test_weights_are_summed_by_policy(rng):
    row, weight = rng.integers(0, 3, size=(REPLICATES, 50)), rng.random((REPLICATES, 50))
    expected = [[weight[r, row[r] == k].sum() for k in range(4)] for r in range(REPLICATES)]
    replicate = np.repeat(np.arange(REPLICATES), 50)
    found = weights_of(replicate, row.ravel(), weight.ravel(), (REPLICATES, 4))
    np.testing.assert_allclose(found, expected)


def made_up_pieces(rng, coordinates, each=1):
    """So many pieces a replicate, on scales that differ by orders of magnitude; the second has no weight at all."""
    model, pieces = coordinates.target.model, each * REPLICATES
    states = model.n_states
    log_weight = rng.normal(size=(pieces, PIECE)) + 5.0 * rng.normal(size=(pieces, 1))
    log_weight[1] = -np.inf
    log_scale = np.where(np.isfinite(log_weight.max(axis=1)), log_weight.max(axis=1), 0.0)
    own = np.exp(log_weight - log_scale[:, None])
    q = rng.normal(size=(pieces, model.n_pairs, PIECE))
    code = rng.integers(0, 3, size=(pieces, PIECE)).astype(np.uint64)
    code[1] = 3
    total = own.sum(axis=1)
    mean = np.einsum("pin,pn->pi", q, own) / np.where(total > 0, total, 1.0)[:, None]
    made = Pieces(
        log_weight=log_weight,
        choice=np.repeat(code[:, None, :], states, axis=1).astype(np.int16),
        code=code,
        q=q[:, :0],
        noise_scale=np.zeros((pieces, 0, PIECE)),
        log_scale=log_scale,
        weight=total,
        mean=mean,
        square=np.einsum("pin,pn->pi", (q - mean[..., None]) ** 2, own),
        tied=np.zeros((pieces, states), dtype=bool),
    )
    return made, q


def test_moments_of_pieces_on_different_scales(rng):
    """Weights relative to one reference; pairs that stand for several by their members' moments; else the prior."""
    moves = {("s", f"a{k}"): Move(-1.0 * k, {"goal": 1.0}) for k in range(4)} | {("far", "in"): Move(-1.0, {"s": 1.0})}
    model = from_moves("bandit", moves, start="far")
    target = relaxed_target(Dataset.from_pairs(model, [("s", "a0")]), 0.5, 3.0)
    coordinates = Coordinates(target)
    arranged = arranged_of(coordinates)
    part = pieces_of(arranged)
    made, q = made_up_pieces(rng, coordinates)
    weight = np.exp(made.log_weight - float(made.log_weight.max()))
    (call,) = reference_calls(part, arranged.groups, len(made.log_weight))
    found = nets._sums(coordinates, arranged.with_members(made, call)).moments
    np.testing.assert_allclose(found.weight, weight.sum(axis=1), rtol=1e-12)
    seen, free = model.pair_index["s", "a0"], model.pair_index["s", "a1"]
    total = np.where(found.weight > 0, found.weight, 1.0)
    values = q[:, seen]
    mean = (weight * values).sum(axis=1) / total
    np.testing.assert_allclose(found.mean[:, seen], mean, rtol=1e-9, atol=1e-12)
    square = (weight * (values - mean[:, None]) ** 2).sum(axis=1)
    np.testing.assert_allclose(found.square[:, seen], square, rtol=1e-9, atol=1e-12)
    largest = normal_points(uniform_points(*part)[0], 3).reshape(weight.shape)
    own = (3.0 * largest, np.array(3), np.array(0.0), np.array(3.0), np.array(0.0))
    first, second = (moment.reshape(weight.shape) for moment in member_moments(*own))
    mean = (weight * first).sum(axis=1) / total
    square = (weight * second).sum(axis=1) - found.weight * mean**2
    for k in range(3):
        np.testing.assert_allclose(found.mean[:, free + k], mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.square[:, free + k], square, rtol=1e-7, atol=1e-12)
    far = model.pair_index["far", "in"]
    estimate, sd = found.estimate(target)
    assert (estimate.value[far], estimate.se[far], sd.value[far]) == (0.0, 0.0, 3.0), "no data touch it"


@pytest.mark.parametrize("first", [0, FEW_POLICIES - 1], ids=["counted", "sorted"])
def test_sums_of_pieces_are_those_of_their_points(rng, first):
    """Two pieces to a replicate; the policy without weight is left out, those with any stay, however little it is."""
    coordinates = bandit()
    made, _ = made_up_pieces(rng, coordinates, each=2)
    made.log_weight[made.code == 0] -= 80.0
    made.tied[5] = True
    found = nets._sums(coordinates, made._replace(code=made.code + np.uint64(first)))
    weight = np.exp(made.log_weight - made.log_weight.max()).reshape(REPLICATES, -1)
    assert found.reference == made.log_weight.max()
    assert (found.points, found.unsolvable) == (2 * REPLICATES * PIECE, PIECE)
    assert found.square == pytest.approx((weight**2).sum())
    assert found.tied.tolist() == [True]
    assert found.noise_scale is None
    assert found.code.tolist() == [first, first + 1, first + 2]
    assert found.choice.tolist() == [[0, 1, 2]]
    code = made.code.reshape(REPLICATES, -1)
    by_policy = [[weight[r, code[r] == k].sum() for k in range(3)] for r in range(REPLICATES)]
    np.testing.assert_allclose(found.weight, by_policy)
    assert found.weight[:, 0].max() < 1e-25


def test_what_each_coordinate_of_a_net_is_for():
    """Free pairs first, each with the number it stands for; then the noise scale; then residuals; then 0."""
    found = arranged_of(bandit(actions=5, seen=2))
    assert found.groups == (3,)
    assert found.place.tolist() == [2, 0, 1]
    assert found.dimension == 3
    assert found.row.tolist() == [1, 2, 0, 3, 3]
    assert found.plain.tolist() == [1, 2], "not the one that stands for three"
    assert (found.shared.tolist(), found.lowered.tolist()) == ([2], [])
    found = arranged_of(noisy_bandit())
    assert found.row.tolist() == [2, 0, 3, 3, 1], "coordinate 1 is the noise scale, behind the four pairs"
    assert found.plain.tolist() == [1, 2]
    model = from_moves("uneven", {tuple(pair): Move(-1.0, {"goal": 1.0}) for pair in ("sa", "sb", "ta")}, start="s")
    found = arranged_of(Coordinates(relaxed_target(Dataset.complete(model), 0.5, 2.0)))
    assert found.row.tolist() == found.plain.tolist() == [0, 1, 2]
    exact = relaxed_target(Dataset.from_pairs(bandit(4).target.model, [("s", "a0")]), 0.0, 2.0)
    found = arranged_of(Coordinates(exact, lingering=(Loop((0,), (1,)),)))
    assert found.dimension == 3, "the value of three, a residual and a coin"
    assert found.row.tolist() == [1, 0, 3, 3, 2], "the coin is last"
    assert found.plain.tolist() == [1]
    assert found.lowered.tolist() == [1], "its largest value is needed for what each of the three is"


def test_reference_points_are_normal_and_come_in_calls():
    """Two nets' worth of pieces, three to a call: the largest of 3, two plain ones, and 0; the last call is padded."""
    part = (3, 0, 2 * PIECE, 2, 7)
    calls = list(reference_calls(part, (3,), 3))
    assert [call.x.shape for call in calls] == [(3, FEW_ROWS, PIECE)] * 2
    assert [call.pieces for call in calls] == [3, 1]
    assert calls[1].first.shape == (1, 1, PIECE)
    x = np.concatenate([np.asarray(call.x) for call in calls])[:4].transpose(1, 0, 2).reshape(FEW_ROWS, -1)
    uniform = uniform_points(*part)
    np.testing.assert_allclose(stats.norm.cdf(x[0]) ** 3, uniform[0], rtol=1e-9)
    np.testing.assert_allclose(stats.norm.cdf(x[1:3]), uniform[1:], rtol=1e-9)
    np.testing.assert_array_equal(x[3:], 0.0)
    many = next(iter(reference_calls((32, 0, PIECE, 1, 7), (), 1)))
    assert many.x.shape == (1, 64, PIECE), "there is always a row of zeros"


def test_points_are_kept_within_a_bound_and_made_scrambling_by_scrambling_beyond(monkeypatch):
    """The points are the same either way."""
    monkeypatch.setattr(pieces, "_kept", OrderedDict())
    part = (3, 0, 2 * PIECE, 2, 7)
    kept = list(reference_calls(part, (3,), 2))
    assert list(pieces._kept) == [(part, (3,), 2)]
    assert [again is call for again, call in zip(reference_calls(part, (3,), 2), kept, strict=True)] == [True, True]
    other = (3, 0, 2 * PIECE, 2, 8)
    monkeypatch.setattr(pieces, "MOST_KEPT", 2 * 3 * 4 * PIECE)
    list(reference_calls(other, (3,), 2))
    assert list(pieces._kept) == [(other, (3,), 2)], "two do not fit"
    monkeypatch.setattr(pieces, "MOST_KEPT", 1)
    for made, call in zip(reference_calls(part, (3,), 2), kept, strict=True):
        jax.tree.map(np.testing.assert_array_equal, made, call)


def test_calls_hold_no_more_numbers_than_allowed():
    """A power of two of pieces, at most 16, at least one; each has 1,024 points, and 2^19 numbers are allowed."""
    assert CALL_NUMBERS == 512 * PIECE
    actions = (1, 32, 33, 100, 128, 256, 257, 512, 513, 2000)
    assert [arranged_of(bandit(many)).pieces for many in actions] == [16, 16, 8, 4, 4, 2, 1, 1, 1, 1]


def test_a_bandit_by_the_textbook():
    """One action seen: normal conjugacy for it, the prior for the others, and the evidence of one number.

    The points are quasi-random: errors are far below the tolerances, for any seed.
    """
    coordinates = bandit(seen=1)
    found = Nets([coordinates], chart_of(coordinates), 3).sample(12)
    variance = 1.0 / (1.0 / 4.0 + 1.0 / 0.25)
    np.testing.assert_allclose(found.q_mean.value, 0.0, atol=5e-3)
    np.testing.assert_allclose(found.q_sd.value, [np.sqrt(variance), 2.0, 2.0, 2.0], rtol=5e-3)
    assert found.log_evidence.value == pytest.approx(stats.norm.logpdf(0.0, 0.0, np.sqrt(4.25)), abs=2e-3)
    assert found.diagnostics["points"] == REPLICATES * 4096
    assert found.diagnostics["unsolvable_share"] == 0.0
    again = Nets([coordinates], chart_of(coordinates), 3)
    assert again.sample(3).diagnostics["points"] == REPLICATES * PIECE, "the smallest net"
    grown = again.sample(12)
    np.testing.assert_allclose(grown.q_mean.value, found.q_mean.value, atol=1e-12)
    assert grown.log_evidence.value == pytest.approx(float(found.log_evidence.value), abs=1e-12)
    assert len(again.sums) == 3, "1,024 points, as many again, and 2,048 more"
    assert again.sample(11).diagnostics == grown.diagnostics, "nets do not shrink"


def test_each_of_two_exchangeable_actions_has_its_prior():
    """One of three actions seen: the two others keep N(0, 4), though only the larger one is a coordinate."""
    coordinates = bandit(actions=3, seen=1)
    found = Nets([coordinates], chart_of(coordinates), 3).sample(12)
    np.testing.assert_allclose(found.q_mean.value[1:], 0.0, atol=5e-3)
    np.testing.assert_allclose(found.q_sd.value[1:], 2.0, rtol=5e-3)


def test_components_of_a_mixture_have_points_of_their_own():
    one, other = bandit(seen=1), bandit(seen=1)
    both = Nets([one, other], chart_of(one), 3)
    found = both.sample(10)
    assert found.diagnostics["points"] == 2 * REPLICATES * PIECE
    assert not np.array_equal(both.sums[0].moments.weight, both.sums[1].moments.weight)


@pytest.mark.parametrize("of", [1, 2, 5])
def test_any_one_of_several_given_their_largest(of):
    """The largest itself with probability 1/k, else a normal number cut off above: SciPy's moments of that."""
    part = (2, 0, 64, 3, 11)
    largest = normal_points(uniform_points(*part)[1], of)
    below = stats.truncnorm(-np.inf, largest)
    first, second = pieces._member(largest[None, None], np.array([[of]]))
    first, second = first[0, 0], second[0, 0]
    np.testing.assert_allclose(first, (largest + (of - 1) * below.mean()) / of, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(second, (largest**2 + (of - 1) * below.moment(2)) / of, rtol=1e-7, atol=1e-9)


def test_members_have_the_moments_of_a_normal_number_again():
    """Averaged over the law of the largest: 0 and 1, whatever number they are the largest of."""
    for of in (1, 2, 7):
        largest = normal_points(uniform_points(1, 0, 4096, 4, 3), of)
        first, second = pieces._member(largest[None], np.array([[of]]))
        assert first.mean() == pytest.approx(0.0, abs=1e-4)
        assert second.mean() == pytest.approx(1.0, abs=3e-3)


@pytest.mark.parametrize(("seen", "epsilon"), [(5, 0.0), (12, 0.1)])
@pytest.mark.parametrize("changed", [0, 9])
def test_pieces_are_weighed_as_all_points_at_once(rng, epsilon, seen, changed):
    """Swirl has loops: non-centred coordinates at epsilon 0, a cut at 0.1. Pieces may be stretched, each for itself."""
    model = envs.swirl(depth=3)
    pairs = np.sort(rng.permutation(model.n_pairs)[:seen])
    target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), epsilon, 10.0)
    system = system_of(covering(target).ways[0][0], batch_chart(model))
    row = rng.permutation(FEW_ROWS)[: model.n_pairs]
    x = rng.normal(size=(3, FEW_ROWS, PIECE))
    stretch = Stretch.none(model.n_pairs)
    stretch.row[:changed], stretch.centre[:changed] = np.arange(changed), rng.normal(size=changed)
    kept = jnp.array([3, 1])
    found = weigh_pieces(system, kept, row, stretch, jnp.asarray(x), None, 2)
    own = [stretch_points(stretch, jnp.asarray(piece)) for piece in x[:2, row]]
    together = Point(jnp.concatenate([y for y, _ in own], axis=-1), *(jnp.zeros((0, 2 * PIECE)),) * 2)
    whole = weigh(system, together._replace(log_ratio=jnp.concatenate([log_ratio for _, log_ratio in own])))
    found = jax.tree.map(lambda array: np.asarray(array)[:2], found)
    np.testing.assert_allclose(np.concatenate(found.q, axis=-1), whole.q[kept], rtol=1e-13)
    np.testing.assert_allclose(np.ravel(found.log_weight), whole.log_weight, rtol=1e-11)
    np.testing.assert_array_equal(np.ravel(found.code), whole.code)
    np.testing.assert_array_equal(np.concatenate(found.choice, axis=-1), whole.choice)
    np.testing.assert_array_equal(np.any(found.tied, axis=0), whole.tied)
    scale = np.exp(np.asarray(found.log_scale) - float(whole.log_scale))
    weight, mean = scale * np.asarray(found.weight), np.asarray(found.mean)
    square = scale[:, None] * np.asarray(found.square)
    assert weight.sum() == pytest.approx(float(whole.weight), rel=1e-9)
    first = (weight[:, None] * mean).sum(axis=0)
    np.testing.assert_allclose(first, whole.weight * whole.mean, rtol=1e-9, atol=1e-9)
    second = (square + weight[:, None] * mean**2).sum(axis=0)
    np.testing.assert_allclose(second, whole.square + whole.weight * whole.mean**2, rtol=1e-9, atol=1e-9)


def test_policies_are_counted_as_they_are_sorted(rng):
    """Codes below 2^16 are counted; the same ones further up are sorted."""
    codes = rng.integers(0, 50, size=1000).astype(np.uint64) ** np.uint64(2)
    codes[:2] = FEW_POLICIES - 1, 0
    for more in (0, 1):
        code, place, row = distinct(codes + np.uint64(more))
        np.testing.assert_array_equal(code, np.unique(codes + np.uint64(more)))
        np.testing.assert_array_equal(codes[place] + np.uint64(more), code)
        np.testing.assert_array_equal(code[row], codes + np.uint64(more))


class Recorded:
    """Arranged coordinates that say which points were asked for, and weigh made-up ones instead.

    So many scouts are effective, in the first nets, the second and so on: they weigh the same, and the others nothing.
    """

    def __init__(self, coordinates, made, plain=(0,), effective=(200,)):
        self.coordinates, self.made, self.plain, self.effective = coordinates, made, plain, effective
        self.dimension, self.weighed, self.scouts = 3, [], []

    def weigh(self, part, stretch=None):
        if part[-1] < 2**42:
            self.weighed.append((part, stretch))
            return self.made
        effective = self.effective[min(len(self.scouts), len(self.effective) - 1)]
        self.scouts.append(part)
        has_weight = np.arange(REPLICATES * PIECE).reshape(REPLICATES, PIECE) < effective
        return self.made._replace(log_weight=np.where(has_weight, 700.0, -np.inf))

    def learnt(self, part, weight):
        assert part == self.scouts[-1]
        np.testing.assert_array_equal(weight, np.arange(REPLICATES * PIECE) < self.effective[-1])
        return f"stretch {len(self.scouts)}"


def recorded_nets(rng, *arranged):
    """Nets of seed 5 whose components are given."""
    coordinates = bandit()
    made = made_up_pieces(rng, coordinates)[0]
    nets_ = Nets([coordinates], chart_of(coordinates), 5)
    nets_.arranged = [Recorded(coordinates, made, **told) for told in arranged]
    nets_.stretches = [None] * len(arranged)
    return nets_


def test_which_points_scouts_and_nets_take(rng):
    """Numbers of their own for each component and for its scouts; nets grow by as many points as they have."""
    found = recorded_nets(rng, {}, {"effective": (199, 200)}, {"plain": ()})
    found.scout(10)
    first, second, third = found.arranged
    assert first.scouts == [(3, 0, PIECE, 2, 5 + 2**42)]
    seed = 5 + 2**32 + 2**42
    assert second.scouts == [(3, 0, PIECE, 2, seed), (3, 0, PIECE, 32, seed)]
    assert (third.scouts, found.stretches) == ([], ["stretch 1", "stretch 2", None])
    sizes = [found.sample(log2_size) and found.size for log2_size in (0, 10, 12, 11)]
    assert sizes == [PIECE, PIECE, 4 * PIECE, 4 * PIECE]
    for k, (one, stretch) in enumerate(zip(found.arranged, found.stretches, strict=True)):
        begins = ((0, PIECE), (PIECE, PIECE), (2 * PIECE, 2 * PIECE))
        expected = [((3, begin, more, REPLICATES, 5 + k * 2**32), stretch) for begin, more in begins]
        assert one.weighed == expected
    at_once = recorded_nets(rng, {})
    at_once.sample(13)
    assert [part for part, _ in at_once.arranged[0].weighed] == [(3, 0, 8 * PIECE, REPLICATES, 5)]
    with pytest.raises(AssertionError, match="another law"):
        at_once.scout(10)


@pytest.mark.parametrize(("log2_size", "scouted"), [(0, 2), (10, 2), (11, 2), (12, 3), (13, 3)])
def test_no_more_scouts_than_points(rng, log2_size, scouted):
    """2, 32 and 128 nets of 1,024, if the pilot's 32 nets have as many points; in vain here."""
    found = recorded_nets(rng, {"effective": (199,)})
    found.scout(log2_size)
    assert [part[3] for part in found.arranged[0].scouts] == [2, 32, 128][:scouted]


def three_states():
    """Exact rewards of everything: nothing is integrated over. The states have one, two and three actions."""
    moves = {(s, f"a{k}"): Move(-1.0 - k, {"goal": 1.0}) for n, s in enumerate("abc") for k in range(n + 1)}
    return Dataset.complete(from_moves("three", moves, start="a"))


def test_what_is_certain_without_anything_to_integrate(rng):
    """All states but those where something tied; with a tolerance none is, and there is a resolution."""
    exact, relaxed = (Coordinates(relaxed_target(three_states(), epsilon, 2.0)) for epsilon in (0.0, 0.5))
    assert (exact.dimension, relaxed.dimension) == (0, 6)
    chart = chart_of(exact)
    states = np.asarray(chart.layout.state)
    tied = states == 1
    for coordinates, ties, certain in (
        (exact, np.zeros(3, dtype=bool), [True] * 3),
        (exact, tied, [True, False, True]),
        (relaxed, np.zeros(3, dtype=bool), [False] * 3),
    ):
        one = sums(rng, coordinates, 2.0, [0], tied=ties)
        found = nets._result(coordinates, chart, [one, sums(rng, coordinates, 2.0, [0])])
        assert found.table.certain.tolist() == certain
        assert found.diagnostics["ties_split"] == (["b"] if ties.any() else [])
        effective = found.effective_sample_size
        assert found.table.resolution == (0.0 if all(certain) else 1.0 / (effective + 2.0))
        whole = float(found.table.weight.sum())
        assert found.table.heaviest == pytest.approx(1.0 / whole)
        assert found.laws is None


def test_members_of_groups_that_are_drawn_below_their_prior(rng):
    """Two states whose two and three unobserved actions have a mean and an sd of their own; those of the second are
    drawn below what lingering is worth, so that their largest value says what each of them is."""
    moves = {(s, f"a{k}"): Move(-1.0, {"goal": 1.0}) for s, n in (("s", 3), ("t", 4)) for k in range(n)}
    model = from_moves("groups", moves, start="s")
    in_t = model.pair_state == model.state_index["t"]
    prior = ValuePrior(np.where(in_t, -2.0, 1.5), np.where(in_t, 0.5, 3.0))
    target = relaxed_target(Dataset.from_pairs(model, [("s", "a0"), ("t", "a0")]), 0.0, prior)
    shared = [model.pair_index["s", "a1"], model.pair_index["t", "a1"]]
    arranged = arranged_of(Coordinates(target, lingering=(Loop((1,), (shared[1],)),)))
    assert (arranged.shared.tolist(), arranged.lowered.tolist()) == (shared, shared[1:])
    made, _ = made_up_pieces(rng, arranged.coordinates)
    made = made._replace(q=rng.normal(-3.0, 1.0, size=(REPLICATES, 1, PIECE)))
    (call,) = reference_calls(pieces_of(arranged), arranged.groups, REPLICATES)
    found = arranged.with_members(made, call)
    weight = np.exp(made.log_weight - made.log_scale[:, None])
    largest = [1.5 + 3.0 * np.asarray(call.x)[:, 0], made.q[:, 0]]
    for pair, top, of in zip(shared, largest, (2, 3), strict=True):
        own = (np.array(of), prior.mean[pair], prior.sd[pair], np.zeros(()))
        first, second = member_moments(top, *(np.asarray(number) for number in own))
        total = np.where(made.weight > 0, made.weight, 1.0)
        mean = np.where(made.weight > 0, (weight * first).sum(axis=1) / total, prior.mean[pair])
        square = (weight * (second - 2.0 * mean[:, None] * first + mean[:, None] ** 2)).sum(axis=1)
        np.testing.assert_allclose(found.mean[:, pair], mean, rtol=1e-9)
        np.testing.assert_allclose(found.square[:, pair], square, rtol=1e-7, atol=1e-9)
    others = np.setdiff1d(np.arange(model.n_pairs), shared)
    np.testing.assert_array_equal(found.mean[:, others], made.mean[:, others])
    np.testing.assert_array_equal(found.square[:, others], made.square[:, others])


@pytest.mark.parametrize(
    ("effective", "scouted", "is_stretched"),
    [(16384, 1, False), (16383, 1, True), (200, 1, True), (199, 3, False), (0, 3, False)],
)
def test_how_even_weights_have_to_be_to_say_nothing(rng, effective, scouted, is_stretched):
    """Of 32,768 scouts half are even, and 200 enough, exactly at either limit; -inf throughout is nothing at all."""
    found = recorded_nets(rng, {"effective": (effective,)})
    found.scout(12)
    assert len(found.arranged[0].scouts) == scouted
    assert (found.stretches[0] is not None) == is_stretched
