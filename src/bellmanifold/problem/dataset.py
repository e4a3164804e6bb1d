"""Observations: which pairs were played, in order of time, what they paid and where they led.

A pair's transition law counts as known once the pair has been observed (the paper's assumption), unless the problem
leaves it open: then it is known only through the recorded next states.

A reward may have a standard deviation of its own: a measurement with a known error, or a belief about an untried
move (an observation with an sd and no next state). The rewards of one pair fall into three classes,

- *plain* ones without an sd of their own, which share a common noise distribution: their number m, their mean and the
  scatter around it are sufficient statistics, whatever the scale of the noise;
- *own* ones x_t with a known sd_t > 0: with the precisions w_t = 1 / sd_t^2 and their sum W,

      sum_t w_t (x_t - r)^2 = W (own_mean - r)^2 + own_scatter,    own_mean = sum w_t x_t / W;

- *exact* ones with sd 0, which override all others and must agree.

All of these are arrays with one entry per pair, whatever the number of observations: programs compiled for a problem
can be used with all of its data sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from bellmanifold._util.display import Card, Columns, Shown, as_frame
from bellmanifold.errors import BadInputError, count_of, quote, quote_pair, require_kind
from bellmanifold.problem.costs import cost_unit, in_terms, paid, signed, worded
from bellmanifold.problem.names import find_observations
from bellmanifold.problem.observation import LARGEST_SD, SMALLEST_SD, Given, require_belief
from bellmanifold.problem.ssp import SSP, require_closed, require_problem

if TYPE_CHECKING:
    import pandas

NOISELESS = (
    "deterministic rewards must repeat: correct the data, or declare the rewards noisy, with --noise-sd ETA or "
    "--infer-noise"
)
SAME_REWARD = 1e-9
Chosen = Bool[np.ndarray, "observations"]


@runtime_checkable
class Visits(Protocol):
    """The statistics that posteriors need: how often each pair was seen, the mean of its rewards and their scatter.

    Rewards with an sd of their own and exact rewards are kept apart; `Dataset` documents each attribute.
    """

    @property
    def model(self) -> SSP: ...
    @property
    def count(self) -> Int[np.ndarray, "pairs"]: ...
    @property
    def observed(self) -> Bool[np.ndarray, "pairs"]: ...
    @property
    def mean_reward(self) -> Float[np.ndarray, "pairs"]: ...
    @property
    def scatter(self) -> Float[np.ndarray, "pairs"]: ...
    @property
    def own_count(self) -> Int[np.ndarray, "pairs"]: ...
    @property
    def own_log_sd(self) -> Float[np.ndarray, "pairs"]: ...
    @property
    def own_precision(self) -> Float[np.ndarray, "pairs"]: ...
    @property
    def own_mean(self) -> Float[np.ndarray, "pairs"]: ...
    @property
    def own_scatter(self) -> Float[np.ndarray, "pairs"]: ...
    @property
    def exact(self) -> Bool[np.ndarray, "pairs"]: ...
    @property
    def exact_reward(self) -> Float[np.ndarray, "pairs"]: ...
    @property
    def landing_counts(self) -> csr_array: ...


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Shown):
    """Observed pairs, rewards and landings of one problem.

    Attributes:
        model: the problem they belong to.
        pair: the pairs played, in order of time, shape (observations,).
        reward: the reward of each, shape (observations,). NaN is replaced by the model's reward; where the problem
            leaves that open, it means that no reward was recorded.
        sd: the standard deviation of each reward; NaN where it has none of its own, 0 where it is exact,
            shape (observations,).
        next: the next state; -1 if it was not recorded, n_states for the goal, shape (observations,).
        places: the source of each, for messages, such as "line 3" of a table; empty if unknown.
        left_out: number of further observations, of pairs that `bellmanifold.pruned` dropped from the problem.

    >>> from bellmanifold import Observation, envs
    >>> data = Dataset.from_pairs(envs.two_state(), [("s1", "stay"), ("s1", "stay")])
    >>> data.count, data.mean_reward
    (array([2, 0]), array([-1.,  0.]))
    >>> belief = Dataset.from_pairs(envs.two_state(), [Observation("s1", "go", reward=-5.0, sd=2.0)])
    >>> belief.own_mean, belief.own_precision
    (array([ 0., -5.]), array([0.  , 0.25]))
    """

    model: SSP
    pair: Int[np.ndarray, "observations"]
    reward: Float[np.ndarray, "observations"]
    sd: Float[np.ndarray, "observations"] = field(default_factory=lambda: np.zeros(0))
    next: Int[np.ndarray, "observations"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    places: tuple[str, ...] = field(default=(), repr=False)
    left_out: int = 0

    def __post_init__(self) -> None:
        require_problem(self.model)
        for name in ("pair", "reward", "sd", "next"):
            remedy = "give a NumPy array, or pass observations by name to bm.Dataset.from_pairs"
            require_kind(getattr(self, name), np.ndarray, f"data: {name}", remedy)
        n = len(self.pair)
        for name, missing in (("sd", np.nan), ("next", np.int64(-1))):
            if n and len(getattr(self, name)) == 0:
                object.__setattr__(self, name, np.full(n, missing))
        if not len(self.reward) == len(self.sd) == len(self.next) == n:
            raise BadInputError("data: pair, reward, sd and next must have one entry per observation")
        unsaid = np.isnan(self.reward)
        if unsaid.any():
            object.__setattr__(self, "reward", np.where(unsaid, self.model.reward[self.pair], self.reward))
        self._check()

    @classmethod
    def from_pairs(cls, model: SSP, observations: Iterable[Given], places: Sequence[str] = ()) -> Dataset:
        """Build a data set from observations given by name.

        Args:
            model: the problem.
            observations: each an `Observation`, (state, action), (state, action, reward) or a mapping with the fields
                of `Observation`; or a DataFrame with these columns.
                A missing reward is the model's, or counts as not recorded where the problem leaves it open. Those of
                pairs dropped by `bellmanifold.pruned` are left out.
            places: the source of each observation, for messages.
        """
        require_problem(model)
        remedy = 'give a list, as [("s1", "go"), ("s1", "stay", -1.0)]'
        require_kind(observations, Iterable, "observations", remedy)
        return cls(model, **find_observations(model, observations, places)._asdict())

    @classmethod
    def from_frame(cls, model: SSP, frame: Any, columns: Mapping[str, str] | None = None) -> Dataset:
        """Build a data set from a table of trips: a DataFrame, a dictionary of columns, or a list of dictionaries.

        A row names its road as a table of roads does, by `from` and `to`, by `name`, or by `state` and `action`, and
        says what it took: `cost`, positive and in the problem's unit, or `reward`, and perhaps an `sd` of its own. If
        the road may lead to several places, `to` or `next` says where it led. `columns` says which column is what.
        """
        found: Dataset = import_module("bellmanifold.io.trips").from_frame(model, frame, columns)
        return found

    @classmethod
    def complete(cls, model: SSP) -> Dataset:
        """The data set in which every pair was seen once, with the model's reward."""
        require_closed(model, "Dataset.complete")
        return cls(model, np.arange(model.n_pairs), model.reward)

    def extended(
        self,
        pair: Int[np.ndarray, "new"],
        reward: Float[np.ndarray, "new"],
        sd: Float[np.ndarray, "new"] | None = None,
        next: Int[np.ndarray, "new"] | None = None,  # noqa: A002 (the field's name)
    ) -> Dataset:
        """The data with later observations appended."""
        return Dataset(
            self.model,
            np.append(self.pair, pair),
            np.append(self.reward, reward),
            np.append(self.sd, np.full(len(pair), np.nan) if sd is None else sd),
            np.append(self.next, np.full(len(pair), -1) if next is None else next),
            left_out=self.left_out,
        )

    def with_belief(self, mean: float, sd: float) -> Dataset:
        """The data with a belief about the reward of every pair whose law is known.

        For problems where the map is known but costs are not: each such pair gets one more observation, with this sd
        and no next state. `posterior` and `advise` take the same as `reward_belief=(mean, sd)`, and then use no prior
        over values: with data from this method, pass them `prior_scale="flat"`.
        """
        require_belief(mean, sd)
        pairs = np.flatnonzero(~self.model.open_law)
        return self.extended(pairs, np.full(len(pairs), float(mean)), np.full(len(pairs), float(sd)))

    def __len__(self) -> int:
        return len(self.pair)

    def card(self) -> Card:
        """The card for display: how much was observed, and a table of the observations."""
        believed = int(self.untried.sum())
        seen = f"{int(self.observed.sum()) - believed} of {self.model.n_pairs} pairs observed"
        seen += f", a belief about {believed} more" if believed else ""
        title = f"Dataset({len(self)} observations of {self.model}, {seen})"
        columns = in_terms(self.columns(), cost_unit(self.model))
        return Card(title, (), [self.gap] if self.gap else [], lambda: columns)

    @property
    def gap(self) -> str:
        """A remark on observations that are left out; empty if there are none."""
        return f"left out {count_of(self.left_out, 'observation')} of dropped moves" if self.left_out else ""

    def columns(self) -> Columns:
        """Columns of a table with a row per observation; NaN or None where a value was not recorded."""
        return {
            **self.model.name_columns(self.pair),
            "reward": self.reward.tolist(),
            "sd": self.sd.tolist(),
            "next": [self.model.state_name(state) if state >= 0 else None for state in self.next],
        }

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row per observation, in order of time; values that were not recorded are missing."""
        return as_frame(self.columns())

    @cached_property
    def _is_plain(self) -> Chosen:
        return np.asarray(np.isnan(self.sd) & ~np.isnan(self.reward))

    @cached_property
    def _is_own(self) -> Chosen:
        return np.asarray(self.sd > 0)

    @cached_property
    def _is_exact(self) -> Chosen:
        return np.asarray(self.sd == 0)

    def _sum(self, chosen: Chosen, values: Float[np.ndarray, "observations"]) -> Float[np.ndarray, "pairs"]:
        """Sum of values over the chosen observations of each pair."""
        return np.bincount(self.pair[chosen], values[chosen], self.model.n_pairs).astype(np.float64)

    def _first(self, chosen: Chosen) -> Float[np.ndarray, "pairs"]:
        """The reward of each pair in its first chosen observation; 0 where there is none."""
        first, at = np.zeros(self.model.n_pairs), np.flatnonzero(chosen)
        seen, earliest = np.unique(self.pair[at], return_index=True)
        first[seen] = self.reward[at[earliest]]
        return first

    @cached_property
    def count(self) -> Int[np.ndarray, "pairs"]:
        """Number of plain rewards (without an sd of their own) per pair."""
        return np.bincount(self.pair[self._is_plain], minlength=self.model.n_pairs)

    @cached_property
    def observed(self) -> Bool[np.ndarray, "pairs"]:
        """Mask of pairs with at least one reward, whatever its sd."""
        return np.asarray((self.count > 0) | (self.own_count > 0) | self.exact, dtype=np.bool_)

    @cached_property
    def tries(self) -> Int[np.ndarray, "pairs"]:
        """Number of trials per pair; beliefs (rewards with an sd and no next state) do not count."""
        is_belief = (self.sd > 0) & (self.next < 0)
        return np.bincount(self.pair[~is_belief], minlength=self.model.n_pairs)

    @cached_property
    def untried(self) -> Bool[np.ndarray, "pairs"]:
        """Mask of pairs that were never tried but have a reward, which is a belief."""
        return np.asarray(self.observed & (self.tries == 0), dtype=np.bool_)

    @cached_property
    def free(self) -> Bool[np.ndarray, "pairs"]:
        """Mask of pairs without any reward."""
        return ~self.observed

    @cached_property
    def mean_reward(self) -> Float[np.ndarray, "pairs"]:
        """Mean of each pair's plain rewards, exact where all are equal; 0 where there is none."""
        first = self._first(self._is_plain)
        rest = self._sum(self._is_plain, self.reward - first[self.pair])
        return first + rest / np.maximum(self.count, 1)

    @cached_property
    def scatter(self) -> Float[np.ndarray, "pairs"]:
        """Sum of squared deviations of each pair's plain rewards from their mean."""
        return self._sum(self._is_plain, (self.reward - self.mean_reward[self.pair]) ** 2)

    @cached_property
    def own_count(self) -> Int[np.ndarray, "pairs"]:
        """Number of rewards with a positive sd of their own, per pair."""
        return np.bincount(self.pair[self._is_own], minlength=self.model.n_pairs)

    @cached_property
    def _precision(self) -> Float[np.ndarray, "observations"]:
        return 1.0 / np.where(self._is_own, self.sd, 1.0) ** 2

    @cached_property
    def own_precision(self) -> Float[np.ndarray, "pairs"]:
        """Sum of 1 / sd^2 over each pair's rewards with a positive sd of their own; 0 where there is none."""
        return self._sum(self._is_own, self._precision)

    @cached_property
    def own_mean(self) -> Float[np.ndarray, "pairs"]:
        """Mean of these rewards, weighted by 1 / sd^2, exact where all are equal; 0 where there is none."""
        first = self._first(self._is_own)
        rest = self._sum(self._is_own, self._precision * (self.reward - first[self.pair]))
        return first + rest / np.where(self.own_count > 0, self.own_precision, 1.0)

    @cached_property
    def own_scatter(self) -> Float[np.ndarray, "pairs"]:
        """Sum of (reward - own_mean)^2 / sd^2 over these rewards."""
        return self._sum(self._is_own, self._precision * (self.reward - self.own_mean[self.pair]) ** 2)

    @cached_property
    def own_log_sd(self) -> Float[np.ndarray, "pairs"]:
        """Sum of log sd over these rewards, for the normalising constant of their density."""
        return self._sum(self._is_own, np.log(np.where(self._is_own, self.sd, 1.0)))

    @cached_property
    def exact(self) -> Bool[np.ndarray, "pairs"]:
        """Mask of pairs with a reward of sd 0."""
        return np.bincount(self.pair[self._is_exact], minlength=self.model.n_pairs) > 0

    @cached_property
    def exact_reward(self) -> Float[np.ndarray, "pairs"]:
        """The exact reward (sd 0) of each pair that has one; 0 elsewhere."""
        return self._first(self._is_exact)

    @cached_property
    def landing_counts(self) -> csr_array:
        """Number of recorded moves from each pair to each state, the goal last, shape (pairs, states + 1)."""
        recorded = self.next >= 0
        shape = (self.model.n_pairs, self.model.n_states + 1)
        once = np.ones(int(recorded.sum()), dtype=np.int64)
        counts = csr_array((once, (self.pair[recorded], self.next[recorded])), shape=shape)
        counts.sum_duplicates()
        return counts

    def deterministic_reward(self) -> Float[np.ndarray, "pairs"]:
        """Each pair's reward if plain rewards have no noise, so that repeats must agree; 0 where there is none.

        Exact rewards (sd 0) are included, those with a positive sd are not.

        Raises:
            BadInputError: if two rewards of a pair differ by more than 1e-9 (relative for rewards above 1).
        """
        chosen = self._is_plain | self._is_exact
        self._require_equal(chosen, NOISELESS)
        return self._first(chosen)

    def _require_equal(self, chosen: Chosen, why: str) -> None:
        """Raise if rewards of the same pair differ among the chosen observations."""
        expected = self._first(chosen)[self.pair]
        size = np.maximum(1.0, np.maximum(np.abs(expected), np.abs(self.reward)))
        wrong = chosen & (np.abs(self.reward - expected) > SAME_REWARD * size)
        costs = cost_unit(self.model)
        self._refuse(
            wrong,
            lambda t: (
                f"{self._label(t)} {paid(self.reward[t], costs)} but {signed(expected[t], costs):.12g} before: {why}"
            ),
        )

    def _check(self) -> None:
        """Raise if an observation has no content or is impossible."""
        silent, sd = np.isnan(self.reward), self.sd
        self._refuse(np.isinf(self.reward), lambda t: f"reward is {self.reward[t]}: give a finite number")
        self._refuse(
            np.isinf(sd) | (sd < 0),
            lambda t: f"sd is {sd[t]}: give a finite number that is not negative, 0 for an exact reward",
        )
        self._refuse(
            ((sd > 0) & (sd < SMALLEST_SD)) | (sd > LARGEST_SD),
            lambda t: f"sd is {sd[t]}: give 0 for an exact reward, or a number from {SMALLEST_SD} to {LARGEST_SD}",
        )
        self._refuse(
            silent & ~np.isnan(sd),
            lambda t: (
                f"{self._label(t)} has an sd but no reward, and the problem leaves that open: give the reward too"
            ),
        )
        self._refuse(
            silent & (self.next < 0),
            lambda t: (
                f"{self._label(t)} has no reward and no next, and the problem leaves its reward open: "
                "give one of them, or remove the observation"
            ),
        )
        self._refuse(
            (self.next < -1) | (self.next > self.model.n_states),
            lambda t: f"next is {self.next[t]}: give the number of a state, n_states for the goal, -1 for not recorded",
        )
        if self._is_exact.any():
            self._require_equal(self._is_exact, "exact rewards (sd 0) must agree: correct one, or give both an sd")
        if (self.next >= 0).any():
            self._check_landings()

    def _check_landings(self) -> None:
        """Raise if a next state is impossible under the problem's law."""
        model = self.model
        code = self.pair.astype(np.int64) * (model.n_states + 1) + self.next
        possible = np.isin(code, model.next_pair * (model.n_states + 1) + model.next_state)
        self._refuse(
            (self.next >= 0) & ~possible & ~model.open_law[self.pair],
            lambda t: (
                f"{self._label(t)} led to {quote(model.state_name(self.next[t]))}, which its law in the problem makes "
                "impossible: correct the observation or the law"
            ),
        )

    def _label(self, observation: int) -> str:
        return "pair " + quote_pair(*self.model.pair_name(self.pair[observation]))

    def _refuse(self, wrong: Chosen, message: Callable[[int], str]) -> None:
        """Raise, with its message, for the first observation that is wrong."""
        if wrong.any():
            t = int(np.argmax(wrong))
            told = worded(message(t), cost_unit(self.model))
            raise BadInputError(f"{self.places[t] if self.places else f'observations[{t}]'}: {told}")


def require_data(data: object) -> None:
    """Raise unless `data` is a Dataset."""
    require_kind(data, Dataset, "data", "give a bm.Dataset, as bm.Dataset.from_pairs(model, [...]) builds from a list")


def require_same_problem(model: SSP, data: Dataset) -> None:
    """Raise if the data belong to another problem, whose pairs are numbered differently, or have the wrong type."""
    require_problem(model)
    require_data(data)
    if data.model is not model and data.model != model:
        raise BadInputError(
            f"the data belong to {data.model}, not to {model}: load or build them with the same problem"
        )


def require_plain(data: Dataset, what: str) -> None:
    """Raise unless the problem is closed and no reward has an sd of its own, as `what` requires."""
    require_data(data)
    require_closed(data.model, what)
    own = ~np.isnan(data.sd)
    if own.any():
        raise BadInputError(
            f"observations[{int(np.argmax(own))}]: has an sd of its own, which {what} does not take: leave it out, "
            "or use `posterior`"
        )
