"""The best policy for given payments and laws: planning in M~.

The expected value of a policy over draws is linear in what pairs pay, if all laws are given: it is the policy's value
in the problem where every pair pays its mean. So the best policy of a half of the draws, among all policies there are,
is found by solving that one problem; given that theta_i is known, likewise with means given theta_i. Where laws are
open this is only a good guess, since visits and payments vary together: it is a candidate beside others.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.chart.layout import solve_layout
from bellmanifold.chart.sparse import SparseChart, sparse_chart
from bellmanifold.decisions.joint_draws import JointDraws
from bellmanifold.decisions.valuation import Policies
from bellmanifold.errors import UnsupportedError

BATCH = 16
"""Problems that are solved in one call of a compiled program."""


class Planner:
    """Solves M~ for other payments.

    Args:
        draws: draws whose problem is solved.
    """

    def __init__(self, draws: JointDraws) -> None:
        self.draws, self.target = draws, draws.target
        self._sparse: SparseChart | None = None
        if draws.chart is None:
            self._sparse = sparse_chart(self.target.model, self.target.observed)
            return
        first = draws.chart.first_policy(self.target.observed)
        if first is None:
            raise UnsupportedError("the observed pairs trap some state: use --discount 0.99")
        self._first = first

    def plan(self, weight: Float[np.ndarray, "draws n"], pay: Float[np.ndarray, "pairs n"]) -> Policies:
        """The best policies for some payments, and for the mean of open laws; those that have none are left out.

        Args:
            weight: of the draws that laws are averaged over, one column per problem, each of which sums to 1.
            pay: what pairs pay.
        """
        starts = range(0, pay.shape[1], BATCH)
        parts = [self._solve(weight[:, k : k + BATCH], pay[:, k : k + BATCH]) for k in starts]
        q = np.concatenate([part[0][part[1]] for part in parts]) if parts else np.zeros((0, len(pay)))
        return self.target.model.greedy(q)

    def _solve(
        self, weight: Float[np.ndarray, "draws n"], pay: Float[np.ndarray, "pairs n"]
    ) -> tuple[Float[np.ndarray, "n pairs"], Bool[np.ndarray, "n"]]:
        if self._sparse is not None:
            points = [self._sparse.solve(one, one) for one in pay.T]
            return np.array([point.q for point in points]), np.array([point.policy is not None for point in points])
        chart, laws = self.draws.chart, self.target.laws
        assert chart is not None, "there is a sparse chart where there is no other"
        count, law, size = pay.shape[1], chart.law, BATCH
        if laws is not None and self.draws.law is not None:
            mean = np.pad(self.draws.law @ weight, ((0, 0), (0, 0), (0, size - count)), mode="edge")
            law = jnp.broadcast_to(law[..., None], (*law.shape, size)).at[laws.pairs].set(jnp.asarray(mean))
        padded = jnp.asarray(np.pad(pay, ((0, 0), (0, size - count)), mode="edge"))
        found = solve_layout(chart.layout, law, jnp.asarray(self.target.observed), self._first, padded, padded)
        return np.asarray(found.q).T[:count], np.asarray(found.solvable)[:count]
