"""Flat directions, likelihood mass and misfitting linear models, against closed forms, quadrature and enumeration."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from problems import all_policies, random_problem
from scipy.special import logsumexp, ndtr
from scipy.stats import multivariate_normal, norm

from bellmanifold import SSP, Dataset, envs, posterior
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.mdp.graph import end_components, is_proper
from bellmanifold_paper import identifiability
from bellmanifold_paper.bellman import residuals, transitions

EPSILONS = (1e-3, 1e-2, 0.1, 1.0, 10.0)
ALWAYS = ((0.5, 0.1), (0.9, 1e-3), (0.9, 1.0), (0.9, 10.0))
"""Discounts and tolerances that every run of the tests asks; `make test-slow` asks all."""


def random_problems(count: int, **settings: int) -> list[SSP]:
    rng = np.random.default_rng(77)
    return [random_problem(rng, **{"states": 3, "actions": 2, **settings}) for _ in range(count)]


BUILT_IN = [make() for make in envs.BUILT_IN.values()] + [envs.swirl(2), envs.grid(2, 3, slip=0.2)]
CYCLIC = [model for model in BUILT_IN if end_components(model)]
CYCLIC += [model for model in random_problems(30) if end_components(model)][:8]


def label(model: SSP) -> str:
    return f"{model.name}-{model.n_pairs}"


def residual(model: SSP, q: np.ndarray) -> np.ndarray:
    """g(q) for a batch of action values, shape (batch, pairs), from its definition."""
    value = np.maximum.reduceat(q, model.pair_start[:-1], axis=1)
    value = np.append(value, np.zeros((len(q), 1)), axis=1)
    return q - np.add.reduceat(value[:, model.next_state] * model.next_prob, model.next_start[:-1], axis=1)


def in_cone(model: SSP, cone: identifiability.FlatCone, rng: np.random.Generator) -> np.ndarray:
    """Random action values whose greedy actions are those of the cone's policy."""
    q = rng.normal(size=model.n_pairs)
    q[cone.policy] = model.best(q) + rng.exponential(size=model.n_states)
    return q


def noisy_repeats(model: SSP, rng: np.random.Generator) -> Dataset:
    pair = np.concatenate([np.arange(model.n_pairs), rng.integers(0, model.n_pairs, 2 * model.n_pairs)])
    return Dataset(model, pair, model.reward[pair] + rng.normal(size=len(pair)))


def trap() -> SSP:
    """A policy may loop at s and avoid it from t: improper, but with nothing flat in its cell."""
    return from_moves(
        "trap",
        {
            ("t", "out"): Move(-1.0, {"goal": 1.0}),
            ("t", "in"): Move(-1.0, {"s": 1.0}),
            ("s", "stay"): Move(-1.0, {"s": 1.0}),
            ("s", "go"): Move(-1.0, {"goal": 1.0}),
        },
        start="t",
    )


# --- flat directions


def test_every_cyclic_environment_is_here() -> None:
    assert {model.name.split("-")[0] for model in CYCLIC} >= {"two", "swirl", "grid", "random"}


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("model", CYCLIC, ids=label)
def test_improper_cells_are_flat_along_u_with_noisy_repeats_too(model: SSP, epsilon: float) -> None:
    rng = np.random.default_rng(1)
    steps = np.array([0.0, 0.1, 1.0, 100.0])
    partial = Dataset.complete(model).pair[::2]
    every = [Dataset.complete(model), noisy_repeats(model, rng), Dataset(model, partial, model.reward[partial])]
    for cone in identifiability.flat_cones(model):
        q = in_cone(model, cone, rng)
        assert identifiability.lies_in_cone(model, cone, q)
        for data in every:
            found = identifiability.log_likelihood_along(data, q, cone.direction, steps, epsilon)
            np.testing.assert_allclose(found, found[0], rtol=1e-9)
        outside = in_cone(model, cone, rng)
        other = np.flatnonzero(cone.direction < model.best(cone.direction)[model.pair_state])
        if len(other):
            outside[other[0]] = outside.max() + 1.0
            assert not identifiability.lies_in_cone(model, cone, outside)


def test_leaving_the_cone_changes_the_likelihood() -> None:
    model = envs.two_state()
    (cone,) = identifiability.flat_cones(model)
    data = Dataset.complete(model)
    steps = np.array([0.0, 0.5, 2.0])
    inside = identifiability.log_likelihood_along(data, np.array([1.0, 0.0]), cone.direction, steps, 0.5)
    outside = identifiability.log_likelihood_along(data, np.array([-1.0, 0.0]), cone.direction, steps, 0.5)
    assert np.ptp(inside) == 0.0
    assert np.ptp(outside) > 0.1
    by_hand = norm.logpdf(-1.0, -1.0 - 0.0, 0.5) + norm.logpdf(-1.0, 0.0, 0.5)
    assert outside[0] == pytest.approx(by_hand)


def test_proper_policies_have_no_flat_direction() -> None:
    """Lemma propernou: A = B'B is regular exactly for proper policies, whatever the direction."""
    proper = []
    for model in random_problems(20):
        data = Dataset.complete(model)
        for policy in all_policies(model):
            matrix = identifiability.cell_matrix(model, policy)
            proper.append(is_proper(model, policy))
            regular = np.linalg.matrix_rank(matrix.T @ matrix, tol=1e-9) == model.n_pairs
            assert regular == proper[-1]
            if proper[-1]:
                assert identifiability.flat_direction(data, policy) is None
    assert 0.1 < np.mean(proper) < 0.95


def test_the_cell_matrix_is_the_derivative_of_the_residuals(rng: np.random.Generator) -> None:
    for model in random_problems(4):
        q, step = rng.normal(size=(2, model.n_pairs))
        law, policy = transitions(model), model.greedy(q)
        change = residuals(law, jnp.asarray(q + 1e-6 * step)) - residuals(law, jnp.asarray(q))
        np.testing.assert_allclose(change, 1e-6 * identifiability.cell_matrix(model, policy) @ step, atol=1e-13)
        assert (identifiability.cell_walls(model, policy) @ q >= 0).all()


def test_flat_directions_are_flat_and_stay_in_the_cell() -> None:
    """Incomplete data too; every policy that maximises u has one, and only improper or partly seen ones do."""
    rng = np.random.default_rng(9)
    found = {True: 0, False: 0}
    for model in random_problems(25):
        seen = np.flatnonzero(rng.random(model.n_pairs) < 0.7)
        for data in (Dataset.complete(model), Dataset(model, seen, model.reward[seen])):
            for policy in all_policies(model):
                along = identifiability.flat_direction(data, policy)
                found[along is not None] += 1
                if along is None:
                    continue
                assert np.abs(along).max() > 0.01
                assert (identifiability.cell_walls(model, policy) @ along).min(initial=0.0) > -1e-9
                assert np.abs(identifiability.cell_matrix(model, policy)[data.observed] @ along).max(initial=0.0) < 1e-9
        for cone in identifiability.flat_cones(model):
            assert identifiability.flat_direction(Dataset.complete(model), cone.policy) is not None
    assert min(found.values()) > 20


# --- likelihood mass


DISCOUNTED = [model.discounted(0.7) for model in random_problems(6) if model.n_pairs >= 5][:2]


@pytest.mark.parametrize("model", [*CYCLIC[-3:], envs.two_state(), trap(), *DISCOUNTED], ids=label)
def test_mass_is_the_limit_of_wide_priors(model: SSP) -> None:
    """Enumeration with prior scales 100 and 1000: the evidence of a cell times (2 pi sigma^2)^(d/2) tends to the mass.

    The prior is flat to 1e-3 where the likelihood is, so finite masses agree to 1 % (5 standard errors of a few
    lattice estimates besides, false alarm 2e-4 each); infinite ones grow by a factor of almost 10 a flat direction.
    Improper cells leave too little for proper ones to be compared; in discounted problems every cell is.
    """
    data, epsilon = Dataset.complete(model), 0.7
    wide = [posterior(model, data, epsilon=epsilon, prior_scale=scale, engine="mixture") for scale in (100.0, 1000.0)]
    compared, valued = 0, 0
    for policy in all_policies(model):
        mass = identifiability.likelihood_mass(data, policy, epsilon)
        logs, errors = [], 0.0
        for summary, scale in zip(wide, (100.0, 1000.0), strict=True):
            share = summary.policy_probability(policy)
            if share.value < 1e-4:  # dropped or badly known cells of the enumeration
                break
            evidence = summary.log_evidence
            assert evidence is not None
            logs.append(float(np.log(share.value) + evidence.value) + model.n_pairs * norm_constant(scale))
            errors += float(share.se / share.value + evidence.se)
        else:
            compared += 1
            assert (logs[1] - logs[0] < 0.1 + 5 * errors) == mass.finite
            if mass.log_mass is not None and mass.finite:
                valued += 1
                assert mass.log_mass <= mass.log_bound
                assert logs[1] == pytest.approx(mass.log_mass, abs=0.01 + 5 * (errors + mass.log_mass_se))
    assert compared >= 2
    assert valued >= 2 or end_components(model)


def norm_constant(scale: float) -> float:
    return float(np.log(scale * np.sqrt(2 * np.pi)))


def test_an_improper_policy_may_have_finite_mass() -> None:
    """What the paper's proof says in passing of all improper policies holds for those with a flat direction."""
    model = trap()
    data = Dataset.complete(model)
    avoids, enters = np.array([0, 2]), np.array([1, 2])
    assert not is_proper(model, avoids)
    assert identifiability.flat_direction(data, avoids) is None
    mass = identifiability.likelihood_mass(data, avoids, 1.0)
    assert mass.finite
    assert mass.log_bound == np.inf
    assert mass.log_mass is None
    assert not identifiability.likelihood_mass(data, enters, 1.0).finite


@pytest.mark.parametrize(
    ("discount", "epsilon"),
    [
        pytest.param(discount, epsilon, marks=[] if (discount, epsilon) in ALWAYS else [pytest.mark.slow])
        for discount in (0.5, 0.9)
        for epsilon in EPSILONS
    ],
)
def test_discounted_masses_are_finite_and_fill_the_space(discount: float, epsilon: float) -> None:
    """For every policy; and g is then a bijection, so mass / bound summed over all policies is 1.

    At most three walls: two are exact, three are lattice estimates. All policies use the same points, so their standard
    errors add up as they are; 6 of these sums (t with 15 degrees, two-sided false alarm 2e-5 for each of about 10
    problems), and 1e-6 for walls so far away that no point of 16 nets meets them.
    """
    for model in random_problems(12):
        data = Dataset.complete(model.discounted(discount))
        found = [identifiability.likelihood_mass(data, policy, epsilon) for policy in all_policies(data.model)]
        assert all(mass.finite and np.isfinite(mass.log_bound) for mass in found)
        share = np.array([np.exp(mass.log_mass - mass.log_bound) for mass in found if mass.log_mass is not None])
        error = np.sum(share * [mass.log_mass_se for mass in found])
        assert share.sum() == pytest.approx(1.0, abs=1e-6 + 6 * error)


def test_improper_cones_have_infinite_mass_until_discounted() -> None:
    for model in CYCLIC:
        for cone in identifiability.flat_cones(model):
            data = Dataset.complete(model)
            assert not identifiability.likelihood_mass(data, cone.policy, 1.0).finite
            repeats = noisy_repeats(model, np.random.default_rng(2))
            assert not identifiability.likelihood_mass(repeats, cone.policy, 1.0).finite
            later = Dataset.complete(model.discounted(0.9))
            assert identifiability.flat_direction(later, cone.policy) is None


def test_mass_of_two_states_by_hand() -> None:
    """Going: theta_go ~ N(-1, s^2), theta_stay - theta_go ~ N(-1, s^2); the cell asks theta_stay <= theta_go."""
    data = Dataset.complete(envs.two_state())
    for scale in EPSILONS:
        mass = identifiability.likelihood_mass(data, np.array([1]), scale)
        assert mass.log_bound == 0.0
        assert mass.log_mass == pytest.approx(float(np.log(ndtr(1.0 / scale))), abs=1e-12)


def test_mass_with_noisy_repeats_by_quadrature() -> None:
    model = envs.two_state()
    data = Dataset(model, np.array([0, 1, 1, 0, 1]), np.array([-1.2, -0.3, -1.0, 0.4, -2.1]))
    mass = identifiability.likelihood_mass(data, np.array([1]), 0.8)
    go = np.linspace(-9.0, 7.0, 2001)
    gap = np.linspace(-16.0, 0.0, 2001)  # stay - go
    log_go = sum(norm.logpdf(r, go, 0.8) for r in (-0.3, -1.0, -2.1))
    log_gap = sum(norm.logpdf(r, gap, 0.8) for r in (-1.2, 0.4))
    expected = np.trapezoid(np.exp(log_go), go) * np.trapezoid(np.exp(log_gap), gap)
    assert mass.log_mass == pytest.approx(float(np.log(expected)), abs=1e-5)


# --- size of the change


def test_residuals_are_lipschitz(rng: np.random.Generator) -> None:
    """2 sqrt(n) L, for tables even sqrt(2 n); attained to a factor sqrt(2) by n pairs that lead to one state."""
    largest = 0.0
    for model in [*random_problems(10, states=4), envs.swirl(3), envs.grid(2, 3, slip=0.2)]:
        features = rng.normal(size=(model.n_pairs, 2))
        size = float(np.linalg.norm(features, axis=1).max())
        for n in (1, model.n_pairs):
            a, b = rng.normal(size=(2, 50, model.n_pairs))
            change = np.linalg.norm((residual(model, a) - residual(model, b))[:, :n], axis=1)
            assert (change <= np.sqrt(2 * n) * np.linalg.norm(a - b, axis=1)).all()
            assert np.sqrt(2 * n) <= identifiability.lipschitz_bound(n)
            a, b = rng.normal(size=(2, 50, 2))
            change = np.linalg.norm((residual(model, a @ features.T) - residual(model, b @ features.T))[:, :n], axis=1)
            ratio = change / np.linalg.norm(a - b, axis=1) / identifiability.lipschitz_bound(n, size)
            largest = max(largest, float(ratio.max()))
    assert 0.3 < largest <= 1.0


# --- linear models


def sum_of_squares(data: Dataset, features: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """S at a batch of parameters, shape (batch, features)."""
    gap = residual(data.model, theta @ features.T) - data.deterministic_reward()
    return (gap[:, data.observed] ** 2).sum(axis=1)


def misfits(count: int, width: int) -> list[tuple[Dataset, np.ndarray]]:
    rng = np.random.default_rng(12)
    found = []
    while len(found) < count:
        model = random_problem(rng, states=4, actions=3)
        seen = np.flatnonzero(rng.random(model.n_pairs) < 0.8)
        features = rng.normal(size=(model.n_pairs, width))
        if len(seen) > width:
            found.append((Dataset(model, seen, model.reward[seen]), features))
    return found


@pytest.mark.parametrize("width", [1, 2, 3])
def test_no_parameter_fits_better(width: int) -> None:
    """Against 20,000 random parameters around the optimum at several distances."""
    rng = np.random.default_rng(8)
    for data, features in misfits(8, width):
        fit = identifiability.best_linear_fit(data, features)
        assert fit.sum_of_squares == pytest.approx(sum_of_squares(data, features, fit.parameters[None])[0], rel=1e-9)
        np.testing.assert_allclose(fit.q, features @ fit.parameters)
        far = 10.0 ** rng.uniform(-4, 1, size=(20_000, 1)) * (1.0 + np.abs(fit.parameters).max())
        others = fit.parameters + far * rng.normal(size=(20_000, width))
        assert sum_of_squares(data, features, others).min() >= fit.sum_of_squares * (1 - 1e-12)


def test_a_linear_model_that_can_solve_the_equations_does() -> None:
    model = envs.swirl(2)
    solved = np.eye(model.n_pairs)
    fit = identifiability.best_linear_fit(Dataset.complete(model.discounted(0.9)), solved)
    assert fit.sum_of_squares < 1e-20


def polar_posterior(
    data: Dataset, features: np.ndarray, centre: np.ndarray, epsilon: float, sigma: float
) -> tuple[np.ndarray, float]:
    """Mean and root mean square distance from the centre of the relaxed posterior of two parameters, by quadrature.

    On a ray theta = rho v residuals are rho g(v), so the radial integrals of rho^k exp(-quadratic) are moments of a
    normal law cut off at 0; the angle is integrated by Simpson's rule on panels refined towards the centre's angle.
    """
    seen = data.observed
    reward = data.deterministic_reward()[seen]
    middle = np.arctan2(centre[1], centre[0])
    far = np.geomspace(1e-6, np.pi, 3001)
    angle = np.concatenate([middle - far[::-1], [middle], middle + far])
    angle = np.unique(np.concatenate([angle, (angle[1:] + angle[:-1]) / 2]))
    unit = np.stack([np.cos(angle), np.sin(angle)])
    g = residual(data.model, unit.T @ features.T)[:, seen]
    precision = (g**2).sum(axis=1) / epsilon**2 + 1 / sigma**2
    mean = g @ reward / epsilon**2 / precision
    sd = precision**-0.5
    edge = mean / sd
    log_zero = norm.logcdf(edge)
    hazard = np.exp(norm.logpdf(edge) - log_zero)
    moment = [np.ones_like(mean), mean + sd * hazard]
    for k in (2, 3):
        moment.append(mean * moment[k - 1] + (k - 1) * sd**2 * moment[k - 2])
    log_scale = 0.5 * mean**2 * precision + np.log(sd) + log_zero
    weight = np.exp(log_scale - log_scale.max())
    simpson = (angle[2:] - angle[:-2]) / 6

    def integral(f: np.ndarray) -> float:
        return float(np.sum((simpson * (f[:-2] + 4 * f[1:-1] + f[2:]))[::2]))

    total = integral(weight * moment[1])
    first = np.array([integral(weight * moment[2] * v) for v in unit]) / total
    second = integral(weight * moment[3]) / total
    spread = second - 2 * first @ centre + centre @ centre
    return first, float(np.sqrt(max(spread, 0.0)))


def test_the_relaxed_posterior_collapses_onto_the_best_fit() -> None:
    """Two parameters cannot represent Q*; the distance from the maximiser falls in proportion to epsilon."""
    sigma = 3.0
    checked = 0
    for data, features in misfits(12, 2):
        fit = identifiability.best_linear_fit(data, features)
        assert fit.sum_of_squares > 1e-3
        distance = {e: polar_posterior(data, features, fit.parameters, e, sigma)[1] for e in EPSILONS}
        assert distance[10.0] > 1.0
        assert distance[1e-3] < 0.05
        checked += distance[1e-3] < 0.2 * distance[1e-2] < 0.2 * 0.5 * distance[0.1]
    assert checked >= 8


def test_polar_quadrature_against_a_grid() -> None:
    data, features = misfits(1, 2)[0]
    grid = np.linspace(-12.0, 12.0, 481)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    log_weight = -0.5 * sum_of_squares(data, features, points) + multivariate_normal.logpdf(points, np.zeros(2), 4.0)
    weight = np.exp(log_weight - logsumexp(log_weight))
    mean, distance = polar_posterior(data, features, np.array([0.3, -0.2]), 1.0, 2.0)
    np.testing.assert_allclose(mean, weight @ points, atol=1e-4)
    assert distance == pytest.approx(np.sqrt(weight @ ((points - [0.3, -0.2]) ** 2).sum(axis=1)), abs=1e-4)


# --- improper mass


def test_improper_mass_of_two_states_against_quadrature() -> None:
    """Given theta_go, theta_stay has a Gaussian density cut at theta_go on either side: one integral is left.

    Within 5 standard errors on 8 numbers (t with 15 or 31 degrees: false alarm at most 2e-4 each) and 1e-6.
    """
    data = Dataset.complete(envs.two_state())
    found = identifiability.improper_mass_sweep(data, [0.3, 5.0], [1.0, 10.0], [1.0, 0.8])
    assert found.probability.shape == found.se.shape == (2, 2, 2)
    for d, s, e in np.ndindex(found.probability.shape):
        sigma, epsilon, discount = found.prior_scale[s], found.epsilon[e], found.discount[d]
        go = np.linspace(-80.0, 80.0, 40_001)
        outer = norm.pdf(go, 0, sigma) * norm.pdf(-1.0, go, epsilon)

        def of_stay(slope: float, shift: np.ndarray, upper: bool) -> np.ndarray:
            """Integral of N(x; 0, sigma^2) N(-1; slope x - shift, eps^2) over x above or below theta_go."""
            spread = np.hypot(slope * sigma, epsilon)  # noqa: B023
            mean = slope * sigma**2 * (shift - 1.0) / spread**2  # noqa: B023
            z = (go - mean) / (sigma * epsilon / spread)  # noqa: B023
            return norm.pdf(-1.0, -shift, spread) * ndtr(-z if upper else z)

        loops = np.trapezoid(outer * of_stay(1.0 - discount, np.zeros_like(go), True), go)
        leaves = np.trapezoid(outer * of_stay(1.0, discount * go, False), go)
        expected = loops / (loops + leaves)
        assert found.probability[d, s, e] == pytest.approx(expected, abs=1e-6 + 5 * found.se[d, s, e])
    assert (np.diff(found.probability[0], axis=1) > 0).all(), "5 is as wide as the rewards, 0.3 is not"
    assert (np.diff(found.probability[0], axis=0) > 0).all(), "wide priors weigh improper policies more"
    assert (found.probability[1, 1] < found.probability[0, 1]).all(), "a discount helps under the wide prior"
    assert found.probability[1, 0, 0] > found.probability[0, 0, 0], "but not always: here a narrow prior is worse off"


# --- bad input


def test_bad_input() -> None:
    model = envs.two_state()
    data = Dataset.complete(model)
    with pytest.raises(BadInputError, match="scale is 0"):
        identifiability.likelihood_mass(data, np.array([1]), 0.0)
    with pytest.raises(BadInputError, match="one row of finite numbers for each of the 2 pairs"):
        identifiability.best_linear_fit(data, np.ones((3, 1)))
    with pytest.raises(BadInputError, match="no pair was observed"):
        identifiability.best_linear_fit(Dataset.from_pairs(model, []), np.ones((2, 1)))
    with pytest.raises(UnsupportedError, match="fewer features"):
        identifiability.best_linear_fit(data, np.ones((2, 2)))
    with pytest.raises(BadInputError, match="discount is empty"):
        identifiability.improper_mass_sweep(data, [1.0], [1.0], [])
    with pytest.raises(BadInputError, match="neither may be negative"):
        identifiability.lipschitz_bound(-1)
    with pytest.raises(UnsupportedError, match="too many for a dense matrix"):
        identifiability.cell_matrix(envs.grid(20, 20), np.zeros(399, dtype=int))


def test_too_many_choices_to_enumerate() -> None:
    model = envs.deep_sea(8)
    with pytest.raises(UnsupportedError, match="choices of greedy actions: too many to enumerate"):
        identifiability.best_linear_fit(Dataset.complete(model), np.ones((model.n_pairs, 1)))


def test_single_actions_leave_no_walls() -> None:
    """With one action a state a fit is plain least squares, and what nobody saw is flat both ways."""
    moves = {("a", "x"): Move(-1.0, {"b": 1.0}), ("b", "x"): Move(-2.0, {"goal": 1.0})}
    model = from_moves("line", moves, start="a")
    fit = identifiability.best_linear_fit(Dataset.complete(model), np.array([[1.0], [3.0]]))
    assert fit.parameters[0] == pytest.approx((-2.0 * -1.0 + 3.0 * -2.0) / 13.0)
    along = identifiability.flat_direction(Dataset.from_pairs(model, [("a", "x", -1.0)]), np.array([0, 1]))
    assert along is not None
    assert along[0] == pytest.approx(along[1])
    assert abs(along[0]) > 0.5
