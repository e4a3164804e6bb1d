import json
from pathlib import Path

import numpy as np
import pytest

from bellmanifold import envs
from bellmanifold.envs.building import with_action_order
from bellmanifold.errors import BadInputError
from bellmanifold.io.models import load_model
from bellmanifold.io.problem import from_json

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())


@pytest.mark.parametrize("key", GOLDEN["models"])
def test_against_the_golden_models(key):
    """The published environments, pair by pair."""
    title, slip, cost = key.split("|")
    name, depth = title.split("-")
    build = {"sea": envs.deep_sea, "pyramid": envs.pyramid, "swirl": envs.swirl}[name]
    options = {"slip": float(slip), "move_cost": float(cost)} if name == "sea" else {}
    ours, theirs = build(int(depth), **options), from_json(GOLDEN["models"][key])
    assert ours.states == theirs.states
    for field in ("pair_state", "pair_action", "reward", "next_start", "next_state", "next_prob", "initial"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))


def routes(model):
    """Every route from the start: pairs played until the goal or until a state would repeat."""
    found = []

    def follow(state, seen, pairs):
        for i in range(model.pair_start[state], model.pair_start[state + 1]):
            after = int(model.next_state[model.next_start[i]])
            if after == model.n_states or after in seen:
                found.append((*pairs, i, after != model.n_states))
            else:
                follow(after, {*seen, after}, (*pairs, i))

    start = int(np.argmax(model.initial))
    follow(start, {start}, ())
    return found


@pytest.mark.parametrize(("depth", "count", "loops"), [(3, 14, 2), (5, 66, 18)])
def test_swirl_has_the_stated_route_classes(depth, count, loops):
    found = routes(envs.swirl(depth))
    assert len(found) == count
    assert sum(route[-1] for route in found) == loops


def test_deep_sea_and_pyramid_have_two_to_the_depth_routes():
    assert len(routes(envs.deep_sea(5))) == len(routes(envs.pyramid(5))) == 32


def test_swirl_moves_stay_on_the_triangle():
    for depth in range(1, 12):
        model = envs.swirl(depth)
        assert model.n_pairs == depth * (depth + 1)


class BsuiteDeepSea:
    """bsuite's rules, re-stated step by step: a grid, a column and a row, and a coin for the stochastic variant."""

    def __init__(self, size, stochastic):
        self.size, self.stochastic = size, stochastic

    def outcomes(self, row, column, right):
        """Reward without noise, its noise, and the distribution over the next column."""
        reward = 1.0 if column == self.size - 1 and right else 0.0
        noise = 1.0 if self.stochastic and row == self.size - 1 and column in (0, self.size - 1) else 0.0
        if not right:
            return reward, noise, {max(column - 1, 0): 1.0}
        reward -= 0.01 / self.size
        ahead = min(column + 1, self.size - 1)
        if not self.stochastic:
            return reward, noise, {ahead: 1.0}
        law = {ahead: 1.0 - 1.0 / self.size}
        law[column] = law.get(column, 0.0) + 1.0 / self.size
        return reward, noise, law


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("size", [2, 3, 10])
def test_bsuite_convention_step_by_step(size, stochastic):
    model = envs.deep_sea(size, convention="bsuite", stochastic=stochastic)
    rules = BsuiteDeepSea(size, stochastic)
    for i in range(model.n_pairs):
        state, action = model.pair_name(i)
        row, column = (int(part) for part in state.split(","))
        reward, noise, law = rules.outcomes(row, column, action == "right")
        assert model.reward[i] == pytest.approx(reward, abs=1e-15)
        assert model.reward_sd[i] == noise
        own = slice(model.next_start[i], model.next_start[i + 1])
        ours = {model.state_name(s): p for s, p in zip(model.next_state[own], model.next_prob[own], strict=True)}
        expected = {"goal": 1.0} if row == size - 1 else {f"{row + 1},{c}": p for c, p in law.items()}
        assert ours == pytest.approx(expected)


def test_action_seed_permutes_only_the_order():
    plain, shuffled = envs.swirl(5), envs.swirl(5, action_seed=7)
    assert plain.states == shuffled.states
    assert {plain.pair_name(i) for i in range(30)} == {shuffled.pair_name(i) for i in range(30)}
    firsts = [shuffled.pair_name(i)[1] for i in shuffled.pair_start[:-1]]
    assert 3 <= firsts.count("left") <= 12
    for i in range(30):
        j = shuffled.pair_index[plain.pair_name(i)]
        assert plain.reward[i] == shuffled.reward[j]
        assert plain.next_state[plain.next_start[i]] == shuffled.next_state[shuffled.next_start[j]]
    assert envs.swirl(5, action_seed=7) == shuffled
    slippery = envs.grid(4, 4, slip=0.3)
    again = with_action_order(slippery, 1)
    for i in range(slippery.n_pairs):
        j = again.pair_index[slippery.pair_name(i)]
        a, b = (slice(m.next_start[k], m.next_start[k + 1]) for m, k in ((slippery, i), (again, j)))
        np.testing.assert_array_equal(slippery.next_state[a], again.next_state[b])
        np.testing.assert_array_equal(slippery.next_prob[a], again.next_prob[b])


def test_grid_moves():
    model = envs.grid(3, 3, slip=0.2, walls="1,1", goal="0,2")
    assert "1,1" not in model.states
    assert model.name == "grid-3x3"

    def law(state, action):
        i = model.pair_index[(state, action)]
        own = slice(model.next_start[i], model.next_start[i + 1])
        return {model.state_name(s): p for s, p in zip(model.next_state[own], model.next_prob[own], strict=True)}

    assert law("0,1", "right") == pytest.approx({"goal": 0.8, "0,1": 0.2})
    assert law("0,0", "down") == pytest.approx({"1,0": 0.8, "0,1": 0.1, "0,0": 0.1})
    assert law("1,0", "right") == pytest.approx({"1,0": 0.8, "0,0": 0.1, "2,0": 0.1})
    assert set(model.reward) == {-1.0}


def test_grids_without_slips_may_be_larger(monkeypatch):
    """A hundred cells have 400 pairs, and as many successors, or three times as many."""
    monkeypatch.setenv("BELLMANIFOLD_MAX_SIZE", "800")
    assert envs.grid(10, 10).is_deterministic
    with pytest.raises(BadInputError, match="1,600 pairs and successors"):
        envs.grid(10, 10, slip=0.1)


def test_grid_leaves_out_what_the_start_cannot_reach():
    model = envs.grid(3, 3, walls="0,2;1,2", goal="2,1")
    assert "2,2" not in model.states, "it lies behind the goal"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("env:deep-see", 'unknown environment "deep-see": choose from deep-sea'),
        ("env:deep-sea?depth=x", 'depth is "x": give a whole number'),
        ("env:deep-sea?depth=2.5", "give a whole number"),
        ("env:deep-sea?depth=0", "at least 1"),
        ("env:deep-sea?depth=-3", "at least 1"),
        ("env:deep-sea?depth=999999999", "make it smaller"),
        ("env:deep-sea?depth=" + "9" * 5000, "give a whole number"),
        ("env:deep-sea?deep=3", 'unknown parameter "deep": deep-sea takes depth'),
        ("env:deep-sea?depth=3&depth=4", "given twice"),
        ("env:deep-sea?slip=1.5", r"slip is 1.5: it must lie in \[0, 1\]"),
        ("env:deep-sea?slip=nan", "slip is nan"),
        ("env:deep-sea?move_cost=inf", "finite"),
        ("env:deep-sea?convention=mine", "choose from paper, bsuite"),
        ("env:deep-sea?stochastic=yes", "write true or false"),
        ("env:deep-sea?stochastic=true", "convention=bsuite"),
        ("env:deep-sea?convention=bsuite&slip=0.1", "paper's convention"),
        ("env:deep-sea?action_seed=-1", "not negative"),
        ("env:two-state?depth=3", "two-state takes discount"),
        ("env:swirl?move_cost=nan", "finite"),
        ("env:grid?rows=0", "at least 1"),
        ("env:grid?rows=100000&columns=100000", "make it smaller"),
        ("env:grid?walls=9,9", "outside"),
        ("env:grid?walls=a", "is not a cell"),
        ("env:grid?start=4,4", "choose two cells"),
        ("env:grid?walls=0,0", "a wall stands there"),
        ("env:grid?goal=1,1&walls=1,1", "a wall stands there"),
        ("env:", "unknown environment"),
    ],
)
def test_bad_references(reference, message):
    with pytest.raises(BadInputError, match=message):
        load_model(reference)


def test_good_references():
    assert load_model("env:deep-sea?depth=5&slip=0.1&move_cost=0.03&action_seed=3") == envs.deep_sea(
        5, 0.1, 0.03, action_seed=3
    )
    assert load_model("env:grid?rows=5&columns=5&slip=0.1") == envs.grid(5, 5, 0.1)
