"""The exact posterior of a small problem, written plainly: every cell of the chart by quadrature.

The observed equations hold exactly, and of the untried actions of a state only the largest value x_s enters, with the
density k phi(x) Phi(x)^(k-1) of the largest of k. A policy plays one observed pair in a state, or its best untried one.
Given the policy all values are affine in x; it is greedy where finitely many affine functions are not negative; and its
cell weighs

    int over the cell of  prod_s k_s phi(x_s) Phi(x_s)^(k_s - 1)  prod_{i observed} phi(theta_i(x))  dx / det(I - P).

Systems and determinants are rational, so that a leak of 1e-12 loses no digit; integrals are composite Gauss-Legendre
sums, cut where the boundary of a cell has a corner. At most two states may have untried actions. Nothing of the package
is used except to build the problem.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import ndtr

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.problem.dataset import Dataset

FARTHEST = 14.0
"""Values are looked at up to this many prior scales."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
UNTRIED = "untried"


@dataclass(frozen=True)
class Seen:
    """An observed pair: what it pays and where it leads; the goal gets what is missing of 1. All numbers rational."""

    pays: Fraction
    leads: dict[str, Fraction]


@dataclass(frozen=True)
class Known:
    """A problem as far as it is known: observed pairs, and how many untried actions each state has besides."""

    seen: dict[tuple[str, str], Seen]
    untried: dict[str, int]

    @property
    def states(self) -> list[str]:
        return sorted({state for state, _ in self.seen} | set(self.untried))

    @property
    def model(self):
        """The problem for the package; every untried action ends it and pays nothing."""
        moves = {}
        for (state, action), pair in self.seen.items():
            leak = 1 - sum(pair.leads.values())
            leads = {after: float(p) for after, p in pair.leads.items()}
            moves[state, action] = Move(float(pair.pays), leads | ({"goal": float(leak)} if leak else {}))
        for state, count in self.untried.items():
            for k in range(count):
                moves[state, f"{UNTRIED}{k}"] = Move(0.0, {"goal": 1.0})
        ordered = {key: moves[key] for state in self.states for key in moves if key[0] == state}
        return from_moves("known", ordered, start=self.states[0])

    def data(self, model) -> Dataset:
        """Every observed pair once."""
        return Dataset.from_pairs(model, list(self.seen))


def rational(number: float | int | str) -> Fraction:
    """The decimal that a number is written as."""
    return Fraction(str(number))


def stay(pays: Fraction, leak: Fraction, state: str) -> Seen:
    """Stays, except that it leaks to the goal."""
    return Seen(pays, {state: 1 - leak})


def exact_probabilities(known: Known, scale: float = 1.0) -> tuple[dict[tuple[str, str], float], float]:
    """The probability that each action is optimal (of the untried ones of a state: that one of them is), log evidence.

    Args:
        known: at most two of its states have untried actions.
        scale: sd of the prior.
    """
    options = [
        [action for state, action in known.seen if state == s] + ([UNTRIED] if s in known.untried else [])
        for s in known.states
    ]
    mass: dict[tuple[str, str], float] = {
        (s, action): 0.0 for s, own in zip(known.states, options, strict=True) for action in own
    }
    whole = 0.0
    for choice in itertools.product(*options):
        weight = _cell(known, dict(zip(known.states, choice, strict=True)), scale)
        whole += weight
        for s, action in zip(known.states, choice, strict=True):
            mass[s, action] += weight
    return {key: weight / whole for key, weight in mass.items()}, float(np.log(whole))


def _cell(known: Known, policy: dict[str, str], scale: float) -> float:
    """The weight of a policy's cell; 0 for one that never ends."""
    free = sorted(known.untried)
    solved = _solve(known, policy, free)
    if solved is None:
        return 0.0
    value, determinant = solved
    theta = {key: _backup(pair, value, len(free)) for key, pair in known.seen.items()}
    rival = {key: row for key, row in theta.items() if policy[key[0]] != key[1]}
    rival |= {(s, UNTRIED): _unit(free.index(s) + 1, len(free)) for s in free if policy[s] != UNTRIED}
    rows = []
    for (s, _), row in rival.items():
        margin = [top - other for top, other in zip(value[s], row, strict=True)]
        size = max((abs(number) for number in margin[1:]), default=Fraction(0))
        if size == 0 and margin[0] < 0:
            return 0.0
        assert size or margin[0], "the actions tie exactly: cells do not say how ties are split"
        if size:
            rows.append([float(number / size) for number in margin])
    values = np.array([[float(number) for number in row] for row in theta.values()]).reshape(-1, len(free) + 1)
    counts = [known.untried[s] for s in free]

    def density(*x):
        """The prior of the largest untried values times that of all observed ones."""
        total = np.ones(np.broadcast(*x).shape) if x else np.ones(())
        for k, own in zip(counts, x, strict=True):
            total = total * k * _normal(own, scale) * ndtr(own / scale) ** (k - 1)
        for constant, *slope in values:
            total = total * _normal(constant + sum((b * own for b, own in zip(slope, x, strict=True)), 0.0), scale)
        return total

    region = np.array(rows).reshape(-1, len(free) + 1)
    integrate = (lambda *_: float(density()), _integral_1, _integral_2)[len(free)]
    return integrate(region, density, FARTHEST * scale) / float(determinant)


def _solve(known: Known, policy: dict[str, str], free: list[str]):
    """Each state's value as an affine function of the untried values, and det(I - P); None if it is singular."""
    states, width = known.states, len(free) + 1
    matrix = []
    for s in states:
        row = [Fraction(int(s == other)) for other in states]
        if policy[s] == UNTRIED:
            matrix.append([*row, *_unit(free.index(s) + 1, len(free))])
            continue
        pair = known.seen[s, policy[s]]
        for after, probability in pair.leads.items():
            row[states.index(after)] -= probability
        matrix.append([*row, pair.pays, *[Fraction(0)] * len(free)])
    determinant = Fraction(1)
    for k in range(len(states)):
        pivot = next((j for j in range(k, len(states)) if matrix[j][k] != 0), None)
        if pivot is None:
            return None
        if pivot != k:
            matrix[k], matrix[pivot], determinant = matrix[pivot], matrix[k], -determinant
        head = matrix[k][k]
        determinant *= head
        matrix[k] = [number / head for number in matrix[k]]
        for j in range(len(states)):
            if j != k and matrix[j][k] != 0:
                factor = matrix[j][k]
                matrix[j] = [number - factor * own for number, own in zip(matrix[j], matrix[k], strict=True)]
    return {s: row[-width:] for s, row in zip(states, matrix, strict=True)}, determinant


def _backup(pair: Seen, value: dict[str, list[Fraction]], free: int) -> list[Fraction]:
    row = [pair.pays, *[Fraction(0)] * free]
    for after, probability in pair.leads.items():
        row = [number + probability * more for number, more in zip(row, value[after], strict=True)]
    return row


def _unit(place: int, free: int) -> list[Fraction]:
    return [Fraction(int(k == place)) for k in range(free + 1)]


def _normal(x, scale):
    return np.exp(-0.5 * (x / scale) ** 2) / (scale * np.sqrt(2 * np.pi))


def _panels(low, high, panels: int):
    """Nodes and weights of equal panels of an interval; intervals of arrays have an axis of nodes last."""
    low, high = np.asarray(low, dtype=float)[..., None], np.asarray(high, dtype=float)[..., None]
    width = (high - low) / panels
    place = ((NODES + 1) / 2 + np.arange(panels)[:, None]).ravel()
    return low + width * place, width / 2 * np.tile(WEIGHTS, panels)


def _integral_1(region, density, far: float) -> float:
    """Over an interval."""
    edge = -region[:, 0] / region[:, 1]
    low = max([-far, *edge[region[:, 1] > 0]])
    high = min([far, *edge[region[:, 1] < 0]])
    if low >= high:
        return 0.0
    x, weight = _panels(low, high, 40)
    return float(density(x) @ weight)


def _integral_2(region, density, far: float) -> float:
    """Over a polygon: the first number outside, cut at the corners; the second one inside."""
    box = np.array([[far, 1.0, 0.0], [far, -1.0, 0.0], [far, 0.0, 1.0], [far, 0.0, -1.0]])
    region = np.vstack([region, box])
    corners = [-far, far]
    for one, other in itertools.combinations(region, 2):
        slopes = np.array([one[1:], other[1:]])
        if abs(np.linalg.det(slopes)) > 1e-300:
            corners.append(float(np.linalg.solve(slopes, [-one[0], -other[0]])[0]))
    cuts = np.unique(np.clip(corners, -far, far))
    total = 0.0
    for low, high in itertools.pairwise(cuts):
        x, weight = _panels(low, high, 1 + int(10 * (high - low) / far))
        below, above = np.full(x.shape, -far), np.full(x.shape, far)
        inside = np.ones(x.shape, dtype=bool)
        for constant, first, second in region:
            if second == 0.0:
                inside &= constant + first * x >= 0
            elif second > 0:
                below = np.maximum(below, -(constant + first * x) / second)
            else:
                above = np.minimum(above, -(constant + first * x) / second)
        inside &= below < above
        if inside.any():
            y, inner = _panels(below[inside], above[inside], 20)
            total += float(weight[inside] @ (density(x[inside, None], y) * inner).sum(axis=1))
    return total
