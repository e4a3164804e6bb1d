"""Experiments: runs of agents, what is measured of them, what many runs say; plans, who plays them and keeps them."""
