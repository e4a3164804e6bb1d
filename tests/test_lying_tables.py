"""Environments whose table says one thing and whose steps do another: what an agent is not shown changes no move."""

import gymnasium
import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.agent import is_shown_laws
from bellmanifold.agents.environments import SimulatedWorld
from bellmanifold.agents.registry import AGENTS, kind_of, make_agent
from bellmanifold.learning.episodes import run_episodes

SIDE = 3
LAST = SIDE * SIDE - 1
LEARN_LAWS = ("psrl", "rlsvi", "q-learning", "ucb-q")
TAKE_LAWS = ("bayes-br", "manifold")


class Lake(gymnasium.Env):
    """A square of cells, from one corner to the other; a step succeeds with probability 0.8 and costs 1.

    Its table P is what it is told to claim: it never agrees with the steps in more than states and actions.
    """

    observation_space = gymnasium.spaces.Discrete(SIDE * SIDE)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, claim=None, slip=0.2):
        self.slip = slip
        if claim is not None:
            self.P = {s: {a: claim(s, a) for a in range(4)} for s in range(LAST + 1)}

    @staticmethod
    def neighbour(cell, action):
        row, column = divmod(cell, SIDE)
        row, column = row + (action == 1) - (action == 3), column + (action == 0) - (action == 2)
        return min(max(row, 0), SIDE - 1) * SIDE + min(max(column, 0), SIDE - 1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return self.cell, {}

    def step(self, action):
        if self.np_random.random() >= self.slip:
            self.cell = self.neighbour(self.cell, int(action))
        return self.cell, -1.0, self.cell == LAST, False, {}


def _deterministic(cell, action):
    """Never slips, and pays nothing."""
    landing = Lake.neighbour(cell, action)
    return [(1.0, landing, 0.0, landing == LAST)]


def _anywhere(cell, action):
    """May lead anywhere, ends half of the time, and pays."""
    return [(0.5, 0, 3.0, True)] + [(0.5 / LAST, s, 3.0, False) for s in range(LAST)]


def _stuck(cell, action):
    """Mostly stays, and sometimes goes on to the next cell."""
    return [(0.9, cell, -7.0, False), (0.1, cell + 1, -7.0, cell + 1 >= LAST)]


def _whole(cell, action):
    """May lead to any cell, so that all of them are states, as in an environment without a table."""
    return [(1 / (LAST + 1), s, 3.0, False) for s in range(LAST)] + [(1 / (LAST + 1), LAST, 3.0, cell == LAST)]


CLAIMS = (_deterministic, _anywhere, _stuck)


def moves(env, agent, options, episodes=2):
    """Pairs, rewards and policies of a run, and the diagnostics of its agent."""
    (run,) = bm.learn(env, agent, episodes, 1, seed=2, **options).runs
    return [(e.pairs.tolist(), e.rewards.tolist(), e.end, e.policy.tolist(), e.diagnostics) for e in run.played]


CASES = [(name, {}) for name in LEARN_LAWS]
CASES += [(name, {"replan": True}) for name in ("psrl", "rlsvi")]
CASES += [("manifold", {"laws": "dirichlet"})]
SLOW = [
    ("bayes-br", {"laws": "dirichlet"}),
    ("manifold", {"laws": "dirichlet", "explore": "directed", "replan": True}),
    ("manifold", {"laws": "dirichlet", "explore": "directed", "until_loss": 0.5}),
]


@pytest.mark.parametrize(
    ("agent", "options"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)], ids=str
)
def test_a_lying_table_changes_no_move(agent, options):
    """Bit for bit the same run under three tables that say different things about steps that are the same."""
    first, *others = (moves(Lake(claim), agent, options) for claim in CLAIMS)
    for other in others:
        np.testing.assert_equal(other, first)


@pytest.mark.parametrize("replan", [False, True])
@pytest.mark.parametrize(
    ("agent", "explore"),
    [
        ("manifold", "directed"),
        *(pytest.param(a, e, marks=pytest.mark.slow) for a in TAKE_LAWS for e in ("thompson", "directed")),
    ],
)
def test_landings_taken_for_laws_do_not_come_from_a_table(agent, explore, replan):
    """Steps that never slip, under tables that say otherwise."""
    options = {"laws": "deterministic", "explore": explore, "replan": replan}
    first, *others = (moves(Lake(claim, slip=0.0), agent, options, 5) for claim in CLAIMS)
    for other in others:
        np.testing.assert_equal(other, first)


@pytest.mark.parametrize("agent", LEARN_LAWS)
def test_with_a_table_agents_that_learn_laws_play_as_without(agent):
    """The honest table is no help either: pairs are numbered as in an environment without one, in `run_episodes`."""
    problems = Lake(_whole), Lake()
    played = [run_episodes(env, make_agent(agent, env), 2, seed=1) for env in problems]
    for one, other in zip(*played, strict=True):
        assert one.pairs.tolist() == other.pairs.tolist()
        assert one.end == other.end


@pytest.mark.parametrize("replan", [False, True])
def test_a_world_taken_to_be_deterministic_is_played_as_one_whose_laws_are_shown(replan):
    """Where the assumption is true, landings tell as much as laws: a loop is a loop, bit for bit."""
    model = envs.swirl(3)
    runs = [moves(model, "manifold", {"laws": laws, "replan": replan}, 8) for laws in ("known", "deterministic")]
    np.testing.assert_equal(runs[0], runs[1])
    assert any(end == "loop" for _, _, end, _, _ in runs[0]) != replan


def test_what_is_handed_out_holds_no_laws():
    """Agent and loop agree on what is shown, and what is not shown is not in the problem they hold."""
    model = envs.swirl(3)
    for name, kind in AGENTS.items():
        for options in (
            [{"laws": laws} for laws in ("known", "dirichlet", "deterministic")] if name in TAKE_LAWS else [{}]
        ):
            agent = make_agent(name, model, options)
            assert is_shown_laws(agent) == kind.is_shown_laws(options)
            assert kind.is_shown_laws(options) == (name not in LEARN_LAWS and options.get("laws", "known") == "known")
            if not is_shown_laws(agent):
                assert agent.model.open_law.all()
                assert agent.model.open_reward.all()
                assert len(agent.model.next_state) == 0


class Asks:
    """Plays first pairs, and keeps the world it is played in from being more than steps."""

    shown_laws = False

    def __init__(self, model):
        self.model = model

    def policy(self, rng):
        return self.model.pair_start[:-1]

    def observe(self, pairs, rewards):
        pass


def test_an_agent_of_ones_own_may_ask_not_to_be_shown_laws():
    """Without laws nobody can know that a policy loops: the episode goes on up to the cap, instead of two moves."""
    model = envs.two_state()
    stays = Asks(model)
    (blind,) = run_episodes(model, stays, 1, cap=50)
    stays.shown_laws = True
    (shown,) = run_episodes(model, stays, 1, cap=50)
    assert {blind.end, shown.end} <= {"cap", "loop", "goal"}
    assert (blind.end, len(blind.pairs)) == (("cap", 50) if shown.end == "loop" else ("goal", len(shown.pairs)))
    assert kind_of(stays).is_shown_laws({}), "`learn` gives it the whole problem"


def test_moves_are_judged_by_the_table_all_the_same():
    """The judge alone looks at it: coverage, regret and optimality of an agent that is shown no laws."""
    (run,) = bm.learn(envs.two_state(), "q-learning", 30, 1).runs
    assert run.optimal_value == -1.0
    assert run.coverage[-1] == 1.0
    assert SimulatedWorld(envs.two_state()).has_laws
