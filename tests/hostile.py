"""Input made to do harm: strategies for damaged documents and arguments, and what a command may answer to them."""

import copy
import io
import json
import os
import tempfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bellmanifold.cli.main import run
from bellmanifold.errors import BadInputError

STRANGE_TEXTS = (
    *(
        "",
        " ",
        "goal",
        "s1",
        "stay",
        "0,0",
        "\0",
        "a\0b",
        "a\nb",
        "\x1b[2J",
        "\u2028",
        "‮abc",
        "💥",
        "é" * 70,
        "x" * 3000,
    ),
    *(
        "x" * 3000,
        "../../x",
        "/etc/passwd",
        "C:\\x",
        "$\\frac{",
        "<script>alert(1)</script>",
        "{{title}}",
        "%s%n",
        "NaN",
        "null",
    ),
    *("__class__", "99999999999999999999,0", "env:two-state", "gym:os:x", "-", "--help", "\ud800"),
)
VALID_TEXTS = STRANGE_TEXTS[:-1]
"""All but half of a surrogate pair."""
STRANGE_NUMBERS = (0, -1, 1, 2, -0.0, 0.5, 1e308, -1e308, 1e-320, 1e-12, 1e300, 10**30, 10**400, 2**63, float("nan"))
STRANGE = (
    None,
    True,
    False,
    *STRANGE_NUMBERS,
    float("inf"),
    -float("inf"),
    *STRANGE_TEXTS,
    [],
    {},
    [[]],
    [1],
    {"a": 1},
)
values = st.sampled_from(STRANGE).map(copy.deepcopy) | st.integers() | st.floats() | st.text(max_size=8)
ONE_LINE = {2, 3}
CODES = {0, 1, 4} | ONE_LINE


def examples(few, many, **strategies):
    """A property that holds of a few inputs, always the same, in the fast suite, and of many in the slow one."""

    def decorate(check):
        def test(number):
            plain = settings(
                max_examples=number,
                derandomize=number == few,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            plain(given(**strategies)(check))()

        test.__doc__ = check.__doc__
        return pytest.mark.parametrize("number", [few, pytest.param(many, marks=pytest.mark.slow)])(test)

    return decorate


@st.composite
def damaged(draw, document):
    """The JSON text of a document in which one to three parts were replaced, removed, added, renamed or doubled."""
    whole = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        place = whole
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], (dict, list)) and draw(st.integers(0, 3)):
                place = place[key]
                continue
            _hurt(draw, place, key)
            break
    text = json.dumps(whole)
    if draw(st.integers(0, 19)) == 0:
        text = text.replace("{", '{"state": 1, "state": 2, ', 1)
    if draw(st.integers(0, 9)) == 0:
        cut = draw(st.integers(0, len(text)))
        text = text[:cut] + draw(st.text(max_size=3)) + text[cut + draw(st.integers(0, 3)) :]
    return text.encode("utf-8", "surrogatepass")


def _hurt(draw, place, key):
    kind = draw(st.integers(0, 5))
    if kind <= 2:
        place[key] = draw(values)
    elif kind == 3:
        del place[key]
    elif isinstance(place, dict):
        place[draw(st.sampled_from(VALID_TEXTS))] = place.pop(key) if kind == 4 else draw(values)
    else:
        place.insert(key, copy.deepcopy(place[key]) if kind == 4 else draw(values))


@contextmanager
def elsewhere():
    """A fresh directory to work in; nothing may appear beside it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as room:
        inside = Path(room) / "inside"
        inside.mkdir()
        os.chdir(inside)
        try:
            yield inside
            assert os.listdir(room) == ["inside"], "something was written outside"
        finally:
            os.chdir(before)


def call(*arguments):
    """Exit code, stdout and stderr of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def require_answer(code, out, err, strict_json=False):
    """A result, or one line that says what is wrong."""
    assert code in CODES, (code, err)
    assert "Traceback" not in err + out
    if code == BadInputError.exit_code and err.startswith("Usage:"):  # no command was given: this is the help
        return
    if code in ONE_LINE:
        assert out == "", out
        assert err.startswith("bellmanifold: "), err
        assert err.count("\n") == 1, err
        assert err.endswith("\n")
        assert err[:-1].isprintable(), err
    elif strict_json:
        json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    else:
        assert all(line.isprintable() for line in out.split("\n")), out
