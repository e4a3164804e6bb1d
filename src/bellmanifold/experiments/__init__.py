"""Experiments: runs of agents, what is measured of them, and what many runs say together."""
