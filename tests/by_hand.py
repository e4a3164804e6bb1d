"""Results of no engine: policies with given weights, and traces of chains that met them."""

from __future__ import annotations

import numpy as np

from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.result import Moments, Result
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.trace import Trace


def two_policies(target, weight):
    """The first pair of every state, and the last one; weights by replicate."""
    return PolicyTable(
        np.ones(target.model.n_states, dtype=bool), first_and_last(target), np.asarray(weight, dtype=np.float64)
    )


def first_and_last(target):
    """Two policies: all states play their first pair, or all their last."""
    return np.stack([target.model.pair_start[:-1], target.model.pair_start[1:] - 1])


def result_of(target, weight, **more):
    """A result of two policies that are given with their weights; action values are -1, give or take 2."""
    zero = np.zeros(target.model.n_pairs)
    told = {"engine": "test", "reason": "by hand", "dimension": 3, **more}
    return Result(
        table=two_policies(target, weight),
        q_mean=Estimate.of(zero - 1.0, zero),
        q_sd=Estimate.of(zero + 2.0, zero),
        **told,
    )


def summary_of(target, weight, budget=None, **more):
    """A summary of such a result."""
    return Summary(target, result_of(target, weight, **more), budget or Budget())


def weights_with_error(error, first=0.5):
    """Two replicates in which the first policy has this mean share, with this standard error."""
    return np.array([[first + error, 1 - first - error], [first - error, 1 - first + error]])


def trace_of(target, row, value=None):
    """A trace of chains that had one of two policies at each step, `row` says which; values, if any, are given."""
    row = np.asarray(row)
    zero = np.zeros((len(row), target.model.n_pairs))
    told = {
        "policy": first_and_last(target),
        "row": row,
        "value": np.zeros((*row.shape, 1)) if value is None else value,
        "scales": 0,
        "moments": Moments(np.full(len(row), float(row.shape[1])), zero, zero),
        "chain": np.arange(len(row)),
        "lost": 0,
        "evaluations": 3.5,
    }
    return Trace(**told)
