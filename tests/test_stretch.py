"""Stretched normal points: their density, what is learnt of weights, and averages whose true value is known."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from exact_cells import Known, Seen, exact_probabilities, rational, stay
from scipy import stats

from bellmanifold.chart.batch import batch_chart
from bellmanifold.gaussian.points import normal_points, uniform_points
from bellmanifold.gaussian.stretch import BLOCK, CHANCE, PLAIN, Stretch, learn_stretch, stretch_points
from bellmanifold.posteriors import pieces
from bellmanifold.posteriors.cuts import covering
from bellmanifold.posteriors.estimated import effective_size, ratio
from bellmanifold.posteriors.inference import posterior
from bellmanifold.posteriors.nets import ENOUGH, EVEN, Nets
from bellmanifold.posteriors.pieces import PIECE, REPLICATES
from bellmanifold.posteriors.target import relaxed_target


def made_up(rng, coordinates, changed):
    """A map of some of the coordinates."""
    stretch = Stretch.none(coordinates)
    stretch.row[:changed] = np.sort(rng.permutation(coordinates)[:changed])
    stretch.centre[:changed] = rng.normal(size=changed)
    stretch.below[:changed], stretch.above[:changed] = rng.uniform(0.2, 1.5, size=(2, changed))
    return stretch


def test_without_a_map_points_stay_what_they_are_to_the_bit(rng):
    x = rng.normal(size=(11, 64))
    found, log_ratio = stretch_points(Stretch.none(11), jnp.asarray(x))
    np.testing.assert_array_equal(found, x)
    np.testing.assert_array_equal(log_ratio, 0.0)


@pytest.mark.parametrize("changed", [1, BLOCK, BLOCK + 1, 19])
def test_points_have_the_density_that_is_said(rng, changed):
    """Written plainly: halves of normal laws, of spreads of their own, side by side at the centre."""
    stretch, x = made_up(rng, 19, changed), rng.normal(size=(19, 64))
    found, log_ratio = (np.asarray(array) for array in stretch_points(stretch, jnp.asarray(x)))
    plain = 64 // PLAIN
    np.testing.assert_array_equal(found[:, :plain], x[:, :plain])
    log_density = np.zeros(64)
    for row, centre, below, above in zip(*(array[:changed] for array in stretch), strict=True):
        spread = np.where(x[row] < 0, below, above)
        np.testing.assert_allclose(found[row, plain:], (centre + spread * x[row])[plain:], rtol=1e-12)
        y = found[row]
        log_density += stats.norm.logpdf(y, centre, np.where(y < centre, below, above)) - stats.norm.logpdf(y)
    same = np.setdiff1d(np.arange(19), stretch.row[:changed])
    np.testing.assert_array_equal(found[same], x[same])
    np.testing.assert_allclose(-log_ratio, np.log(1 / PLAIN + (1 - 1 / PLAIN) * np.exp(log_density)), atol=1e-10)
    assert log_ratio.max() <= np.log(PLAIN), "no weight grows by more"


def test_coordinates_that_no_weight_depends_on_are_left_alone(rng):
    """Chance changes each of 300 with probability exp(-4) = 1.8%: more than 18 of them with probability 1e-5."""
    x, weight = rng.normal(size=(301, 4096)), rng.exponential(size=4096)
    assert CHANCE == 8.0
    found = learn_stretch(x, weight * np.exp(-x[300]), np.arange(301), 301)
    changed = found.row[found.row < 301]
    assert 300 in changed
    assert len(changed) <= 1 + 18
    assert found.centre[len(changed) - 1] == pytest.approx(-1.0, abs=0.2)


def test_a_map_is_learnt_number_by_number(rng):
    """Median and root mean squares of 512 points that stand for the weighed ones; three of four coordinates change."""
    x = rng.normal(size=(4, 400)) * np.array([0.4, 1.0, 2.0, 1.0])[:, None] + np.array([0.9, 0.0, -0.2, 0.0])[:, None]
    weight, changed = rng.exponential(size=400) * np.exp(x[3]), []
    found = learn_stretch(x, weight, np.array([2, 5, 7, 11]), 12)
    for row, own in zip([2, 5, 7, 11], x, strict=True):
        mean = np.average(own, weights=weight)
        sd = np.sqrt(np.average((own - mean) ** 2, weights=weight))
        if mean**2 + 2.0 * (sd - 1.0) ** 2 > 8.0 * (weight**2).sum() / weight.sum() ** 2:
            levels = [(k + 0.5) / 512 * weight.sum() for k in range(512)]
            drawn = own[[int(np.argmax(np.cumsum(weight) >= level)) for level in levels]]
            centre = np.median(drawn)
            sides = drawn[drawn < centre] - centre, drawn[drawn >= centre] - centre
            changed.append((row, centre, *(np.sqrt(np.mean(side**2)) for side in sides)))
    assert [row for row, *_ in changed] == [2, 7, 11]
    for array, numbers, rest in zip(found, zip(*changed, strict=True), (12, 0.0, 1.0, 1.0), strict=True):
        np.testing.assert_allclose(array[:3], numbers, rtol=1e-12)
        assert array[3:].tolist() == [rest] * 13


def test_a_marginal_that_is_one_point_has_some_spread_left():
    x = np.append(np.full(100, 0.5), np.linspace(-2.0, 2.0, 100))
    found = learn_stretch(x[None], np.repeat([1.0, 0.0], 100), np.array([2]), 3)
    assert (found.row[0], found.centre[0]) == (2, 0.5)
    assert found.below[0] == found.above[0] == 1e-3


# --- averages that are known ------------------------------------------------------------------------------------------


def two_modes(x):
    """The first coordinate has modes at -1.6 and 1.8, of masses 1 : 2, the second one has N(1/2, 1/4)."""
    first = stats.norm.pdf(x[0], -1.6, 0.3) + 2.0 * stats.norm.pdf(x[0], 1.8, 0.3)
    return first / stats.norm.pdf(x[0]) * stats.norm.pdf(x[1], 0.5, 0.5) / stats.norm.pdf(x[1])


def far_away(x):
    """The first coordinate lies 2.6 sds from where it was expected; the others hang together."""
    first = stats.norm.pdf(x[0], -2.6, 0.3) / stats.norm.pdf(x[0])
    return first * np.exp(-0.5 * (x[1] + x[2] - 1.0) ** 2)


def skewed(x):
    """Below 0 nothing, above 0 the tail of N(-4, 1); the second one has N(0, 1/5)."""
    return np.where(x[0] > 0, 1.0, 0.0) * np.exp(-4.0 * x[0] - 2.0 * x[1] ** 2)


LAW = {
    two_modes: (lambda x: (stats.norm.pdf(x, -1.6, 0.3) + 2.0 * stats.norm.pdf(x, 1.8, 0.3)) / 3.0, 0.5, 0.5),
    far_away: (lambda x: stats.norm.pdf(x, -2.6, 0.3), 1.0 / 3.0, np.sqrt(2.0 / 3.0)),
    skewed: (lambda x: np.where(x > 0, stats.norm.pdf(x, -4.0) / stats.norm.sf(4.0), 0.0), 0.0, np.sqrt(0.2)),
}
"""Density of the first coordinate once it is weighed; mean and sd of the second one, which is normal."""
LEVEL = {two_modes: 1.7, far_away: -2.5, skewed: 0.2}


def reached(weigh, x):
    """Whether the first coordinate is above a level, and above the second one less 1."""
    return np.stack([x[0] > LEVEL[weigh], x[0] > x[1] - 1.0]).astype(float)


def truth(weigh):
    """Both probabilities, by the midpoint rule with the level between two of its cells."""
    density, mean, sd = LAW[weigh]
    x = LEVEL[weigh] + 1e-4 * (np.arange(-100_000, 100_000) + 0.5)
    inside = density(x) * 1e-4
    assert inside.sum() == pytest.approx(1.0, abs=1e-7)
    return np.array([inside[x > LEVEL[weigh]].sum(), inside @ stats.norm.cdf(x + 1.0, mean, sd)])


@pytest.mark.parametrize(
    "weigh",
    [two_modes, *(pytest.param(weigh, marks=pytest.mark.slow) for weigh in (far_away, skewed))],
    ids=lambda weigh: weigh.__name__,
)
def test_averages_of_stretched_points_and_their_errors(weigh):
    """50 maps, each learnt from points of its own, and 32 nets stretched by each: two averages against the truth.

    Their distances in standard errors are like Student's t with 31 degrees of freedom: of 50, the mean exceeds 0.6 with
    probability 3e-5, and the sd lies outside 0.65 to 1.45 with probability 2e-4; 6 averages: 0.2% in all.
    """
    exact, distance, share = truth(weigh), [], []
    for seed in range(50):
        pilot = normal_points(uniform_points(3, 0, PIECE, 64, 1000 + seed))
        assert effective_size(weigh(pilot)) > ENOUGH
        stretch = learn_stretch(pilot, weigh(pilot), np.arange(3), 3)
        x = normal_points(uniform_points(3, 0, PIECE, REPLICATES, seed))
        plain = weigh(x)
        found = [stretch_points(stretch, jnp.asarray(piece)) for piece in np.split(x, REPLICATES, axis=1)]
        y, log_ratio = (np.concatenate(part, axis=-1) for part in zip(*found, strict=True))
        weight = weigh(y) * np.exp(log_ratio)
        share.append((effective_size(plain) / x.shape[1], effective_size(weight) / x.shape[1]))
        part = (weight * reached(weigh, y)).reshape(2, REPLICATES, -1).sum(axis=-1).T
        estimate = ratio(part, weight.reshape(REPLICATES, -1).sum(axis=1))
        distance.append((estimate.value - exact) / estimate.se)
    before, after = np.mean(share, axis=0)
    assert after > {two_modes: 1.2, far_away: 20.0, skewed: 2.5}[weigh] * before
    assert (np.abs(np.mean(distance, axis=0)) < 0.6).all()
    spread = np.std(distance, axis=0, ddof=1)
    assert ((spread > 0.65) & (spread < 1.45)).all(), spread


# --- in posteriors ----------------------------------------------------------------------------------------------------


def expensive_ways(more=0.0):
    """Four ways from one state to two others, all so expensive that these must be worth much: 2 sds of the prior."""
    pays = {"a": (-2.5, -2.7), "b": (-2.3, -2.4)}
    seen = {
        ("s", f"{to}{k}"): Seen(rational(cost - more), {to: Fraction(1)})
        for to in pays
        for k, cost in enumerate(pays[to])
    }
    return Known(seen, {"a": 1, "b": 1})


def leaky_loops():
    """Two loops that leak: the untried action of b is worth less than staying there, a mode of its own, or more."""
    pays, stays = rational("-1.5") * rational("0.02"), 1 - rational("0.02")
    other = rational("0.1")
    seen = {
        ("a", "stay"): Seen(pays, {"a": stays * (1 - other), "b": stays * other}),
        ("b", "stay"): Seen(pays, {"b": stays}),
    }
    return Known(seen, {"a": 1, "b": 1})


def nets_of(known, seed=0):
    """Nets of its exact posterior under a prior of scale 1."""
    model = known.model
    target = relaxed_target(known.data(model), 0.0, 1.0)
    return Nets(covering(target).ways[0], batch_chart(model), seed)


def pieces_of(nets):
    """The first component, and a piece of points in each replicate."""
    (arranged,) = nets.arranged
    return arranged, (arranged.dimension, 0, PIECE, REPLICATES, 3)


def scouted(nets, log_factor=0.0):
    """How scouts stretch the points if their weights are multiplied; the least one's becomes 0."""
    (arranged,) = nets.arranged
    weigh = arranged.weigh

    def multiplied(part, stretch=None):
        found = weigh(part, stretch)
        log_weight = found.log_weight + log_factor
        log_weight.flat[log_weight.argmin()] = -np.inf
        return found._replace(log_weight=log_weight)

    arranged.weigh = multiplied
    nets.scout(12)
    return nets.stretches[0]


def values_of(known, untried):
    """What an untried value is, point by point, and how it weighs."""
    nets = nets_of(known)
    arranged, part = pieces_of(nets)
    row = arranged.row[known.model.pair_index[untried]]
    calls = pieces.reference_calls(part, arranged.groups, arranged.pieces)
    x = np.concatenate([np.asarray(call.x)[:, row].ravel() for call in calls])
    log_weight = arranged.weigh(part).log_weight.ravel()
    return x, np.exp(log_weight - log_weight.max())


def test_the_problems_are_what_they_should_be():
    """Values far out in the prior, and a marginal with two modes: less where the loop begins to be left than aside."""
    x, weight = values_of(expensive_ways(), ("a", "untried0"))
    assert np.average(x, weights=weight) > 1.6
    x, weight = values_of(leaky_loops(), ("b", "untried0"))
    low, between, high = (weight[(x > at - 0.15) & (x < at + 0.15)].sum() for at in (-1.7, -1.2, 0.0))
    assert between < 0.5 * min(low, high)


@pytest.mark.parametrize(
    ("problem", "least"), [pytest.param(expensive_ways, 0.8, marks=pytest.mark.slow), (leaky_loops, 0.5)]
)
def test_posteriors_of_stretched_points_are_right(problem, least):
    """All probabilities and the evidence against exact cells, with 50 seeds.

    Distances in standard errors are like Student's t with 31 degrees of freedom: of 50, the mean exceeds 0.6 with
    probability 3e-5, the sd lies outside 0.65 to 1.45 with probability 2e-4: for 3 different numbers of each, 0.2%.
    """
    known = problem()
    exact, log_evidence = exact_probabilities(known)
    model, distance, shares = known.model, [], []
    for seed in range(50):
        found = posterior(model, known.data(model), prior_scale=1.0, engine="chart", samples=2**15, seed=seed)
        assert found.trustworthy
        shares.append(found.effective_sample_size / 2**15)
        decided = [(found.action_probability[key], exact[key]) for key in known.seen if 0.01 < exact[key] < 0.99]
        numbers = [*decided, (found.log_evidence, log_evidence)]
        distance.append([float((estimate.value - true) / estimate.se) for estimate, true in numbers])
    assert min(shares) > least
    assert effective_share(nets_of(known)) < EVEN
    assert (np.abs(np.mean(distance, axis=0)) < 0.6).all()
    spread = np.std(distance, axis=0, ddof=1)
    assert ((spread > 0.65) & (spread < 1.45)).all(), spread


def effective_share(nets):
    """The effective share of points that are not stretched."""
    drawn = nets.sample(10)
    return drawn.effective_sample_size / drawn.diagnostics["points"]


def test_values_that_have_to_be_large_are_stretched():
    """Which of the coordinates: those of the two states that must be worth much."""
    nets = nets_of(expensive_ways())
    stretch = scouted(nets)
    pair = nets.components[0].target.model.pair_index
    assert stretch.row[:2].tolist() == [pair["a", "untried0"], pair["b", "untried0"]]


def test_the_scale_of_weights_says_nothing():
    """One point without any weight, and a factor of e^-2000, which would underflow, change nothing; no weight does."""
    stretch, again = (scouted(nets_of(expensive_ways()), log_factor) for log_factor in (0.0, -2000.0))
    for one, other in zip(stretch, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    assert scouted(nets_of(expensive_ways()), -np.inf) is None


def test_coins_are_not_stretched():
    """One state, one loop that is hardly ever left: weights depend on its coin, only the exit's value may change."""
    known = Known({("s", "stay"): stay(rational("-3.6e-6"), rational("1e-6"), "s")}, {"s": 1})
    nets = nets_of(known)
    assert len(nets.components[0].lingering) == 1
    arranged, part = pieces_of(nets)
    log_weight = arranged.weigh(part).log_weight.ravel()
    stretch = arranged.learnt(part, np.exp(log_weight - log_weight.max()))
    changed = stretch.row[stretch.row < len(arranged.row)]
    assert changed.tolist() == [known.model.pair_index["s", "untried0"]]


def test_scouts_are_none_of_the_points_they_stretch():
    """They are scrambled in another way: a map that knew the points themselves would make errors look small."""
    pieces._kept.clear()
    nets = nets_of(expensive_ways())
    nets.scout(12)
    scouts = {part[-1] for part, _, _ in pieces._kept}
    nets.sample(12)
    seeds = {part[-1] for part, _, _ in pieces._kept} - scouts
    assert len(scouts) == len(seeds) == 1


def test_pairs_that_stand_for_several_and_coins_keep_their_law():
    """Of two states with an untried action and with three of them only the first one is stretched."""
    known = Known(expensive_ways().seen, {"a": 1, "b": 3})
    nets = nets_of(known)
    nets.scout(12)
    (stretch,) = nets.stretches
    changed = stretch.row[stretch.row < known.model.n_pairs]
    assert changed.tolist() == [known.model.pair_index["a", "untried0"]]


def test_scouts_come_before_the_points_and_are_no_more_than_they():
    """About 100 of 32,768 points are effective, too few to say anything; of 131,072, 400."""
    for log2_size, scouted in ((0, False), (10, False), (12, True)):
        nets = nets_of(expensive_ways(more=0.7))
        nets.scout(log2_size)
        assert (nets.stretches[0] is not None) == scouted
    nets.sample(10)
    with pytest.raises(AssertionError, match="already"):
        nets.scout(12)


def test_points_at_the_centre_count_as_above_it():
    """A half of the weight at the centre, a quarter a distance of 1 on either side: root mean squares of 1, 1 / 3."""
    x = np.repeat([-0.5, 0.5, 1.5, 9.0], [128, 256, 128, 512])
    found = learn_stretch(x[None], np.where(x < 9.0, 1.0, 0.0), np.array([0]), 1)
    assert (found.row[0], found.centre[0], found.below[0]) == (0, 0.5, 1.0)
    assert found.above[0] == pytest.approx(np.sqrt(1.0 / 3.0), rel=1e-12)
