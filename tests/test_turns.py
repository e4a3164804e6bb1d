"""Slow tests by turns, and the newest Python: what CI runs after so many commits."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import by_turns
import newest_python
import pytest
from by_turns import due, third_of

HERE = Path(__file__).parent
MANY = """
import time
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("k", range(30))
def test_it(k):
    time.sleep({seconds})
    assert k != {wrong}
"""


def pytest_says(tmp_path, *options, seconds=0, wrong=-1):
    """Exit code, the last line, and the names that -rA or the plugin lists."""
    (tmp_path / "test_many.py").write_text(MANY.format(seconds=seconds, wrong=wrong))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "by_turns", "-p", "no:cacheprovider", "-Wignore", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(HERE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_each_test_is_in_exactly_one_third(tmp_path):
    """... and a failure among those that run is one."""
    found = Counter()
    for third in "012":
        code, lines = pytest_says(tmp_path, "--third", third, "-rA", wrong=7)
        names = [line.split()[1] for line in lines if line.startswith(("PASSED", "FAILED"))]
        found.update(names)
        assert {str(third_of(name)) for name in names} == {third}
        assert code == ("test_many.py::test_it[7]" in names)
        assert f"{30 - len(names)} deselected" in lines[-1]
    assert found == Counter(f"test_many.py::test_it[{k}]" for k in range(30))


def test_thirds_are_of_like_size():
    """For names like ours, at five standard deviations of a random partition: false alarms below 1e-5."""
    names = [f"tests/test_{place}.py::test_{name}[{k}]" for place in "abc" for name in "defghij" for k in range(100)]
    size = Counter(map(third_of, names))
    assert max(abs(size[third] - 700) for third in range(3)) < 5 * (2100 * 2 / 9) ** 0.5


@pytest.mark.parametrize(("options", "wrong"), [((), -1), (("-p", "xdist", "--numprocesses", "2"), 0)])
def test_what_had_not_begun_in_time_is_named_and_is_no_failure(tmp_path, options, wrong):
    """A failure before that is one."""
    code, lines = pytest_says(tmp_path, "--stop-after", "2", *options, seconds=0.25, wrong=wrong)
    left = [line for line in lines if line.startswith("test_many.py::")]
    failed, passed = int(wrong == 0), 30 - len(left) - int(wrong == 0)
    assert code == failed
    assert 0 < passed < 29
    assert f"not run: {len(left)} tests had not begun after 2 s" in "".join(lines)
    assert lines[-1].startswith(f"{'1 failed, ' * failed}{passed} passed, {len(left)} not run in")


def test_nine_commits_run_every_third_on_both_pythons():
    asked = [due(commits) for commits in range(1, 10)]
    assert Counter((target[-2], target[0]) for target in asked) == {
        (f"THIRD={third}", python): count
        for third in range(3)
        for python, count in (("test-newest", 1), ("test-slow", 2))
    }
    assert due(1) == ["test-newest", "TESTS=test-slow", "THIRD=1", f"STOP_AFTER={by_turns.SECONDS}"]  # a shallow clone
    assert due(5) == ["test-slow", "THIRD=2", f"STOP_AFTER={by_turns.SECONDS}"]


def fake_python(folder, minor, tells):
    folder.mkdir(exist_ok=True)
    path = folder / f"python3.{minor}"
    path.write_text(f"#!/bin/sh\necho {tells}\n")
    path.chmod(0o755)
    return path


def test_prereleases_and_old_pythons_are_passed_over(tmp_path):
    fake_python(tmp_path / "a", 15, "3 15 0 alpha")
    fake_python(tmp_path / "a", 10, "3 10 9 final")
    broken = fake_python(tmp_path / "a", 14, "")
    broken.write_text("#!/bin/sh\nexit 127\n")
    older, newer = fake_python(tmp_path / "b", 11, "3 11 2 final"), fake_python(tmp_path / "c", 12, "3 12 1 final")
    found = newest_python.interpreters([tmp_path / name for name in ("a", "b", "c", "none")])
    assert found == [((3, 12, 1), newer), ((3, 11, 2), older)]


def test_a_python_without_wheels_is_passed_over_aloud(capsys):
    found = [((3, 14, 0), Path("python3.14")), ((3, 13, 0), Path("python3.13"))]
    lacks = {"python3.14": "no wheel of jaxlib", "python3.13": ""}
    assert newest_python.newest(found, lambda path: lacks[path.name]) == found[1]
    assert capsys.readouterr().err == "Python 3.14.0 (python3.14) is passed over: no wheel of jaxlib\n"
    with pytest.raises(SystemExit, match=r"no Python, 3\.11 or later"):
        newest_python.newest(found[:1], lambda path: lacks[path.name])
