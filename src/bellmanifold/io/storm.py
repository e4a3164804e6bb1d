"""PRISM and JANI files as problems, built by Storm (the extra "storm") in a separate process.

MODEL is the file, the constants it leaves open, and a property: `coin.prism?N=2&property=steps_min`. Properties of a
JANI file are in the file itself; those of a PRISM file are in a file of the same name that ends in `.props` (or
`.pctl`, `.prctl`). A property may also be written out: `coin.prism?N=2&property=Rmin=? [F "done"]`.

The process (`io.storm_build`) writes Storm's binary archive UMB: arrays of choices, successors, probabilities,
rewards and labels, which are read as they are.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bellmanifold._util.extras import require_extra
from bellmanifold._util.limits import SIZE
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.io.explicit import Explicit, read_query, reward_until_target
from bellmanifold.io.files import label, locate_errors, read_bytes
from bellmanifold.problem.ssp import SSP

PROPERTY_FILES = (".props", ".pctl", ".prctl", ".pctls", ".csl")
MEMORY, SHARE = 2**29, 200
"""Bytes that Storm may use: a constant, and so many per pair or successor of the largest problem allowed."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"true|false|-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?(/[1-9][0-9]*)?")


def read_storm(path: str, query: str = "") -> SSP:
    """Read a PRISM or JANI file; the query gives a `property` and the constants that the file leaves open."""
    with locate_errors(label(path)):
        given = read_query(query)
        read_bytes(path)  # raises an error if the file cannot be read
        asked = given.pop("property", None)
        for name, value in given.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise BadInputError(f"constant {quote(name)} is {quote(value)}: give a number, true or false")
        with locate_errors(label(path), UnsupportedError):
            require_extra("storm", "a PRISM or JANI file")
        written = asked is not None and "[" in asked
        with tempfile.TemporaryDirectory(prefix="bellmanifold-storm-") as folder:
            request = {
                "path": os.path.abspath(path),
                "property": None if written else asked,
                "formula": asked if written else None,
                **_beside(path),
                "constants": given,
                "folder": folder,
                "memory": MEMORY + SHARE * SIZE.value,
            }
            outcome = _build(request)
            model = _explicit(Path(folder), outcome)
        return reward_until_target(model, outcome["sense"], path, outcome["property"])


def _beside(path: str) -> dict[str, str]:
    """The name and text of the property file beside a model; empty if there is none."""
    stem = os.path.splitext(path)[0]
    for suffix in PROPERTY_FILES:
        if os.path.isfile(stem + suffix):
            name = os.path.basename(stem + suffix)
            with locate_errors(label(name)):
                return {"beside": name, "properties": read_bytes(stem + suffix).decode("utf-8", errors="replace")}
    return {"beside": "", "properties": ""}


def _build(request: dict[str, Any]) -> dict[str, Any]:
    """Run Storm in a process; its outcome, or an error that says in one line why there is none."""
    program = str(Path(__file__).with_name("storm_build.py"))
    done = subprocess.run(
        [sys.executable, program], input=json.dumps(request), text=True, capture_output=True, check=False
    )
    answer = Path(request["folder"]) / "outcome.json"
    if not answer.exists():
        code = done.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        last = quote((done.stderr.strip() or "it printed nothing").splitlines()[-1])
        raise BadInputError(f"Storm {how} while it built the model ({last}): check the file with Storm itself")
    outcome: dict[str, Any] = json.loads(answer.read_text())
    if "memory" in outcome:
        raise BadInputError(
            f"Storm needs more than {outcome['memory'] / 2**30:.1f} GB to build it: make it smaller, or set "
            f"{SIZE.variable} (now {SIZE.value:,}) if memory allows"
        )
    if "error" in outcome:
        raise BadInputError(outcome["error"])
    return outcome


def _explicit(folder: Path, outcome: dict[str, Any]) -> Explicit:
    """The model that Storm wrote to a folder."""
    with tarfile.open(folder / "model.umb") as archive:
        parts = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        content = {name: file.read() for name, file in parts.items() if file is not None}

    def numbers(name: str, kind: str) -> np.ndarray | None:
        return np.frombuffer(content[name], dtype=kind) if name in content else None

    states = int(outcome["states"])
    next_start, next_state = numbers("choice-to-branches.bin", "<u8"), numbers("branch-to-target.bin", "<u8")
    assert next_start is not None, "Storm writes the moves of every model"
    assert next_state is not None
    start = numbers("state-to-choices.bin", "<u8")
    choices = len(next_start) - 1
    first: Int[np.ndarray, "states_plus_1"] = np.arange(states + 1) if start is None else start.astype(np.int64)
    prob = numbers("branch-to-probability.bin", "<f8")
    prob = np.ones(len(next_state)) if prob is None else prob
    labels, which = _labels(content, choices)
    reward = np.zeros(choices) if outcome["reward"] is not None else np.ones(choices)
    place = f"annotations/rewards/{_key(content, outcome['reward'])}"
    if "exit" in outcome["collected"] and (of_state := numbers(f"{place}/states/values.bin", "<f8")) is not None:
        reward += np.repeat(of_state, first[1:] - first[:-1])
    if "steps" in outcome["collected"]:
        if (of_choice := numbers(f"{place}/choices/values.bin", "<f8")) is not None:
            reward += of_choice
        if (of_branch := numbers(f"{place}/branches/values.bin", "<f8")) is not None:
            row = np.searchsorted(next_start, np.arange(len(next_state)), side="right") - 1
            reward += np.bincount(row, prob * of_branch, choices)
    return Explicit(
        state_names=_state_names(folder, outcome["variables"], states),
        labels=labels,
        choice_label=which,
        choice_start=first,
        reward=reward,
        next_start=next_start.astype(np.int64),
        next_state=next_state.astype(np.int64),
        next_prob=prob,
        initial=np.array(outcome["initial"], dtype=np.int64),
        target=np.load(folder / "target.npy"),
    )


def _key(content: dict[str, bytes], reward: str | None) -> str:
    """The folder of a reward structure in the archive; "none" if steps are counted."""
    if reward is None:
        return "none"
    listed = json.loads(content["index.json"])["annotations"]["rewards"]
    return next(key for key, entry in listed.items() if entry.get("alias", "") == reward)


def _labels(content: dict[str, bytes], choices: int) -> tuple[list[str], np.ndarray]:
    """The labels of choices, empty for none, and the index of each choice's label."""
    if "actions/choices/values.bin" not in content:
        return [""], np.zeros(choices, dtype=np.int64)
    which = np.frombuffer(content["actions/choices/values.bin"], dtype="<u4").astype(np.int64)
    if "actions/choices/strings.bin" not in content:
        return ["" for _ in range(int(which.max(initial=0)) + 1)], which
    start = np.frombuffer(content["actions/choices/string-mapping.bin"], dtype="<u8").tolist()
    text = content["actions/choices/strings.bin"]
    return [text[low:high].decode() for low, high in pairwise(start)], which


def _state_names(folder: Path, variables: list[str], states: int) -> list[str]:
    """A name for each state: the values of all variables, as "s=0,t=true"."""
    columns = []
    for k, name in enumerate(variables):
        values, number = np.unique(np.load(folder / f"value-{k}.npy"), return_inverse=True)
        shown = [str(value).lower() if values.dtype == bool else str(value) for value in values.tolist()]
        words = [f"{name}={value}" for value in shown]
        columns.append([words[n] for n in number.tolist()])
    if not columns:
        return [str(state) for state in range(states)]
    return [",".join(words) for words in zip(*columns, strict=True)]
