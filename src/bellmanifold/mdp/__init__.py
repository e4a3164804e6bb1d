"""A whole problem: its graph, its chains' linear systems, `check` and `solve`."""
