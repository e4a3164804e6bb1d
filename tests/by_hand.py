"""Summaries of what no engine found: policies with given weights."""

from __future__ import annotations

import numpy as np

from bellmanifold.posteriors.policies import Estimate, PolicyTable
from bellmanifold.posteriors.result import Findings
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.walk import Walk


def two_policies(target, weight):
    """The first pair of every state, and the last one; weights by replicate."""
    model = target.model
    policy = np.stack([model.pair_start[:-1], model.pair_start[1:] - 1])
    return PolicyTable(np.ones(model.n_states, dtype=bool), policy, np.asarray(weight, dtype=np.float64))


def summary_of(target, weight, **more):
    """A summary of two policies that are given with their weights; action values are -1, give or take 2."""
    zero = np.zeros(target.model.n_pairs)
    findings = Findings(
        table=two_policies(target, weight), q_mean=Estimate.of(zero - 1.0, zero), q_sd=zero + 2.0, **more
    )
    return Summary(target=target, findings=findings, engine="test", reason="by hand", dimension=3)


def weights_with_error(error, first=0.5):
    """Two replicates in which the first policy has this mean share, with this standard error."""
    return np.array([[first + error, 1 - first - error], [first - error, 1 - first + error]])


def walk_of(target, weight=((1.0, 1.0),), **more):
    """A walk that found two policies with given weights, one chain a row, and mixed well unless said otherwise."""
    zero = np.zeros(target.model.n_pairs)
    told = {"r_hat": 1.0, "effective_sample_size": 1000.0, "steps": 5, **more}
    return Walk(table=two_policies(target, weight), q_mean=Estimate.of(zero, zero), q_sd=zero, **told)
