"""Conversion from Gymnasium's transition tables to problems, and from an `SSP` to a Gymnasium environment."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from bellmanifold._util.extras import require_extra
from bellmanifold.envs import BUILT_IN
from bellmanifold.errors import BadInputError, kind_of_value, printable, quote
from bellmanifold.mdp.graph import reachable
from bellmanifold.mdp.pruning import pruned, without_loops
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.ssp import SSP, Description

if TYPE_CHECKING:
    from bellmanifold.io.tabular_env import TabularEnv

RESETS = 1000


def from_gymnasium(env: Any, prune: bool = False) -> SSP:
    """The problem of an environment that exposes its transition table `P[state][action]`.

    Each entry lists (probability, next state, reward, terminated). States and actions are named by their numbers,
    terminating transitions lead to "goal", a reward that depends on the next state is averaged, and states the start
    cannot reach are dropped. With `prune` dead ends (`bellmanifold.pruned`) are dropped first: states that cannot be
    sure to terminate, among them states without a row in the table.
    """
    require_extra("gym", "a Gymnasium environment")
    require_environment(env, "env")
    plain, label = env.unwrapped, label_of(env)
    table = getattr(plain, "P", None)
    if table is None:
        raise BadInputError(f"gym:{label} has no transition table P: write the problem as a JSON file instead")
    try:
        rows = {int(s): {int(a): list(moves) for a, moves in _items(actions)} for s, actions in _items(table)}
        pairs = [(s, a, moves) for s, actions in rows.items() for a, moves in actions.items()]
        probability = np.array([float(p) for _, _, moves in pairs for p, _, _, _ in moves])
        count = 1 + max([*rows, *(int(s) for _, _, moves in pairs for _, s, _, _ in moves)])
        landing = [count if end else int(s) for _, _, moves in pairs for _, s, _, end in moves]
        reward = [float(sum(p * r for p, _, r, _ in moves)) for _, _, moves in pairs]
    except (TypeError, ValueError, AttributeError):
        raise BadInputError(
            f"gym:{label}: its table P is not made of (probability, next state, reward, terminated): "
            "write a JSON file instead"
        ) from None
    start, start_prob = _initial(env, count)
    model = assemble(
        Description(
            state_names=[*(str(s) for s in range(count)), "goal"],
            action_names=[str(a) for a in range(max(a for _, a, _ in pairs) + 1)],
            goals=[count],
            initial_state=start,
            initial_prob=start_prob,
            pair_state=[s for s, _, _ in pairs],
            pair_action=[a for _, a, _ in pairs],
            reward=reward,
            next_start=np.cumsum([0, *(len(moves) for _, _, moves in pairs)]),
            next_state=landing,
            next_prob=probability,
            name=label,
            metadata=_grid(plain, pairs, count),
        ),
        without_loops if prune else None,
    )
    model = pruned(model) if prune else model
    return model.subproblem(reachable(model, model.initial > 0)[model.pair_state])


def _grid(env: Any, pairs: list[tuple[int, int, list[Any]]], count: int) -> dict[str, Any]:
    """Metadata of a grid whose states are numbered row by row: its size, and the goal's cell if there is only one."""
    shapes = (getattr(env, "shape", None), getattr(getattr(env, "desc", None), "shape", None))
    sizes = [size for size in shapes if isinstance(size, tuple) and len(size) == 2 and size[0] * size[1] == count]
    if not sizes:
        return {}
    rows, columns = (int(part) for part in sizes[0])
    last = {int(state) for _, _, moves in pairs for _, state, _, ends in moves if ends}
    goal = {"goal_cell": "{},{}".format(*divmod(last.pop(), columns))} if len(last) == 1 else {}
    return {"grid": [rows, columns], **goal}


def _items(table: Any) -> Any:
    return table.items() if hasattr(table, "items") else enumerate(table)


def _initial(env: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The initial distribution: the environment's own, or the frequencies of 1,000 seeded resets."""
    given = getattr(env.unwrapped, "initial_state_distrib", None)
    if given is not None and np.ndim(given) == 1:
        weights = np.asarray(given, dtype=np.float64)
    else:
        seen = Counter(int(env.reset(seed=seed)[0]) for seed in range(RESETS))
        weights = np.array([seen[s] for s in range(count)], dtype=np.float64)
    start = np.flatnonzero(weights)
    return start, weights[start] / weights.sum()


def require_environment(env: object, what: str) -> None:
    """Raise unless `env` is a Gymnasium environment."""
    if hasattr(env, "unwrapped"):
        return
    remedy = "give one made by gymnasium.make"
    if isinstance(env, str):
        remedy = f"gymnasium.make({quote(env.removeprefix('gym:'))}) makes one"
    raise BadInputError(f"{what} is {kind_of_value(env)}, not a Gymnasium environment: {remedy}")


def label_of(env: Any) -> str:
    """The id of an environment, or the name of its class if it is not registered."""
    plain = env.unwrapped
    return plain.spec.id if plain.spec is not None else type(plain).__name__


def has_table(env: Any) -> bool:
    """Whether an environment exposes its transition table."""
    return getattr(env.unwrapped, "P", None) is not None


def make_gymnasium(name: str) -> Any:
    """Make a registered Gymnasium environment; ids that name a module are refused, since ids may come from files."""
    if ":" in name:
        raise BadInputError(
            f"gym:{printable(name[:100])} would import a module: make the environment in Python and pass it to bm.learn"
        )
    require_extra("gym", f"gym:{printable(name[:100])}")
    import gymnasium

    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise BadInputError(
            f"gym:{printable(name[:100])}: Gymnasium cannot make it: {quote(reason)}; check the id and its version"
        ) from None


def load_gymnasium(name: str, needs_table: bool = True, prune: bool = False) -> Any:
    """The problem of a Gymnasium environment, by id; if no table is needed, an environment without one is returned."""
    env = make_gymnasium(name)
    if not needs_table and not has_table(env):
        return env
    try:
        return from_gymnasium(env, prune)
    finally:
        env.close()


def to_gymnasium(model: SSP) -> TabularEnv:
    """The problem as a Gymnasium environment."""
    require_extra("gym", "a Gymnasium environment")
    from bellmanifold.io.tabular_env import TabularEnv

    return TabularEnv(model)


def make_built_in(built_in: str, **parameters: Any) -> TabularEnv:
    """Entry point of the registered environments."""
    return to_gymnasium(BUILT_IN[built_in](**parameters))
