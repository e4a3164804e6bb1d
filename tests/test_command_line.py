"""What a person at a terminal meets: long tables, warnings, discounts, completion."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.registry import agent_names
from bellmanifold.cli import completion
from bellmanifold.cli.terminal import print_first
from bellmanifold.envs import BUILT_IN
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.reporting import by_doubt, on_the_way

SOURCE = str(Path(bm.__file__).parent.parent)


def data_file(tmp_path, *observations):
    path = tmp_path / "data.csv"
    lines = [",".join(f'"{cell}"' for cell in observation) for observation in observations]
    path.write_text("\n".join(["state,action", *lines]) + "\n")
    return str(path)


# Long tables


def test_some_rows_and_how_many_more(capfd):
    rows = [(str(k), "x") for k in range(5)]
    print_first(("a", "b"), rows, "things", every=False, most=3)
    print_first((), rows, "things", every=True, most=3)
    print_first((), [], "things", every=False)
    out = capfd.readouterr().out.splitlines()
    assert out[:5] == ["  a  b", "  0  x", "  1  x", "  2  x", "... and 2 more things (--all prints them)"]
    assert len(out) == 10


def test_states_on_the_way():
    model = envs.deep_sea(3)
    right = np.array([model.pair_name(i)[1] == "right" for i in range(model.n_pairs)])
    moves = dict(zip(model.states, on_the_way(model, right).tolist(), strict=True))
    assert moves == {"0,0": 0, "1,0": 6, "1,1": 1, "2,0": 6, "2,1": 6, "2,2": 2}


def test_pairs_that_matter_come_first():
    """The way of the most probable actions, then doubtful states, then what the data do not touch."""
    model = envs.deep_sea(3)
    probability = np.full(model.n_pairs, 0.5)
    for state, best in (("0,0", 0.9), ("1,1", 0.8), ("2,2", 0.7), ("1,0", 0.6), ("2,0", 0.55)):
        probability[model.pair_index[state, "right"]] = best
        probability[model.pair_index[state, "left"]] = 1.0 - best
    touched = np.array([state != "2,1" for state in model.states])
    order = [model.pair_name(pair) for pair in by_doubt(model, probability, touched)]
    assert [state for state, _ in order[::2]] == ["0,0", "1,1", "2,2", "2,0", "1,0", "2,1"]
    assert [action for _, action in order[:4:2]] == ["right", "right"]


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (("solve", "env:grid?rows=8&columns=8"), "... and 23 more states (--all prints them)"),
        (("env", "show", "env:grid?rows=8&columns=8"), "more pairs (--all prints them)"),
    ],
)
def test_all_prints_every_row(cli, arguments, more):
    code, out, _ = cli(*arguments)
    assert code == 0
    assert more in out
    code, whole, _ = cli(*arguments, "--all")
    assert code == 0
    assert "--all" not in whole
    assert len(whole.splitlines()) > len(out.splitlines())


def test_solve_lists_the_way_from_the_start_first(cli):
    _, out, _ = cli("solve", "env:grid?rows=8&columns=8")
    assert [line.split()[0] for line in out.splitlines()[3:6]] == ["0,0", "0,1", "1,0"]


def test_posterior_lists_what_matters_first(cli, tmp_path):
    data = data_file(tmp_path, ("6,6", "right"), ("0,0", "right"))
    code, out, _ = cli("posterior", "env:deep-sea?depth=7", data)
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line.startswith("  ") and "," in line.split()[0]]
    assert rows[0][0] == "0,0"
    assert "... and 16 more pairs (--all prints them)" in out
    assert "more routes (--all prints them)" in out
    code, whole, _ = cli("posterior", "env:deep-sea?depth=7", data, "--all", "--top", "20")
    assert code == 0
    assert "more (--all" not in whole


def test_the_answer_comes_before_how_it_was_computed(cli, tmp_path):
    data = data_file(tmp_path, ("0,0", "right"))
    _, out, _ = cli("posterior", "env:deep-sea?depth=2", data)
    lines = out.splitlines()
    assert lines[1].startswith("at the start (0,0) right is optimal with probability 0.")
    assert lines[2].split()[:2] == ["state", "action"]
    assert "expected value" in lines[2]
    assert lines[-1].startswith("engine chart: ")
    _, out, _ = cli("advise", "env:deep-sea?depth=2", data)
    assert out.splitlines()[-1].startswith("engine chart: ")


# Warnings


def test_a_loop_at_the_top_is_warned_of_first(cli, tmp_path):
    """Known improper policies hold most of the posterior: said before anything else, in text and in JSON."""
    data = data_file(tmp_path, ("s1", "stay"))
    arguments = ("posterior", "env:two-state", data, "--epsilon", "5", "--prior-scale", "100")
    code, out, _ = cli(*arguments)
    assert code == 0
    first = out.splitlines()[0]
    assert first.startswith("warning: ")
    assert "--proper-only" in first
    _, out, _ = cli(*arguments, "--json")
    answer = json.loads(out)
    assert next(iter(answer)) == "warnings"
    assert all("--proper-only" in warning for warning in answer["warnings"])
    _, out, _ = cli(*arguments, "--proper-only", "--json")
    assert "warnings" not in json.loads(out)


# Discounts


def test_learn_discounts_a_problem(cli, tmp_path):
    arguments = ("learn", "env:two-state", "--agent", "bayes-td", "--episodes", "5", "--runs", "2")
    _, plain, _ = cli(*arguments, "--json")
    code, out, _ = cli(*arguments, "--discount", "0.5", "--json", "--out", str(tmp_path / "runs"))
    assert code == 0
    assert json.loads(plain)["optimal_value"] == json.loads(out)["optimal_value"] == -1.0
    for path in (tmp_path / "runs").rglob("*.nc"):
        assert "discount-0-5" in path.name
    _, plain, _ = cli("learn", "env:deep-sea?depth=3", *arguments[2:], "--json")
    _, out, _ = cli("learn", "env:deep-sea?depth=3", *arguments[2:], "--discount", "0.5", "--json")
    assert json.loads(out)["optimal_value"] < json.loads(plain)["optimal_value"]


def test_learn_discounts_in_python_as_on_the_command_line():
    model = envs.deep_sea(3)
    found = bm.learn(model, "bayes-td", 5, 1, discount=0.9).to_dict()
    other = bm.learn("env:deep-sea?depth=3&discount=0.9", "bayes-td", 5, 1).to_dict()
    assert found["cumulative_regret_mean"] == other["cumulative_regret_mean"]
    assert found["optimal_value"] == pytest.approx(bm.solve(model, discount=0.9).value_at_start)
    with pytest.raises(BadInputError, match=r"discount is 1\.5"):
        bm.learn(model, "bayes-td", 5, 1, discount=1.5)


def test_discounts_that_could_not_be_found_again_are_refused(cli, tmp_path):
    bm.write_problem(envs.two_state(), tmp_path / "problem.json")
    arguments = ("learn", str(tmp_path / "problem.json"), "--agent", "bayes-td", "--episodes", "2", "--runs", "1")
    code, _, err = cli(*arguments, "--discount", "0.9", "--out", str(tmp_path / "runs"))
    assert code == 2
    assert '"discount" into the problem file' in err
    assert cli(*arguments, "--discount", "0.9", "--json")[0] == 0


# Completion


@pytest.fixture
def completed(tmp_path):
    """What Bash offers for some words, of which it completes the last; COMP_WORDBREAKS has no colon."""
    program = tmp_path / "bin" / "bellmanifold"
    program.parent.mkdir()
    start = "import sys; sys.argv[0] = 'bellmanifold'; from bellmanifold.cli.main import main; main()"
    program.write_text(f'#!/bin/bash\nexec {sys.executable} -c "{start}" "$@"\n')
    program.chmod(0o755)
    environment = dict(os.environ, PYTHONPATH=SOURCE, PATH=f"{program.parent}:{os.environ['PATH']}")

    def ask(*words):
        quoted = " ".join(f"'{word}'" for word in words)
        script = f"""
            source <(_BELLMANIFOLD_COMPLETE=source_bash bellmanifold)
            COMP_WORDS=(bellmanifold {quoted}); COMP_CWORD={len(words)}
            _bellmanifold_completion bellmanifold
            echo "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=True)
        return done.stdout.split()

    return ask


def test_bash_completes_commands_problems_agents_and_files(completed, tmp_path):
    assert completed("post") == ["posterior"]
    assert completed("posterior", "env:sw") == ["env:swirl"]
    assert completed("posterior", "env:grid?r") == ["env:grid?rows="]
    assert completed("learn", "env:swirl", "--agent", "bayes-td") == ["bayes-td", "bayes-td-en", "bayes-td-max"]
    (tmp_path / "drives.csv").write_text("")
    assert completed("posterior", "env:swirl", f"{tmp_path}/dr") == [f"{tmp_path}/drives.csv"]


def test_all_problems_and_agents_are_offered():
    assert completion.agents("") == agent_names()
    assert [name for name in completion.problems("") if ":" in name] == [*(f"env:{name}" for name in BUILT_IN), "gym:"]
    assert "env:grid?rows=3&columns=" in completion.problems("env:grid?rows=3&co")
    assert completion.agents("q") == ["q-learning"]
