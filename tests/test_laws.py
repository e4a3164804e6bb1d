"""Open laws number by number: every formula once more in plain loops, with generators that say what they are asked."""

import re
from dataclasses import replace

import numpy as np
import pytest
from open_quadrature import log_landings, open_model
from scipy import stats
from scipy.sparse import csr_array
from scipy.special import logsumexp

from bellmanifold.errors import BadInputError
from bellmanifold.posteriors import laws as of_laws
from bellmanifold.posteriors.laws import check_laws, close_laws, log_dirichlet, log_gamma, open_laws
from bellmanifold.posteriors.sparse_laws import LEFT, Drawer, SparseLaws
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

COUNTS = np.array([[0.0, 3, 0, 2, 0, 1], [0, 0, 0, 0, 0, 0], [4, 0, 0, 0, 1, 0]])
KNOTS, PRIOR = np.array([0.7, 2.5]), np.array([0.6, 0.4])
PAIRS = [("s", "a"), ("s", "b"), ("t", "a"), ("t", "c"), ("u", "a")]
MODEL = open_model(["s", "t", "u"], PAIRS, [(("t", "c"), {"u": 0.3, "goal": 0.7})])


class Told(np.random.Generator):
    """A generator whose numbers are given."""

    def __init__(self, gumbel=(), gamma=1.0, uniform=0.5):
        super().__init__(np.random.PCG64(0))
        self.told, self.gamma, self.uniform, self.shapes = np.asarray(gumbel, dtype=float), gamma, uniform, []

    def gumbel(self, size):
        columns = self.told[:, None] if isinstance(size, tuple) else self.told
        return np.broadcast_to(columns, size)

    def standard_gamma(self, shape):
        self.shapes.append(shape)
        return np.full(np.shape(shape), self.gamma)

    def random(self, size):
        return np.full(size, self.uniform)


def learnt(counts=COUNTS, concentration=None, **options):
    return open_laws(csr_array(counts), np.arange(len(counts)), concentration, **options)


def two_values(laws):
    """The same where the concentration has one of two values."""
    return replace(laws, concentration=KNOTS, log_prior=np.log(PRIOR), log_posterior=np.zeros(2))


def assert_log_odds(drawn, log_odds):
    """The first of two values wins as soon as it is ahead by the log odds of the second, and not before."""
    for ahead, expected in ((1e-6, KNOTS[0]), (-1e-6, KNOTS[1])):
        assert np.all(drawn(Told([log_odds + ahead, 0.0])) == expected)


def test_gamma_numbers_of_small_shapes():
    """log G(c + 1) + log(U) / c; Dirichlet numbers add up to 1 along the second axis."""
    rng, shape = Told(gamma=2.5, uniform=0.3), np.array([0.2, 3.0])
    np.testing.assert_allclose(log_gamma(rng, shape), np.log(2.5) + np.log(0.7) / shape)
    np.testing.assert_allclose(rng.shapes[0], shape + 1.0)
    shape = np.array([0.5, 1.5, 4.0])[None, :, None] * np.ones((2, 3, 2))
    drawn = log_dirichlet(Told(uniform=0.3), shape)
    np.testing.assert_allclose(np.exp(drawn).sum(axis=1), 1.0)
    np.testing.assert_allclose(drawn[1, 2, 1] - drawn[1, 0, 1], np.log(0.7) * (1 / 4.0 - 1 / 0.5))


def test_landings_fill_an_urn():
    """Each one adds itself to its base weight: the product of chances in order, row by row."""
    for a, found in zip(KNOTS, of_laws.log_landings(csr_array(COUNTS), KNOTS), strict=True):
        expected = sum(log_landings(a, row) for row in COUNTS)
        urn = 0.0
        for row in COUNTS:
            weight = np.full(6, a / 6)
            for landing in np.repeat(np.arange(6), row.astype(int)):
                urn += np.log(weight[landing] / weight.sum())
                weight[landing] += 1.0
        assert found == pytest.approx(expected) == pytest.approx(urn)


def test_what_is_known_of_the_concentration():
    """Trapezoidal weights of knots that are even in logarithms, times the density of all landings, solved or not."""
    rows = np.array([0, 2])
    laws = open_laws(csr_array(COUNTS), rows, discount=0.9, follows=False)
    np.testing.assert_allclose(np.diff(np.log(laws.concentration)), np.log(1e4) / 128)
    assert (laws.concentration[0], laws.concentration[-1]) == (pytest.approx(1e-3), pytest.approx(10.0))
    share = np.ones(129) / 128
    share[0] = share[-1] = 1 / 256
    others = np.array([log_landings(a, COUNTS[1]) for a in laws.concentration])
    solved = np.array([sum(log_landings(a, COUNTS[row]) for row in rows) for a in laws.concentration])
    np.testing.assert_allclose(laws.log_prior, np.log(share) + others)
    joint = np.log(share) + others + solved
    assert laws.log_evidence == pytest.approx(logsumexp(joint))
    np.testing.assert_allclose(laws.log_posterior, joint - logsumexp(joint))
    p = np.exp(laws.log_posterior)
    mean = p @ laws.concentration
    assert laws.moments == (pytest.approx(mean), pytest.approx(np.sqrt(p @ laws.concentration**2 - mean**2)))
    np.testing.assert_array_equal(laws.counts, COUNTS[rows])
    assert (laws.discount, laws.follows, laws.nexts) == (0.9, False, 6)
    given = learnt(concentration=0.3)
    assert given.moments == (pytest.approx(0.3), 0.0)
    assert given.log_evidence == pytest.approx(sum(log_landings(0.3, row) for row in COUNTS))


def test_rows_that_matter_and_landings_that_are_followed():
    """All rows and what was seen of them; agents hold rows without a landing, too, and follow none."""
    laws = learnt()
    assert laws.active.tolist() == [0, 1, 2]
    assert [(int(row), int(state)) for row, state in zip(*laws.seen, strict=True)] == [
        (0, 1), (0, 3), (0, 5), (2, 0), (2, 4),
    ]  # fmt: skip
    held = learnt(follows=False)
    assert held.active.tolist() == [0, 2]
    assert [len(part) for part in held.seen] == [0, 0]
    drawn = held.draw(np.random.default_rng(3), KNOTS)
    np.testing.assert_allclose(drawn[1], -np.log(6.0))
    shape = COUNTS[[0, 2]][:, :, None] + KNOTS / 6
    np.testing.assert_allclose(drawn[[0, 2]], log_dirichlet(np.random.default_rng(3), shape))


@pytest.mark.parametrize("states", [63, 64])
def test_mean_laws(states):
    """(n + a b) / (n. + a) as tables of up to 64 next states; beyond, where it was seen to lead, and a at the goal."""
    counts = np.zeros((2, states + 1))
    counts[0, [2, 5]], counts[1, states] = [3.0, 1.0], 2.0
    laws = learnt(counts, 0.8)
    assert laws.fits_batch == (states == 63)
    weight = counts + 0.8 / 64 if laws.fits_batch else counts.copy()
    if not laws.fits_batch:
        weight[:, -1] += 0.8
    rows = laws.mean_rows()
    np.testing.assert_allclose(rows.toarray(), weight / weight.sum(axis=1, keepdims=True))
    assert rows.has_sorted_indices
    assert rows.nnz == (2 * 64 if laws.fits_batch else 4)


@pytest.mark.parametrize("gone", [[False] * 3, [False, True, False], [True, False, True]])
def test_log_odds_of_concentrations_given_laws(gone):
    """Densities of Dirichlet laws, and of landings where the law is forgotten."""
    law = np.random.default_rng(8).dirichlet(np.ones(6), size=3)
    laws = two_values(learnt())
    log_odds = np.log(PRIOR[1] / PRIOR[0])
    for row, is_gone in enumerate(gone):
        first, second = (
            log_landings(a, COUNTS[row]) if is_gone else stats.dirichlet.logpdf(law[row], np.full(6, a / 6))
            for a in KNOTS
        )
        log_odds += second - first
    batch, of_all = np.log(np.stack([law, law], axis=2)), np.stack([gone, gone], axis=1)
    assert_log_odds(lambda rng: laws.concentration_given(rng, batch, of_all), log_odds)
    assert learnt(concentration=0.7).concentration_given(Told(), batch, of_all).tolist() == [0.7, 0.7], (
        "nothing to draw"
    )


def test_log_odds_of_concentrations_given_sticks():
    """Beta densities of the fresh shares of rows with landings, and of all sticks."""
    drawer = Drawer(two_values(learnt()))
    broken = [np.array([0.3, 0.6]), np.array([0.2, 0.5, 0.1]), np.array([0.8])]
    fresh = np.array([0.15, 1.0, 0.4])
    point = SparseLaws(
        csr_array(COUNTS), 1.3, np.log(fresh), np.array([2, 3, 1]), np.array([np.log1p(-b).sum() for b in broken])
    )
    log_density = np.log(PRIOR) + of_laws.log_landings(csr_array(COUNTS), KNOTS)
    for k, a in enumerate(KNOTS):
        for row in (0, 2):
            log_density[k] += stats.beta.logpdf(fresh[row], a, COUNTS[row].sum())
        log_density[k] += sum(stats.beta.logpdf(b, 1.0, a).sum() for b in broken)
    assert_log_odds(lambda rng: drawer.concentration_given(rng, point), log_density[1] - log_density[0])
    nothing_left = replace(point, log_left=np.array([0.0, -np.inf, 0.0]))
    assert drawer.concentration_given(Told([0.0, 0.0]), nothing_left) == KNOTS[0]
    assert Drawer(learnt(concentration=0.7)).concentration_given(Told(), point) == 0.7, "nothing to draw"


def broken_by_hand(rng, counts, a, rows):
    """Gamma shares of landings, then stick after stick: log F, laws, sticks and what they leave, for some rows."""
    row, landing = np.nonzero(counts)
    seen = rng.standard_gamma(counts[row, landing])
    gamma = log_gamma(rng, np.full(len(counts), a))
    law, log_fresh = np.zeros(counts.shape), np.zeros(len(counts))
    left, sticks, log_left = {}, np.zeros(len(counts), dtype=int), np.zeros(len(counts))
    for i in range(len(counts)):
        total = seen[row == i].sum() if i in rows else 0.0
        log_fresh[i] = gamma[i] - np.logaddexp(gamma[i], np.log(total)) if total else 0.0
        if i in rows:
            left[i] = np.exp(log_fresh[i])
            law[i, landing[row == i]] = seen[row == i] / total * (1.0 - left[i]) if total else 0.0
    while long := [i for i in sorted(left) if left[i] > LEFT]:
        kept, where = rng.random(len(long)) ** (1.0 / a), rng.integers(counts.shape[1], size=len(long))
        for i, share, state in zip(long, kept, where, strict=True):
            law[i, state] += left[i] * (1.0 - share)
            left[i] *= share
            sticks[i] += 1
            log_left[i] += np.log(share)
    for i, rest in left.items():
        law[i, -1] += rest
    return law, log_fresh, sticks, log_left


@pytest.mark.parametrize("rows", [None, [2], [0, 1]])
def test_sticks_by_hand(rows):
    found = Drawer(learnt(concentration=1.7)).draw(
        np.random.default_rng(11), 1.7, None if rows is None else np.array(rows)
    )
    own = range(3) if rows is None else rows
    law, log_fresh, sticks, log_left = broken_by_hand(np.random.default_rng(11), COUNTS, 1.7, own)
    np.testing.assert_allclose(found.law.toarray(), law, rtol=1e-12)
    np.testing.assert_allclose(found.law.toarray()[:, -1], law[:, -1], rtol=1e-9)
    np.testing.assert_allclose(found.log_fresh, log_fresh)
    assert found.sticks.tolist() == sticks.tolist()
    np.testing.assert_allclose(found.log_left, log_left)
    assert found.concentration == 1.7
    assert found.law.has_canonical_format


def test_every_law_reaches_the_goal():
    """Where a stick takes all that is left, the smallest number remains."""
    told = Told(gamma=2.0)
    told.random = lambda size: np.zeros(size)
    told.integers = lambda most, size: np.zeros(size, dtype=np.int64)
    law = Drawer(learnt(concentration=0.5)).draw(told, 0.5).law.toarray()
    assert law[1].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 1e-300]


def test_a_concentration_given_landings_alone_takes_one_number():
    drawer, rng, again = Drawer(learnt()), np.random.default_rng(5), np.random.default_rng(5)
    found, (first,) = drawer.draw(rng), again.choice(drawer.laws.concentration, 1, p=np.exp(drawer.laws.log_posterior))
    assert found.concentration == first
    np.testing.assert_array_equal(found.law.toarray(), drawer.draw(again, float(first)).law.toarray())
    assert rng.random() == again.random()


def test_laws_are_carried_by_pair():
    """Rows of the same pairs, as they were unless more landings were seen; other pairs are drawn anew."""
    counts = np.zeros((9, 6))
    counts[[2, 5, 7]] = [[0, 2, 0, 0, 0, 1], [3, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 0]]
    before = Drawer(open_laws(csr_array(counts), np.array([2, 5, 7]), 0.9))
    old = replace(before.draw(np.random.default_rng(1), 0.9), concentration=1.1)
    counts[5, 2], counts[4, 0] = 1.0, 1.0
    drawer = Drawer(open_laws(csr_array(counts), np.array([2, 4, 5, 7]), 0.9))
    drawn = drawer.draw(np.random.default_rng(2), 1.1)
    found = drawer.carry(np.random.default_rng(2), before, old)
    for row, source in ((0, 0), (3, 2)):
        np.testing.assert_array_equal(found.law.toarray()[row], old.law.toarray()[source])
        for name in ("log_fresh", "sticks", "log_left"):
            assert getattr(found, name)[row] == getattr(old, name)[source]
    for row in (1, 2):
        np.testing.assert_array_equal(found.law.toarray()[row], drawn.law.toarray()[row])
        for name in ("log_fresh", "sticks", "log_left"):
            assert getattr(found, name)[row] == getattr(drawn, name)[row]
    assert found.concentration == 1.1


@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_laws_are_put_into_the_problem(discount):
    """Multiplied by the discount, the rest leads to the goal; other pairs keep their laws."""
    seen = [Observation("s", "b", -1.0, next="t"), Observation("u", "a", -1.0, next="goal")]
    model, laws, _ = close_laws(Dataset.from_pairs(MODEL.discounted(discount), seen), "dirichlet", 0.9)
    assert (laws.discount, laws.pairs.tolist()) == (discount, [1, 4])
    drawn = Drawer(laws).draw(np.random.default_rng(4), 0.9)
    found = drawn.apply(laws, model)
    for pair in range(5):
        law = np.zeros(4)
        np.add.at(law, found.next_state[found.next_pair == pair], found.next_prob[found.next_pair == pair])
        if pair in (1, 4):
            expected = discount * drawn.law.toarray()[[1, 4].index(pair)] + [0, 0, 0, 1 - discount]
        else:
            expected = [0, 0, 0.3 * discount, 1 - 0.3 * discount] if pair == 3 else [0, 0, 0, 1.0]
        np.testing.assert_allclose(law, expected, rtol=1e-12)


# --- closing a problem ----------------------------------------------------------------------------------------------


def seen(*moves):
    """What was seen: state, action, reward and where it led."""
    return Dataset.from_pairs(MODEL, [Observation(*move[:3], next=move[3]) for move in moves])


def rows_of(model):
    """The law of every pair, by state; the goal last."""
    laws = np.zeros((model.n_pairs, model.n_states + 1))
    laws[model.next_pair, model.next_state] = model.next_prob
    return laws


GIVEN = [0.0, 0.0, 0.3, 0.7]
GOAL = [0.0, 0.0, 0.0, 1.0]


def test_deterministic_laws_lead_where_they_led():
    """A landing suffices, with or without a reward; given laws stay, pairs without a landing lead to the goal."""
    data = seen(("s", "b", -1.0, "t"), ("t", "a", None, "s"), ("t", "c", -2.0, "u"), ("s", "b", -1.0, "t"))
    model, laws, unknown = close_laws(data, "deterministic")
    assert laws is None
    np.testing.assert_allclose(rows_of(model), [GOAL, [0, 1, 0, 0], [1, 0, 0, 0], GIVEN, GOAL])
    assert unknown.tolist() == [True, False, False, False, True]


def test_dirichlet_laws_are_learnt_where_rewards_were_seen():
    data = seen(("s", "b", -1.0, "t"), ("t", "a", None, "s"), ("t", "c", -2.0, "u"))
    model, laws, unknown = close_laws(data, "dirichlet", 0.8)
    assert laws.pairs.tolist() == [1]
    np.testing.assert_array_equal(laws.counts, [[0, 1, 0, 0]])
    assert laws.follows
    assert laws.log_evidence == pytest.approx(2 * np.log(0.25)), "the landing without a reward counts, too"
    np.testing.assert_allclose(rows_of(model), [GOAL, np.array([0.2, 1.2, 0.2, 0.2]) / 1.8, GOAL, GIVEN, GOAL])
    assert unknown.tolist() == [True, False, True, False, True]
    model, laws, unknown = close_laws(data, "dirichlet", 0.8, all_rows=True)
    assert laws.pairs.tolist() == [0, 1, 2, 4]
    assert not laws.follows
    assert not unknown.any()
    np.testing.assert_allclose(rows_of(model)[[0, 2]], [[0.25] * 4, np.array([1.2, 0.2, 0.2, 0.2]) / 1.8])


def test_when_landings_say_something():
    """Rewards of pairs with open laws, or landings; agents ask for rows once there is a reward."""
    landing, nothing = seen(("t", "a", None, "s")), seen(("t", "c", -2.0, "u"))
    assert len(close_laws(landing, "dirichlet", 0.8)[1].pairs) == 0
    assert close_laws(landing, "dirichlet", 0.8)[1].log_evidence == pytest.approx(np.log(0.25))
    assert close_laws(nothing, "dirichlet", 0.8)[1] is None
    assert close_laws(landing, "dirichlet", 0.8, all_rows=True)[1] is None
    lost = seen(("u", "a", -1.0, None))
    assert close_laws(lost, "dirichlet", 0.8)[1].pairs.tolist() == [4]
    assert close_laws(lost, "dirichlet", 0.8, all_rows=True)[1].pairs.tolist() == [0, 1, 2, 4]
    whole = close_laws(nothing, "known")[0]
    assert close_laws(Dataset.from_pairs(whole, []), "dirichlet", 0.8) == (whole, None, None), "no law is open"


def test_refusals_name_the_first_pair_and_its_first_observation():
    fine, lost = ("t", "c", -2.0, "u"), ("u", "a", -1.0, None)
    cases = [
        ("known", [fine, ("s", "b", -1.0, "t")], 'observations[1]: pair ("s", "b") was observed, but its transition'),
        ("deterministic", [fine, fine, lost], 'observations[2]: pair ("u", "a") was observed, but not where it led'),
        (
            "deterministic",
            [("s", "b", -1.0, "t"), ("t", "a", -1.0, "u"), lost, ("t", "a", -1.0, "s")],
            'observations[1]: pair ("t", "a") led to "s" and to "u", so the problem is not deterministic',
        ),
    ]
    for laws, moves, told in cases:
        with pytest.raises(BadInputError, match=re.escape(told)):
            check_laws(seen(*moves), laws)
        check_laws(seen(*moves), "dirichlet")
    check_laws(seen(fine), "known")
    check_laws(seen(("t", "a", None, "s")), "known")
    with pytest.raises(BadInputError, match='give laws="dirichlet" too'):
        close_laws(seen(fine), "known", 1.0)
