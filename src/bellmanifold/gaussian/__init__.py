"""Gaussian computations without a decision problem: orthants, the largest of several, and quasi-random points."""
