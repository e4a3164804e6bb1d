"""Worlds in which episodes are played: a simulated problem, or a Gymnasium environment that is stepped.

A world refers to states and pairs by their numbers in `model`. Where its transition laws are unknown (`has_laws` is
False), `model` is only a table of states and actions, and its laws and rewards are meaningless.

Any environment can be stepped whose observations and actions are integers or tuples of integers
(`bellmanifold.io.numbered`). States and actions are named by those numbers and a terminated step leads to the
goal, as in `bellmanifold.io.gymnasium`. An environment that exposes its transition table `P` has laws; of any
other, only the sizes of its spaces are known and, if it provides `info["action_mask"]` (Gymnasium's convention), which
actions a state has. A table decides which pairs exist; masks, which then only mark useless moves, are ignored.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from bellmanifold._util.extras import require_extra
from bellmanifold.errors import BadInputError, kind_of_value
from bellmanifold.mdp.graph import levels
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.ssp import SSP, Description, require_closed

LARGEST_SEED = 2**31
LEAST_CAP, MOVES_PER_STATE = 1000, 10
"""The default limit on the moves of an episode: the larger of this number and this many per state."""


class Step(NamedTuple):
    """The outcome of a move: its reward, the next state (`n_states` is the goal), and whether it was cut off."""

    reward: float
    next_state: int
    cut_off: bool = False


@runtime_checkable
class World(Protocol):
    """What the episode loop requires of a world."""

    model: SSP
    has_laws: bool

    def start(self, rng: np.random.Generator) -> int:
        """Begin an episode; its first state."""

    def step(self, pair: int, rng: np.random.Generator) -> Step:
        """Play a pair of the current state."""

    def playable(self, state: int) -> Int[np.ndarray, "actions"]:
        """The pairs that can be played in a state; none at the goal."""

    @property
    def may_loop(self) -> bool:
        """Whether an episode might visit a state twice, as far as is known."""


class SimulatedWorld:
    """A problem whose transitions and noisy rewards are drawn from its own laws."""

    has_laws = True

    def __init__(self, model: SSP) -> None:
        require_closed(model, "simulation")
        self.model = model
        self._starts = np.cumsum(model.initial)
        self._state = model.n_states
        self._next_start = model.next_start.tolist()
        self._reward, self._sd = model.reward.tolist(), model.reward_sd.tolist()

    @cached_property
    def may_loop(self) -> bool:
        return levels(self.model) is None

    def start(self, rng: np.random.Generator) -> int:
        self._state = _draw_index(self._starts, rng)
        return self._state

    def step(self, pair: int, rng: np.random.Generator) -> Step:
        """Draw the reward's noise, if any, and the next state."""
        model, first, last = self.model, self._next_start[pair], self._next_start[pair + 1]
        reward = self._reward[pair]
        if self._sd[pair] > 0:
            reward += self._sd[pair] * float(rng.standard_normal())
        entry = first if last == first + 1 else first + _draw_index(np.cumsum(model.next_prob[first:last]), rng)
        self._state = int(model.next_state[entry])
        return Step(reward, self._state)

    def playable(self, state: int) -> Int[np.ndarray, "actions"]:
        return pairs_of(self.model, state)


class SteppedWorld:
    """A Gymnasium environment as a world; it is seeded at the start of its first episode."""

    may_loop = True
    """Any state might be visited again."""

    def __init__(self, env: Any, model: SSP | None = None) -> None:
        """Wrap an environment; `model` may have its pairs in another order (as `with_action_order` returns them)."""
        require_extra("gym", "a Gymnasium environment")
        from bellmanifold.io.gymnasium import from_gymnasium, has_table, label_of
        from bellmanifold.io.numbered import numbered

        env = numbered(env) if not has_table(env) else env
        self.env = env
        self.label = label_of(env)
        self.has_laws = has_table(env)
        if model is None:
            model = from_gymnasium(env) if self.has_laws else _table_of_pairs(env, self.label)
        self.model = model
        self._state_of = {int(name): s for s, name in enumerate(model.states)}
        self._action_of = [int(model.actions[a]) for a in model.pair_action]
        self._masks: dict[int, Bool[np.ndarray, "actions"]] = {}
        self._seeded = False

    def start(self, rng: np.random.Generator) -> int:
        seed = None if self._seeded else int(rng.integers(LARGEST_SEED))
        self._seeded = True
        observation, info = self.env.reset(seed=seed)
        return self._see(observation, info)

    def step(self, pair: int, rng: np.random.Generator) -> Step:
        action = self._action_of[pair]
        answer = self.env.step(np.int64(action))
        if not isinstance(answer, tuple) or len(answer) != 5:
            what = f"{len(answer)} entries" if isinstance(answer, tuple) else kind_of_value(answer)
            wanted = "return observation, reward, terminated, truncated and info, as Gymnasium requires"
            raise BadInputError(f"gym:{self.label}: step returned {what}: {wanted}")
        observation, reward, terminated, truncated, info = answer
        if not np.isfinite(float(reward)):
            raise BadInputError(f"gym:{self.label}: action {action} paid {reward}: rewards must be finite numbers")
        next_state = self.model.n_states if terminated else self._see(observation, info)
        return Step(float(reward), next_state, bool(truncated))

    def playable(self, state: int) -> Int[np.ndarray, "actions"]:
        """The pairs of the state that its most recent mask allows."""
        pairs = pairs_of(self.model, state)
        return pairs[self._masks[state]] if state in self._masks else pairs

    def _see(self, observation: Any, info: dict[str, Any]) -> int:
        state = self._state_of.get(int(observation))
        if state is None:
            says = (
                "which its own table P says the start cannot reach: correct its P"
                if self.has_laws
                else f"which is not in its observation space {self.env.observation_space}: correct that space"
            )
            raise BadInputError(f"gym:{self.label} came to state {int(observation)}, {says}")
        mask = None if self.has_laws else info.get("action_mask")
        if mask is not None:
            self._masks[state] = np.asarray(mask, dtype=bool)
            if not self._masks[state].any():
                raise BadInputError(f"gym:{self.label}: the mask of state {int(observation)} allows no action")
        return state


class WithoutTable:
    """A world as an agent meets it that is shown no laws: states, actions, and steps; its `model` holds nothing else.

    Whatever the table of the world says of laws and rewards, an agent that plays here, and the loop that plays it, do
    the same as long as the steps are the same. Only which states and actions there are is taken from the table.
    """

    has_laws = False
    may_loop = True
    """Any state might be visited again."""

    def __init__(self, world: World) -> None:
        self.model = world.model.opened()
        self.start, self.step, self.playable = world.start, world.step, world.playable


def world_as_shown(world: World, shown_laws: bool) -> World:
    """The world to play in: without a table unless its laws are shown."""
    return world if shown_laws or not world.has_laws else WithoutTable(world)


def open_world(problem: Any) -> World:
    """The world of a problem or a Gymnasium environment; a world is returned unchanged."""
    if isinstance(problem, SSP):
        return SimulatedWorld(problem)
    if isinstance(problem, World):
        return problem
    if isinstance(problem, type) or not (hasattr(problem, "unwrapped") and hasattr(problem, "step")):
        remedy = "give a problem (SSP), its name (env:deep-sea, gym:Taxi-v4, a file) or a Gymnasium environment"
        raise BadInputError(f"the problem is {kind_of_value(problem)}: {remedy}")
    return SteppedWorld(problem)


def pairs_of(model: SSP, state: int) -> Int[np.ndarray, "actions"]:
    """The pairs of a state; none at the goal."""
    if state == model.n_states:
        return np.zeros(0, dtype=np.int64)
    return np.arange(model.pair_start[state], model.pair_start[state + 1])


def _draw_index(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    """An index drawn with the probabilities whose cumulative sums are given."""
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))


def _table_of_pairs(env: Any, label: str) -> SSP:
    """All pairs of states and actions of an environment whose laws are unknown; the model's laws are meaningless."""
    spaces = (env.observation_space, env.action_space)
    first_state, states = int(spaces[0].start), int(spaces[0].n)
    first_action, actions = int(spaces[1].start), int(spaces[1].n)
    pairs = states * actions
    return assemble(
        Description(
            state_names=[*(str(first_state + s) for s in range(states)), "goal"],
            action_names=[str(first_action + a) for a in range(actions)],
            goals=[states],
            initial_state=np.arange(states),
            initial_prob=np.full(states, 1.0 / states),
            pair_state=np.repeat(np.arange(states), actions),
            pair_action=np.tile(np.arange(actions), states),
            reward=np.zeros(pairs),
            next_start=np.arange(pairs + 1),
            next_state=np.full(pairs, states),
            next_prob=np.ones(pairs),
            name=label,
        )
    )


def default_cap(model: SSP) -> int:
    """The default limit on the number of moves in an episode."""
    return max(LEAST_CAP, MOVES_PER_STATE * model.n_states)
