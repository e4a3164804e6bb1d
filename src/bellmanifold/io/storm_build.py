"""Separate program, started by `io.storm`, that lets Storm build a PRISM or JANI file into an explicit model.

Storm always writes messages to standard output, and a crash in it ends the process; here neither does harm. A request
arrives as JSON on standard input. Answers go to a folder: `outcome.json`, either {"error": ...} or a description of the
model, and beside it `model.umb`, Storm's binary archive, `target.npy`, and the values of the variables.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

TYPES = ("DTMC", "MDP")
EXAMPLE = 'R{"steps"}min=? [F "done"]'
BUILT_IN_LABELS = ("init", "deadlock")
OUT_OF_BOUNDS, OUT_OF_BOUNDS_BIT = "out_of_bounds", "_OutOfBoundsBit"
"""How Storm marks the state that represents a variable outside its range."""
_WHOLE = re.compile(r"-?[0-9]+")


class RefusedError(Exception):
    """The request cannot be fulfilled; the message states the reason and a remedy."""


def main() -> None:
    """Serve one request."""
    request = json.load(sys.stdin)
    folder = Path(request["folder"])
    resource.setrlimit(resource.RLIMIT_AS, (request["memory"], resource.RLIM_INFINITY))
    try:
        outcome = build(request, folder)
    except RefusedError as error:
        outcome = {"error": str(error)}
    except MemoryError:
        outcome = {"memory": request["memory"]}
    except Exception as error:  # Storm raises many kinds of C++ exceptions
        outcome = {"error": f"Storm cannot read it: {said(error)}: fix the file, or the constants"}
    (folder / "outcome.json").write_text(json.dumps(outcome))


def said(error: Exception) -> str:
    """Storm's error message, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return (text.partition("Exception: ")[2] or text)[:400].rstrip(".")


def build(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Build the model of a request and write it to the folder."""
    import stormpy

    if not hasattr(stormpy.io, "UmbExportOptions"):
        raise RefusedError(f"stormpy {stormpy.__version__} is too old: install bellmanifold[storm]")
    if request["path"].endswith(".jani"):
        description, properties = stormpy.parse_jani_model(request["path"])
    else:
        description, properties = stormpy.parse_prism_program(request["path"], prism_compatibility=True), []
    text = request["formula"] or ("" if properties else request["properties"])
    if text:
        properties = parse(text, description, request)
    chosen = choose(properties, request["property"])
    kind = kind_of(description)
    if kind not in TYPES:
        raise RefusedError(f"its type is {kind}: only {' and '.join(TYPES)} can be read")
    description, chosen = instantiate(description, chosen, request["constants"])
    formula = chosen.get_raw_formula()
    steps, reward = is_steps(formula), reward_of(formula)
    listed = [structure.name for structure in getattr(description, "reward_models", [])]
    if listed and not steps:
        require_reward(reward, listed)
    options = stormpy.BuilderOptions(chosen)
    options.set_build_state_valuations()
    options.set_build_choice_labels()
    options.set_add_out_of_bounds_state()
    if reward is None and not steps:
        options.set_build_all_reward_models()
    try:
        model = stormpy.build_model(description, options=options)
    except RuntimeError as error:
        if "label" in str(error):
            require_labels(formula, description)
        raise
    if OUT_OF_BOUNDS in model.labeling.get_labels():
        raise RefusedError("some command takes a variable out of its bounds: widen its range, or guard the command")
    export = stormpy.io.UmbExportOptions()
    export.compression = stormpy.io.CompressionMode.NO_COMPRESSION
    stormpy.io.export_to_umb(model, str(folder / "model.umb"), options=export)
    inside = stormpy.model_checking(model, formula.subformula.subformula).get_truth_values_vector()
    np.save(folder / "target.npy", _bits(inside, model.nr_states))
    return {
        "states": model.nr_states,
        "reward": None if steps else require_reward(reward, sorted(model.reward_models)),
        "collected": collected_rewards(formula),
        "sense": sense_of(formula, model.nr_choices > model.nr_states),
        "property": str(formula),
        "initial": [int(state) for state in model.initial_states],
        "variables": _variables(model.state_valuations, _transient(description), folder, model.nr_states),
    }


def parse(text: str, description: Any, request: dict[str, Any]) -> list[Any]:
    """Parse properties given in the request or in a file beside the model."""
    import stormpy

    try:
        found: list[Any] = stormpy.parse_properties(text, description)
    except RuntimeError as error:
        where = f'property "{text}"' if request["formula"] else f"its properties in {request['beside']}"
        remedy = f"write it as {EXAMPLE}" if request["formula"] else f"fix them, or add ?property={EXAMPLE}"
        raise RefusedError(f"Storm cannot read {where}: {said(error)}: {remedy}") from None
    return found


def kind_of(description: Any) -> str:
    """The type of a model; stormpy has no name for some of Storm's types."""
    try:
        return str(description.model_type.name)
    except ValueError:
        return "none that Storm can build"


def choose(properties: list[Any], asked: str | None) -> Any:
    """The property of a given name or number, or the only suitable one; refused unless a reward until a target."""
    names = ", ".join(prop.get_name() for prop in properties[:20])
    if asked is not None:
        found = [prop for prop in properties if prop.get_name() == asked]
        if not found and asked.isdecimal():
            found = properties[max(0, int(asked) - 1) : int(asked)]
        if not found:
            raise RefusedError(
                f'there is no property "{asked}": ' + (f"choose from {names}" if names else "none is known")
            )
    else:
        found = [prop for prop in properties if not fault(prop.get_raw_formula())] or properties
        if not found:
            raise RefusedError('there is no property: add ?property=R{"steps"}min=? [F "done"]')
        if len(found) > 1:
            raise RefusedError(f"there are several properties: add ?property=NAME, one of {names}")
    problem = fault(found[0].get_raw_formula())
    if not problem and "'\"init\"'-states" not in str(found[0]):
        problem = "is filtered by other states than the initial one: ask for the value there, without a filter"
    if problem:
        raise RefusedError(f'property "{found[0].get_raw_formula()}" {problem}')
    return found[0]


def fault(formula: Any) -> str:
    """Why a property is not a reward until a target; empty if it is one."""
    only = f"only a reward until a target can be read, such as {EXAMPLE}"
    if not getattr(formula, "is_reward_operator_formula", False) and not is_steps(formula):
        return f"is not an expected reward: {only}"
    if not getattr(formula.subformula, "is_eventually_formula", False):
        return f"is not until a target is reached: {only}"
    if formula.has_bound:
        return "compares with a bound: ask for the value itself, with =?"
    if not is_steps(formula) and not collected_rewards(formula):
        return "collects nothing: let it accumulate steps (rewards of moves), exit (rewards of states) or both"
    return ""


def is_steps(formula: Any) -> bool:
    """Whether this is an expected time, `T=? [F ...]`, which in discrete time is a number of steps."""
    return type(formula).__name__ == "TimeOperatorFormula"


def collected_rewards(formula: Any) -> list[str]:
    """The rewards a property collects: of moves ("steps"), of states ("exit"); a JANI property may name only one."""
    named = re.match(r"F \[([a-z, ]*)\]", str(formula.subformula))
    return [kind for kind in ("steps", "exit") if named is None or kind in named[1]]


def require_labels(formula: Any, description: Any) -> None:
    """Refuse labels that the model does not have."""
    known = [str(label.name) for label in getattr(description, "labels", [])] or sorted(_transient(description))
    for name in re.findall(r'"([^"]*)"', re.sub(r'\{"[^"]*"\}', "", str(formula.subformula))):
        if name not in known and name not in BUILT_IN_LABELS:
            choice = ", ".join(f'"{label}"' for label in [*known, *BUILT_IN_LABELS])
            raise RefusedError(f'there is no label "{name}": choose from {choice}')


def instantiate(description: Any, chosen: Any, given: dict[str, str]) -> tuple[Any, Any]:
    """The model and the property with all constants replaced by their values."""
    import stormpy

    free = {constant.name: constant.expression_variable for constant in description.constants if not constant.defined}
    free |= {variable.name: variable for variable in chosen.get_undefined_constants()}
    for name, value in given.items():
        if name not in free:
            takes = ", ".join(sorted(free)) or "none"
            raise RefusedError(f'constant "{name}" cannot be set: it takes property and the constants {takes}')
        if free[name].has_boolean_type() != (value in ("true", "false")):
            wanted = "true or false" if free[name].has_boolean_type() else "a number"
            raise RefusedError(f'constant "{name}" is "{value}": give {wanted}')
        if free[name].has_integer_type() and not _WHOLE.fullmatch(value):
            raise RefusedError(f'constant "{name}" is "{value}": give a whole number')
    missing = sorted(set(free) - set(given))
    if missing:
        example = "&".join(f"{name}=VALUE" for name in missing)
        raise RefusedError(f"constant {', '.join(missing)} has no value: add ?{example}")
    definitions = ",".join(f"{name}={value}" for name, value in given.items())
    description, properties = stormpy.instantiate_constants(description, definitions, [chosen])
    return description, properties[0]


def reward_of(formula: Any) -> str | None:
    """The reward structure that a property names, or None."""
    if is_steps(formula):
        return None
    named = formula.has_reward_model_name
    return (str(formula.reward_name) or None) if (named() if callable(named) else named) else None


def require_reward(name: str | None, structures: list[str]) -> str:
    """The reward structure that a property refers to, checked against those that exist."""
    if not structures:
        raise RefusedError(
            "it has no reward structure: add one (rewards ... endrewards), or ask for steps, T=? [F ...]"
        )
    names = ", ".join(f'"{structure}"' for structure in structures if structure)
    if name is None and "" in structures:
        return ""
    if name is None and len(structures) != 1:
        raise RefusedError(f"the property names no reward structure: name one of {names}")
    if name is not None and name not in structures:
        raise RefusedError(f'there is no reward structure "{name}": choose from {names or "the one without a name, R"}')
    return structures[0] if name is None else name


def sense_of(formula: Any, has_choice: bool) -> str:
    """Whether a reward is minimised or maximised; without choices it makes no difference."""
    if formula.has_optimality_type:
        return "max" if "MAX" in formula.optimality_type.name else "min"
    if has_choice:
        raise RefusedError("the property does not say min or max, and some state has a choice: write Rmin or Rmax")
    return "min"


def _transient(description: Any) -> set[str]:
    """Transient variables of a JANI model (rewards and labels), which are not part of its states."""
    owners = [description, *getattr(description, "automata", [])]
    known = [
        variable for owner in owners for variable in getattr(owner, "global_variables", getattr(owner, "variables", []))
    ]
    return {str(variable.expression_variable.name) for variable in known if getattr(variable, "is_transient", False)}


def _variables(valuations: Any, transient: set[str], folder: Path, states: int) -> list[str]:
    """Names of the variables; writes the values of the k-th to `value-k.npy`."""
    names: list[str] = []
    for variable in sorted(valuations.get_all_variables(), key=lambda variable: str(variable.name)):
        if str(variable.name) in transient or str(variable.name) == OUT_OF_BOUNDS_BIT:
            continue
        if variable.has_boolean_type():
            values = _bits(valuations.get_boolean_values(variable), states)
        else:
            values = np.array(valuations.get_values_states(variable))
        if str(variable.name).startswith("_loc_") and (values == values[0]).all():
            continue  # the location of an automaton that has only one
        np.save(folder / f"value-{len(names)}.npy", values.astype(str) if values.dtype.kind == "O" else values)
        names.append(str(variable.name))
    return names


def _bits(vector: Any, states: int) -> np.ndarray:
    """A bit vector or a list of truth values as a boolean array."""
    if isinstance(vector, list):
        return np.array(vector, dtype=bool)
    chosen = np.zeros(states, dtype=bool)
    chosen[np.fromiter(vector, dtype=np.int64)] = True
    return chosen


if __name__ == "__main__":
    main()
