"""Plans: what runs a file stands for, and what is refused."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_agents import record_run

import bellmanifold as bm
from bellmanifold.envs import deep_sea
from bellmanifold.errors import BadInputError
from bellmanifold.learning.run_file import file_name
from bellmanifold.learning.run_settings import RunSettings, digest, make_settings
from bellmanifold_lab.sweeps.plan import read_plan


@pytest.fixture
def plan(tmp_path, known_toys):
    """Write a plan and give its path; the toy agents are registered."""

    def write(text):
        path = tmp_path / "plan.toml"
        path.write_text(text)
        return path

    return write


def runs_of(path):
    return list(read_plan(path).runs)


def test_a_plan_is_a_product(plan):
    runs = runs_of(
        plan("model = ['env:swirl', 'env:pyramid']\nagent = 'bayes-br'\nepsilon = [0.01, 1]\nseeds = [3, 1]")
    )
    assert len(runs) == 8
    usual = (("explore", "thompson"), ("infer_noise", False), ("laws", "known"), ("method", "B"))
    usual += (("prior_mean", 0.0), ("replan", False))
    assert runs[0] == RunSettings("env:swirl", "bayes-br", 0.01, 10.0, 100, 3, usual)
    assert {(r.model, r.epsilon, r.seed) for r in runs} == {
        (m, e, s) for m in ("env:swirl", "env:pyramid") for e in (0.01, 1.0) for s in (1, 3)
    }


def test_what_is_left_out_is_the_default_of_learn(plan):
    runs = runs_of(plan("model = 'env:swirl'\nagent = ['bayes-br', 'rlsvi']"))
    assert [r.seed for r in runs] == 2 * list(range(10))
    assert {(r.epsilon, r.prior_scale, r.episodes) for r in runs} == {(0.01, 10.0, 100), (None, 1.0, 100)}
    for given in ("prior_mean = 0", "epsilon = 0.01", "episodes = 100", "infer_noise = false"):
        assert runs_of(plan(f"model = 'env:swirl'\nagent = ['bayes-br', 'rlsvi']\n{given}")) == runs


def test_the_plan_in_the_documentation(plan):
    page = (Path(__file__).parent.parent / "docs" / "plans.md").read_text()
    runs = runs_of(plan(page.split("```toml\n")[1].split("```")[0]))
    assert Counter(run.agent for run in runs) == {"bayes-br": 20, "manifold": 10, "bayes-td": 20, "q-learning": 10}
    assert {r.epsilon for r in runs if dict(r.options).get("explore") == "directed"} == {0.1}


def test_equal_runs_are_run_once(plan):
    """Agents that know no epsilon do not multiply over it."""
    text = "model = 'env:swirl'\nagent = ['manifold', 'q-learning', 'bayes-td']\nepsilon = [0.1, 1, 1.0]\n"
    runs = runs_of(plan(text + "prior_scale = [1, 10]\nseeds = [0, 0]"))
    count = {agent: sum(r.agent == agent for r in runs) for agent in ("manifold", "q-learning", "bayes-td")}
    assert count == {"manifold": 2, "q-learning": 1, "bayes-td": 4}
    assert len(set(runs)) == len(runs)
    q = next(r for r in runs if r.agent == "q-learning")
    assert (q.epsilon, q.prior_scale) == (None, None)
    assert sorted(q.choices()) == ["exploration", "start_value", "step_size"]


def test_overrides_apply_in_order_to_what_matches(plan):
    text = """
model = "env:swirl"
agent = ["toy", "plain", "bayes-br"]
epsilon = [0.1, 1]
seeds = 7
[[override]]
match = {agent = ["toy", "plain"], epsilon = 1}
pause = 2
episodes = 5
[[override]]
match = {pause = 2.0}
trap = "x"
[[override]]
match = {agent = "bayes-br", epsilon = 1}
noise_sd = 0.5
[[override]]
match = {agent = "rlsvi"}
noise_sd = 2
"""
    found = read_plan(plan(text))
    toys = {r.epsilon: r for r in found.runs if r.agent == "toy"}
    assert toys[0.1].options == (("pause", 0.0),)
    assert toys[1.0].options == (("pause", 2), ("trap", "x"))
    assert (toys[0.1].episodes, toys[1.0].episodes) == (100, 5)
    assert [(r.options, r.episodes) for r in found.runs if r.agent == "plain"] == [((), 100), ((), 5)]
    noise = [(r.epsilon, dict(r.options).get("noise_sd")) for r in found.runs if r.agent == "bayes-br"]
    assert noise == [(0.1, None), (None, 0.5)]
    assert [note.split(": ")[1] for note in found.notes] == ["override 4 matches no run"]


def test_noise_replaces_epsilon_only_where_an_agent_has_it(plan):
    def likelihoods(text):
        runs = runs_of(plan(f"model = 'env:swirl'\nseeds = 0\n{text}"))
        return [(r.epsilon, dict(r.options).get("noise_sd"), dict(r.options).get("infer_noise")) for r in runs]

    assert likelihoods("agent = ['bayes-br', 'toy', 'psrl']\nnoise_sd = 0.1") == [
        (None, 0.1, False),
        (0.1, None, None),
        (None, 0.1, None),
    ]
    assert likelihoods("agent = 'bayes-br'\ninfer_noise = true") == [(None, None, True)]
    later = "[[override]]\nmatch = {}\nepsilon = 0.2"
    assert likelihoods(f"agent = 'bayes-br'\nnoise_sd = 0.1\n{later}") == [(0.2, None, False)]


GOOD = "model = 'env:swirl'\nagent = 'bayes-br'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agent = 'bayes-br'", "model is missing"),
        ("model = 'env:swirl'", "agent is missing"),
        (GOOD + "colour = 1", 'unknown key "colour": a plan takes model, agent, '),
        (GOOD + "seed = 1", 'unknown key "seed": did you mean "seeds"?'),
        ("model = 'env:swirl'\nagent = 'magic'", 'agent: unknown agent "magic": choose from bayes-br'),
        ("model = 'env:magic'\nagent = 'bayes-br'", 'model: env:magic: unknown environment "magic"'),
        ("model = 'nothing.json'\nagent = 'bayes-br'", "model: nothing.json: no such file"),
        ("model = 3\nagent = 'bayes-br'", "model is 3: give a string"),
        (GOOD + "epsilon = -1", "epsilon is -1: give a number that is not negative"),
        (GOOD + "epsilon = nan", "epsilon is nan"),
        (GOOD + "epsilon = true", "epsilon is True"),
        (GOOD + "epsilon = [0.1, 'x']", 'epsilon is "x"'),
        (GOOD + "epsilon = []", "epsilon is an empty list"),
        (GOOD + "prior_scale = 0", "prior_scale is 0: give a positive number"),
        (GOOD + f"prior_scale = 1{'0' * 400}", "prior_scale is 1"),
        (GOOD + "episodes = 0", "episodes is 0: give a whole number from 1 to 9223372036854775807"),
        (GOOD + "episodes = 1.5", "episodes is 1.5"),
        (GOOD + "seeds = -1", "seeds is -1"),
        (GOOD + "seeds = [[1]]", "seeds is [1]"),
        (GOOD + "concentration = inf", "concentration is inf"),
        (GOOD + "optimism = 8", 'unknown key "optimism": a plan takes model, agent, '),
        ("model = 'env:swirl'\nagent = 'bayes-td-en'\nmembers = 0", "members is 0: give a whole number"),
        (GOOD + "method = 'C'", 'method is "C": give A'),
        (GOOD + "concentration = 2020-01-01", "concentration is datetime"),
        (GOOD + f"seeds = {list(range(2000))}\nprior_mean = {list(range(2000))}", "4,000,000 runs are above 200,000"),
        (GOOD + "epsilon = 0.1\nnoise_sd = 0.1", "gives epsilon and noise_sd"),
        (GOOD + "infer_noise = true\nnoise_sd = 0.1", "gives noise_sd and infer_noise"),
        (GOOD + "override = 3", "write [[override]]"),
        (GOOD + "[[override]]\nepsilon = 1", "override 1: match is missing"),
        (GOOD + "[[override]]\nmatch = 3", "override 1: match is not a table"),
        (GOOD + "[[override]]\nmatch = {colour = 1}", 'override 1: unknown key "colour" in match'),
        (GOOD + "[[override]]\nmatch = {agent = 'magic'}", 'override 1: match: agent: unknown agent "magic"'),
        (GOOD + "[[override]]\nmatch = {}\nagent = 'psrl'", 'override 1: unknown key "agent"'),
        (GOOD + "[[override]]\nmatch = {}\nepsilon = [1, 2]", "override 1: epsilon is a list"),
        (GOOD + "[[override]]\nmatch = {}\nepsilon = -2", "epsilon is -2"),
        (GOOD + "[[override]]\nmatch = {}\nepsilon = 1\nnoise_sd = 1", "override 1 gives epsilon and noise_sd"),
        ("model = ", "not valid TOML"),
        ("model = 'a'\nmodel = 'b'", "not valid TOML"),
        ("", "the file is empty"),
        ("#" * (2**22 + 1), "its 4,194,305 bytes exceed 4,194,304: split the plan"),
        (GOOD + "a." * 51 + "b = 1", "a name or value has more than 50 dots: shorten it"),
    ],
)
def test_wrong_plans_are_refused_in_one_line(plan, text, message):
    path = plan(text)
    with pytest.raises(BadInputError) as caught:
        read_plan(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "p.toml").write_bytes(b"model = '\xff'")
    with pytest.raises(BadInputError, match="not UTF-8"):
        runs_of(tmp_path / "p.toml")
    with pytest.raises(BadInputError, match="no such file"):
        runs_of(tmp_path / "q.toml")


OTHERS = (("prior_mean", 0.0), ("replan", False))
RUN = RunSettings("env:deep-sea?depth=5", "bayes-td", 0.01, 10.0, 100, 3, OTHERS)


def test_names_are_functions_of_the_settings_alone():
    changes = [
        {"model": "env:deep-sea?depth=6"},
        {"model": "env-deep-sea-depth=5"},
        {"agent": "manifold"},
        {"epsilon": 0.02},
        {"epsilon": None},
        {"prior_scale": 1.0},
        {"episodes": 101},
        {"seed": 30},
        {"options": ()},
        {"options": (("prior_mean", 8.0),)},
    ]
    names = {file_name(replace(RUN, **change)) for change in [{}, *changes]}
    assert len(names) == len(changes) + 1
    same = (("prior_mean", 0), ("replan", False))
    assert file_name(replace(RUN, options=same)) == file_name(RUN), "0 and 0.0 are one setting"
    code = f"from bellmanifold_lab.sweeps.plan import RunSettings; print({RUN!r}.identity)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == RUN.identity, "another process finds the same name"
    awkward = replace(RUN, model="../Räume/" + "x" * 300 + "\n.json")
    assert "/" not in file_name(awkward)
    assert file_name(awkward).isascii()
    assert len(file_name(awkward)) < 120


def test_settings_survive_a_round_trip():
    others = (("noise_sd", 1.0), ("replan", False))
    for run in (RUN, RunSettings("env:swirl", "psrl", None, None, 5, 0, others)):
        entry = json.loads(json.dumps(run.to_dict()))
        assert RunSettings.from_dict(entry) == make_settings(entry) == run


def test_digest_sees_every_number_and_name():
    plain = deep_sea(3)
    assert digest(deep_sea(3)) == digest(plain)
    assert len({digest(m) for m in (plain, deep_sea(4), deep_sea(3, slip=0.1), deep_sea(3, move_cost=0.06))}) == 4
    assert digest(replace(plain, states=tuple(f"{s}'" for s in plain.states))) != digest(plain)


def test_shipped_plans_are_sound():
    """The paper's plan: 157 cells of ten seeds; narrow priors on the swirl only, tuning again on deep sea only."""
    plans = Path(__file__).parent.parent / "plans"
    runs = runs_of(plans / "paper.toml")
    assert len(runs) == 1570
    assert {run.model for run in runs if run.prior_scale == 1.0} == {"env:swirl?depth=5"}
    retuned = [run for run in runs if ("tuning", "retuned") in run.options]
    assert {(run.model, run.epsilon) for run in retuned} == {("env:deep-sea?depth=5", e) for e in (0.01, 0.1)}
    assert len(runs_of(plans / "comparison.toml")) == 260
    assert len(runs_of(plans / "peers.toml")) == 380


def test_a_prior_that_a_problem_states_counts_in_plans_as_in_learn(tmp_path):
    """What is not given stays so: the problem's prior comes before the defaults, and what is given before both."""
    stated = {"format": "bellmanifold.ssp/2", "prior": {"mean": -4.0, "sd": 2.5}, "goals": ["g"], "initial": {"s": 1.0}}
    pairs = [{"state": "s", "action": a, "reward": r, "next": {"g": 1.0}} for a, r in (("a", -1.0), ("b", -2.0))]
    path = tmp_path / "told.json"
    path.write_text(json.dumps(stated | {"pairs": pairs}))
    text = f'model = ["{path}", "env:two-state"]\nagent = "manifold"\nseeds = [3]\nepisodes = 4\n'
    (tmp_path / "plan.toml").write_text(text)
    told, silent = read_plan(tmp_path / "plan.toml").runs
    assert (told.prior_scale, dict(told.options)["prior_mean"]) == (2.5, -4)
    assert (silent.prior_scale, dict(silent.options)["prior_mean"]) == (10.0, 0)
    assert silent == make_settings(silent.to_dict()), "runs of problems that state nothing keep their names"
    (tmp_path / "plan.toml").write_text(text + "prior_scale = 10\n")
    assert read_plan(tmp_path / "plan.toml").runs[0].prior_scale == 10.0
    learning = bm.learn(bm.load_model(path), agent="manifold", episodes=4, runs=1, seed=3)
    assert learning.runs[0].options["prior_scale"] == 2.5
    found = record_run(told)
    assert found["total_reward"].values.tolist() == [sum(episode.rewards) for episode in learning.runs[0].played]
    assert np.array_equal(found["q_mean"], learning.runs[0].q_mean)
