"""Exact answers for one and two states whose laws are open, by quadrature that shares no code with the engines.

One state s, two actions. "stay" has an open law: it stays with probability p ~ Beta(n_stay + a/2, n_out + a/2), else it
ends. "exit" was never tried. Action values have independent priors N(m, d^2). With an exact reward r

    theta_stay = r + p max(theta_stay, theta_exit):   r / (1 - p), determinant 1 - p,   where theta_exit is below that,
                                                      r + p theta_exit, determinant 1,   elsewhere.

Given p the first case has weight N(r / (1-p)) / (1-p) Phi(...), and the second is the integral of a product of two
normals over a half-line, so that one dimension is left: Gauss-Jacobi nodes in p. With a reward of sd tau the weight is
N(theta_stay) N(g; r, tau^2): theta_exit is integrated over in closed form again, theta_stay by the trapezoidal rule.
"""

import numpy as np
from scipy.special import gammaln, logsumexp, roots_jacobi
from scipy.stats import norm

from bellmanifold.problem.builder import assemble
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import Description

NAN = float("nan")


def open_model(states, pairs, laws=()):
    """A problem of which nothing is known but its pairs, and the laws of some: (pair, {next: probability})."""
    names = [*states, "goal"]
    actions = sorted({action for _, action in pairs})
    rows = [dict(laws).get(pair, {}) for pair in pairs]
    return assemble(
        Description(
            state_names=names,
            action_names=actions,
            goals=[len(states)],
            initial_state=[0],
            initial_prob=[1.0],
            pair_state=[names.index(state) for state, _ in pairs],
            pair_action=[actions.index(action) for _, action in pairs],
            reward=[NAN] * len(pairs),
            next_start=np.cumsum([0, *map(len, rows)]),
            next_state=np.array([names.index(s) for row in rows for s in row], dtype=int),
            next_prob=[p for row in rows for p in row.values()],
            may_be_open=True,
        )
    )


ONE = open_model(["s"], [("s", "stay"), ("s", "exit")])
TWO = open_model(["s", "t"], [("s", "go"), ("s", "exit"), ("t", "leave")])


def landed(model, reward, counts, sd=NAN):
    """Observations of the first pair: so many landings in each state and at the goal; one without `next` if none."""
    after = np.repeat(np.arange(len(counts)), counts) if sum(counts) else np.array([-1])
    n = len(after)
    return Dataset(model, np.zeros(n, dtype=np.int64), np.full(n, float(reward)), np.full(n, float(sd)), after)


def log_landings(a, counts):
    """Log density of landings in order, for one pair: the Dirichlet-multinomial."""
    n, b = np.array(counts, dtype=float), a / len(counts)
    return gammaln(a) - gammaln(a + n.sum()) + (gammaln(b + n) - gammaln(b)).sum()


def beta_nodes(c, d, n):
    """x, 1 - x and weights (sum 1) for Beta(c, d)."""
    x, w = roots_jacobi(n, d - 1.0, c - 1.0)
    return (1.0 + x) / 2.0, (1.0 - x) / 2.0, w / w.sum()


def _half_line(m, s, coefficient, offset, width, above):
    """Integral of N(t; m, s^2) N(offset - coefficient t; 0, width^2) over t > above."""
    total = np.hypot(width, coefficient * s)
    centre = m + s**2 * coefficient * (offset - coefficient * m) / total**2
    return norm.pdf(offset - coefficient * m, 0.0, total) * norm.sf((above - centre) * total / (width * s))


class Answer:
    """Exact answers.

    Attributes:
        log_evidence: of rewards and landings.
        stay: probability that the open pair is the best.
        law: mean probability of each landing, the last for the goal.
        q: mean of the open pair's value, if computed.
    """

    def __init__(self, log_evidence, stay, law, q=NAN):
        self.log_evidence, self.stay, self.law, self.q = log_evidence, stay, np.asarray(law), q


def one_state(a, counts, reward, tau=0.0, mean=(0.0, 0.0), sd=(2.0, 2.0), nodes=300, grid=4001, discount=1.0):
    """One state."""
    p, out, w = beta_nodes(counts[0] + a / 2, counts[1] + a / 2, nodes)
    go, leak = discount * p, out + (1.0 - discount) * p
    if tau == 0.0:
        v = reward / leak
        stays = norm.pdf(v, mean[0], sd[0]) / leak * norm.cdf(v, mean[1], sd[1])
        exits = _half_line(mean[1], sd[1], go, mean[0] - reward, sd[0], v)
        q = NAN
    else:
        t = np.linspace(mean[0] - 9 * sd[0], mean[0] + 9 * sd[0], grid)[:, None]
        prior = norm.pdf(t, mean[0], sd[0]) * (t[1] - t[0])
        all_stay = prior * norm.pdf(leak * t, reward, tau) * norm.cdf(t, mean[1], sd[1])
        all_exit = prior * _half_line(mean[1], sd[1], go, t - reward, tau, t)
        stays, exits = all_stay.sum(axis=0), all_exit.sum(axis=0)
        q = w @ ((all_stay + all_exit) * t).sum(axis=0)
    z = w @ (stays + exits)
    law = np.array([w @ (p * (stays + exits)), w @ (out * (stays + exits))]) / z
    return Answer(np.log(z) + log_landings(a, counts), w @ stays / z, law, q / z)


def two_states(a, counts, reward, mean=(0.0, 0.0, 0.0), sd=(2.0, 2.0, 2.0), nodes=60):
    """Two states: (s, go) is open, (s, exit) and (t, leave) were never tried."""
    shape = np.array(counts) + a / 3
    p, rest, w = beta_nodes(shape[0], shape[1] + shape[2], nodes)
    u, end, of_u = beta_nodes(shape[1], shape[2], nodes)
    x, of_x = np.polynomial.hermite_e.hermegauss(nodes)
    p, rest, w = (part[:, None, None] for part in (p, rest, w))
    u, end, of_u = (part[:, None] for part in (u, end, of_u))
    leave, weight = mean[2] + sd[2] * x, w * of_u * of_x / of_x.sum()
    v = reward / rest + u * leave
    stays = norm.pdf(v, mean[0], sd[0]) / rest * norm.cdf(v, mean[1], sd[1])
    exits = _half_line(mean[1], sd[1], p, mean[0] - reward - rest * u * leave, sd[0], v)
    both = weight * (stays + exits)
    z = both.sum()
    law = [(p * both).sum() / z, (rest * u * both).sum() / z, (rest * end * both).sum() / z]
    return Answer(np.log(z) + log_landings(a, counts), (weight * stays).sum() / z, law)


def inferred(answer_of, nodes=48, least=1e-3, most=10.0):
    """The same with a log-uniform concentration: the answer, and the mean and sd of the concentration."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    a = np.exp(np.log(least) + (np.log(most) - np.log(least)) * (1 + x) / 2)
    answers = [answer_of(one) for one in a]
    log_joint = np.log(w / 2) + np.array([one.log_evidence for one in answers])
    total = logsumexp(log_joint)
    p = np.exp(log_joint - total)
    mean = p @ a
    law = p @ np.array([one.law for one in answers])
    found = Answer(total, p @ [one.stay for one in answers], law, p @ [one.q for one in answers])
    return found, (mean, np.sqrt(p @ (a - mean) ** 2))
