"""Gymnasium environments stepped from outside: any environment whose observations and actions are single numbers.

States and actions are named by their numbers and a terminated step leads to the goal, as in
`bellmanifold.formats.gymnasium`. An environment that exposes its transition table `P` has laws; of any other one only
its sizes are known and, if it tells, which actions a state has (`info["action_mask"]`, as Gymnasium's own convention
is). Where there is a table it decides which pairs exist, and masks, which there mark moves that are merely useless, are
not looked at.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool, Int

from bellmanifold.agents.worlds import Step, pairs_of
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.formats.gymnasium import from_gymnasium, has_table
from bellmanifold.ssp import SSP, Description, assemble

LARGEST_SEED = 2**31


class SteppedWorld:
    """A Gymnasium environment as a world; its first episode seeds it."""

    def __init__(self, env: gymnasium.Env[Any, Any], model: SSP | None = None) -> None:
        """Wrap an environment; `model` may give its pairs in another order (as `with_action_order` does)."""
        self.env = env
        self.label = env.unwrapped.spec.id if env.unwrapped.spec is not None else type(env.unwrapped).__name__
        self.has_laws = has_table(env)
        if model is None:
            model = from_gymnasium(env) if self.has_laws else _table_of_pairs(env, self.label)
        self.model = model
        self._state_of = {int(name): s for s, name in enumerate(model.states)}
        self._action_of = [int(model.actions[a]) for a in model.pair_action]
        self._masks: dict[int, Bool[np.ndarray, "actions"]] = {}
        self._seeded = False

    @property
    def may_loop(self) -> bool:
        """Unless its table says otherwise, anything can repeat."""
        return True

    def start(self, rng: np.random.Generator) -> int:
        """Reset the environment."""
        seed = None if self._seeded else int(rng.integers(LARGEST_SEED))
        self._seeded = True
        observation, info = self.env.reset(seed=seed)
        return self._see(observation, info)

    def step(self, pair: int, rng: np.random.Generator) -> Step:
        """Step the environment."""
        action = self._action_of[pair]
        observation, reward, terminated, truncated, info = self.env.step(np.int64(action))
        if not np.isfinite(float(reward)):
            raise BadInputError(f"gym:{self.label}: action {action} paid {reward}: rewards must be finite numbers")
        landing = self.model.n_states if terminated else self._see(observation, info)
        return Step(float(reward), landing, bool(truncated))

    def playable(self, state: int) -> Int[np.ndarray, "actions"]:
        """The pairs of the state that its last mask allowed."""
        pairs = pairs_of(self.model, state)
        return pairs[self._masks[state]] if state in self._masks else pairs

    def _see(self, observation: Any, info: dict[str, Any]) -> int:
        state = self._state_of.get(int(observation))
        if state is None:
            raise BadInputError(
                f"gym:{self.label} came to state {int(observation)}, which its own description says the start cannot "
                "reach: correct its P or its observation space"
            )
        mask = None if self.has_laws else info.get("action_mask")
        if mask is not None:
            self._masks[state] = np.asarray(mask, dtype=bool)
            if not self._masks[state].any():
                raise BadInputError(f"gym:{self.label}: the mask of state {int(observation)} allows no action")
        return state


def _table_of_pairs(env: gymnasium.Env[Any, Any], label: str) -> SSP:
    """Every state with every action, for an environment whose laws are unknown; where the pairs lead means nothing."""
    spaces: tuple[Any, Any] = (env.observation_space, env.action_space)
    if not all(isinstance(space, gymnasium.spaces.Discrete) for space in spaces):
        raise UnsupportedError(
            f"gym:{label}: observations and actions must be single numbers (Discrete spaces): wrap it so that they are"
        )
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
