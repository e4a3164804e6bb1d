"""How a policy is followed: which pair is played next, and whether anything new or good can still come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from jaxtyping import Bool, Int

from bellmanifold.agents.agent import Agent, acts
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.worlds import World
from bellmanifold.errors import BadInputError, UnsupportedError, counted, kind_of_value, quote
from bellmanifold.graph import reaches_goal
from bellmanifold.ssp import SSP


def require_policy(model: SSP, policy: object) -> None:
    """Refuse what an agent of one's own may return by mistake."""
    wanted = "return one number of a pair per state, as model.greedy(q) does"
    found = np.asarray(policy)
    if found.dtype.kind in "iu" and found.ndim == 1 and len(found) != model.n_states:
        raise BadInputError(
            f"the agent's policy has {counted(len(found), 'entry', 'entries')} for {model.n_states} states: {wanted}"
        )
    if found.shape != (model.n_states,) or found.dtype.kind not in "iu":
        raise BadInputError(f"the agent's policy is {kind_of_value(policy)}: {wanted}")


def visited(model: SSP, policy: Int[np.ndarray, "states"], states: Iterable[int]) -> Iterator[int]:
    """The states that a policy may come to from some states, themselves included."""
    start, after, goal = model.next_start, model.next_state, model.n_states
    found = set(states)
    waiting = list(found)
    while waiting:
        here = waiting.pop()
        yield here
        pair = policy[here]
        for state in after[start[pair] : start[pair + 1]].tolist():
            if state not in found and state < goal:
                found.add(state)
                waiting.append(state)


def chooser(
    world: World, agent: Agent, policy: Int[np.ndarray, "states"], rng: np.random.Generator
) -> Callable[[int], int]:
    """How the next pair is chosen: by the agent move by move, or by its policy."""
    if acts(agent):
        return lambda state: int(agent.act(world.playable(state), rng))
    owner = world.model.pair_state

    def follow(state: int) -> int:
        pair = int(policy[state])
        if world.has_laws and not (0 <= pair < len(owner) and owner[pair] == state):
            raise BadInputError(
                f"the policy plays pair {pair} in state {quote(world.model.states[state])}, which is not one of its "
                "pairs: name one pair per state, model.pair_start[s] to model.pair_start[s + 1] - 1"
            )
        if not world.has_laws and pair not in world.playable(state):
            where, what = world.model.pair_name(pair)
            raise UnsupportedError(
                f"state {quote(where)} does not allow action {quote(what)}, and this agent chooses its policy before "
                "it can know that: use q-learning"
            )
        return pair

    return follow


def _never(state: int, landing: int, is_new: bool) -> bool:
    return False


def loop_detector(
    world: World, agent: Agent, policy: Int[np.ndarray, "states"], memory: Memory, replan: bool
) -> Callable[[int, int, bool], bool]:
    """After a move from a state to another (with a pair that was new or not): can nothing new or good follow?

    Where laws are unknown this is a guess from past landings: good enough to look again, not to give up. Agents that
    choose every move may leave loops by themselves.
    """
    model = world.model
    if acts(agent) or not world.may_loop or not (world.has_laws or replan):
        return _never
    if world.has_laws and model.is_deterministic:
        seen: set[int] = set()

        def repeats(state: int, landing: int, is_new: bool) -> bool:
            seen.add(state)
            return landing in seen

        return repeats
    hopeful: Bool[np.ndarray, "states"] | None = None

    def trapped(state: int, landing: int, is_new: bool) -> bool:
        nonlocal hopeful
        if hopeful is None or is_new or not (world.has_laws or hopeful[landing]):
            known = model if world.has_laws else memory.known_model
            hopeful = reaches_goal(known, policy, ends=memory.count[policy] == 0)
        return not hopeful[landing]

    return trapped
