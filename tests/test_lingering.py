"""How often a policy can visit a state before it leaves: against all policies."""

from itertools import product

import numpy as np
import pytest
from problems import random_problem

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.graph import end_components
from bellmanifold.posteriors import lingering
from bellmanifold.posteriors.cuts import lingering_cut, longest, most_visited


def visits_by_policy(model, allowed):
    """For every policy that plays allowed pairs, or leaves at once (-1): expected visits from each state to itself."""
    own = [[-1, *np.flatnonzero(allowed & (model.pair_state == s))] for s in range(model.n_states)]
    for policy in product(*own):
        moves = np.zeros((model.n_states, model.n_states + 1))
        for state, pair in enumerate(policy):
            entries = slice(*model.next_start[[pair, pair + 1]]) if pair >= 0 else slice(0)
            np.add.at(moves[state], model.next_state[entries], model.next_prob[entries])
        yield policy, np.diagonal(np.linalg.inv(np.eye(model.n_states) - moves[:, :-1]))


def open_problems(rng, count):
    """Random problems and some of their pairs that hold no policy for ever."""
    found = []
    while len(found) < count:
        model = random_problem(rng, states=3, actions=3)
        allowed = rng.random(model.n_pairs) < 0.8
        if allowed.any() and not end_components(model, allowed):
            found.append((model, allowed))
    return found


def test_the_most_visited_pair_against_all_policies(rng, monkeypatch):
    seen = 0
    for model, allowed in open_problems(rng, 40):
        everything = list(visits_by_policy(model, allowed))
        most = max(visits.max() for _, visits in everything)
        monkeypatch.setattr(lingering, "MOST_VISITS", most * (1 + 1e-9))
        assert most_visited(model, allowed) is None
        if most > 1 + 1e-9:
            monkeypatch.setattr(lingering, "MOST_VISITS", most * (1 - 1e-9))
            pair = most_visited(model, allowed)
            state = model.pair_state[pair]
            reached = max(visits[state] for policy, visits in everything if policy[state] == pair)
            assert reached == pytest.approx(most)
            seen += 1
    assert seen > 10


def test_the_longest_way_out(rng):
    """All states of a component, any pay: policy iteration against all policies of its pairs."""
    for model, allowed in open_problems(rng, 20):
        states = np.unique(model.pair_state[allowed])
        pays = rng.random(len(states))
        value, policy = longest(model, allowed, states, pays)
        assert allowed[policy[states]].all()
        best = np.zeros(len(states))
        for choice in product(*(np.flatnonzero(allowed & (model.pair_state == s)) for s in states)):
            moves = np.zeros((len(states), model.n_states + 1))
            for row, pair in enumerate(choice):
                entries = slice(*model.next_start[[pair, pair + 1]])
                np.add.at(moves[row], model.next_state[entries], model.next_prob[entries])
            best = np.maximum(best, np.linalg.solve(np.eye(len(states)) - moves[:, states], pays))
        np.testing.assert_allclose(value, best, rtol=1e-9)


def test_a_row_that_runs_backwards():
    """Forwards with probability 0.1, else back to the first state: it is visited 10 + 100 + 1,000 times."""
    moves = {}
    for k in range(3):
        after = f"s{k + 1}" if k < 2 else "goal"
        moves[f"s{k}", "on"] = Move(-1.0, {"s0": 0.9, after: 0.1})
    model = from_moves("row", moves, start="s0")
    value, _ = longest(model, np.ones(3, dtype=bool), np.arange(3), np.array([1.0, 0.0, 0.0]))
    assert value[0] == pytest.approx(1000.0)
    assert lingering_cut(model, np.ones(3, dtype=bool), 6) == [0]


def test_no_more_pairs_than_asked_for_and_one():
    moves = {(f"s{k}", "stay"): Move(-1.0, {f"s{k}": 0.999, "goal": 0.001}) for k in range(5)}
    model = from_moves("rings", moves, start="s0")
    allowed = np.ones(5, dtype=bool)
    assert len(lingering_cut(model, allowed, 2)) == 3
    assert sorted(lingering_cut(model, allowed, 5)) == list(range(5))
    assert allowed.all()
