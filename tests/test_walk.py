"""What is made of the records of chains, and when chains are trusted."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from bellmanifold import envs
from bellmanifold._util.progress import CallProgress, _listening
from bellmanifold.chart.batch import BatchChart, batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors import batch_walk, walk
from bellmanifold.posteriors.batch_walk import BatchWalker, fresh_key, init
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.convergence import r_hat_and_effective
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.draws import chain_draws
from bellmanifold.posteriors.kernels import Uniform
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.sparse_walk import SparseWalker
from bellmanifold.posteriors.system import member_moments
from bellmanifold.posteriors.target import noisy_target, relaxed_target
from bellmanifold.posteriors.trace import Trace
from bellmanifold.posteriors.walk import by_walk
from bellmanifold.posteriors.weight import weigh_normals
from bellmanifold.problem.dataset import Dataset


def coordinates_of(model, pairs, epsilon=0.3):
    pairs = np.asarray(pairs)
    return Coordinates(relaxed_target(Dataset(model, pairs, model.reward[pairs]), epsilon, 2.0))


def walker_of(coordinates, rng, chains):
    return BatchWalker(coordinates, batch_chart(coordinates.target.model), rng, chains)


def trace_of(value, lost=0, pairs=1):
    """Chains that met one policy, the first action of all of three states, and had these values."""
    chains, steps, _ = value.shape
    nothing = np.zeros((chains, pairs))
    return Trace(
        policy=np.array([[0, 2, 4]]),
        row=np.zeros((chains, steps), dtype=np.int64),
        value=value,
        scales=0,
        moments=Moments(np.full(chains, float(steps)), nothing, nothing),
        chain=np.arange(chains),
        lost=lost,
        evaluations=1.0,
    )


def diagnose(value):
    return trace_of(value).diagnose()


class Told(Trace):
    """A trace that is said to have mixed so well."""

    def diagnose(self):
        return self.told


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
    coordinates = coordinates_of(envs.deep_sea(2), np.arange(6))
    told = Told(*trace_of(np.zeros((20 - lost, 5, 1)), lost, pairs=6))
    told.told = (r_hat, effective)
    found = walk._result(coordinates, told, "")
    assert found.trustworthy == trusted
    assert found.effective_sample_size == effective
    assert (found.diagnostics["r_hat"], found.diagnostics["lost_chains"]) == (r_hat, lost)


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


@pytest.mark.slow
def test_states_are_recorded_evenly(rng):
    """128 of 136, the first and the last among them; of few coupled states all. Exact values tell which they are."""
    model = envs.deep_sea(16)
    target = relaxed_target(Dataset(model, np.arange(model.n_pairs), rng.normal(size=model.n_pairs)), 0.0, 2.0)
    walker = walker_of(Coordinates(target), rng, 2)
    value = walker.record(rng, 1).value[0, 0]
    best = model.best(np.asarray(weigh_normals(walker.system, walker.point).q)[:, 0])
    evenly = np.linspace(0, 135, 128).astype(int)
    np.testing.assert_allclose(value, best[np.asarray(walker.system.layout.state)][evenly], atol=1e-5)
    assert len(set(best.tolist())) == 136
    few = coordinates_of(envs.deep_sea(3), [0, 1])
    assert walker_of(few, rng, 2).record(rng, 1).value.shape == (2, 1, few.target.coupled.sum())


def replayed(walker, rng, steps):
    """Where chains are after each of so many steps, by the steps themselves."""
    here, move = init(walker.system, walker.point), jax.jit(batch_walk.step)
    for key in jax.random.split(fresh_key(rng), steps):
        here, evaluations = move(walker.system, key, here)
        yield weigh_normals(walker.system, here.point), int(evaluations)


def scattered(infer):
    """Two seen pairs of deep sea 2 in action values, with uniform noise: some chains find nothing for a while."""
    model = envs.deep_sea(2)
    pairs = np.array([0, 2])
    data = Dataset(model, pairs, model.reward[pairs])
    target = noisy_target(data, HalfNormal(1.0) if infer else 1.0, 2.0, Uniform())
    return Coordinates(target, centred=True)


def test_chains_that_have_found_the_posterior_are_recorded(rng):
    """After one step that is where they are: some have found it, some have not."""
    walker = walker_of(scattered(infer=False), rng, 24)
    trace = walker.record(rng, 1)
    there = np.isfinite(weigh_normals(walker.system, walker.point).log_weight)
    assert 2 <= there.sum() < 24
    assert trace.chain.tolist() == np.flatnonzero(there).tolist()
    assert trace.lost == 24 - there.sum()
    assert trace.value.shape[:2] == (there.sum(), 1)
    model, coupled = walker.coordinates.target.model, walker.coordinates.target.coupled
    q = np.asarray(weigh_normals(walker.system, walker.point).q)[:, there]
    assert len(trace.policy) > 1
    for own, chain, values, mean in zip(q.T, trace.row[:, 0], trace.value[:, 0], trace.moments.mean, strict=True):
        np.testing.assert_array_equal(trace.policy[chain], model.greedy(own)[coupled])
        np.testing.assert_allclose(np.sort(values), np.sort(model.best(own)[coupled]), rtol=1e-12)
        np.testing.assert_allclose(mean[[0, 2]], own[[0, 2]], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("infer", [False, True])
def test_records_are_counted_and_averaged(rng, infer):
    """Two rounds of which some chains found nothing at first: policies, moments, costs and the noise scale."""
    coordinates = scattered(infer)
    model, target = coordinates.target.model, coordinates.target
    walker = walker_of(coordinates, rng, 24)
    other, again = copy.deepcopy(walker), copy.deepcopy(rng)
    traces, steps = [], []
    for _ in range(2):
        steps += replayed(other, again, 40)
        traces.append(walker.record(rng, 40))
        other.point = walker.point
    found = walk._result(coordinates, Trace.joined(traces), "")
    finite = np.array([np.isfinite(weighed.log_weight) for weighed, _ in steps])
    kept = finite[0]
    assert 2 <= kept.sum() < 24
    assert kept.sum() < finite[40].sum(), "some chain finds it later: it is left out of both rounds"
    assert (found.diagnostics["lost_chains"], found.diagnostics["chains"]) == ((~kept).sum(), kept.sum())
    assert found.diagnostics["steps"] == 80
    q = np.array([weighed.q for weighed, _ in steps])[:, :, kept]
    policies = np.array([[model.greedy(q[k, :, c]) for k in range(80)] for c in range(kept.sum())])
    assert found.table.weight.sum() == 80 * kept.sum()
    policies = policies[:, :, target.coupled]
    for own, weight in zip(policies, found.table.weight, strict=True):
        for row, count in zip(found.table.policy, weight, strict=True):
            assert (own == row).all(axis=1).sum() == count
    mean = q.mean(axis=0)
    own = target.own
    assert own.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(found.q_mean.value[own], mean.mean(axis=1)[own], rtol=1e-9)
    error = mean.std(axis=1, ddof=1) / np.sqrt(kept.sum())
    np.testing.assert_allclose(found.q_mean.se[own], error[own], rtol=1e-9)
    np.testing.assert_allclose(found.q_sd.value[own], q.swapaxes(0, 1).reshape(6, -1).std(axis=1)[own], rtol=1e-9)
    assert found.diagnostics["evaluations_per_step"] == pytest.approx(np.mean([cost for _, cost in steps]))
    if infer:
        eta = np.array([weighed.noise_scale for weighed, _ in steps])[:, 0, kept]
        assert found.noise_scale == pytest.approx((eta.mean(), eta.std()))
    else:
        assert found.noise_scale is None


@pytest.mark.slow
def test_moments_of_pairs_that_stand_for_several(rng):
    """Unobserved pairs share a coordinate: means and spreads are those of one of them, below the largest."""
    coordinates = coordinates_of(envs.deep_sea(2), [0, 1])
    walker = walker_of(coordinates, rng, 3)
    other, again = copy.deepcopy(walker), copy.deepcopy(rng)
    found = walker.record(rng, 30).moments
    moments = np.array([member_moments(other.system, weighed.q) for weighed, _ in replayed(other, again, 30)])
    moments = moments[:, :, coordinates.stand_in]
    assert coordinates.stand_in.tolist() == [0, 1, 2, 2, 4, 4]
    mean = moments[:, 0].mean(axis=0)
    np.testing.assert_allclose(found.mean, mean.T, rtol=1e-9)
    square = ((moments[:, 0] - mean) ** 2 + moments[:, 1]).sum(axis=0)
    np.testing.assert_allclose(found.square, square.T, rtol=1e-9)
    assert (moments[:, 1, 2:] > 0).all()


def test_no_chain_that_finds_anything_is_refused():
    narrow = relaxed_target(Dataset.complete(envs.two_state()), 1e-9, 10.0, "uniform")
    with pytest.raises(UnsupportedError, match="no chain found"):
        by_walk(narrow, Budget(), "test")


def test_a_round_adds_up_the_moments_of_its_steps(rng):
    """Where a state has one action, that action's value is the state's, which is recorded at every step."""
    model = from_moves("row", {("s", "on"): Move(-1.0, {"t": 1.0}), ("t", "on"): Move(-2.0, {"goal": 1.0})}, start="s")
    walker = walker_of(coordinates_of(model, [0, 1]), rng, 3)
    found = walker.record(rng, 4)
    assert found.value.shape == (3, 4, 2)
    order = np.asarray(walker.system.layout.state)
    np.testing.assert_allclose(found.moments.mean[:, order], found.value.mean(axis=1))
    np.testing.assert_allclose(found.moments.square[:, order], 4 * found.value.var(axis=1))
    assert found.moments.weight.tolist() == [4.0] * 3


class Heard(CallProgress):
    """It keeps how many steps were expected."""

    def __init__(self):
        super().__init__("walk", None)
        self.told = []

    def expect(self, unit, total, done=0):
        self.told += [(unit, total, done)] if unit == "steps" else []
        super().expect(unit, total, done)


class ToldWalker(BatchWalker):
    """Chains whose records are given."""

    def __init__(self, value):
        self.value, self.done = value, []

    def of(self, coordinates, *given):
        self.coordinates = coordinates
        return self

    def advance(self, rng, steps):
        self.done.append(("warm", steps, rng.integers(2**62)))

    def record(self, rng, steps, keeps=False):
        self.done.append(("round", steps, rng.integers(2**62)))
        return trace_of(self.value, pairs=6)


@pytest.mark.parametrize(
    ("budget", "mixed", "rounds"),
    [
        (Budget(), True, 1),
        (Budget(rounds=8), False, 8),
        (Budget(rounds=3), False, 4),
        (Budget(samples=1), False, 1),
        (Budget(samples=5 * walk.CHAINS * walk.ROUND), True, 5),
    ],
)
def test_chains_warm_up_once_and_then_record_rounds(monkeypatch, rng, budget, mixed, rounds):
    """Rounds are doubled until the chains have mixed, up to the budget's; or there are as many as were asked for."""
    told = ToldWalker(rng.normal(size=(20, 50, 1)) + (0.0 if mixed else np.arange(20.0)[:, None, None]))
    monkeypatch.setattr(walk, "walker_of", told.of)
    heard = Heard()
    with _listening(heard):
        found = by_walk(coordinates_of(envs.deep_sea(2), np.arange(6)).target, budget, "why")
    sizes = [rounds] if budget.samples is not None else [2**k for k in range(rounds.bit_length())]
    begun = [0, *sizes[:-1]]
    expected = [(walk.ROUND * (1 + size), walk.ROUND * (1 + done)) for size, done in zip(sizes, begun, strict=True)]
    assert heard.told == [("steps", walk.ROUND * (1 + sizes[0]), 0), *(("steps", *one) for one in expected)]
    assert [(name, steps) for name, steps, _ in told.done] == [("warm", walk.ROUND)] + [("round", walk.ROUND)] * rounds
    assert len({number for *_, number in told.done}) == 1 + rounds, "random numbers are not used twice"
    assert found.trustworthy == mixed
    assert found.diagnostics["steps"] == 50 * rounds
    assert found.reason == "why: slice chains instead"


@pytest.mark.parametrize(
    ("rounds", "mixed", "walked"), [(1, True, 2), (1, False, 2), (5, True, 2), (5, False, 5), (8, False, 8)]
)
def test_ends_of_chains_are_taken_after_two_rounds_or_four_or_eight(monkeypatch, rng, rounds, mixed, walked):
    """Never after one; what has not mixed after the budget's rounds, two at least, is none."""
    told = ToldWalker(rng.normal(size=(20, 50, 1)) + (0.0 if mixed else np.arange(20.0)[:, None, None]))
    monkeypatch.setattr(walk, "walker_of", told.of)
    target, heard = coordinates_of(envs.deep_sea(2), np.arange(6)).target, Heard()
    with _listening(heard):
        found = walk.walked_chains(target, batch_chart(target.model), Budget(rounds=rounds))
    assert found is (told if mixed else None)
    assert [(name, steps) for name, steps, _ in told.done] == [("warm", walk.ROUND)] + [("round", walk.ROUND)] * walked
    assert heard.told == [("steps", None, walk.ROUND * (1 + done)) for done in range(walked)]


def test_steps_of_sparse_walks_are_announced():
    """34 steps, shared by four chains: 8 each, and 2 to warm up; the points of every fourth one are kept."""
    target, heard = coordinates_of(envs.deep_sea(2), [0, 1, 2]).target, Heard()
    with _listening(heard):
        found = walk.by_sparse_walk(target, Budget(samples=34), "why")
    assert heard.told == [("steps", 4 * (2 + 8), 0)]
    assert found.diagnostics["steps"] == 8
    assert found.points.shape == (6, 4 * 2)
    assert "evaluations_per_step" not in found.diagnostics


@pytest.mark.parametrize(("epsilon", "also"), [(0.0, False), (0.3, True), (1.0, True)])
def test_what_else_to_ask_for_beyond_batches(epsilon, also):
    """A tolerance of 0 where it is not 0 already: rewards with an sd of their own keep it."""
    moves = {("s", "stay"): Move(-1.0, {"s": 1.0}), ("s", "out"): Move(-2.0, {"goal": 1.0})}
    target = coordinates_of(from_moves("loop", moves, start="s"), [0, 1]).target
    target = replace(target, epsilon=epsilon)
    with pytest.raises(UnsupportedError, match="use proper_only=True") as refusal:
        walk.check_sparse(target, "why")
    assert ("epsilon=0" in str(refusal.value)) == also
    walk.check_sparse(replace(target, proper_only=True), "why")
    walk.check_sparse(replace(target, scale=np.zeros(2)), "why")


def test_chains_of_the_other_kind_are_not_gone_on_from(rng):
    """Batches go on from batches, sparse chains from sparse ones."""
    coordinates = coordinates_of(envs.deep_sea(2), [0, 1])
    chart = batch_chart(coordinates.target.model)
    batch, sparse = walk.walker_of(coordinates, chart, rng, 2), walk.walker_of(coordinates, None, rng, 2)
    assert isinstance(batch, BatchWalker)
    assert isinstance(sparse, SparseWalker)
    assert walk.walker_of(coordinates, chart, rng, 2, batch).point is batch.point
    assert walk.walker_of(coordinates, chart, rng, 2, sparse).is_fresh
    again = walk.walker_of(coordinates, None, rng, 2, sparse)
    assert [state.x.tolist() for state in again.states] == [state.x.tolist() for state in sparse.states]
    assert walk.walker_of(coordinates, None, rng, 2, batch).is_fresh


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "sparse"])
def test_walkers_keep_one_contract(rng, batch):
    """Whoever walks: records, draws and ends have the same shapes, and ends are where a record ended."""
    model, observed = envs.deep_sea(2), np.array([0, 2])
    target = noisy_target(Dataset(model, observed, model.reward[observed]), HalfNormal(1.0), 2.0)
    walker = walk.walker_of(Coordinates(target), batch_chart(model) if batch else None, rng, 3)
    assert (walker.chains, walker.is_fresh, walker.ignores_residuals) == (3, True, False)
    assert walker.sweep == 1
    walker.advance(rng, 5)
    trace, ends = walker.record(rng, 4), walker.ends()
    assert ends.kept.tolist() == [True] * 3
    assert (ends.q.shape, ends.noise_scale.shape, ends.laws) == ((6, 3), (1, 3), None)
    assert (trace.row.shape, trace.chain.tolist(), trace.lost) == ((3, 4), [0, 1, 2], 0)
    np.testing.assert_allclose(trace.value[:, -1, -1], ends.noise_scale[0], rtol=1e-12)
    some = walker.ends(np.array([True, False, True]))
    np.testing.assert_array_equal(some.q, ends.q[:, ::2])
    np.testing.assert_array_equal(some.noise_scale, ends.noise_scale[:, ::2])
    drawn = walker.draw(1)
    assert (drawn.policy.shape, drawn.q_mean.shape) == ((3,), (6,))
    assert drawn.at_start == pytest.approx(max(ends.q[:2, 1]))
    np.testing.assert_allclose(drawn.q_mean[observed], ends.q[observed, 1], rtol=1e-12)


def test_noise_scales_are_the_last_values(rng):
    """Their mean and deviation over all chains and steps; where no evaluations were counted none are told."""
    coordinates = coordinates_of(envs.deep_sea(2), np.arange(6))
    value = rng.normal(size=(20, 50, 3)) * [1.0, 2.0, 0.25] + [0.0, 3.0, 1.75]
    trace = trace_of(value, pairs=6)._replace(scales=1, evaluations=None)
    found = walk._result(coordinates, trace, "")
    assert found.noise_scale == pytest.approx((value[..., 2].mean(), value[..., 2].std()))
    assert "evaluations_per_step" not in found.diagnostics
    assert walk._result(coordinates, trace_of(value, pairs=6), "").diagnostics["evaluations_per_step"] == 1.0


@pytest.mark.slow
def test_walks_go_on_where_they_were(rng):
    """Chains that advanced and then recorded are where the same steps, counted through, lead."""
    walker = walker_of(coordinates_of(envs.deep_sea(2), [0, 1]), rng, 3)
    begin, again = walker.point, copy.deepcopy(rng)
    walker.advance(rng, 5)
    there = batch_walk.advance(walker.system, 5, fresh_key(again), begin)
    np.testing.assert_array_equal(walker.point.x, there.x)
    walker.record(rng, 3)
    last = init(walker.system, there)
    for key in jax.random.split(fresh_key(again), 3):
        last, _ = jax.jit(batch_walk.step)(walker.system, key, last)
    np.testing.assert_allclose(walker.point.x, last.point.x, rtol=1e-12)
    assert (np.asarray(walker.point.x) != np.asarray(begin.x)).all()


def test_ends_leave_out_chains_without_likelihood(rng):
    walker = walker_of(scattered(infer=True), rng, 24)
    whole, ends = weigh_normals(walker.system, walker.point), walker.ends()
    kept = np.isfinite(whole.log_weight)
    assert 0 < kept.sum() < 24
    np.testing.assert_array_equal(ends.kept, kept)
    np.testing.assert_array_equal(ends.q, whole.q[:, kept])
    np.testing.assert_array_equal(ends.noise_scale, whole.noise_scale[:, kept])


@pytest.mark.slow
def test_chains_that_find_the_posterior_late_do_not_count():
    """Narrow uniform kernels in the action values: a third of the lost chains is found again in every round."""
    target = relaxed_target(Dataset.complete(envs.two_state()), 0.3, 10.0, "uniform")
    found = by_walk(target, Budget(rounds=4), "test")
    assert found.diagnostics["steps"] == 4 * walk.ROUND
    assert 0 < found.diagnostics["lost_chains"] < walk.CHAINS
    assert found.diagnostics["chains"] == walk.CHAINS - found.diagnostics["lost_chains"] == len(found.table.weight)
    assert (found.table.weight.sum(axis=1) == 4 * walk.ROUND).all()
    assert not found.trustworthy
    assert chain_draws(target, batch_chart(target.model), Budget()) is None


def test_large_problems_are_walked_by_fewer_chains_in_fewer_rounds():
    """The work is bounded: half of it by half of the chains, and what would take far too long is refused by name."""
    chart = batch_chart(envs.grid(4, 4))
    enough = walk.work_of(chart) * walk.CHAINS * walk.ROUND * 9
    assert walk.bounds(chart, Budget(walked=enough)) == (walk.CHAINS, 8)
    assert walk.bounds(chart, Budget(walked=enough, rounds=3)) == (walk.CHAINS, 3)
    assert walk.bounds(chart, Budget(walked=enough // 2)) == (walk.CHAINS, 2)
    assert walk.bounds(chart, Budget(walked=enough // 9)) == (walk.CHAINS // 2, 1)
    assert walk.bounds(chart, Budget(walked=enough // 72)) == (walk.FEWEST_CHAINS, 1)
    with pytest.raises(UnsupportedError, match=r"60 pairs would take about \d+ minutes: use samples=8000"):
        walk.bounds(chart, Budget(walked=enough // 720))
    assert walk.bounds(chart, Budget(walked=enough // 720, samples=100)) == (walk.FEWEST_CHAINS, 1)


def chart_of(ways, narrow, pairs=7, successors=1):
    """A chart of two states and some pairs in every block, behind others, and nothing else that its work depends on."""
    blocks = tuple(SimpleNamespace(begin=4, end=6, pairs=(3, 3 + pairs), way=way) for way in ways)
    chart = object.__new__(BatchChart)
    layout = SimpleNamespace(successor=np.zeros((9, successors)), blocks=blocks, narrow=narrow)
    vars(chart).update(layout=layout, model=SimpleNamespace(n_pairs=pairs))
    return chart


def test_walks_that_would_take_four_times_as_long_are_refused():
    """Two rounds of 32 chains, 10 operations a point, at least a quarter of which is allowed: 40 s of 10 are."""
    chart, least = chart_of(["once"], [None], pairs=10), walk.FEWEST_CHAINS * 2 * walk.ROUND
    assert walk.bounds(chart, Budget(walked=10 * least // 4)) == (walk.FEWEST_CHAINS, 1)
    with pytest.raises(UnsupportedError, match=f"10 pairs would take about 4 minutes: use samples={least // 2}"):
        walk.bounds(chart, Budget(walked=10 * (least // 4 - 1)))
    with pytest.raises(UnsupportedError, match="about 40 minutes"):
        walk.bounds(chart, Budget(walked=10 * (least // 40)))


def test_work_of_several_blocks():
    """Two states and five pairs with three successors each, block by block, whatever came before them."""
    near = SimpleNamespace(near=np.zeros((2, 5)))
    cases = [("once", None, 15), ("sweeps", None, 16 * 15), ("policies", None, 6 * (2 + 15))]
    cases += [("policies", near, 6 * (2 * 25 + 15))]
    for way, narrow, work in cases:
        assert walk.work_of(chart_of([way], [narrow], 5, 3)) == work
    ways, narrow, works = zip(*cases, strict=True)
    assert walk.work_of(chart_of(ways, narrow, 5, 3)) == sum(works)


def test_work_of_charts():
    """Levels are solved once, loops by sweeps, random loops by eliminations: sparse ones where that is less."""
    once, swept = batch_chart(envs.deep_sea(4)), batch_chart(envs.grid(4, 4))
    assert walk.work_of(once) == once.model.n_pairs
    assert walk.work_of(swept) == 16 * swept.model.n_pairs
    full, narrow = batch_chart(envs.grid(4, 4, slip=0.2)), batch_chart(envs.roads(slip=0.2))
    assert walk.work_of(full) == 6 * (15**3 // 3 + full.law.size)
    assert walk.work_of(narrow) == 6 * (39 * 7**2 + narrow.law.size)
