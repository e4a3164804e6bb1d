"""Agents that draw from the posterior: what they draw, what they may not look at, and that they learn."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold._util.jax_setup import random_key
from bellmanifold.agents import sources
from bellmanifold.agents.posterior_sampling import PosteriorSampling
from bellmanifold.agents.registry import make_agent
from bellmanifold.agents.settings import SamplingSettings
from bellmanifold.agents.sources import Pool
from bellmanifold.agents.walking import Walk
from bellmanifold.chart.batch import LIMITS, ChartLimits, known_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.learning.episodes import run_episodes
from bellmanifold.posteriors.batch_walk import BatchWalker, evaluate
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import covering
from bellmanifold.posteriors.kernels import Laplace
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.sparse_walk import SparseWalker
from bellmanifold.posteriors.system import chart_of, normal_point, system_of
from bellmanifold.posteriors.target import noisy_target, relaxed_target
from bellmanifold.posteriors.weight import weigh_normals
from bellmanifold.problem.dataset import Dataset

LEVELS = ChartLimits(swept=0)
"""Known pairs on no cycle are solved by levels, however few states there are."""


class Walking(PosteriorSampling):
    """Walks from the beginning, without trying importance first."""

    def __init__(self, model, settings, limits=LIMITS):
        super().__init__(model, settings)
        self.limits = limits

    def _new_source(self, target, rng):
        return Walk(target, known_chart(target.model, target.observed, self.limits), rng, self._source)


def shown(agent, pairs):
    pairs = np.array(pairs)
    agent.observe(pairs, agent.model.reward[pairs])
    return agent


def having_seen(model, settings, pairs):
    return shown(PosteriorSampling(model, settings), pairs)


def walking(model, settings, pairs, limits=LIMITS):
    return shown(Walking(model, settings, limits), pairs)


def route_of(model, policy):
    """The pairs a policy plays from the start of a deterministic problem."""
    state, route = int(np.argmax(model.initial)), []
    while state < model.n_states and int(policy[state]) not in route:
        route.append(int(policy[state]))
        state = int(model.next_state[model.next_start[route[-1]]])
    return tuple(route)


def route_counts(model, agent, draws, seed):
    rng = np.random.default_rng(seed)
    found = {}
    for _ in range(draws):
        route = route_of(model, agent.policy(rng))
        found[route] = found.get(route, 0) + 1
    return found


def chi_square(model, counts, summary, draws):
    """p-value of counted routes under a summary's probabilities; routes expected less than 8 times are lumped."""
    expected = {route.pairs: draws * route.probability for route in summary.routes}
    assert set(counts) <= {route for route, number in expected.items() if number > 0}
    common = [route for route, number in expected.items() if number >= 8]
    observed = np.array([counts.get(route, 0) for route in common] + [0.0])
    predicted = np.array([expected[route] for route in common] + [0.0])
    observed[-1], predicted[-1] = draws - observed.sum(), draws - predicted.sum()
    keep = predicted > 1e-3 * draws
    return stats.chisquare(observed[keep], predicted[keep] * observed[keep].sum() / predicted[keep].sum()).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("method", ["A", "B"])
@pytest.mark.parametrize(
    ("name", "depth", "epsilon"), [("deep_sea", 3, 0.0), ("deep_sea", 3, 0.5), ("swirl", 3, 0.5), ("swirl", 3, 0.0)]
)
def test_both_methods_play_routes_as_probable_as_they_are(name, depth, epsilon, method):
    """Methods A and B of Algorithm 1 agree in distribution: both with the posterior's routes, loops included. 3,000
    draws, chi-square: false alarm 1e-4 a case. The pool of method B has its own noise, worth about 2% of a route."""
    model = getattr(envs, name)(depth)
    pairs = np.flatnonzero(np.arange(model.n_pairs) % 4 != 1)
    agent = having_seen(model, SamplingSettings(epsilon=epsilon, prior_scale=2.0, method=method), pairs)
    summary = bm.posterior(model, Dataset(model, pairs, model.reward[pairs]), epsilon=epsilon, prior_scale=2.0)
    draws = 3000
    pools = 10 if method == "B" else 1  # a fresh pool every 300 draws; method A has none
    counts = {}
    for k in range(pools):
        agent._stale = True
        for route, number in route_counts(model, agent, draws // pools, seed=k).items():
            counts[route] = counts.get(route, 0) + number
    assert chi_square(model, counts, summary, draws) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("limits", [LIMITS, LEVELS], ids=["sweeps", "levels"])
def test_walks_play_the_same_routes(limits):
    """Chains that start anew from the prior, played after four sweeps: 500 independent draws; false alarm 1e-4."""
    model = envs.deep_sea(3)
    pairs = np.array([0, 1, 3, 5, 6])
    summary = bm.posterior(model, Dataset(model, pairs, model.reward[pairs]), prior_scale=2.0)
    agent = walking(model, SamplingSettings(epsilon=0.0, prior_scale=2.0), pairs, limits)
    rng, counts, draws = np.random.default_rng(1), {}, 500
    for _ in range(draws):
        agent._stale, agent._source = True, None
        route = route_of(model, agent.policy(rng))
        counts[route] = counts.get(route, 0) + 1
    assert chi_square(model, counts, summary, draws) > 1e-4


@pytest.fixture
def standing(monkeypatch):
    """Chains stand still; how many steps they were asked for."""
    asked = []
    for kind in (BatchWalker, SparseWalker):
        monkeypatch.setattr(kind, "advance", lambda self, rng, steps: asked.append(steps))
    return asked


def test_relaxed_walks_turn_their_residuals_often(standing):
    """They turn once a step: 200 steps before the first episode and 50 before every one, however few are unobserved."""
    for epsilon in (0.0, 0.5):
        walking(envs.deep_sea(3), SamplingSettings(epsilon=epsilon), np.arange(10)).policy(np.random.default_rng(0))
    assert standing == [4, 4, 200, 50]


@pytest.mark.usefixtures("standing")
def test_chains_take_turns():
    """Chains that stand still are played one after the other, also when more becomes known in between."""
    model, rng = envs.deep_sea(3), np.random.default_rng(0)
    agent = walking(model, SamplingSettings(epsilon=0.0), [0, 2])
    agent.policy(rng)
    walk = agent._source
    values = [walk.walker.draw(chain).at_start for chain in range(4)]
    assert len(set(values)) == 4
    played = [values.index(walk._drawn.at_start)]
    for _ in range(4):
        walk.draw(rng)
        played.append(values.index(walk._drawn.at_start))
    assert sorted(played[:4]) == [0, 1, 2, 3]
    assert played[4] == played[0]
    later = Walk(walk.target, walk.walker.chart, rng, walk)
    later.draw(rng)
    assert later._drawn.at_start == values[played[1]]


@pytest.mark.slow
def test_relaxed_walks_are_warm_when_they_are_first_played():
    """Many residuals and few unobserved pairs: the value at the start is that of much longer chains.

    8 agents of 4 chains against 64 chains of 400 steps, 5 combined standard errors: false alarm 6e-7.
    """
    model = envs.deep_sea(7)
    pairs = np.setdiff1d(np.arange(model.n_pairs), [5, 30])

    def at_start(walker):
        q = np.asarray(weigh_normals(walker.system, walker.point).q)
        return np.array([model.initial @ model.best(column) for column in q.T])

    played = []
    for seed in range(8):
        agent = walking(model, SamplingSettings(epsilon=1.0, prior_scale=2.0), pairs)
        agent.policy(np.random.default_rng(seed))
        played.append(at_start(agent._source.walker))
    rng = np.random.default_rng(1)
    walker = BatchWalker(Coordinates(agent._source.target), agent._source.walker.chart, rng, 64)
    prior = at_start(walker)
    walker.advance(rng, 400)
    long, played = at_start(walker), np.ravel(played)
    error = np.hypot(long.std() / np.sqrt(64), played.std() / np.sqrt(32))
    assert abs(long.mean() - played.mean()) < 5 * error
    assert abs(prior.mean() - long.mean()) > 5 * error, "prior draws would have passed"


def test_a_walk_goes_on_where_it_was():
    """What becomes known changes the order of states in the chart, not the number that belongs to a pair."""
    model, rng = envs.deep_sea(4), np.random.default_rng(0)
    before = after = None
    for seen in ([0, 2], [0, 2, 1, 5, 12]):
        target = having_seen(model, SamplingSettings(epsilon=0.0), seen)._target()
        before, after = after, Walk(target, known_chart(model, target.observed, LEVELS), rng, after)
    np.testing.assert_array_equal(before.walker.point.x, after.walker.point.x)
    orders = [np.asarray(walk.walker.chart.layout.state) for walk in (before, after)]
    assert (orders[0] != orders[1]).any()


def lingering(leak):
    """Staying was seen to cost 1 and to end with some probability; leaving was not seen."""
    moves = {("s", "stay"): Move(-1.0, {"s": 1.0 - leak, "goal": leak} if leak else {"s": 1.0})}
    moves |= {("s", "go"): Move(-1.0, {"goal": 1.0})}
    return Dataset.from_pairs(from_moves("lingering", moves, start="s"), [("s", "stay")])


LIKELIHOODS = {
    "exact": lambda data: relaxed_target(data, 0.0, 10.0),
    "relaxed": lambda data: relaxed_target(data, 0.1, 10.0),
    "noisy": lambda data: noisy_target(data, 0.1, 10.0),
    "inferred": lambda data: noisy_target(data, HalfNormal(), 10.0, Laplace()),
}


@pytest.mark.usefixtures("standing")
@pytest.mark.parametrize("batch", [True, False], ids=["batch", "sparse"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize(
    ("leak", "left_out"), [(0.0, {"relaxed", "noisy", "inferred"}), (1e-9, set(LIKELIHOODS)), (0.5, set())]
)
def test_walks_say_whether_they_leave_something_out(batch, likelihood, leak, left_out):
    """Closed loops, except under exact posteriors, which have no improper parameters; loops hardly ever left."""
    target = LIKELIHOODS[likelihood](lingering(leak))
    assert bool(target.loops) == (leak == 0.0)
    chart = known_chart(target.model, target.observed) if batch else None
    walk = Walk(target, chart, np.random.default_rng(0))
    assert isinstance(walk.walker, BatchWalker if batch else SparseWalker)
    assert walk.diagnostics["proper_only"] == (1.0 if likelihood in left_out else 0.0)
    assert walk.diagnostics["frontier"] == {"exact": 1, "inferred": 3}.get(likelihood, 2)


@pytest.mark.parametrize(("name", "epsilon"), [("deep_sea", 0.3), ("swirl", 0.0), ("swirl", 0.3)])
def test_what_a_step_looks_at_is_the_weight(name, epsilon):
    """It leaves out the splitting of ties, which changes no weight here; idle pairs may go anywhere below ceilings."""
    model = getattr(envs, name)(3)
    target = having_seen(
        model, SamplingSettings(epsilon=epsilon), np.flatnonzero(np.arange(model.n_pairs) % 3 != 1)
    )._target()
    system = system_of(Coordinates(target), known_chart(model, target.observed))
    point = normal_point(random_key(5), system, 64)
    whole, found = weigh_normals(system, point), evaluate(system, point)
    np.testing.assert_allclose(found.log_likelihood, whole.log_weight, rtol=1e-6)
    idle, unseen = np.asarray(point.x < found.ceiling), np.asarray(system.unseen)
    assert idle[unseen].any()
    assert not idle[unseen].all()
    below = jnp.minimum(found.ceiling, 10.0) - 3.0 * jax.random.uniform(random_key(6), idle.shape)
    after = point._replace(x=jnp.where(idle, below, point.x))
    np.testing.assert_allclose(evaluate(system, after).log_likelihood, found.log_likelihood, rtol=1e-12)
    others = np.asarray(system.solved)
    np.testing.assert_allclose(weigh_normals(system, after).q[others], whole.q[others], atol=0.0 if epsilon else 1e-5)


def other_world(model, kept, rng):
    """The same states and actions; every pair that is not kept pays and leads elsewhere, at random."""
    moves = {}
    for i in range(model.n_pairs):
        state, action = model.pair_name(i)
        own = range(model.next_start[i], model.next_start[i + 1])
        leads = {model.state_name(model.next_state[e]): float(model.next_prob[e]) for e in own}
        if kept[i]:
            moves[(state, action)] = Move(float(model.reward[i]), leads)
        else:
            there, elsewhere = rng.choice([*model.states, "goal"], 2, replace=False)
            moves[(state, action)] = Move(float(rng.normal()), {str(there): 0.5, str(elsewhere): 0.5})
    start = model.states[int(np.argmax(model.initial))]
    changed = from_moves("elsewhere", moves, start=start)
    assert changed.states == model.states
    return changed


EXACT, RELAXED = SamplingSettings(epsilon=0.0), SamplingSettings(epsilon=0.1)
DIRECTED = SamplingSettings(epsilon=0.0, explore="directed")


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        pytest.param(EXACT, PosteriorSampling, id="exact-importance"),
        pytest.param(DIRECTED, PosteriorSampling, id="directed"),
        pytest.param(EXACT, Walking, id="exact-walk", marks=pytest.mark.slow),
        pytest.param(RELAXED, PosteriorSampling, id="relaxed-importance", marks=pytest.mark.slow),
        pytest.param(RELAXED, Walking, id="relaxed-walk", marks=pytest.mark.slow),
    ],
)
def test_what_was_not_visited_changes_nothing(settings, kind):
    """Six episodes on deep sea, and on a problem that differs everywhere they did not come: the same, bit for bit."""
    model = envs.deep_sea(4)
    played = run_episodes(model, kind(model, settings), 6, seed=3)
    visited = np.zeros(model.n_pairs, dtype=bool)
    visited[np.concatenate([episode.pairs for episode in played])] = True
    assert 0.2 < visited.mean() < 0.9
    changed = other_world(model, visited, np.random.default_rng(0))
    again = run_episodes(changed, kind(changed, settings), 6, seed=3)
    for one, other in zip(played, again, strict=True):
        np.testing.assert_array_equal(one.policy, other.policy)
        np.testing.assert_array_equal(one.rewards, other.rewards)


def test_nothing_new_is_not_computed_again():
    model = envs.deep_sea(3)
    agent = having_seen(model, SamplingSettings(epsilon=0.0), [0, 2])
    rng = np.random.default_rng(0)
    agent.policy(rng)
    source = agent._source
    agent.observe(np.array([0]), model.reward[[0]])
    agent.policy(rng)
    assert agent._source is source
    agent.observe(np.array([1]), model.reward[[1]])
    agent.policy(rng)
    assert agent._source is not source


def test_a_mean_reward_that_changed_is_believed():
    """Tolerance 0.01 and rewards that are noisy all the same: the choice follows the means, not the first rewards."""
    moves = {("s", "x"): Move(0.0, {"goal": 1.0}), ("s", "y"): Move(0.0, {"goal": 1.0})}
    model = from_moves("choice", moves, start="s")
    agent = PosteriorSampling(model, SamplingSettings(epsilon=0.01))
    agent.observe(np.array([0, 1]), np.array([3.0, 1.0]))
    rng = np.random.default_rng(0)
    assert agent.policy(rng).tolist() == [0]
    agent.observe(np.array([0]), np.array([-3.0]))
    assert agent.policy(rng).tolist() == [1]


@pytest.mark.slow
def test_points_without_weight_are_not_drawn_from(monkeypatch):
    """Where no point of a cut has weight the agent walks."""
    model = envs.two_state()
    agent = having_seen(model, SamplingSettings(epsilon=0.1), [0, 1])
    nothing = Pool(np.zeros((1, 4), dtype=np.int64), np.zeros(4), np.zeros(4), 0.0, np.zeros(2))
    monkeypatch.setattr(sources.Weighing, "pool", lambda self, times: nothing)
    assert agent.policy(np.random.default_rng(0)).shape == (1,)
    assert agent.diagnostics["proper_only"] == 1.0


def test_points_that_were_weighed_before_stay():
    """More batches after fewer are the batches that would have been weighed at once; nothing of weight 0 is kept."""
    model = envs.swirl(2)
    agent = having_seen(model, SamplingSettings(epsilon=0.1), list(range(model.n_pairs)))
    target = agent._target()
    chart, way = chart_of(target, only_observed=True), covering(target).ways[0]
    step = sources.Weighing(way, chart, 7)
    step.pool(4)
    for found, at_once in zip(step.pool(8), sources.Weighing(way, chart, 7).pool(8), strict=True):
        np.testing.assert_array_equal(found, at_once)
    pool = step.pool(8)
    assert pool.probability.min() > 0
    assert pool.probability.sum() == pytest.approx(1.0)
    assert pool.effective <= len(pool.probability)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["manifold", "bayes-br"])
@pytest.mark.parametrize("model", [envs.deep_sea(4), envs.swirl(3), envs.pyramid(3)], ids=lambda m: m.name)
def test_learns(agent, model):
    found = bm.learn(model, agent=agent, episodes=60, runs=2, seed=1).to_dict()
    assert all(first is not None and first <= 60 for first in found["first_optimal_episode"])


def test_random_cycles_are_walked_sparsely():
    """49 states, slippery: too many for elimination; every pair that is played belongs to its state."""
    model = envs.grid(7, 7, slip=0.1)
    agent = make_agent("manifold", model)
    played = run_episodes(model, agent, 2, seed=0)
    assert agent.diagnostics["frontier"] > 0
    for episode in played:
        np.testing.assert_array_equal(model.pair_state[episode.policy], np.arange(model.n_states))


@pytest.mark.slow
def test_small_random_cycles():
    model = envs.grid(3, 3, slip=0.2)
    found = bm.learn(model, agent="manifold", episodes=40, runs=1, seed=0).to_dict()
    assert found["first_optimal_episode"][0] is not None


@pytest.mark.slow
def test_noise():
    """Rewards with noise: the agent averages what it sees; the inferred scale comes near the truth."""
    model = replace(envs.deep_sea(3), reward_sd=np.full(12, 0.1))
    for options in ({"noise_sd": 0.1}, {"infer_noise": True}):
        agent = make_agent("bayes-br", model, options)
        run_episodes(model, agent, 80, seed=0)
        value = [agent.policy(np.random.default_rng(k))[0] for k in range(10)]
        assert all(model.pair_name(pair)[1] == "right" for pair in value)
    with pytest.raises(UnsupportedError, match="use bayes-br with noise_sd or infer_noise=True"):
        make_agent("manifold", model)


def test_a_loop_that_pays_is_refused():
    moves = {("s", "round"): Move(1.0, {"s": 1.0}), ("s", "out"): Move(0.0, {"goal": 1.0})}
    model = from_moves("greed", moves, start="s")
    agent = having_seen(model, SamplingSettings(epsilon=0.0), [0])
    with pytest.raises(UnsupportedError, match="exact posterior does not exist: use the agent bayes-br"):
        agent.policy(np.random.default_rng(0))
    with pytest.raises(UnsupportedError, match="method B"):
        PosteriorSampling(envs.deep_sea(3, slip=0.1), SamplingSettings(method="A"))
    with pytest.raises(UnsupportedError, match="single start"):
        PosteriorSampling(replace(envs.deep_sea(2), initial=np.array([0.5, 0.5, 0.0])), SamplingSettings(method="A"))


def test_method_a_refuses_more_routes_than_memory_holds(monkeypatch):
    """It does not draw from some of them; the message does not advise what the agent is already."""
    model = envs.deep_sea(8)
    agent = having_seen(model, SamplingSettings(epsilon=1.0, method="A"), [0])
    agent.policy(np.random.default_rng(0))
    assert agent.diagnostics == {"routes": 256.0}
    for module in ("posteriors.most_probable", "agents.posterior_sampling"):
        monkeypatch.setattr(f"bellmanifold.{module}.MOST_ROUTES", 255)
    agent = having_seen(model, SamplingSettings(epsilon=1.0, method="A"), [0])
    with pytest.raises(UnsupportedError, match=r"there are more than 255: use method B$"):
        agent.policy(np.random.default_rng(0))
