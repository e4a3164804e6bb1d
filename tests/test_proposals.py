"""Laws that chains propose, and what is carried from chain to chain: by plain loops, with the same random numbers."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from open_quadrature import open_model
from scipy.sparse import csr_array

from bellmanifold.chart.batch import batch_chart
from bellmanifold.posteriors.batch_walk import CHEAP, BatchWalker, Proposals, draw_proposals, init, swap_laws
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.laws import close_laws, log_dirichlet, log_gamma, open_laws
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.sparse_system import SparseSystem, State
from bellmanifold.posteriors.sparse_walk import SparseWalker, _accept_laws, _swap_idle, propose_laws
from bellmanifold.posteriors.system import Drawn
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.trace import Trace
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.posteriors.walker import Walker
from bellmanifold.posteriors.weight import weigh_normals
from bellmanifold.problem.dataset import Dataset

COUNTS = np.array([[0.0, 3, 1, 0], [2, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 4]])


def learnt(counts=COUNTS, pairs=None, **options):
    """Open laws of some pairs, by default of all."""
    whole = np.zeros((12, counts.shape[1]))
    pairs = np.arange(len(counts)) if pairs is None else np.array(pairs)
    whole[pairs] = counts
    return open_laws(csr_array(whole), pairs, 0.9, **options)


def test_proposals_by_hand():
    """In every step the laws of four pairs: two anew, two with one gamma number multiplied."""
    laws, concentration = learnt(follows=False), np.array([0.4, 1.3, 6.0])
    found = draw_proposals(np.random.default_rng(3), laws, 5, concentration)
    rng = np.random.default_rng(3)
    row, landing = rng.choice([0, 1, 3], size=(5, 4)), rng.integers(4, size=(5, 4))
    shape = np.array([COUNTS[row[step, place]][:, None] + concentration / 4 for step in range(5) for place in (0, 2)])
    anew = log_dirichlet(rng, shape).reshape(5, 2, 4, 3)
    total = log_gamma(rng, COUNTS[row].sum(axis=2)[:, :, None] + concentration)
    width = np.exp(rng.uniform(np.log(0.1), np.log(10.0), (5, 4, 3)))
    shift = width * rng.standard_normal((5, 4, 3))
    np.testing.assert_array_equal(found.row, row)
    np.testing.assert_array_equal(found.landing, landing)
    np.testing.assert_array_equal(found.is_local, [[False, True, False, True]] * 5)
    np.testing.assert_allclose(found.log_law[:, [0, 2]], anew)
    np.testing.assert_allclose(found.log_total, total)
    np.testing.assert_allclose(found.shift, shift)
    for step in range(5):
        for place in range(4):
            own = COUNTS[row[step, place], landing[step, place]] + concentration / 4
            np.testing.assert_allclose(found.shape[step, place], own)


@pytest.mark.parametrize("is_local", [True, False])
def test_what_a_proposal_makes_of_a_law(is_local):
    """Anew: as drawn. Locally: one of its gamma numbers times e^d, with the ratio of densities of its logarithm."""
    rng = np.random.default_rng(6)
    laws = np.log(rng.dirichlet(np.ones(4), size=(3, 2)).transpose(0, 2, 1))
    total, shift, shape = np.array([2.5, 0.3]), np.array([0.7, -1.1]), np.array([1.4, 0.2])
    anew = np.log(rng.dirichlet(np.ones(4), size=2).T)
    parts = (np.array(1), anew, np.array(is_local), np.array(2), shape, np.log(total), shift)
    found, ratio = Proposals(*(jnp.asarray(part) for part in parts)).apply(jnp.asarray(laws))
    if not is_local:
        np.testing.assert_array_equal(found, anew)
        assert ratio.tolist() == [0.0, 0.0]
        return
    for chain in range(2):
        gammas = total[chain] * np.exp(laws[1, :, chain])
        was = gammas[2]
        gammas[2] *= np.exp(shift[chain])
        np.testing.assert_allclose(np.exp(found[:, chain]), gammas / gammas.sum())
        log_density = [shape[chain] * np.log(g) - g for g in (was, gammas[2])]
        assert float(ratio[chain]) == pytest.approx(log_density[1] - log_density[0])


def test_dense_laws_are_carried_by_pair():
    """Where not a single landing is new; other pairs, and pairs with news, are drawn."""
    before, after = learnt(COUNTS[[0, 1, 3]], [2, 5, 7]), COUNTS[[0, 0, 1, 3]].copy()
    after[2, 3] += 1.0
    later = learnt(after, [2, 4, 5, 7])
    own, drawn = (np.random.default_rng(seed).random((rows, 4, 3)) for seed, rows in ((1, 3), (2, 4)))
    concentration = jnp.full((1, 3), 0.3)
    walker = SimpleNamespace(laws=before, point=SimpleNamespace(log_law=jnp.asarray(own)))
    found = BatchWalker.carry_laws(walker, later, Drawn(jnp.asarray(drawn), concentration))
    np.testing.assert_array_equal(found.log_law, [own[0], drawn[1], drawn[2], own[2]])
    assert found.concentration is concentration
    others = learnt(COUNTS[:1], [9])
    alone = Drawn(jnp.asarray(drawn[:1]), concentration)
    np.testing.assert_array_equal(BatchWalker.carry_laws(walker, others, alone).log_law, drawn[:1])
    none = SimpleNamespace(laws=None, point=SimpleNamespace(log_law=None))
    assert BatchWalker.carry_laws(none, others, alone) is alone


def test_how_many_steps_laws_are_drawn_for_and_how_long_a_sweep_is():
    """Five where all laws of all chains have no more than 2^16 numbers, else ten; eight pairs are visited in a step."""
    laws = SimpleNamespace(counts=np.zeros((4, 16)))
    for chains, steps in ((CHEAP // 64, 5), (CHEAP // 64 + 1, 10)):
        assert BatchWalker.stretch.fget(SimpleNamespace(laws=laws, chains=chains)) == steps
    assert BatchWalker.stretch.fget(SimpleNamespace(laws=None, chains=2)) == 10
    for pairs, steps in ((0, 0), (1, 1), (8, 1), (9, 2), (17, 3)):
        assert Walker.sweep.fget(SimpleNamespace(visited=pairs)) == steps


def test_many_steps_with_open_laws_are_recorded_in_stretches():
    """Seven steps in stretches of five are ten, five are five: laws are drawn for a whole stretch."""
    told = []

    def record(rng, steps):
        told.append(steps)
        chains = np.zeros((2, 3))
        moments = Moments(np.full(2, float(steps)), chains, chains)
        row = np.zeros((2, steps), dtype=np.int64)
        return Trace(np.array([[0, 1]]), row, np.zeros((2, steps, 1)), 0, moments, np.arange(2), 0, 1.0)

    for steps, whole in ((7, 10), (5, 5), (1, 5)):
        told.clear()
        walker = SimpleNamespace(laws=learnt(), stretch=5, _record=record)
        found = BatchWalker.record(walker, np.random.default_rng(0), steps)
        assert found.row.shape == (2, whole)
        assert told == [5] * (whole // 5)
    told.clear()
    BatchWalker.record(SimpleNamespace(laws=None, stretch=5, _record=record), np.random.default_rng(0), 7)
    assert told == [7]


def test_dense_laws_are_swapped_together_with_their_concentration():
    """Some laws are forgotten, the concentration drawn without them, and they anew; a chain without likelihood takes
    what it is given. Then laws are proposed for the concentrations at which chains are."""
    target = open_target()
    walker = BatchWalker(Coordinates(target), batch_chart(target.model), np.random.default_rng(2), 6)
    x = np.array(walker.point.x)
    x[:, 0] = 1e200
    walker.point = walker.point._replace(x=jnp.asarray(x))
    taken_or_not = set()
    for seed in range(6):
        rng, again, old = np.random.default_rng(seed), np.random.default_rng(seed), walker.point
        proposed = walker._proposals(rng, 2)
        laws, log_law = target.laws, np.array(old.log_law)
        chance = again.choice([0.0, 0.25, 0.5, 1.0], 6)
        forgotten = again.random((len(laws.active), 6)) < chance
        concentration = laws.concentration_given(again, log_law, forgotten)
        drawn = laws.draw(again, concentration)
        for place, row in enumerate(laws.active):
            for chain in np.flatnonzero(forgotten[place]):
                log_law[row, :, chain] = drawn[row, :, chain]
        there = old._replace(log_law=jnp.asarray(log_law), concentration=jnp.asarray(concentration[None]))
        heights = [np.asarray(weigh_normals(walker.system, point).log_weight) for point in (old, there)]
        level = np.log(again.random(6))
        taken = [not np.isfinite(was) or now > was + u for was, now, u in zip(*heights, level, strict=True)]
        assert taken[0]
        taken_or_not |= set(taken)
        for name, new in (("log_law", log_law), ("concentration", concentration[None])):
            np.testing.assert_array_equal(getattr(walker.point, name), np.where(taken, new, getattr(old, name)))
        np.testing.assert_array_equal(walker.point.x, old.x)
        expected = draw_proposals(again, laws, 2, np.asarray(walker.point.concentration)[0])
        np.testing.assert_array_equal(proposed.log_law, expected.log_law)
        np.testing.assert_array_equal(proposed.shift, expected.shift)
    assert taken_or_not == {True, False}
    ends = walker.ends()
    assert ends.kept.tolist() == [False] + [True] * 5
    np.testing.assert_array_equal(ends.laws.log_law, walker.point.log_law[..., 1:])
    np.testing.assert_array_equal(ends.laws.concentration, walker.point.concentration[:, 1:])
    some = walker.ends(np.arange(6) % 2 == 1)
    np.testing.assert_array_equal(some.q, np.asarray(weigh_normals(walker.system, walker.point).q)[:, 1::2])


def test_dense_laws_are_taken_with_the_ratios_of_weights_and_densities():
    """Two proposals one after the other, the first anew, the second local: chain by chain, with the same numbers."""
    target = open_target()
    walker = BatchWalker(Coordinates(target), batch_chart(target.model), np.random.default_rng(2), 6)
    point, taken_or_not = walker.point, set()
    two = draw_proposals(np.random.default_rng(10), target.laws, 1, np.asarray(point.concentration)[0])
    two = Proposals(*(part[0, :2] for part in two))
    found = jax.jit(swap_laws)(walker.system, jax.random.key(3), init(walker.system, point), two)
    for k, key in enumerate(jax.random.split(jax.random.key(3), 2)):
        own = Proposals(*(part[k] for part in two))
        law, ratio = own.apply(point.log_law)
        there = point._replace(log_law=point.log_law.at[own.row].set(law))
        heights = [np.asarray(weigh_normals(walker.system, one).log_weight) for one in (point, there)]
        level = np.log(np.asarray(jax.random.uniform(key, (6,)))) + heights[0] - np.asarray(ratio)
        taken = heights[1] > level
        taken_or_not |= {(k, bool(one)) for one in taken}
        point = point._replace(log_law=jnp.where(taken, there.log_law, point.log_law))
    assert len(taken_or_not) == 4
    np.testing.assert_array_equal(found.point.log_law, point.log_law)


# --- on sparse systems ----------------------------------------------------------------------------------------------

PAIRS = [("s", "a"), ("s", "b"), ("t", "c"), ("t", "d"), ("t", "e")]
AFTER = [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 2), (2, 0)]
PRIOR = ValuePrior(np.array([0.5, -1.0, 2.0, 0.0, 0.3]), np.array([1.0, 2.0, 0.7, 1.5, 1.2]))


def open_target(after=AFTER, flat=False, discount=0.9, concentration=None):
    """Two states with five actions, four of which were seen, and where they led."""
    model = open_model(["s", "t"], PAIRS).discounted(discount)
    pair, landing = np.array(after).T
    reward = np.array([-1.0, -3.0, -0.5])[pair]
    data = Dataset(model, pair, reward, np.full(len(pair), np.nan), landing)
    whole, laws, _ = close_laws(data, "dirichlet", concentration)
    target = relaxed_target(replace(data, model=whole), 0.0, replace(PRIOR, flat=flat))
    return replace(target, laws=laws)


def sparse(target):
    return SparseSystem(Coordinates(target))


@pytest.mark.parametrize("flat", [False, True])
def test_idle_laws_are_taken_with_the_ratio_of_their_own_densities(flat):
    """Pair by pair: the value that a new law gives, idle before and after, against the prior of the value."""
    system, rng, counts = sparse(open_target(flat=flat)), np.random.default_rng(5), [0, 0]
    laws, model = system.drawer.laws, system.target.model
    for _ in range(12):
        here = system.evaluate(rng.standard_normal(system.size), None, system.drawer.draw(rng, 1.4))
        again = copy.deepcopy(rng)
        there = _swap_idle(system, system.drawer, here, rng)
        drawn, best = system.drawer.draw(again, 1.4), [*model.best(here.q), 0.0]
        height, uniform = here.log_likelihood, again.random(len(laws.pairs))
        for row, pair in enumerate(laws.pairs):
            new, old = drawn.law.toarray()[row], here.laws.law.toarray()[row]
            value = here.q[pair] + 0.9 * sum((n - o) * b for n, o, b in zip(new, old, best, strict=True))
            z = [(q - PRIOR.mean[pair]) / PRIOR.sd[pair] for q in (here.q[pair], value)]
            gain = 0.0 if flat else 0.5 * (z[0] ** 2 - z[1] ** 2)
            state = model.pair_state[pair]
            idle = here.policy[state] != pair and value < best[state]
            taken = idle and np.log(uniform[row]) < gain
            counts[int(taken)] += int(idle)
            np.testing.assert_array_equal(there.laws.law.toarray()[row], new if taken else old)
            assert there.q[pair] == pytest.approx(value if taken else here.q[pair])
            height += gain if taken else 0.0
        assert there.log_likelihood == pytest.approx(height)
        assert (there.x is here.x, there.policy is here.policy) == (True, True)
    assert min(counts) > (2 if not flat else -1)


class Half(np.random.Generator):
    """A generator whose uniform numbers are all 1/2; counts them."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))
        self.count = 0

    def random(self, size=None):
        self.count += 1
        return 0.5 if size is None else np.full(size, 0.5)


class Level(SparseSystem):
    """Every point is as likely."""

    height = 0.0

    def evaluate(self, x, start, laws=None):
        return State(x, np.zeros(5), self.height, start, laws)


@pytest.mark.parametrize(("gap", "taken"), [(-0.69, True), (-0.70, False), (0.5, True), (-np.inf, False)])
def test_laws_are_taken_with_the_ratio_of_the_weights(gap, taken):
    """Above log 0.5; from where there is no likelihood anything is taken, and nothing drawn."""
    system, rng = Level(Coordinates(open_target())), Half()
    old, new = (system.drawer.draw(np.random.default_rng(seed), 0.8) for seed in (1, 2))
    here = State(np.ones(system.size), np.ones(5), 2.0, np.array([0, 2]), old)
    system.height = 2.0 + gap
    there = _accept_laws(system, here, new, rng)
    assert (there.laws is new, there is here) == (taken, not taken)
    if taken:
        assert (there.x is here.x, there.policy is here.policy) == (True, True)
    assert rng.count == 1
    assert _accept_laws(system, here._replace(log_likelihood=-np.inf), new, rng).laws is new
    assert rng.count == 1


class Watched(SparseSystem):
    """Remembers the laws that were tried; none is as good as what a chain has, or all are."""

    height = -np.inf

    def evaluate(self, x, start, laws=None):
        self.tried = [*getattr(self, "tried", []), laws]
        found = super().evaluate(x, start, laws)
        return found if len(self.tried) == 1 else found._replace(log_likelihood=self.height)


@pytest.mark.parametrize("height", [-np.inf, 1e6])
def test_which_laws_are_proposed(height):
    """All with a concentration given landings alone; then twice those of some pairs, with the chain's concentration."""
    system = Watched(Coordinates(open_target()))
    rng, drawer = np.random.default_rng(8), system.drawer
    sizes = set()
    for _ in range(10):
        system.tried, system.height = [], height
        here = system.evaluate(rng.standard_normal(system.size), None, drawer.draw(rng, 0.8))
        here = here._replace(policy=None)  # then no idle laws are swapped
        again = copy.deepcopy(rng)
        there = propose_laws(system, here, rng)
        own = replace(here.laws, concentration=drawer.concentration_given(again, here.laws))
        tried = [drawer.draw(again)]
        again.random()
        taken = own if height < 0 else tried[0]
        for _ in range(2):
            some = again.choice(3, size=min(3, 1 << int(again.integers(3))), replace=False)
            sizes.add(len(some))
            tried.append(taken.with_rows(drawer.draw(again, taken.concentration, some), some))
            again.random()
            taken = own if height < 0 else tried[-1]
        assert len(system.tried) == 4
        for found, expected in zip([*system.tried[1:], there.laws], [*tried, taken], strict=True):
            assert found.concentration == expected.concentration
            np.testing.assert_array_equal(found.law.toarray(), expected.law.toarray())
        assert rng.random() == again.random()
    assert sizes == {1, 2, 3}


def test_chains_keep_their_laws_when_more_is_known():
    """Laws of pairs without new landings; a chain without laws before draws its own."""
    rng = np.random.default_rng(2)
    before = SparseWalker(Coordinates(open_target()), rng, 2)
    after = SparseWalker(Coordinates(open_target([*AFTER, (1, 0)])), rng, 2, before)
    for was, now in zip(before.states, after.states, strict=True):
        old, new = was.laws.law.toarray(), now.laws.law.toarray()
        assert (old == new).all(axis=1).tolist() == [True, False, True]
        assert now.laws.concentration == was.laws.concentration
    followed = [walker.record(rng, 1).moments.mean.shape[1] for walker in (before, after)]
    assert followed == [before.coordinates.target.model.n_pairs + 8] * 2
    given = replace(open_target(), laws=None)
    none = SparseWalker(Coordinates(given), rng, 2)
    assert none.states[0].laws is None
    assert none.record(rng, 1).moments.mean.shape[1] == given.model.n_pairs
    assert SparseWalker(Coordinates(open_target()), rng, 2, none).states[0].laws is not None


def test_seen_landings_are_followed():
    """Their probabilities, row by row, and the concentration."""
    target = open_target()
    system, rng = sparse(target), np.random.default_rng(3)
    here = system.evaluate(rng.standard_normal(system.size), None, system.drawer.draw(rng, 0.8))
    law = here.laws.law.toarray()
    expected = [law[0, 1], law[0, 2], law[1, 0], law[1, 1], law[1, 2], law[2, 0], law[2, 2], 0.8]
    np.testing.assert_array_equal(system.tracked_values(here), expected)
    assert len(system.tracked_values(here._replace(laws=None))) == 0


def test_the_last_charts_are_kept():
    """Three of them, the least recently used one goes first."""
    system, rng = sparse(open_target()), np.random.default_rng(3)
    laws = [system.drawer.draw(rng, 0.8) for _ in range(4)]
    charts = [system.chart_with(one) for one in laws[:3]]
    assert [system.chart_with(one) for one in laws[:3]] == charts
    system.chart_with(laws[0])
    system.chart_with(laws[3])
    assert system.chart_with(laws[0]) is charts[0]
    assert system.chart_with(laws[2]) is charts[2]
    assert system.chart_with(laws[1]) is not charts[1]
