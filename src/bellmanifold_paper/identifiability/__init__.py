"""Limits of relaxed and noisy likelihoods: flat directions, infinite mass, and misspecified models."""

from bellmanifold_paper.identifiability.features import LinearFit, best_linear_fit
from bellmanifold_paper.identifiability.flat import (
    FlatCone,
    cell_matrix,
    cell_walls,
    flat_cones,
    flat_direction,
    lies_in_cone,
    lipschitz_bound,
    log_likelihood_along,
)
from bellmanifold_paper.identifiability.mass import LikelihoodMass, likelihood_mass
from bellmanifold_paper.identifiability.mass_sweep import ImproperMass, improper_mass_sweep

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
