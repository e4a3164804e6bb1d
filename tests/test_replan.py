"""Episodes that go on when a state repeats: they end, agents look again, and the way home is the best one known."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from problems import all_policies, chain, random_problem

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.planning import way_home
from bellmanifold.agents.registry import make_agent
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.learning.episodes import run_episodes
from bellmanifold.learning.run import play_run
from bellmanifold.mdp.graph import reach_goal

NAMES_POLICIES = ("bayes-td", "psrl", "rlsvi", "nearest")
"""Agents that name policies and compile nothing."""
ALWAYS = (("psrl", 1), ("rlsvi", 3), ("bayes-td", 3))
"""Agents and numbers of successors that every run of the tests asks; `make test-slow` asks the others."""


class Wanderer:
    """Plays random policies, and says in which states it looked again."""

    def __init__(self, model):
        self.model, self.seen, self.looked = model, [], []

    def policy(self, rng):
        return rng.integers(self.model.pair_start[:-1], self.model.pair_start[1:])

    def look(self, state, rng):
        self.looked.append(state)
        return self.policy(rng)

    def observe(self, pairs, rewards):
        self.seen += pairs.tolist()


class Ring(gymnasium.Env):
    """No table: three states in a ring; one action goes on, the other ends in state 2 and goes back elsewhere."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return self.state, {}

    def step(self, action):
        ends = bool(action == 1 and self.state == 2)
        self.state = (self.state + (1 if action == 0 else -1)) % 3
        return self.state, -1.0, ends, False, {}


def values(model, policy, known):
    """Expected reward from every state by known pairs, NaN where the goal may be missed, by the dense chain."""
    matrix = chain(model, policy)
    astray = np.flatnonzero(~known[policy])
    matrix[astray] = np.eye(len(matrix))[astray]
    arrives = np.linalg.matrix_power(matrix, 4096)[:-1, -1] > 1 - 1e-9
    keep = np.flatnonzero(arrives)
    found = np.full(model.n_states, np.nan)
    inner = np.eye(len(keep)) - matrix[np.ix_(keep, keep)]
    found[keep] = np.linalg.solve(inner, model.reward[policy[keep]])
    return found


def test_the_way_home_against_every_policy(rng):
    """Random costs, random knowledge: no policy on known pairs that surely arrives is better, from any state."""
    homes = 0
    for _ in range(40):
        model = random_problem(rng, states=4, actions=3, reward_kind="costs", goal_share=0.3)
        known = rng.random(model.n_pairs) < 0.7
        home = way_home(model, known, model.reward)
        sure, _ = reach_goal(model, known)
        assert known[home[home >= 0]].all()
        assert (home[sure] >= 0).all()
        if not sure.any():
            continue
        homes += 1
        ours = values(model, np.where(home < 0, model.pair_start[:-1], home), known)
        assert np.isfinite(ours[sure]).all()
        for policy in all_policies(model):
            other = values(model, policy, known)
            arrives = np.isfinite(other)
            assert (ours[arrives] >= other[arrives] - 1e-9).all()
    assert homes >= 15


def test_a_way_home_that_only_luck_opens():
    """From `risky` the goal may be missed for ever, but nothing better is known; from `trap` there is no way."""
    moves = {
        ("risky", "go"): Move(-1.0, {"goal": 0.5, "trap": 0.5}),
        ("risky", "stay"): Move(-1.0, {"risky": 1.0}),
        ("trap", "stay"): Move(-1.0, {"trap": 1.0}),
    }
    model = from_moves("risk", moves, start="risky")
    home = way_home(model, np.ones(model.n_pairs, dtype=bool), model.reward)
    assert home[model.state_index["risky"]] == model.pair_index["risky", "go"]
    assert home[model.state_index["trap"]] == -1


def test_the_way_home_lives_with_loops_that_pay():
    moves = {
        ("a", "round"): Move(1.0, {"a": 1.0}),
        ("a", "out"): Move(-1.0, {"b": 1.0}),
        ("b", "out"): Move(-1.0, {"goal": 1.0}),
    }
    model = from_moves("paid loop", moves, start="a")
    home = way_home(model, np.ones(model.n_pairs, dtype=bool), model.reward)
    assert [model.pair_name(i)[1] for i in home] == ["out", "out"]


@pytest.mark.parametrize(
    ("agent", "successors"),
    [
        pytest.param(agent, successors, marks=[] if (agent, successors) in ALWAYS else [pytest.mark.slow])
        for agent in NAMES_POLICIES
        for successors in (1, 3)
    ],
)
def test_episodes_end_at_the_goal_wherever_it_can_be_reached_surely(agent, successors, rng):
    """Free loops, loops that pay and random moves: from a place where some policy arrives surely an episode arrives.

    States from which none does are left out: there only luck would. An episode may take the cap's 1,000 moves.
    """
    tried = 0
    while tried < 12:
        model = random_problem(rng, states=6, actions=3, successors=successors, reward_kind="integers", goal_share=0.3)
        if not reach_goal(model)[0].all():
            continue
        tried += 1
        for episode in run_episodes(model, make_agent(agent, model), 12, seed=tried, replan=True):
            assert episode.end in ("goal", "cap")
            assert episode.end == "goal" or len(episode.pairs) == 1000
            if model.is_deterministic:
                assert episode.end == "goal"


BUILT_IN = [envs.deep_sea(3), envs.pyramid(3), envs.swirl(3), envs.two_state(), envs.four_state()]
SLIPPERY = envs.grid(3, 3, slip=0.2)


@pytest.mark.parametrize(
    ("model", "agent", "explore"),
    [
        *((model, "manifold", "directed") for model in BUILT_IN),
        pytest.param(SLIPPERY, "manifold", "directed", marks=pytest.mark.slow),
        (BUILT_IN[2], "bayes-br", "thompson"),
        pytest.param(SLIPPERY, "bayes-br", "thompson", marks=pytest.mark.slow),
    ],
    ids=lambda part: getattr(part, "name", part),
)
def test_episodes_end_on_built_in_problems(model, agent, explore):
    played = run_episodes(model, make_agent(agent, model, {"explore": explore}), 8, seed=1, replan=True)
    assert all(episode.end == "goal" for episode in played)
    assert any(episode.changed for episode in played)


def test_a_trap_ends_the_episode_once_all_of_it_was_played():
    """Two states that cannot be left: every pair of them is played, then nothing new can follow."""
    moves = {
        ("a", "down"): Move(-1.0, {"pit": 1.0}),
        ("pit", "x"): Move(-1.0, {"hole": 1.0}),
        ("pit", "y"): Move(-1.0, {"pit": 1.0}),
        ("hole", "x"): Move(0.0, {"pit": 1.0}),
    }
    model = from_moves("pit", moves | {("shore", "x"): Move(0.0, {"goal": 1.0})}, start="a")
    inside = {i for i in range(model.n_pairs) if model.pair_name(i)[0] != "shore"}
    for agent in ("nearest", "bayes-td"):
        first, second = run_episodes(model, make_agent(agent, model), 2, seed=0, replan=True)
        assert first.end == second.end == "loop"
        assert set(first.pairs.tolist()) == inside
        assert len(second.pairs) <= 4


def looks_by_the_rule(pairs_by_episode, n_pairs):
    """The rule stated anew: moves (episode, number) after which an agent looks, and how many of them are doublings."""
    count, looks, doublings = [0] * n_pairs, [], 0
    for episode, pairs in enumerate(pairs_by_episode):
        before = list(count)
        for move, pair in enumerate(pairs):
            count[pair] += 1
            if move < len(pairs) - 1 and count[pair] == max(1, 2 * before[pair]):
                doublings += before[pair] > 0
                before = list(count)
                looks.append((episode, move))
    return looks, doublings


@pytest.mark.parametrize("model", [envs.swirl(3), envs.grid(3, 3, slip=0.3)], ids=lambda model: model.name)
def test_an_agent_looks_again_at_what_is_new_or_seen_twice_as_often_and_learns_in_between(model):
    agent = Wanderer(model)
    played = run_episodes(model, agent, 12, seed=3, replan=True)
    assert agent.seen == np.concatenate([episode.pairs for episode in played]).tolist(), "every move is shown once"
    looks, doublings = looks_by_the_rule([episode.pairs.tolist() for episode in played], model.n_pairs)
    assert agent.looked == [int(model.pair_state[played[episode].pairs[move + 1]]) for episode, move in looks]
    counted = np.bincount([episode for episode, _ in looks], minlength=len(played))
    assert [episode.diagnostics["looks"] for episode in played] == counted.tolist()
    assert doublings >= 3


class Pacer(Wanderer):
    """Walks up and down a corridor until it is told to look, then turns to the goal."""

    def policy(self, rng):
        return np.array([self.model.pair_index[state, "stay"] for state in self.model.states])

    def look(self, state, rng):
        self.looked.append(len(self.seen))
        leaves = "go" if len(self.looked) > 4 else "stay"
        return np.array([self.model.pair_index[state, leaves] for state in self.model.states])


def test_a_bad_policy_does_not_run_on_to_the_cap():
    """Staying may lead on by luck alone, so that no loop is certain: looks after 1, 2, 4, 8 and 16 moves."""
    moves = {("a", "stay"): Move(-1.0, {"a": 0.999, "goal": 0.001}), ("a", "go"): Move(-1.0, {"goal": 1.0})}
    agent = Pacer(from_moves("waiting", moves, start="a"))
    (episode,) = run_episodes(agent.model, agent, 1, seed=0, replan=True)
    assert agent.looked == [1, 2, 4, 8, 16]
    assert episode.end == "goal"
    assert len(episode.pairs) == 17


def test_a_policy_that_changed_on_the_way_is_not_optimal():
    """Two states: an episode that first stays and then goes begins with a policy that never arrives."""
    found = play_run(envs.two_state(), "nearest", 4, seed=0, options={"replan": True})
    changed = np.array([episode.changed for episode in found.played])
    assert changed.tolist() == [True, False, False, False] or changed.tolist() == [False, True, False, False]
    assert not found.optimal[changed].any()
    assert np.isnan(found.expected_regret[changed]).all()
    assert found.optimal[2:].all()
    assert found.reached_goal.all()


def test_the_cap_and_what_an_environment_cuts_off():
    model = envs.deep_sea(5)
    capped = run_episodes(model, make_agent("nearest", model), 3, cap=2, replan=True)
    assert [episode.end for episode in capped] == ["cap"] * 3
    env = gymnasium.make("CliffWalking-v1", max_episode_steps=7)
    played = run_episodes(env, make_agent("nearest", env), 4, replan=True)
    assert {episode.end for episode in played} == {"cut off"}
    assert {len(episode.pairs) for episode in played} == {7}


def test_replanning_needs_no_laws():
    """An environment without a table: an agent looks again, and the environment's own limit ends circles."""
    env = gymnasium.wrappers.TimeLimit(Ring(), 20)
    played = run_episodes(env, make_agent("rlsvi", env), 30, seed=0, replan=True)
    assert {episode.end for episode in played} <= {"goal", "cut off"}
    looks, _ = looks_by_the_rule([episode.pairs.tolist() for episode in played], 6)
    assert sum(episode.diagnostics["looks"] for episode in played) == len(looks) > 5


@pytest.mark.slow
def test_cliff_walking_is_known_after_a_few_episodes():
    """Where an episode that ends at the first repeat takes 80 episodes."""
    learning = bm.learn("gym:CliffWalking-v1", "manifold", 12, runs=2, explore="directed", replan=True)
    for run in learning.runs:
        assert run.reached_goal.all()
        assert run.optimal[9:].all()


@pytest.mark.slow
def test_taxi_is_known_within_sixty_episodes():
    (run,) = bm.learn("gym:Taxi-v4", "manifold", 80, runs=1, explore="directed", replan=True).runs
    assert run.optimal[60:].all()


def test_who_cannot_replan_says_so(cli):
    model = envs.two_state()
    with pytest.raises(BadInputError, match=r"chooses every move individually .*: leave replan out"):
        run_episodes(model, make_agent("q-learning", model), 1, replan=True)
    code, out, err = cli("learn", "env:two-state", "--agent", "q-learning", "--replan")
    assert (code, out) == (2, "")
    assert err.startswith('bellmanifold: q-learning has no option "replan": it has exploration')
    assert err.count("\n") == 1
    code, out, _ = cli("learn", "env:two-state", "--agent", "nearest", "--replan", "--runs", "1", "--episodes", "2")
    assert code == 0
    assert "replan True" in out


def test_what_was_not_visited_changes_nothing_when_an_episode_goes_on():
    """A chain of three states whose last pair is never played: the agent looks again twice without knowing it."""
    moves = {
        ("a", "on"): Move(-1.0, {"b": 1.0}),
        ("b", "on"): Move(-1.0, {"goal": 1.0}),
        ("b", "back"): Move(-1.0, {"a": 1.0}),
        ("c", "on"): Move(-1.0, {"goal": 1.0}),
    }
    model = from_moves("chain", moves, start="a")
    other = replace(model, reward=np.where(model.pair_state == model.state_index["c"], 9.0, model.reward))
    for agent in ("nearest", "manifold"):
        options = {"explore": "directed"} if agent == "manifold" else {}
        played, again = (run_episodes(m, make_agent(agent, m, options), 4, seed=2, replan=True) for m in (model, other))
        assert [e.pairs.tolist() for e in played] == [e.pairs.tolist() for e in again]
