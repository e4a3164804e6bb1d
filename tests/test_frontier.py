"""What is the frontier, the shortest way to it, and agents that go it."""

from dataclasses import replace

import numpy as np
import pytest
from problems import all_policies, chain, random_problem

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.frontier import Knowledge, unseen
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.posterior_sampling import PosteriorSampling
from bellmanifold.agents.registry import make_agent
from bellmanifold.agents.settings import SamplingSettings
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.learning.episodes import run_episodes
from bellmanifold.problem.dataset import Dataset


def knowing(model, known):
    return Knowledge(model, known, ~known)


def moves_of(knowledge, policy):
    """Expected known moves of a policy until the frontier, from the definition; infinite if it never comes there."""
    model, n = knowledge.model, knowledge.model.n_states
    finite = np.isfinite(knowledge.way.moves)
    inner = [s for s in range(n) if finite[s] and not knowledge.at_frontier[s]]
    matrix = chain(model, policy)[:-1]
    lost = [s for s in range(n + 1) if s == n or not finite[s]]
    right = 1.0 + n * matrix[np.ix_(inner, lost)].sum(axis=1)
    within = np.eye(len(inner)) - matrix[np.ix_(inner, inner)]
    if abs(np.linalg.det(within)) < 1e-12:
        return None
    found = np.zeros(n)
    found[inner] = np.linalg.solve(within, right)
    return found


def reaches_frontier(knowledge):
    """Which states can come to one with the frontier by known pairs, by closure."""
    model, found = knowledge.model, knowledge.at_frontier.copy()
    for _ in range(model.n_states):
        for i in np.flatnonzero(knowledge.known):
            after = model.next_state[model.next_start[i] : model.next_start[i + 1]]
            found[model.pair_state[i]] |= any(found[s] for s in after if s < model.n_states)
    return found


@pytest.mark.parametrize("successors", [1, 3])
def test_the_shortest_way_against_every_policy(rng, successors):
    """Random problems, random knowledge: no policy on known pairs is shorter from any state, and ours is one."""
    ways = 0
    for _ in range(60):
        model = random_problem(rng, states=5, actions=3, successors=successors)
        knowledge = knowing(model, rng.random(model.n_pairs) < 0.75)
        moves, pair = knowledge.way
        finite = np.isfinite(moves)
        np.testing.assert_array_equal(finite, reaches_frontier(knowledge))
        assert (moves[knowledge.at_frontier] == 0).all()
        on_the_way = finite & ~knowledge.at_frontier
        assert (pair[~on_the_way] == -1).all()
        assert knowledge.known[pair[on_the_way]].all()
        if not on_the_way.any():
            continue
        ways += 1
        ours = moves_of(knowledge, np.where(on_the_way, pair, model.pair_start[:-1]))
        np.testing.assert_allclose(moves[finite], ours[finite], rtol=1e-9)
        for policy in all_policies(model):
            if knowledge.known[policy[on_the_way]].all():
                other = moves_of(knowledge, policy)
                assert other is None or (moves[on_the_way] <= other[on_the_way] * (1 + 1e-9)).all()
    assert ways >= 15


def test_random_moves_on_a_larger_grid():
    """A slippery grid of which one pair is unknown: the way solves its own equations."""
    model = envs.grid(rows=12, columns=12, slip=0.2)
    known = np.ones(model.n_pairs, dtype=bool)
    known[model.pair_start[77]] = False
    moves, pair = knowing(model, known).way
    value = np.append(moves, model.n_states)
    ahead = 1.0 + np.add.reduceat(model.next_prob * value[model.next_state], model.next_start[:-1])
    ahead[~known] = 0.0
    np.testing.assert_allclose(moves, np.minimum.reduceat(ahead, model.pair_start[:-1]), rtol=1e-9)
    others = np.arange(model.n_states) != 77
    np.testing.assert_allclose(ahead[pair[others]], moves[others], rtol=1e-9)


def trap_and_treasure():
    """Left is known to end in a trap that cannot be left; right leads to a state with something new."""
    moves = {
        ("start", "left"): Move(-1.0, {"trap": 1.0}),
        ("start", "right"): Move(-1.0, {"far": 1.0}),
        ("start", "home"): Move(-1.0, {"goal": 1.0}),
        ("trap", "stay"): Move(-1.0, {"trap": 1.0}),
        ("far", "back"): Move(-1.0, {"start": 1.0}),
        ("far", "new"): Move(5.0, {"goal": 1.0}),
        ("island", "new"): Move(5.0, {"goal": 1.0}),
    }
    return from_moves("trap", moves, start="start")


def test_traps_and_news_nobody_can_reach():
    model = trap_and_treasure()
    index, place = model.pair_index, model.state_index
    known = np.ones(model.n_pairs, dtype=bool)
    known[index["far", "new"]] = known[index["island", "new"]] = False
    moves, pair = knowing(model, known).way
    assert moves[place["start"]] == 1
    assert pair[place["start"]] == index["start", "right"]
    assert np.isinf(moves[place["trap"]])
    known[index["far", "new"]] = True
    knowledge = knowing(model, known)
    assert np.isinf(knowledge.way.moves[place["start"]]), "the island is nowhere near"
    home = np.array([index["start", "home"], index["trap", "stay"], index["far", "back"], index["island", "new"]])
    home = home[np.argsort(model.pair_state[home])]
    np.testing.assert_array_equal(knowledge.towards_frontier(home, np.random.default_rng(0)), home)
    assert not knowledge.meets_frontier(home)


def test_a_risk_of_losing_the_episode_counts_as_many_moves_as_there_are_states():
    """Three known moves that arrive, or one that ends the episode with probability p: 1 + 6 p against 3, 6 states."""
    for p, taken in ((0.2, "leap"), (0.5, "walk")):
        moves = {
            ("a", "walk"): Move(-1.0, {"b": 1.0}),
            ("a", "leap"): Move(-1.0, {"z": 1.0 - p, "goal": p}),
            ("b", "walk"): Move(-1.0, {"c": 1.0}),
            ("c", "walk"): Move(-1.0, {"z": 1.0}),
            ("z", "new"): Move(1.0, {"goal": 1.0}),
            ("y", "walk"): Move(-1.0, {"goal": 1.0}),
            ("x", "walk"): Move(-1.0, {"goal": 1.0}),
        }
        model = from_moves("leap", moves, start="a")
        known = np.ones(model.n_pairs, dtype=bool)
        known[model.pair_index["z", "new"]] = False
        found = knowing(model, known).way
        assert model.pair_name(found.pair[model.state_index["a"]])[1] == taken
        assert found.moves[model.state_index["a"]] == pytest.approx(min(3.0, 1.0 + 6 * p))


def test_a_policy_meets_news_wherever_it_may_come():
    """Two starts, and a move that may go two ways: one unknown pair at any of their ends is enough."""
    moves = {
        ("a", "x"): Move(0.0, {"b": 0.5, "goal": 0.5}),
        ("b", "x"): Move(0.0, {"goal": 1.0}),
        ("c", "x"): Move(0.0, {"goal": 1.0}),
        ("d", "x"): Move(0.0, {"goal": 1.0}),
    }
    model = from_moves("ways", moves, start="a")
    model = replace(model, initial=np.isin(model.states, ["a", "c"]) / 2)
    policy = np.arange(model.n_pairs)
    for state, met in (("a", True), ("b", True), ("c", True), ("d", False)):
        known = np.ones(model.n_pairs, dtype=bool)
        known[model.pair_index[state, "x"]] = False
        assert knowing(model, known).meets_frontier(policy) == met
    known = np.ones(model.n_pairs, dtype=bool)
    assert knowing(model, known).meets_frontier(np.where(np.arange(4) == model.state_index["b"], -1, policy))
    assert not knowing(model, known).meets_frontier(policy)
    known[model.pair_index["c", "x"]] = False
    from_a = replace(model, initial=np.isin(model.states, ["a"]).astype(float))
    assert not knowing(from_a, known).meets_frontier(policy)


def test_pairs_of_a_state_that_are_news_come_in_any_order():
    """Of three unseen pairs each is chosen in a third of 3,000 looks: within 5 standard errors, false alarm 2e-6."""
    model = from_moves("wide", {("a", str(k)): Move(0.0, {"goal": 1.0}) for k in range(4)}, start="a")
    known = np.array([True, False, False, False])
    rng = np.random.default_rng(0)
    found = [int(knowing(model, known).towards_frontier(np.zeros(1, dtype=int), rng)[0]) for _ in range(3000)]
    share = np.bincount(found, minlength=4) / 3000
    assert share[0] == 0
    assert np.abs(share[1:] - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 3000)


@pytest.mark.parametrize(("epsilon", "seen"), [(0.0, 4), pytest.param(0.5, 3, marks=pytest.mark.slow)])
def test_the_coin_is_the_posterior_probability_that_something_unseen_is_optimal(epsilon, seen):
    """3,000 draws from 30 pools of points: within 4 standard errors, the pools' own included; false alarm 6e-5."""
    model = envs.deep_sea(3)
    pairs = np.flatnonzero(np.arange(model.n_pairs) % seen != 1)
    settings = SamplingSettings(epsilon=epsilon, prior_scale=2.0, explore="directed")
    agent = PosteriorSampling(model, settings)
    agent.observe(pairs, model.reward[pairs])
    summary = bm.posterior(model, Dataset(model, pairs, model.reward[pairs]), epsilon=epsilon, prior_scale=2.0)
    exact = sum(route.probability for route in summary.routes if not set(route.pairs) <= set(pairs.tolist()))
    assert 0.2 < exact < 0.9
    rng, explored, effective = np.random.default_rng(1), 0.0, 0.0
    for _ in range(30):
        agent._stale = True
        for _ in range(100):
            agent.policy(rng)
            explored += agent.diagnostics["explores"]
        effective += agent.diagnostics["effective_sample_size"]
    error = np.sqrt(exact * (1 - exact) * (1 / 3000 + 1 / effective))
    assert abs(explored / 3000 - exact) < 4 * error


@pytest.mark.parametrize("agent", ["manifold", pytest.param("bayes-br", marks=pytest.mark.slow)])
def test_an_exploring_episode_plays_known_pairs_up_to_something_unseen(agent):
    """On the swirl: until its first new pair an exploring episode moves by known pairs, and as few as a search finds.

    An episode that does not explore plays no pair that is new.
    """
    model = envs.swirl(4)
    memory, explored = Memory(model), 0
    for episode in run_episodes(model, make_agent(agent, model, {"explore": "directed"}), 40, seed=2):
        new = ~memory.observed[episode.pairs]
        if episode.diagnostics["explores"]:
            explored += 1
            first = unseen(memory).way.moves[np.argmax(model.initial)]
            assert (np.argmax(new) if new.any() else np.inf) == first
        else:
            assert not new.any()
        memory.add(episode.pairs, episode.rewards)
    assert 5 < explored < 40


def test_directed_runs_are_reproducible():
    model = envs.deep_sea(4, slip=0.1)
    played = [run_episodes(model, make_agent("manifold", model, {"explore": "directed"}), 8, seed=5) for _ in range(2)]
    for one, other in zip(*played, strict=True):
        np.testing.assert_array_equal(one.pairs, other.pairs)


@pytest.mark.slow
def test_the_bottom_of_deep_sea_takes_few_more_episodes_than_it_has_pairs():
    """Ten runs of bsuite's deep sea, N = 20, are solved within 3.1 N episodes on average (Thompson sampling: 8 N).

    The ten numbers scatter by 6 around 48: false alarm below 1e-6.
    """
    learning = bm.learn(envs.deep_sea(depth=20, convention="bsuite"), "manifold", 80, explore="directed")
    assert np.mean([run.solved_episode or 200 for run in learning.runs]) <= 62


def test_who_cannot_be_directed_says_so(cli):
    with pytest.raises(BadInputError, match='explore is "there": give thompson or directed'):
        make_agent("manifold", envs.two_state(), {"explore": "there"})
    code, out, err = cli("learn", "env:two-state", "--agent", "psrl", "--explore", "directed")
    assert (code, out) == (2, "")
    told = 'psrl has no option "explore": it has replan, noise_sd, concentration; leave it out'
    assert err == f"bellmanifold: {told}, or use one that has it: bayes-br, manifold\n"
