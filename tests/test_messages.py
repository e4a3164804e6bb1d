"""What a user reads: headers, tables, and messages that name the place."""

import json

import gymnasium
import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold.cli.advise import _gain
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.walk import by_sparse_walk
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

PAIRS = [
    {"state": "s", "action": "go", "reward": -1.0, "next": {"g": 1.0}},
    {"state": "s", "action": "stay", "reward": -1.0, "next": {"s": 1.0}},
    {"state": "s", "action": "jump"},
]


@pytest.fixture
def files(tmp_path):
    """Write a problem and observations, and give their paths."""

    def write(*observations, pairs=PAIRS, **problem):
        whole = {"format": "bellmanifold.ssp/2", "goals": ["g"], "initial": {"s": 1.0}, "pairs": pairs} | problem
        (tmp_path / "problem.json").write_text(json.dumps(whole))
        seen = [{"state": "s", **one} for one in observations]
        (tmp_path / "data.json").write_text(json.dumps({"format": "bellmanifold.data/2", "observations": seen}))
        return str(tmp_path / "problem.json"), str(tmp_path / "data.json")

    return write


def test_the_header_says_what_counts(cli, files):
    """Proper policies only, also beside a number as scale; priors that differ by pair; one pair is one pair."""
    own = [dict(pair) for pair in PAIRS[:2]]
    problem, data = files({"action": "go"}, pairs=own)
    code, out, _ = cli("posterior", problem, data, "--reward-belief", "-1,0.5", "--prior-scale", "10")
    assert code == 0
    assert "1 observed pair, a belief about 1 more, epsilon 0, prior scale 10, proper policies only" in out
    _, out, _ = cli("env", "show", problem)
    assert "1 state, 2 pairs" in out
    own[0]["prior"] = {"mean": -3.0, "sd": 2.0}
    problem, data = files({"action": "go"}, pairs=own)
    _, out, _ = cli("posterior", problem, data)
    assert "1 observed pair, epsilon 0, priors that differ by pair" in out
    told = json.loads(cli("posterior", problem, data, "--json")[1])
    assert (told["prior_scale"], told["prior_mean"], told["proper_only"]) == (None, None, False)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"action": "go", "reward": 1e308}, "data.json: observations[0]: reward is 1e+308: it must lie between"),
        (
            {"action": "jump", "reward": 1.0},
            'data.json: observations[0]: pair ("s", "jump") was observed, but its transition law is unknown',
        ),
    ],
)
def test_messages_name_file_and_observation(cli, files, observation, message):
    code, out, err = cli("posterior", *files(observation))
    assert (code, out) == (2, "")
    assert message in err


def test_a_flat_prior_is_not_for_agents(cli):
    code, _, err = cli("learn", "env:two-state", "--agent", "manifold", "--prior-scale", "flat")
    assert code == 2
    assert err.strip().endswith(
        '--prior-scale is "flat": give a positive number; flat is for `posterior`, with information about every pair'
    )


def test_a_remedy_that_is_in_force_is_not_named():
    """An exact reward beside one with an sd in a loop: epsilon is 0 already."""
    model = bm.envs.two_state()
    data = Dataset.from_pairs(model, [Observation("s1", "stay", -1.0, 0.5), Observation("s1", "go", -1.0)])
    with pytest.raises(UnsupportedError, match=r"use proper_only=True$"):
        bm.advise(model, data)
    with pytest.raises(UnsupportedError, match=r"use proper_only=True or epsilon=0$"):
        bm.advise(model, Dataset.complete(model), epsilon=0.1)


def test_advice_lists_what_a_trial_would_tell(cli, files):
    """`ahead` was tried and pays -1 exactly; its value is uncertain because of what comes after it."""
    pairs = [
        {"state": "s", "action": "ahead", "reward": -1.0, "next": {"t": 1.0}},
        {"state": "s", "action": "end", "reward": -1.0, "next": {"g": 1.0}},
        {"state": "t", "action": "left", "reward": -1.0, "next": {"g": 1.0}},
    ]
    problem, data = files({"action": "ahead"}, pairs=pairs)
    told = json.loads(cli("advise", problem, data, "--json")[1])
    tells = {trial["action"]: trial["tells"] for trial in told["trials"]}
    assert tells == {"ahead": False, "end": True, "left": True}
    _, out, _ = cli("advise", problem, data)
    table = out[out.index("what knowing all of Q(s, a) would save:") :]
    assert "left" in table
    assert "ahead" not in table
    assert _gain({"mean": 0.5, "se": 3e6}, 1.0) == ("not known", "-")
    assert _gain({"mean": 0.5, "se": 0.1}, 1.0) == ("0.5", "0.1")


class Stray(gymnasium.Env):
    """Without a table, and it comes to a state outside its space."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 7, -1.0, False, False, {}


def test_an_observation_outside_its_space_is_no_matter_of_a_table():
    with pytest.raises(
        BadInputError, match=r"came to state 7, which is not in its observation space Discrete\(2\)"
    ) as told:
        bm.learn(Stray(), agent="manifold", laws="dirichlet", episodes=1, runs=1)
    assert " P" not in str(told.value)


@pytest.mark.slow
def test_large_problems_with_open_laws_have_draws():
    """Action values of the points that sparse walks met."""
    model = bm.envs.deep_sea(4).opened()
    data = Dataset.from_pairs(
        model, [Observation("0,0", "left", -0.1, None, "1,0"), Observation("1,0", "left", -0.1, None, "2,0")]
    )
    target = bm.posterior(model, data, laws="dirichlet", samples=1024).target
    result = by_sparse_walk(target, Budget(samples=200), "asked for")
    assert result.points is not None
    assert result.points.shape[0] == model.n_pairs
    seen = model.pair_index["0,0", "left"]
    assert np.allclose(result.points[seen].mean(), float(result.q_mean.value[seen]), atol=3.0)
    assert posterior_of(target, Budget(samples=1024)).draws.q.shape[-1] == model.n_pairs
