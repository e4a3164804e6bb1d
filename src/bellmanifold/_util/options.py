"""Options that Python and the command line share: their values, and how messages write them in either place.

Messages name options as flags, `use --noise-sd 1 or --engine chart`. `spoken` translates these into what the reader
would write: in Python `use noise_sd=1 or engine="chart"`. Errors call it themselves (`bellmanifold.errors`); all other
texts for users, such as warnings, have to be passed through it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

KernelName = Literal["gaussian", "uniform"]
LawsName = Literal["known", "deterministic", "dirichlet"]
Method = Literal["vi", "pi", "lp"]
SWITCHES = ("infer_noise", "proper_only", "costs_only")
"""Options that are on or off."""
CHOICES = {"kernel": KernelName, "laws": LawsName, "method": Method}
"""Options whose value is one of a few words."""
NUMBERS = (
    *("epsilon", "prior_scale", "prior_mean", "noise_sd", "trial_sd", "concentration"),
    *("discount", "samples", "top", "seed"),
)
"""Options whose value is a number."""
BELIEFS = ("reward_belief", "cost_belief")
"""Options whose value is a mean and a standard deviation."""
FLAT = "flat"
"""The value of `prior_scale` that is a word."""
ENGINE = "engine"
ENGINES = ("auto", "chart", "mixture", "rejection", "hmc", "nuts")
"""Names of engines that messages recommend; others may be plugged in."""
_NAMES = "|".join(name.replace("_", "-") for name in (*SWITCHES, ENGINE, *CHOICES, *NUMBERS, *BELIEFS))
_WORDS = "|".join((*ENGINES, *(word for words in CHOICES.values() for word in get_args(words))))
_VALUE = rf"-?\d[\d.]*(?:e[+-]?\d+)?\b|[A-Z]+\b|(?:{_WORDS}|{FLAT})\b"
_FLAG = re.compile(rf"(\b(?:no|leave|without) )?--({_NAMES})(?![\w-])(?: ({_VALUE}))?")
_BEGINS = re.compile(
    rf"^({'|'.join(name for name in (*SWITCHES, *NUMBERS, *BELIEFS, ENGINE) if '_' in name or name == ENGINE)})\b(?!=)"
)
_commanded = False


@contextmanager
def on_command_line() -> Iterator[None]:
    """Write options in messages as flags while the enclosed code runs."""
    global _commanded
    before, _commanded = _commanded, True
    try:
        yield
    finally:
        _commanded = before


def spoken(text: str) -> str:
    """A message with options as its reader writes them: parameters in Python, flags on the command line.

    >>> spoken("use --engine chart, or --noise-sd 0.5")
    'use engine="chart", or noise_sd=0.5'
    >>> with on_command_line():
    ...     spoken("noise_sd is -1.0: give a positive number")
    '--noise-sd is -1.0: give a positive number'
    """
    if _commanded:
        return _BEGINS.sub(lambda found: "--" + found[1].replace("_", "-"), text)
    text = text.replace("--prune", "bm.pruned(model)")
    said = re.sub(r"^(\w+ is .*: give) true or false$", r"\1 True or False", _FLAG.sub(_parameter, text))
    said = re.sub(r"\bbellmanifold (?=check says)", "bm.", said)
    return re.sub(r"([a-z]=[\w.+-]+) (?=[a-z_]+=)", r"\1, ", said)


def remedy_when_read() -> str:
    """The option of readers that leaves out dead ends, where the reader has not got a problem to prune yet."""
    return "--prune" if _commanded else "prune=True"


def _parameter(found: re.Match[str]) -> str:
    """A flag, with its value if there is one, as a parameter."""
    before, name, value = found[1] or "", found[2].replace("-", "_"), found[3]
    if name in SWITCHES and not before:
        return f"{name}=True" + (f" {value}" if value else "")
    if value is None:
        return f"{before}{name}"
    return f"{before}{name}=" + (f'"{value}"' if name in (ENGINE, *CHOICES) or value == FLAT else value)
