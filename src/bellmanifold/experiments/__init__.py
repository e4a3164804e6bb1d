"""Experiments: plans of many runs, the processes that play them and the files that keep them."""
