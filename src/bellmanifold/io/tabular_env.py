"""A problem as a Gymnasium environment; it needs the extra `gym`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from bellmanifold.errors import BadInputError, quote
from bellmanifold.problem.ssp import SSP, require_closed


class TabularEnv(gymnasium.Env[np.int64, np.int64]):
    """A problem as a Gymnasium environment.

    Observations are indices of states, the goal last; action k is the k-th action of the current state, in the
    problem's order. `info["action_mask"]` marks the actions of the state; playing any other is an error. The transition
    table is `P`, the initial distribution `initial_state_distrib`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(self, model: SSP) -> None:
        require_closed(model, "simulation")
        self.model = model
        counts = np.diff(model.pair_start)
        self.observation_space = gymnasium.spaces.Discrete(model.n_states + 1)
        self.action_space = gymnasium.spaces.Discrete(int(counts.max()))
        self._action_numbers = np.arange(counts.max())
        self.initial_state_distrib = np.append(model.initial, 0.0)
        self._counts = np.append(counts, 0)
        self._state = model.n_states

    @property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:  # noqa: N802 (Gymnasium's own name)
        """The transition table, in the layout of Gymnasium's toy environments."""
        model = self.model
        table: dict[int, dict[int, list[tuple[float, int, float, bool]]]] = {s: {} for s in range(model.n_states)}
        for i, s in enumerate(model.pair_state.tolist()):
            own = slice(model.next_start[i], model.next_start[i + 1])
            moves = zip(model.next_prob[own].tolist(), model.next_state[own].tolist(), strict=True)
            reward = float(model.reward[i])
            table[s][i - int(model.pair_start[s])] = [(p, j, reward, j == model.n_states) for p, j in moves]
        return table

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = int(self.np_random.choice(self.model.n_states, p=self.model.initial / self.model.initial.sum()))
        return np.int64(self._state), self._info()

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        model = self.model
        if not 0 <= action < self._counts[self._state]:
            where = quote(model.state_name(self._state))
            raise BadInputError(f"action {action}: state {where} has {self._counts[self._state]} actions")
        pair = model.pair_start[self._state] + int(action)
        own = slice(model.next_start[pair], model.next_start[pair + 1])
        prob = model.next_prob[own]
        self._state = int(self.np_random.choice(model.next_state[own], p=prob / prob.sum()))
        reward = float(model.reward[pair])
        if model.reward_sd[pair] > 0:
            reward += float(model.reward_sd[pair] * self.np_random.standard_normal())
        return np.int64(self._state), reward, self._state == model.n_states, False, self._info()

    def _info(self) -> dict[str, Any]:
        mask = self._action_numbers < self._counts[self._state]
        return {"action_mask": mask.astype(np.int8)}
