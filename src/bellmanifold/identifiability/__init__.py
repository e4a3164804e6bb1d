"""Limits of relaxed and noisy likelihoods: flat directions, infinite mass, and misspecified models."""

from bellmanifold.identifiability.features import LinearFit, best_linear_fit
from bellmanifold.identifiability.flat import (
    FlatCone,
    cell_matrix,
    cell_walls,
    flat_cones,
    flat_direction,
    lies_in_cone,
    lipschitz_bound,
    log_likelihood_along,
)
from bellmanifold.identifiability.mass import LikelihoodMass, likelihood_mass
from bellmanifold.identifiability.mass_sweep import ImproperMass, improper_mass_sweep

__all__ = [
    "FlatCone",
    "ImproperMass",
    "LikelihoodMass",
    "LinearFit",
    "best_linear_fit",
    "cell_matrix",
    "cell_walls",
    "flat_cones",
    "flat_direction",
    "improper_mass_sweep",
    "lies_in_cone",
    "likelihood_mass",
    "lipschitz_bound",
    "log_likelihood_along",
]
