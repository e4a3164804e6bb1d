"""Options are named as whoever reads a message writes them: flags on the command line, parameters in Python."""

import ast
import inspect
import json
import re
from pathlib import Path

import pytest

import bellmanifold as bm
from bellmanifold._util.options import CHOICES, ENGINE, NUMBERS, SWITCHES, on_command_line, spoken
from bellmanifold.agents.settings import SamplingSettings
from bellmanifold.errors import BadInputError

SOURCE = Path(bm.__file__).parent
COMMANDS_ONLY = {"dask", "out", "port"}
"""Flags in messages that only commands raise."""


@pytest.mark.parametrize(
    ("text", "in_python"),
    [
        ("use --engine chart, or --noise-sd", 'use engine="chart", or noise_sd'),
        ("use --proper-only or --epsilon 0", "use proper_only=True or epsilon=0"),
        ("leave --proper-only out, use --epsilon above 0", "leave proper_only out, use epsilon above 0"),
        ("rewards are Gaussian: leave --kernel out", "rewards are Gaussian: leave kernel out"),
        ("--prior-mean -1.1e+02 --prior-scale 1.1e+02 would fit", "prior_mean=-1.1e+02, prior_scale=1.1e+02 would fit"),
        ("with --noise-sd ETA or --infer-noise", "with noise_sd=ETA or infer_noise=True"),
        ("use --discount 0.99.", "use discount=0.99."),
        ("choose another --out", "choose another --out"),
        ("--prior-scales is no option", "--prior-scales is no option"),
        ("noise_sd is -1: give a positive number", "noise_sd is -1: give a positive number"),
    ],
)
def test_flags_become_parameters(text, in_python):
    assert spoken(text) == in_python
    assert spoken(in_python) == in_python, "an error that is raised again says the same"


def test_parameters_become_flags_on_the_command_line():
    with on_command_line():
        assert spoken("noise_sd is -1: give a positive number") == "--noise-sd is -1: give a positive number"
        assert spoken("plan.toml: noise_sd is -1") == "plan.toml: noise_sd is -1", "plans have no flags"
        assert str(BadInputError("use --proper-only")) == "use --proper-only"
    assert str(BadInputError("use --proper-only")) == "use proper_only=True"


def test_names_are_parameters_of_public_functions():
    known = {name for call in (bm.posterior, bm.advise, bm.solve) for name in inspect.signature(call).parameters}
    known |= set(inspect.signature(SamplingSettings).parameters)
    assert {*CHOICES, *NUMBERS, *SWITCHES, ENGINE} <= known


def messages():
    """Every text of the library that names a flag, commands left out."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent == SOURCE / "cli" or path.name in ("options.py", "record.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
                yield path.name, node.value


def test_every_flag_in_a_message_can_be_said_in_python():
    left = {(name, flag) for name, text in messages() for flag in re.findall(r"--([a-z][a-z-]*)", spoken(text))}
    assert {flag for _, flag in left} <= COMMANDS_ONLY, left


def test_one_fault_told_to_both(cli, tmp_path):
    model = bm.envs.two_state()
    (tmp_path / "data.json").write_text(
        json.dumps(
            {
                "format": "bellmanifold.data/1",
                "observations": [{"state": "s1", "action": "go", "reward": r} for r in (-1.0, -2.0)],
            }
        )
    )
    with pytest.raises(BadInputError, match=r"with noise_sd=ETA or infer_noise=True$"):
        bm.posterior(model, bm.load_data(tmp_path / "data.json", model))
    code, _, err = cli("posterior", "env:two-state", str(tmp_path / "data.json"))
    assert code == 2
    assert err.strip().endswith("with --noise-sd ETA or --infer-noise")
    with pytest.raises(BadInputError, match=r"^noise_sd is -1\.0: give"):
        bm.posterior(model, bm.Dataset.complete(model), noise_sd=-1.0)
    code, _, err = cli("posterior", "env:two-state", str(tmp_path / "data.json"), "--noise-sd", "-1")
    assert "bellmanifold: --noise-sd is -1.0: give" in err
