"""Small problems with loops, whose weights tests write out by hand."""

from __future__ import annotations

import numpy as np

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.target import ValuePrior
from bellmanifold.problem.dataset import Dataset


def wandering():
    """A random cycle of two states that can be left, a state before it, and one that no data touch."""
    moves = {
        ("a", "go"): Move(-1.0, {"b": 0.7, "goal": 0.3}),
        ("a", "jump"): Move(-2.0, {"goal": 1.0}),
        ("b", "back"): Move(-0.5, {"a": 0.6, "goal": 0.4}),
        ("b", "x"): Move(-1.0, {"goal": 1.0}),
        ("b", "y"): Move(-1.5, {"goal": 1.0}),
        ("c", "in"): Move(-0.3, {"a": 0.5, "b": 0.5}),
        ("c", "out"): Move(-3.0, {"goal": 1.0}),
        ("far", "x"): Move(-1.0, {"c": 1.0}),
        ("far", "y"): Move(-1.0, {"goal": 1.0}),
    }
    return from_moves("wandering", moves, start="c")


SEEN = [("a", "go"), ("a", "jump"), ("b", "back"), ("c", "in")]


def shared_pair():
    """Two loops that share the pair (x, on), with random moves; before them a state that is left in the end."""
    moves = {
        ("x", "on"): Move(-0.8, {"x": 0.8, "y": 0.2}),
        ("y", "fast"): Move(-0.8, {"x": 1.0}),
        ("y", "slow"): Move(-0.82, {"y": 0.995, "x": 0.005}),
        ("x", "out"): Move(-1.0, {"goal": 1.0}),
        ("y", "out"): Move(-1.0, {"goal": 1.0}),
        ("z", "in"): Move(-0.4, {"z": 0.4, "x": 0.3, "y": 0.3}),
    }
    return from_moves("shared pair", moves, start="z")


def two_rings():
    """Two loops without chance, one before the other."""
    moves = {}
    for state, after in (("a", "b"), ("b", "c"), ("c", "a")):
        moves[state, "round"] = Move(-0.5, {after: 1.0})
    moves["a", "out"] = Move(-1.0, {"d": 1.0})
    moves["c", "home"] = Move(-4.0, {"goal": 1.0})
    moves["d", "stay"] = Move(-0.2, {"d": 1.0})
    moves["d", "out"] = Move(-1.0, {"goal": 1.0})
    return from_moves("two rings", moves, start="b")


def part_of_a_loop():
    """`stay` lingers in one of two states that hardly any move leaves: the coins do not cover that."""
    moves = {
        ("s", "stay"): Move(-1e-14, {"s": 1 - 2e-15, "goal": 2e-15}),
        ("s", "go"): Move(-5.5, {"t": 1.0}),
        ("s", "untried"): Move(0.0, {"goal": 1.0}),
        ("t", "back"): Move(4.0, {"s": 1.0}),
        ("t", "untried"): Move(0.0, {"goal": 1.0}),
    }
    model = from_moves("part", moves, start="s")
    return model, Dataset.from_pairs(model, [("s", "stay"), ("s", "go"), ("t", "back")])


def own_priors(model):
    """Another prior for each pair."""
    rng = np.random.default_rng(model.n_pairs)
    return ValuePrior(rng.normal(-1.0, 1.0, model.n_pairs), rng.uniform(1.0, 3.0, model.n_pairs))
