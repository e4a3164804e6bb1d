"""The density on the manifold against the chart, lengths of curves, and the co-area formula in polar coordinates."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_problem
from scipy.stats import norm

from bellmanifold import SSP, Dataset, envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.mdp.checks import assumption_2
from bellmanifold_paper.hausdorff import manifold, tabular_manifold


def sound_problems(count: int) -> list[SSP]:
    """Random problems with random negative rewards (no ties), at least four pairs and Assumption 2."""
    rng = np.random.default_rng(5)
    found: list[SSP] = []
    while len(found) < count:
        model = random_problem(rng, states=3, actions=3, reward_kind="costs", goal_share=0.3)
        if model.n_pairs >= 4 and assumption_2(model).holds:
            found.append(model)
    return found


HOW_MANY = pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
"""Random problems that are looked at: every one has programs of its own."""


def without(model: SSP, missing: np.ndarray) -> Dataset:
    seen = np.setdiff1d(np.arange(model.n_pairs), missing)
    return Dataset(model, seen, model.reward[seen])


def through_chart(data: Dataset, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of the manifold by the values of unobserved pairs (columns), and log |det A|; shapes (pairs, batch)."""
    model = data.model
    chart = batch_chart(model)
    q = np.zeros((model.n_pairs, value.shape[1]))
    q[~data.observed] = value
    payment = np.repeat(data.mean_reward[:, None], value.shape[1], axis=1)
    solved = chart.solve(data.observed, jnp.asarray(payment), jnp.asarray(q))
    assert bool(solved.solvable.all())
    return np.asarray(solved.q), np.asarray(solved.log_det)


@HOW_MANY
def test_density_times_surface_factor_is_the_density_of_the_chart(count: int) -> None:
    """h is piecewise linear: central differences give its derivative to rounding away from kinks."""
    rng = np.random.default_rng(3)
    sigma, step = 2.0, 1e-5
    for model in sound_problems(count):
        missing = rng.choice(model.n_pairs, 2, replace=False)
        data = without(model, missing)
        free = np.flatnonzero(~data.observed)
        found = tabular_manifold(data, prior_scale=sigma)
        assert found.log_evidence is not None
        log_density, constraint = jax.jit(found.log_density), jax.jit(found.constraint)
        for value in rng.normal(scale=sigma, size=(4, 2)):
            shifted = value[:, None] + step * np.array([[0, 1, -1, 0, 0], [0, 0, 0, 1, -1]])
            q, log_det = through_chart(data, shifted)
            slope = np.stack([q[:, 1] - q[:, 2], q[:, 3] - q[:, 4]], axis=1) / (2 * step)
            np.testing.assert_allclose(slope[free], np.eye(2), atol=1e-9)
            surface = 0.5 * np.linalg.slogdet(slope.T @ slope)[1]
            theta = jnp.asarray(q[:, 0])
            np.testing.assert_allclose(constraint(theta), 0.0, atol=1e-12)
            chart = norm.logpdf(q[:, 0], 0, sigma).sum() - log_det[0] - float(found.log_evidence.value)
            assert float(log_density(theta)) + surface == pytest.approx(chart, abs=1e-8)


def length_integral(density: np.ndarray, curve: np.ndarray) -> float:
    """Integral of a density along a polygon, shape (points, dimension), by the midpoint of neighbours."""
    length = np.linalg.norm(np.diff(curve, axis=0), axis=1)
    return float(np.sum(0.5 * (density[1:] + density[:-1]) * length))


@HOW_MANY
def test_density_integrates_to_one_along_a_curve(count: int) -> None:
    """One unobserved pair: the manifold is a polygon. Its pieces differ in density, so 2e-3 is left to the grid.

    The evidence is known to its standard error; 5 of them (t with 31 degrees: false alarm 2e-5 for each of 2).
    """
    sigma = 10.0
    for model in sound_problems(count):
        data = without(model, np.array([model.n_pairs // 2]))
        found = tabular_manifold(data, prior_scale=sigma)
        assert found.log_evidence is not None
        grid = np.linspace(-8 * sigma, 8 * sigma, 20_001)
        q, _ = through_chart(data, grid[None, :])
        density = np.exp(np.asarray(jax.jit(jax.vmap(found.log_density))(jnp.asarray(q.T))))
        total = length_integral(density, q.T)
        assert total == pytest.approx(1.0, abs=2e-3 + 5 * float(found.log_evidence.se))


def test_no_evidence_is_found_far_from_a_narrow_prior() -> None:
    """Every way costs at least 60 standard deviations of the prior."""
    moves = {
        ("far", "on"): Move(-60.0, {"near": 1.0}),
        ("far", "back"): Move(-70.0, {"far": 0.5, "near": 0.5}),
        ("near", "on"): Move(-60.0, {"goal": 1.0}),
        ("near", "back"): Move(-60.0, {"far": 1.0}),
    }
    data = without(from_moves("far", moves, start="far"), np.array([1]))
    with pytest.raises(UnsupportedError, match="use a larger prior_scale"):
        tabular_manifold(data, prior_scale=1.0)
    assert tabular_manifold(data, prior_scale=30.0).log_evidence is not None


def test_linear_model_against_the_co_area_formula_in_polar_coordinates() -> None:
    """One observed pair, two parameters. On rays residuals are rho g(v), so M is the curve rho(v) = r / g(v), and

        m(r) = density of G(theta) at r = integral over angles with g(v) r > 0 of p(rho v) rho / |g(v)|.

    The same integral by arc length and J must agree, to 1e-3 for both grids.
    """
    rng = np.random.default_rng(6)
    checked = 0
    for model in sound_problems(4):
        features = jnp.asarray(rng.normal(size=(model.n_pairs, 2)))
        data = Dataset(model, np.array([0]), model.reward[:1])
        found = manifold(data, lambda theta, f=features: f @ theta, lambda t: -0.5 * t @ t - jnp.log(2 * jnp.pi), 2)
        angle = np.linspace(0.0, 2 * np.pi, 40_001)
        unit = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        residual = jax.jit(jax.vmap(found.constraint))(jnp.asarray(unit)) + model.reward[0]
        g = np.asarray(residual)[:, 0]
        inside = g * model.reward[0] > 1e-3 * abs(model.reward[0])
        if not inside.any():
            continue
        rho = model.reward[0] / np.where(inside, g, 1.0)
        curve = rho[:, None] * unit
        prior = np.exp(-0.5 * rho**2) / (2 * np.pi)
        polar = np.where(inside, prior * rho / np.abs(g), 0.0)
        density = np.exp(np.asarray(jax.jit(jax.vmap(found.log_density))(jnp.asarray(curve))))
        both = inside[1:] & inside[:-1]
        length = np.where(both, np.linalg.norm(np.diff(curve, axis=0), axis=1), 0.0)
        middle = 0.5 * (density[1:] + density[:-1]) * length
        step = np.where(both, np.diff(angle), 0.0)
        assert middle.sum() == pytest.approx((0.5 * (polar[1:] + polar[:-1]) * step).sum(), rel=1e-3)
        checked += 1
    assert checked >= 3


def test_a_curved_model_by_hand() -> None:
    """q = theta + theta^3: J is the slope 1 + 3 theta_go^2, the manifold a straight line."""
    data = Dataset.from_pairs(envs.two_state(), [("s1", "go")])
    found = manifold(data, lambda t: t + t**3, lambda t: -0.5 * t @ t, 2)
    root = float(np.roots([1.0, 0.0, 1.0, 1.0])[-1].real)
    theta = jnp.array([0.4, root])
    assert float(found.constraint(theta)[0]) == pytest.approx(0.0, abs=1e-12)
    assert float(found.log_stretch(theta)) == pytest.approx(np.log(1 + 3 * root**2))
    assert float(found.log_density(theta)) == pytest.approx(-0.5 * (0.16 + root**2) - np.log(1 + 3 * root**2))


def test_bad_input() -> None:
    data = Dataset.complete(envs.two_state())
    with pytest.raises(UnsupportedError, match="2 observed pairs leave no manifold among 1 parameters"):
        manifold(data, lambda t: jnp.ones((2, 1)) @ t, lambda t: -t @ t, 1)
    with pytest.raises(BadInputError, match="one finite number for each of the 2 pairs"):
        manifold(data, lambda t: t[:1], lambda t: -t @ t, 3)
    with pytest.raises(BadInputError, match="finite"):
        manifold(data, lambda t: jnp.log(t[:2] - 1.0), lambda t: -t @ t, 3)
