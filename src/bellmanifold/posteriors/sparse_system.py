"""A posterior on a sparse chart: its coordinates evaluated one point at a time, for large cyclic problems.

Infinitesimal residuals decide ties and, with them, determinants. Where no solved pair is on a cycle, every determinant
is 1 and the weight does not depend on them: they are drawn and used only where a policy is asked for.

Where laws are open (`bellmanifold.posteriors.sparse_laws`), each point has its own laws and its own chart.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bellmanifold.chart.sparse import Point, SparseChart, sparse_chart
from bellmanifold.gaussian.exchangeable import largest_of_normals, member_moments
from bellmanifold.mdp.graph import Policy
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.kernels import Gaussian
from bellmanifold.posteriors.noise_scale import combine
from bellmanifold.posteriors.rounding import TIE_WIDTH
from bellmanifold.posteriors.sparse_laws import Drawer, SparseLaws
from bellmanifold.problem.ssp import row_entries

CHARTS = 3
"""Number of charts kept, one for each point's laws."""
LINGERS = 0.5
"""Values of states that a solved pair leaves with at most this probability are flipped; values of the states that it
leaves for are awaited."""
TILT = 1e-4
"""Infinitesimal residuals, which split ties, may change the log density by this much; beyond it the prior is evaluated
at the solution without them."""

Numbers = Float[np.ndarray, "coordinates"]
Values = Float[np.ndarray, "pairs"]


class State(NamedTuple):
    """The state of a chain: coordinates, action values, log likelihood, greedy policy, laws where they are open, and
    the number of visits so far."""

    x: Numbers
    q: Values
    log_likelihood: float
    policy: Policy | None
    laws: SparseLaws | None = None
    visits: int = 0


class SparseSystem:
    """A posterior on a sparse chart; its coordinates are values of free pairs, residuals and noise scale, in order."""

    def __init__(self, coordinates: Coordinates) -> None:
        target = coordinates.target
        self.coordinates, self.target, self.prior = coordinates, target, target.prior
        self.free, self.residual = np.flatnonzero(coordinates.free), np.flatnonzero(coordinates.residual)
        self.solved = np.flatnonzero(coordinates.solved)
        self.chart: SparseChart = sparse_chart(target.model, target.observed, coordinates.free)
        self.drawer = None if target.laws is None else Drawer(target.laws)
        self._charts: OrderedDict[int, tuple[SparseLaws, SparseChart]] = OrderedDict()
        self.alternatives = coordinates.alternatives[self.free]
        self.beside, start = row_entries(target.model.pair_start, target.model.pair_state[self.free])
        self.beside_start = start[:-1]
        self.width, self.split = target.scale[self.residual], coordinates.split[self.residual]
        self.size = coordinates.size
        state, lingering = target.model.pair_state, self._lingering()
        self.lingers = np.isin(state[self.free], state[lingering])
        self.awaited = np.isin(state[self.free], self._left_for(lingering))

    def _lingering(self) -> Int[np.ndarray, "lingering"]:
        """Solved pairs that mostly stay in their state; none if laws are open."""
        model, target = self.target.model, self.target
        if target.laws is not None:
            return np.zeros(0, dtype=np.int64)
        stays = self.coordinates.solved[model.next_pair] & (model.next_prob >= LINGERS)
        stays &= model.next_state == model.pair_state[model.next_pair]
        return np.unique(model.next_pair[stays])

    def _left_for(self, pairs: Int[np.ndarray, "some"]) -> Int[np.ndarray, "others"]:
        """The states other than their own that some pairs lead to."""
        model = self.target.model
        leaves = np.isin(model.next_pair, pairs) & (model.next_prob > 0.0)
        leaves &= (model.next_state != model.pair_state[model.next_pair]) & (model.next_state < model.n_states)
        return np.unique(model.next_state[leaves])

    @property
    def turning(self) -> slice:
        """Coordinates that turn together: residuals and the noise scale."""
        return slice(len(self.free), None)

    @cached_property
    def ignores_residuals(self) -> bool:
        """Whether residuals do not matter: the posterior is exact and has no determinants."""
        given = self.target.is_exact and self.drawer is None and isinstance(self.target.kernel, Gaussian)
        return given and self.chart.sweep is not None

    def noise_scale(self, x: Numbers) -> float:
        """eta at a point; 1 if it is known."""
        table = self.target.noise_scale
        return 1.0 if table is None else float(np.exp(np.interp(x[-1], table.normal, table.log_scale)))

    def chart_with(self, laws: SparseLaws) -> SparseChart:
        """The chart for given laws of the open pairs; the most recent few are cached."""
        assert self.target.laws is not None, "some laws are open"
        if id(laws) not in self._charts:
            while len(self._charts) >= CHARTS:
                self._charts.popitem(last=False)
            model = laws.apply(self.target.laws, self.target.model)
            self._charts[id(laws)] = laws, sparse_chart(model, self.target.observed, self.coordinates.free, False)
        self._charts.move_to_end(id(laws))
        return self._charts[id(laws)][1]

    def evaluate(self, x: Numbers, start: Policy | None, laws: SparseLaws | None = None) -> State:
        """Evaluate a point, starting from the policy of a nearby one."""
        target, model, kernel = self.target, self.target.model, self.target.kernel
        chart = self.chart if laws is None else self.chart_with(laws)
        value = np.full(model.n_pairs, -np.inf)
        value[model.pair_start[:-1][~target.coupled]] = 0.0
        value[self.free] = self.values(x)
        if self.ignores_residuals:
            return self._without_residuals(x, chart.solve(target.reward, value))
        residual = x[len(self.free) : len(self.free) + len(self.residual)]
        correction = 0.0
        if not isinstance(kernel, Gaussian):
            drawn = kernel.from_normal(jnp.asarray(residual))
            residual, correction = np.asarray(drawn), float(jnp.sum(kernel.log_correction(drawn)))
        reward, width = target.reward[self.residual], self.noise_scale(x) * self.width
        if target.own_precision is not None and target.own_mean is not None:
            own = target.own_mean[self.residual], target.own_precision[self.residual]
            reward, width = combine(reward, width, *own, np)
        plain, payment = target.reward.copy(), target.reward.copy()
        plain[self.residual] = reward + width * residual
        payment[self.residual] = plain[self.residual] + self.split * residual
        splits = bool(self.split.any())
        point = chart.solve(payment, value, start)
        if point.policy is None and splits:  # infinitesimal residuals must not make a loop with a smaller cost pay
            point = chart.solve(plain, value, start)
        del payment, value  # large; unobserved values are in q as well
        if point.policy is None:
            return State(x, point.q, -np.inf, None, laws)
        if target.prior.flat:
            return State(x, point.q, correction, point.policy, laws)
        square = self._squares(point.q)
        if splits and TIE_WIDTH * square > TILT:
            square = self._squares(chart.solve(plain, point.q, point.policy).q)
        return State(x, point.q, correction - 0.5 * square - point.log_det, point.policy, laws)

    def moved(self, here: State, x: Numbers, which: int, value: float) -> State:
        """Evaluate a point that differs from another in one unobserved value."""
        if not self.ignores_residuals or here.policy is None:
            return self.evaluate(x, here.policy, here.laws)
        before = Point(here.q, 0.0, here.policy)
        return self._without_residuals(x, self.chart.moved(before, self.target.reward, int(self.free[which]), value))

    def _without_residuals(self, x: Numbers, point: Point) -> State:
        """The state at a point whose weight does not depend on residuals."""
        return State(x, point.q, 0.0 if self.prior.flat else -0.5 * self._squares(point.q), point.policy)

    def with_ties_split(self, here: State, rng: np.random.Generator) -> Values:
        """Action values with infinitesimal residuals; these are drawn here if the point ignores them."""
        if not (self.ignores_residuals and self.split.any()):
            return here.q
        payment = self.target.reward.copy()
        payment[self.residual] += self.split * rng.standard_normal(len(self.residual))
        return self.chart.solve(payment, here.q).q

    def values(self, x: Numbers) -> Float[np.ndarray, "free"]:
        """The largest unobserved value of each state that has one."""
        largest = largest_of_normals(x[: len(self.free)], self.alternatives)
        return self.prior.mean[self.free] + self.prior.sd[self.free] * largest

    def value(self, x: float, which: int) -> float:
        """The value of one free pair."""
        largest = float(largest_of_normals(np.array([x]), self.alternatives[which : which + 1])[0])
        return float(self.prior.mean[self.free[which]] + self.prior.sd[self.free[which]] * largest)

    def _squares(self, q: Values) -> float:
        """Sum of squared standardised values of solved pairs (without BLAS, whose threads wait for each other)."""
        with np.errstate(over="ignore"):  # the value of a rarely left loop may overflow
            return float(np.square(self.prior.standardise(q)[self.solved]).sum())

    def tracked_values(self, here: State) -> Float[np.ndarray, "followed"]:
        """Probabilities of the observed landings, and the concentration."""
        if here.laws is None or self.target.laws is None:
            return np.zeros(0)
        rows, landings = self.target.laws.seen
        return np.append(np.asarray(here.laws.law[rows, landings]).ravel(), here.laws.concentration)

    def member_moments(self, q: Values) -> tuple[Values, Values]:
        """Mean and variance of the action values, given the largest for a pair that stands for several."""
        mean, variance = np.where(np.isfinite(q), q, 0.0), np.zeros(len(q))
        own = (q[self.free], self.alternatives, self.prior.mean[self.free], self.prior.sd[self.free])
        mean[self.free], _ = member_moments(*own, np.zeros(len(self.free)))
        _, variance[self.free] = member_moments(*own, mean[self.free])
        return mean, variance
