"""Playing episodes: the loop of Algorithm 1 around any agent.

Before each episode the agent chooses a policy, one pair per state. It is played from a random start; then the agent is
shown the pairs that were played and their rewards. An episode ends

- at the goal;
- in a deterministic problem whose laws the agent is shown, when a state repeats, as in the paper: the same loop would
  be repeated forever. So it does for an agent that takes landings to be laws;
- in any other problem whose laws it is shown, as soon as the policy can reach neither the goal nor a pair that was
  never played before. This depends only on the graph of the pairs played so far, and is checked after every move;
- when an external environment truncates it;
- after `cap` moves, by default ten times the number of states and at least 1,000.

With `replan` an episode continues instead of ending in a loop, and the agent *looks again*: it learns from what it has
seen since it last learnt, and chooses a new policy, whenever it plays a pair

- for the first time, or
- for the 2 n-th time, where n is how often it had been played when the agent last looked, or the episode began.

The second rule ends a bad policy where nothing new is met and laws or rewards are learnt, long before the cap on moves.
Since counts double, the looks that a pair causes grow like the logarithm of its count. A policy that can reach neither
the goal nor anything new is replaced by the best known way to the goal; if there is none, by the shortest way to
something new; if there is neither, the episode ends as a loop. New pairs run out and known ways reach the goal, so
episodes end.

**What an agent is not shown is out of reach** of the agent and of this loop: an agent that learns laws from landings is
played in a world without a table (`bellmanifold.agents.environments.WithoutTable`). So nobody knows for certain that
its policy loops, and without `replan` only the goal, the environment or the cap on moves ends its episodes. Regret and
other measures are computed from the table afterwards (`bellmanifold.learning.metrics`). An agent that is shown laws is
shown the whole law of a pair once it has played it.

Agents need no base class; `bellmanifold.agents.agent` lists the optional methods besides `policy` and `observe`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.agent import Agent, acts, is_diagnosed, is_shown_laws, looks, sees_moves, takes_next_as_law
from bellmanifold.agents.environments import World, default_cap, open_world, world_as_shown
from bellmanifold.agents.frontier import unseen
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.planning import way_home
from bellmanifold.errors import BadInputError, UnsupportedError, count_of, kind_of_value, quote
from bellmanifold.mdp.graph import Policy, States, reaches_goal
from bellmanifold.problem.ssp import SSP

End = Literal["goal", "loop", "cut off", "cap"]


@dataclass(frozen=True, eq=False)
class Episode:
    """Record of an episode.

    Attributes:
        pairs: pairs played, in order, shape (moves,).
        rewards: their rewards, shape (moves,).
        end: why the episode ended.
        policy: the policy at its start, shape (states,).
        last: the state in which it ended; the number of states stands for the goal.
        diagnostics: the agent's diagnostics.
        changed: whether another policy took over on the way.
    """

    pairs: Int[np.ndarray, "moves"]
    rewards: Float[np.ndarray, "moves"]
    end: End
    policy: Policy
    last: int
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    changed: bool = False

    @property
    def reached_goal(self) -> bool:
        """Whether the episode ended at the goal."""
        return self.end == "goal"


def run_episodes(
    problem: Any,
    agent: Agent,
    episodes: int,
    seed: int | np.random.Generator = 0,
    cap: int | None = None,
    replan: bool = False,
) -> list[Episode]:
    """Let an agent play and learn for a number of episodes.

    Args:
        problem: an `SSP`, a Gymnasium environment with integer observations and actions, or a `World`; the agent
            is shown only what it plays.
        agent: see `Agent`; made for the same problem (`bellmanifold.agents.registry.make_agent`).
        episodes: number of episodes.
        seed: fixes the agent's draws, the starts, the transitions and the noise of rewards.
        cap: maximum number of moves in an episode; by default ten times the number of states and at least 1,000.
        replan: continue episodes when a state repeats, and let the agent look again when a pair was played for the
            first time, or twice as often as when it last looked.
    """
    return list(play_episodes(problem, agent, episodes, seed, cap, replan))


def play_episodes(
    problem: Any,
    agent: Agent,
    episodes: int,
    seed: int | np.random.Generator = 0,
    cap: int | None = None,
    replan: bool = False,
) -> Iterator[Episode]:
    """Like `run_episodes`, but an iterator: each episode is yielded once the agent has learnt from it."""
    world = world_as_shown(open_world(problem), is_shown_laws(agent))
    cap = default_cap(world.model) if cap is None else cap
    if cap < 1:
        raise BadInputError(f"cap is {cap}: an episode needs at least one move")
    if replan and acts(agent):
        raise BadInputError("this agent chooses every move individually and has no plan to revise: leave replan out")
    rng = np.random.default_rng(seed)
    memory = Memory(world.model if world.has_laws else world.model.opened())
    for _ in range(episodes):
        episode = _Rollout(world, agent, memory, rng, replan).play(cap)
        said = dict(agent.diagnostics) if is_diagnosed(agent) else {}
        yield replace(episode, diagnostics={**said, **episode.diagnostics})


def require_policy(model: SSP, policy: object) -> None:
    """Raise if a user's agent returned something other than a policy."""
    wanted = "return the number of one pair per state, as model.greedy(q) does"
    found = np.asarray(policy)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise BadInputError(f"the agent's policy is {kind_of_value(policy)}: {wanted}")
    if len(found) != model.n_states:
        entries = count_of(len(found), "entry", "entries")
        raise BadInputError(f"the agent's policy has {entries} for {model.n_states} states: {wanted}")


class _Rollout:
    """An episode in progress; `memory`, the record of everything played in the run, is kept up to date."""

    def __init__(self, world: World, agent: Agent, memory: Memory, rng: np.random.Generator, replan: bool) -> None:
        self.world, self.agent, self.memory, self.rng, self.replan = world, agent, memory, rng, replan
        self.pairs: list[int] = []
        self.rewards: list[float] = []
        self.learnt = 0
        self.looks = 0
        self.changed = False
        self.repeats = takes_next_as_law(agent) if not world.has_laws else world.model.is_deterministic
        self.knows_loops = world.has_laws or self.repeats
        self.may_loop = not acts(agent) and world.may_loop and (self.knows_loops or replan)
        self.first = agent.policy(rng)
        self._follow(self.first)
        self.count_at_look = memory.count.copy()

    def play(self, cap: int) -> Episode:
        """Play to the end."""
        state, goal, replan = self.world.start(self.rng), self.world.model.n_states, self.replan
        end: End | None = None
        while end is None:
            pair = self._choose(state)
            is_new = self.memory.count[pair] == 0
            next_state, cut_off = self._step(pair)
            at_cap = len(self.pairs) >= cap
            end = "goal" if next_state == goal else "cut off" if cut_off else "cap" if at_cap else None
            if end is None and replan and self._is_telling(pair):
                self._look_again(next_state)
            elif end is None and self._hopeless(state, next_state, bool(is_new)):
                goes_on = replan and (self._give_way(next_state) or not self.knows_loops)
                end = None if goes_on else "loop"
            state = next_state
        self._learn()
        said = {"looks": float(self.looks)} if replan else {}
        pairs, rewards = np.array(self.pairs, dtype=np.int64), np.array(self.rewards, dtype=np.float64)
        return Episode(pairs, rewards, end, self.first, state, said, self.changed)

    def _follow(self, policy: Policy) -> None:
        require_policy(self.world.model, policy)
        self.policy = policy
        self.seen: set[int] = set()
        self.hopeful: States | None = None

    def _choose(self, state: int) -> int:
        """The pair to play: chosen by the agent's `act` if it has one, otherwise by its policy."""
        agent, world = self.agent, self.world
        if acts(agent):
            return int(agent.act(world.playable(state), self.rng))
        pair, owner = int(self.policy[state]), world.model.pair_state
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

    def _step(self, pair: int) -> tuple[int, bool]:
        """Play a pair; the next state, and whether the episode was truncated."""
        reward, next_state, cut_off = self.world.step(pair, self.rng)
        self.pairs.append(pair)
        self.rewards.append(reward)
        self.memory.add_one(pair, reward)
        if not self.world.has_laws:
            self.memory.land(pair, next_state)
        if sees_moves(self.agent):
            self.agent.moved(pair, reward, next_state, self.world.playable(next_state))
        return next_state, cut_off

    def _hopeless(self, state: int, next_state: int, is_new: bool) -> bool:
        """Whether, after this move, the policy can reach neither the goal nor anything new.

        Where laws are learnt this is a guess from past landings: good enough to replan, not to give up. Agents that
        choose every move may leave loops by themselves.
        """
        world, model = self.world, self.world.model
        if not self.may_loop:
            return False
        if self.repeats:
            self.seen.add(state)
            return next_state in self.seen
        if self.hopeful is None or is_new or not (world.has_laws or self.hopeful[next_state]):
            known = model if world.has_laws else self.memory.known_model
            self.hopeful = reaches_goal(known, self.policy, ends=self.memory.count[self.policy] == 0)
        return not self.hopeful[next_state]

    def _learn(self) -> None:
        """Show the agent what was played since it last learnt."""
        since, self.learnt = self.learnt, len(self.pairs)
        self.agent.observe(
            np.array(self.pairs[since:], dtype=np.int64), np.array(self.rewards[since:], dtype=np.float64)
        )

    def _is_telling(self, pair: int) -> bool:
        """Whether to look again after a move: its pair is new, or its count has doubled since the last look."""
        return bool(self.memory.count[pair] >= max(1, 2 * self.count_at_look[pair]))

    def _look_again(self, state: int) -> None:
        """Let the agent learn and choose a new policy."""
        self._learn()
        self.looks += 1
        self.changed = True
        self.count_at_look = self.memory.count.copy()
        agent = self.agent
        self._follow(agent.look(state, self.rng) if looks(agent) else agent.policy(self.rng))

    def _give_way(self, state: int) -> bool:
        """Switch to the best way home, or to the shortest way to something new; False if there is neither."""
        knowledge = unseen(self.memory)
        model = knowledge.model
        policy = way_home(model, knowledge.known, self.memory.mean_reward)
        if policy[state] < 0:
            if not np.isfinite(knowledge.way.moves[state]):
                return False
            policy = knowledge.towards_frontier(policy, self.rng)
        self.changed = True
        self._follow(np.where(policy < 0, model.pair_start[:-1], policy))
        return True
