"""Bayesian temporal differences: three posteriors that regress on a guess of what comes next, in closed form.

The Bellman equation of an observed pair i contains the unknown q twice: q_i itself, and the best values of the states
it leads to. Temporal-difference methods replace the latter by a guess made from the *previous* posterior, and treat the
result

    y_i = r_i + sum_s' p(s'|i) guess(s'),    guess(goal) = 0,

as a noisy observation of q_i with sd epsilon_i. This is linear regression, and because a table has one parameter per
pair and repeats are merged into one observation, its design matrix consists of rows of the identity: no two pairs are
coupled. With the prior N(m, sigma^2), where each pair may have its own m and sigma, each coordinate has its own
Gaussian posterior,

    observed:    variance = 1 / (1/sigma^2 + 1/epsilon_i^2) = epsilon_i^2 shrink_i,   mean = m + shrink_i (y_i - m),
    unobserved:  variance = sigma^2,                                                  mean = m,
                 shrink_i = 1 / (1 + (epsilon_i / sigma)^2),

written so that epsilon -> 0 needs no limit: there the variance is 0 and the mean is y_i. The three variants differ only
in the guess.

- **TD** takes the largest of the previous posterior *means* of a state: max_a E[q].
- **TD-Max** takes the previous posterior's mean of the *largest*: E[max_a q], never less (Jensen).
- **TD-En** draws N samples of q from the previous posterior and lets each make its own guess. Its likelihood is the
  average of N products, so its posterior is a *mixture* of N of the Gaussians above, which share the variance. A
  component's weight is the density of its targets under the prior, where they are independent N(m, sigma^2 +
  epsilon_i^2):  weight_n ∝ exp(-sum_{i observed} (y_i^(n) - m)^2 / (2 (sigma^2 + epsilon_i^2))).

There is one update per episode, even if the episode showed nothing new, since the guess has changed. Before the first
update the previous posterior is the prior (`initial`), hence guesses of m for TD, of E[max of prior draws] for TD-Max
(m + sigma / sqrt(pi) for two actions), and N prior draws for TD-En. The paper's published code starts TD-En from N
samples that are all zero instead; pass `zeros` as the previous posterior of the first update to do the same.

**Answers.** Within a component pairs are independent. So the probability that an action is optimal compares the
Gaussians of one state (`bellmanifold.gaussian.maximum`), and the probability that a whole route is optimal is the
*product* of these over its states. Over a mixture it is the weighted sum of the components' products; the product of
the weighted sums would ignore that the states of a component belong together. Nothing here is estimated by
simulation, so no answer has a standard error.

These are the paper's comparison methods (section 5, a to c). They are not posteriors of Q*: the guess is treated as
data, and its uncertainty is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.gaussian.maximum import largest
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.ssp import SSP

MEMBERS = 100
"""Samples that TD-En keeps in the paper's deterministic problems (10 in the stochastic one)."""


@dataclass(frozen=True, eq=False)
class TDPosterior:
    """A mixture of Gaussians with independent coordinates; TD and TD-Max have one component.

    The weights sum to 1, and all components have the same variances.
    """

    weights: Float[np.ndarray, "components"]
    mean: Float[np.ndarray, "components pairs"]
    variance: Float[np.ndarray, "pairs"]

    @property
    def q_mean(self) -> Float[np.ndarray, "pairs"]:
        """Posterior mean of each pair's value."""
        return self.weights @ self.mean

    @property
    def q_sd(self) -> Float[np.ndarray, "pairs"]:
        """Posterior standard deviation of each pair's value: within components and between them."""
        between = self.weights @ (self.mean - self.q_mean) ** 2
        return np.sqrt(self.variance + between)


def initial(model: SSP, prior: float | int | ValuePrior) -> TDPosterior:
    """The posterior before the first episode: the prior; a number is the prior sd of all action values, with mean 0."""
    prior = prior if isinstance(prior, ValuePrior) else ValuePrior.same(model, prior)
    return TDPosterior(np.ones(1), prior.mean[None, :].copy(), prior.sd**2)


def zeros(model: SSP) -> TDPosterior:
    """A point mass at 0: the previous posterior from which the paper's published code starts TD-En.

    It only starts the *update*; before the first episode policies are drawn from `initial`.
    """
    return TDPosterior(np.ones(1), np.zeros((1, model.n_pairs)), np.zeros(model.n_pairs))


def update_td(previous: TDPosterior, target: Target) -> TDPosterior:
    """TD: regress on the largest of the previous posterior means; the target has all data and a Gaussian kernel.

    >>> from bellmanifold import Dataset, envs
    >>> from bellmanifold.posteriors.target import relaxed_target
    >>> model = envs.four_state()
    >>> target = relaxed_target(Dataset.complete(model), epsilon=0.0, prior_scale=10.0)
    >>> once = update_td(initial(model, 10.0), target)
    >>> once.q_mean, update_td(update_td(once, target), target).q_mean
    (array([-2., -4., -1., -2., -1.]), array([-4., -5., -2., -2., -1.]))
    """
    return _regress(target, target.model.best(previous.q_mean)[None, :])


def update_td_max(previous: TDPosterior, target: Target) -> TDPosterior:
    """TD-Max: regress on the previous posterior mean of the largest value; arguments as in `update_td`."""
    return _regress(target, expected_best(target.model, previous)[None, :])


def update_td_en(
    previous: TDPosterior, target: Target, rng: np.random.Generator, members: int = MEMBERS
) -> TDPosterior:
    """TD-En: regress on the best values of samples from the previous posterior, one component for each."""
    if members < 1:
        raise BadInputError(f"members is {members}: TD-En needs at least one sample")
    model = target.model
    samples = draw(previous, rng, members)
    return _regress(target, model.best(samples))


def draw(posterior: TDPosterior, rng: np.random.Generator, count: int) -> Float[np.ndarray, "count pairs"]:
    """Independent samples of q."""
    component = rng.choice(len(posterior.weights), size=count, p=posterior.weights)
    noise = rng.standard_normal((count, len(posterior.variance)))
    return posterior.mean[component] + np.sqrt(posterior.variance) * noise


def action_probabilities(model: SSP, posterior: TDPosterior) -> Float[np.ndarray, "pairs"]:
    """For each pair, the probability that its action is optimal in its state."""
    return posterior.weights @ _compare(model, posterior)[0]


def expected_best(model: SSP, posterior: TDPosterior) -> Float[np.ndarray, "states"]:
    """For each state, the posterior mean of its largest action value."""
    return posterior.weights @ _compare(model, posterior)[1]


def route_probabilities(
    model: SSP, posterior: TDPosterior, routes: Sequence[Sequence[int]]
) -> Float[np.ndarray, "routes"]:
    """For each route (pairs in the order they are played), the probability that all are optimal in their states.

    A policy, one pair for every state, is a route as well. A route that plays two different pairs in one state belongs
    to no policy and has probability 0.
    """
    optimal, _ = _compare(model, posterior)
    found = np.zeros(len(routes))
    for numbers, pairs in _by_length(model, routes):
        chance = reduce(np.multiply, (optimal[:, column] for column in pairs.T), np.ones((len(optimal), len(pairs))))
        found[numbers] = [posterior.weights @ own for own in np.ascontiguousarray(chance.T)]
    return found


def _by_length(
    model: SSP, routes: Sequence[Sequence[int]]
) -> Iterator[tuple[list[int], Int[np.ndarray, "routes length"]]]:
    """Routes that belong to a policy, grouped by length: their numbers, and their pairs in ascending order."""
    state, groups = model.pair_state.tolist(), dict[int, dict[int, list[int]]]()
    for number, route in enumerate(routes):
        pairs = sorted({int(pair) for pair in route})
        if pairs and not (pairs[0] >= 0 and pairs[-1] < model.n_pairs):
            raise BadInputError(f"route: a pair is outside 0 to {model.n_pairs - 1}")
        if len({state[pair] for pair in pairs}) == len(pairs):
            groups.setdefault(len(pairs), {})[number] = pairs
    for length, group in groups.items():
        yield list(group), np.array(list(group.values()), dtype=np.int64).reshape(len(group), length)


def _regress(target: Target, guess: Float[np.ndarray, "components states"]) -> TDPosterior:
    """The posterior given one guess of the states' values for each component."""
    if not target.is_gaussian:
        raise UnsupportedError("TD posteriors have a closed form only for the Gaussian kernel: use kernel gaussian")
    observed, prior_mean, sigma = target.observed, target.prior.mean, target.prior.sd
    surprise = np.where(observed, target.reward + target.model.expected_next(guess) - prior_mean, 0.0)
    shrink = 1.0 / (1.0 + (target.scale / sigma) ** 2)
    spread = np.hypot(sigma, target.scale)  # of a target under the prior
    log_weight = -0.5 * ((surprise / spread) ** 2).sum(axis=1)
    weights = np.exp(log_weight - log_weight.max())
    variance = np.where(observed, target.scale**2 * shrink, sigma**2)
    return TDPosterior(weights / weights.sum(), prior_mean + surprise * shrink, variance)


def _compare(
    model: SSP, posterior: TDPosterior
) -> tuple[Float[np.ndarray, "components pairs"], Float[np.ndarray, "components states"]]:
    """In every component, the probability that each pair is best in its state, and each state's expected best value."""
    components, _ = posterior.mean.shape
    sd = np.sqrt(posterior.variance)
    optimal = np.empty_like(posterior.mean)
    best = np.empty((components, model.n_states))
    counts = np.diff(model.pair_start)
    for actions in np.unique(counts):
        states = np.flatnonzero(counts == actions)
        pairs = model.pair_start[states][:, None] + np.arange(actions)
        shape = (components, *pairs.shape)
        rows = (-1, pairs.shape[1])
        found = largest(posterior.mean[:, pairs].reshape(rows), np.broadcast_to(sd[pairs], shape).reshape(rows))
        optimal[:, pairs] = found.probability.reshape(shape)
        best[:, states] = found.expectation.reshape(shape[:2])
    return optimal, best
