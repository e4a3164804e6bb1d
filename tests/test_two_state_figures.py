"""The numbers behind the figures of Example 1, against formulas by hand and other engines."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from bellmanifold import envs
from bellmanifold.posteriors.inference import posterior
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper import two_state_figures as two_state
from bellmanifold_paper.example_1 import PARTIAL, log_density, log_evidence, marginal
from bellmanifold_paper.plots.densities import SHARES

SIGMA = 10.0


def by_hand(stay, go, epsilon):
    """Prior times likelihood of complete data: theta_1 = -1 + max, theta_2 = -1, each up to epsilon."""
    prior = norm.pdf(stay, scale=SIGMA) * norm.pdf(go, scale=SIGMA)
    return prior * norm.pdf(-1.0, stay - max(stay, go), epsilon) * norm.pdf(-1.0, go, epsilon)


@pytest.mark.parametrize(("stay", "go"), [(-2.0, -1.0), (3.0, -1.0), (-7.0, 4.0), (0.5, 0.5)])
def test_density_by_hand(stay, go):
    assert np.exp(log_density(np.array([stay, go]), 2.0)) == pytest.approx(by_hand(stay, go, 2.0), rel=1e-12)
    alone = by_hand(stay, go, 2.0) / norm.pdf(-1.0, go, 2.0)
    assert np.exp(log_density(np.array([stay, go]), 2.0, PARTIAL)) == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
@pytest.mark.parametrize("x", [-4.0, -2.05, -1.0, 0.0, 5.0])
def test_marginals_against_adaptive_quadrature(x, epsilon):
    """Ratios of marginals do not depend on the evidence; the total is tested below."""
    reach = {"limit": 200, "epsabs": 1e-300, "epsrel": 1e-11}
    peaks = sorted({-1.0, x, x + 1.0, -1.0 - 3 * epsilon, -1.0 + 3 * epsilon})
    stay = quad(lambda y: by_hand(x, y, epsilon), -1.0 - 20 * epsilon, -1.0 + 20 * epsilon, points=peaks, **reach)[0]
    proper = quad(lambda y: by_hand(y, x, epsilon), x - 1.0 - 25 * epsilon, x, points=[x - 1.0], **reach)[0]
    improper = quad(lambda y: by_hand(y, x, epsilon), x, 90.0, points=[x + 5.0, 30.0], **reach)[0]
    total = np.exp(log_evidence(epsilon))
    assert marginal(0, np.array([x]), epsilon)[0] * total == pytest.approx(stay, rel=1e-8, abs=1e-250)
    assert marginal(1, np.array([x]), epsilon)[0] * total == pytest.approx(proper + improper, rel=1e-8, abs=1e-250)


@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_evidence_and_means_against_the_engine(epsilon):
    """The mixture engine enumerates two cells in closed form; both marginals integrate to 1 and have its means."""
    model = envs.two_state()
    summary = posterior(model, Dataset.complete(model), epsilon=epsilon, prior_scale=SIGMA, engine="mixture")
    assert log_evidence(epsilon) == pytest.approx(float(summary.log_evidence.value), abs=1e-4)
    for which in (0, 1):
        x = np.linspace(-60.0, 60.0, 1201)  # evenly spaced: then sums are exact integrals of smooth densities
        density = marginal(which, x, epsilon)
        assert np.trapezoid(density, x) == pytest.approx(1.0, abs=1e-4)
        assert np.trapezoid(x * density, x) == pytest.approx(summary.q_mean.value[which], abs=0.01)


def test_the_posterior_is_stretched_along_the_improper_policy():
    """The likelihood is constant along (1, 0) where staying is greedy, so theta_1 keeps its prior's width there."""
    beyond = log_density(np.array([[1.0, -1.0], [9.0, -1.0]]), 2.0)
    assert beyond[1] - beyond[0] == pytest.approx(norm.logpdf(9.0, scale=SIGMA) - norm.logpdf(1.0, scale=SIGMA))
    tail = marginal(0, np.array([8.0]), 2.0)[0]
    assert tail > 1e3 * marginal(1, np.array([8.0]), 2.0)[0]
    assert tail > 1e6 * marginal(0, np.array([8.0]), 0.1)[0]


def test_the_page_of_marginals_has_a_curve_a_tolerance():
    """Other densities, which take no time, in place of the posterior's: the panels show what they are given."""
    panels = two_state.draw_two_state_marginals(lambda which, x, epsilon: norm.pdf(x, which, epsilon)).axes
    for which, axes in enumerate(panels):
        curves = [line for line in axes.lines if len(line.get_xdata()) > 100]
        assert len(curves) == len(two_state.MARGINAL_TOLERANCES)
        for line, epsilon in zip(curves, two_state.MARGINAL_TOLERANCES, strict=True):
            assert line.get_label() == rf"$\epsilon = {epsilon:g}$"
            np.testing.assert_array_equal(line.get_ydata(), norm.pdf(line.get_xdata(), which, epsilon))
    assert [axes.get_xlabel() for axes in panels] == [r"$\theta_1$ (stay)", r"$\theta_2$ (go)"]


def test_the_page_of_contours_marks_the_true_values():
    figure = two_state.draw_two_state_contours()
    left, right = figure.axes[:2]
    for axes in (left, right, *right.child_axes):
        (star,) = (line for line in axes.lines if line.get_label() == "$Q^*$")
        assert (star.get_xdata().tolist(), star.get_ydata().tolist()) == ([-2.0], [-1.0])
        assert axes.collections, "there are contours"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[: len(SHARES)] == [f"{share:.0%}" for share in SHARES]
