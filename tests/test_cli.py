import io
import json
import os
import subprocess
import sys

import pytest
from problems import data_file

from bellmanifold import __version__, envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.io.problem import read_problem, write_problem
from bellmanifold.learning.environment import keep_compiled_programs
from bellmanifold_paper.command import _watching


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("env",),
        ("env", "list"),
        ("env", "show"),
        ("env", "export"),
        ("check",),
        ("solve",),
        ("posterior",),
        ("sweep",),
    ],
    ids=" ".join,
)
def test_every_command_has_help_with_an_example(cli, command):
    code, out, err = cli(*command, "--help")
    assert code == 0
    assert "Usage: " in out
    assert not err
    if len(command) > 1 or command in (("check",), ("solve",), ("posterior",), ("sweep",)):
        assert "Example: bellmanifold" in out


def test_check_json_is_the_contract(cli):
    code, out, err = cli("check", "env:swirl?depth=3", "--json")
    answer = json.loads(out)
    assert code == 0
    assert not err
    keys = "assumption_1 assumption_2 assumption_2_reachable proper_policy_exists improper_policies_exist deterministic"
    assert set((keys + " acyclic states pairs end_components unidentifiable messages").split()) <= set(answer)
    assert answer["states"] == 6
    assert answer["pairs"] == 12


def test_check_exits_1_when_an_assumption_fails(cli):
    code, out, _ = cli("check", "gym:FrozenLake-v1", "--json")
    assert code == 1
    assert json.loads(out)["assumption_2"] is False
    code, out, _ = cli("check", "gym:FrozenLake-v1")
    assert code == 1
    assert "costs nothing" in out
    assert cli("check", "gym:FrozenLake-v1", "--discount", "0.9")[0] == 0


def test_solve_json_is_the_contract(cli):
    code, out, _ = cli("solve", "env:four-state", "--method", "lp", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["value"] == {"1": -4.0, "2": -2.0, "3": -1.0}
    assert answer["q"]["1"] == {"to-2": -4.0, "to-3": -5.0}
    assert answer["optimal_actions"]["2"] == ["to-3", "to-4"]
    assert answer["value_at_start"] == -4.0
    assert answer["method"] == "lp"
    assert {"iterations", "max_residual"} <= set(answer)


def test_solve_for_people(cli):
    code, out, _ = cli("solve", "env:grid?rows=8&columns=8")
    assert code == 0
    assert "optimal value from the start -14" in out
    assert "more states" in out


def test_solve_refuses_with_3(cli):
    code, out, err = cli("solve", "gym:FrozenLake-v1")
    assert code == 3
    assert not out
    assert "Assumption 2" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["solve", "posterior", "advise"])
@pytest.mark.parametrize("suffix", ["json", "drn"])
def test_refusals_name_the_problem_as_it_was_given(cli, tmp_path, command, suffix):
    """A loop of two states costs nothing: whoever solves it, or sees it, is told in which file it is."""
    moves = {
        ("a", "go"): Move(0.0, {"b": 1.0}),
        ("b", "back"): Move(0.0, {"a": 1.0}),
        ("a", "out"): Move(-1.0, {"g": 1.0}),
    }
    model, data = tmp_path / f"loop.{suffix}", tmp_path / "seen.csv"
    write_problem(from_moves("loop", moves, start="a", goal="g"), model)
    data.write_text("state,action\na,go\nb,back\n")
    code, out, err = cli(command, str(model), *([] if command == "solve" else [str(data)]))
    assert (code, out) == (3, "")
    assert err.startswith(f"bellmanifold: {model}: the loop a -> b -> a costs nothing")


def test_env_commands(cli, tmp_path):
    code, out, _ = cli("env", "list")
    assert code == 0
    assert all(f"env:{name}" in out for name in envs.BUILT_IN)
    code, out, _ = cli("env", "show", "env:deep-sea?depth=12&slip=0.1")
    assert code == 0
    assert "more pairs" in out
    code, out, _ = cli("env", "show", "env:two-state", "--json")
    assert json.loads(out)["format"] == "bellmanifold.ssp/1"
    for name in ("p.json", "p.npz"):
        code, out, err = cli("env", "export", "env:swirl", "--out", str(tmp_path / name))
        assert (code, out) == (0, "")
        assert "wrote" in err
        assert read_problem(tmp_path / name) == envs.swirl()


def bad_file(tmp_path):
    path = tmp_path / "bad.json"
    path.write_text('{"format": "bellmanifold.ssp/1", "goals": ["g"], "initial": {"a": 1}, "pairs": [{"state": "a"}]}')
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "missing.json"), "missing.json: no such file"),
        (("check", "/tmp"), "/tmp: is a directory"),
        (("check", "env:nothing"), "unknown environment"),
        (("check", "gym:Nothing-v9"), "cannot make it"),
        (("check", "env:swirl", "--discount", "0"), "discount is 0.0"),
        (("check", "env:swirl", "--discount", "nan"), "discount is nan"),
        (("check", "env:swirl", "--discount", "x"), "--discount"),
        (("check",), "MODEL"),
        (("check", "env:swirl", "--wrong"), "--wrong"),
        (("solve", "env:swirl", "--method", "magic"), "--method"),
        (("nonsense",), "nonsense"),
        (("env", "export", "env:swirl"), "--out"),
        (("env", "export", "env:swirl", "--out", "/no/such/dir/x.json"), "cannot be written"),
        (("check", "BAD"), 'pairs[0]: "action" is missing'),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(cli, tmp_path, arguments, message):
    code, out, err = cli(*(bad_file(tmp_path) if a == "BAD" else a for a in arguments))
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_no_command_shows_help(cli):
    code, _, err = cli()
    assert code == 2
    assert "Usage" in err


def test_interruption_and_faults(cli, monkeypatch):
    faults = [KeyboardInterrupt(), ZeroDivisionError("surprise"), ZeroDivisionError("again")]

    def fail(*_, **__):
        raise faults.pop(0)

    monkeypatch.setattr("bellmanifold.io.models.load_problem", fail)
    assert cli("check", "env:swirl") == (130, "", "bellmanifold: interrupted\n")
    code, out, err = cli("check", "env:swirl")
    assert (code, out) == (70, "")
    assert "surprise" in err
    assert "Traceback" not in err
    monkeypatch.setenv("BELLMANIFOLD_DEBUG", "1")
    assert "Traceback" in cli("check", "env:swirl")[2]


def test_the_console_script_and_a_closed_pipe():
    script = os.path.join(os.path.dirname(sys.executable), "bellmanifold")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.strip() == "0.1.0"
    piped = f'"{script}" env show env:deep-sea?depth=60 --json | head -c 10'
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {piped}"], capture_output=True, text=True, check=False)
    assert done.stdout == '{"format":'
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "solve env:two-state",
        *(pytest.param(c, marks=pytest.mark.slow) for c in ("env show env:grid --json", "check env:two-state")),
    ],
)
def test_nobody_reads_on(command):
    """`bellmanifold ... | head -1`: no word, and no fault either."""
    piped = f'set -o pipefail; "{sys.executable}" -m bellmanifold {command} | true'
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("closed", "said"), [(">&-", 0), pytest.param("2>&-", 30, marks=pytest.mark.slow), (">&- 2>&-", 0)]
)
def test_streams_that_the_caller_closed(closed, said):
    """There is nobody to tell, which is no fault of the program."""
    command = f'"{sys.executable}" -m bellmanifold solve env:two-state {closed}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) >= said


def test_posterior_json_is_the_contract(cli, tmp_path):
    data = data_file(tmp_path, ("0,0", "right"), ("1,1", "left"))
    code, out, err = cli("posterior", "env:swirl?depth=3", data, "--epsilon", "0.1", "--top", "4", "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    keys = "engine reason trustworthy epsilon prior_scale observed_pairs dimension log_evidence log_evidence_se"
    keys += " warnings prior_mean largest_error"
    keys += " effective_sample_size actions routes q_mean q_mean_se q_sd proper_only costs_only"
    keys += " improper_mass improper_mass_model diagnostics"
    assert set(keys.split()) == set(answer)
    assert answer["observed_pairs"] == 2
    assert answer["epsilon"] == 0.1
    assert answer["prior_scale"] == 10.0
    assert len(answer["routes"]) == 4
    assert set(answer["routes"][0]) == {"pairs", "ends", "probability", "se"}
    assert set(answer["actions"]["0,0"]["left"]) == {"probability", "se"}
    slippery = json.loads(cli("posterior", "env:deep-sea?depth=2&slip=0.1", data, "--json")[1])
    assert "routes" not in slippery, "only deterministic problems have routes"


def test_posterior_for_people_and_as_a_picture(cli, tmp_path):
    data = data_file(tmp_path, ("s1", "stay", -1.0), ("s1", "go"))
    picture = tmp_path / "two.png"
    code, out, _ = cli("posterior", "env:two-state", data, "--epsilon", "2", "--picture", str(picture))
    assert code == 0
    assert "improper policies, known from the data: 0." in out
    assert "most probable routes" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_posterior_for_people_shows_no_rounding(cli, tmp_path):
    """What is certain has the standard error 0 and sd 0, and improper mass of 1e-50 is none."""
    data = data_file(tmp_path, ("s1", "go"), ("s1", "stay"))
    code, out, _ = cli("posterior", "env:two-state", data, "--epsilon", "0")
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line.startswith("  s1")]
    assert rows == [["s1", "stay", "0.0000", "0", "-2", "0", "0"], ["s1", "go", "1.0000", "0", "-1", "0", "0"]]
    code, out, _ = cli("posterior", "env:two-state", data, "--epsilon", "0.1")
    assert code == 0
    assert "improper" not in out


def test_posterior_that_should_not_be_trusted_exits_4(cli, tmp_path):
    data = data_file(tmp_path, ("0,0", "right"), ("0,1", "down"), ("1,1", "left"))
    code, out, err = cli("posterior", "env:grid?rows=8&columns=8&slip=0.1", data, "--samples", "8", "--json")
    assert code == 4
    assert json.loads(out)["trustworthy"] is False
    assert "not to trust" in err


@pytest.mark.parametrize(
    ("observations", "options", "code", "message"),
    [
        ([("s9", "go")], (), 2, 'observations[0]: unknown state "s9"'),
        ([("s1", "fly")], (), 2, 'no action "fly"'),
        ([("goal", "go")], (), 2, "is a goal"),
        ([("s1", "go", None)], (), 2, "reward is null"),
        ([("s1", "go", -1.0), ("s1", "go", -2.0)], (), 2, "paid -2 but -1 before"),
        ([("s1", "go")], ("--epsilon", "-1"), 2, "epsilon is -1"),
        ([("s1", "go")], ("--prior-scale", "0"), 2, "--prior-scale is 0"),
        ([("s1", "go")], ("--engine", "magic"), 2, "--engine"),
        ([("s1", "go")], ("--kernel", "box"), 2, "--kernel"),
        ([("s1", "go")], ("--samples", "0"), 2, "samples is 0"),
        ([("s1", "go")], ("--discount", "1.5"), 2, "discount is 1.5"),
        ([("s1", "go")], ("--picture", "x.bmp"), 2, "a picture ends in"),
        ([("s1", "stay", 0.0), ("s1", "go")], (), 3, "the loop s1 -> s1 costs nothing"),
        ([("s1", "go")], ("--engine", "mixture"), 3, ""),
        ([("s1", "go")], ("--engine", "rejection", "--epsilon", "1e-9", "--kernel", "uniform"), 3, ""),
    ],
)
def test_wrong_posteriors_are_one_line(cli, tmp_path, observations, options, code, message):
    found, out, err = cli("posterior", "env:two-state", data_file(tmp_path, *observations), "--json", *options)
    assert (found, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["data.json"]


def test_no_parameter_is_listed_without_a_value(cli):
    code, out, _ = cli("env", "list")
    assert code == 0
    assert "=&" not in out
    assert "=\n" not in out
    assert "It also takes move_cost, action_seed." in out


def test_messages_of_wrong_choices_and_files(cli, tmp_path):
    code, _, err = cli("solve", "env:two-state", "--method", "best")
    assert code == 2
    assert "Value error" not in err
    assert "'best' is not one of" in err
    garbage = tmp_path / "garbage.npz"
    garbage.write_bytes(bytes(range(128, 256)))
    code, _, err = cli("check", str(garbage))
    assert code == 2
    assert "is not an npz file: write it again" in err


@pytest.mark.parametrize(
    "given", [("demo",), ("sweep", "plan.toml"), ("learn", "env:two-state", "--agent", "bayes-td"), ("reproduce",)]
)
def test_a_directory_without_a_name_is_not_this_one(cli, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*given, "--out", "")
    assert (code, out) == (2, "")
    assert "the name of a directory is empty" in err
    assert not list(tmp_path.iterdir())


def test_noisy_posterior_for_people(cli, tmp_path):
    """Repeats that differ are no contradiction under noise; without improper policies no evidence is known."""
    data = data_file(tmp_path, ("s1", "go", -1.0), ("s1", "go", -1.2), ("s1", "stay", -1.0))
    code, out, _ = cli("posterior", "env:two-state", data, "--noise-sd", "0.5")
    assert code == 0
    assert "2 observed pairs, gaussian noise of scale 0.5, prior scale 10" in out
    assert "log evidence" in out
    code, out, _ = cli("posterior", "env:two-state", data, "--noise-sd", "0.5", "--proper-only")
    assert code == 0
    assert "log evidence" not in out


def test_version(cli):
    assert cli("--version") == (0, f"{__version__}\n", "")


def test_directories_without_a_name_are_refused(cli):
    for name, message in (("\0", "contains a NUL character"), (" ", "is empty: give one")):
        code, out, err = cli("demo", "--out", name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_one_sees_what_goes_on(monkeypatch):
    """A bar that names what is made, and leaves nothing behind."""
    for name, value in {"TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    with _watching(2) as begin:
        begin("drawing one")
        begin("drawing two")
    assert "drawing two" in shown.getvalue()
    assert "1/2" in shown.getvalue()


def test_what_was_compiled_is_kept_even_if_jax_is_already_there(tmp_path, monkeypatch):
    import jax

    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        keep_compiled_programs()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path)
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
        keep_compiled_programs()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path), "what a program has chosen stays"
    finally:
        jax.config.update("jax_compilation_cache_dir", before[0])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        (("j01", "J00"), 'unknown state "j01": did you mean "J01"?'),
        (("J00", "J1"), 'has no action "J1": did you mean "J01"?'),
    ],
)
def test_names_that_are_nearly_right(cli, tmp_path, pair, told):
    code, _, err = cli("posterior", "env:roads", data_file(tmp_path, (*pair, -4.0)))
    assert code == 2
    assert told in err


def test_routes_are_printed_whole(cli, tmp_path):
    code, out, _ = cli("posterior", "env:deep-sea?depth=12", data_file(tmp_path, ("0,0", "right")), "--top", "1")
    assert code == 0
    route = out.split("most probable routes:\n")[1].splitlines()[0]
    assert len(route) > 120
    assert " 11," in route
