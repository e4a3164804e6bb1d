"""Slow tests by turns: a pytest plugin (`--third K`, `--stop-after SECONDS`), and which part is due.

All slow tests take too long for every commit, so each commit runs a third of them. `python tests/by_turns.py COMMITS`
prints what `make` is to be asked for after so many commits: third `COMMITS % 3`, on the newest Python where
`COMMITS // 3 % 3` is 0, else on the default one. So nine commits run every test twice on the default Python and once on
the newest.

A test belongs to the third that a checksum of its name says: the thirds are disjoint, together they are all tests, and
new tests move no other. When time is up, tests that have not begun are not run: they are neither passed nor skipped,
but named and counted as "not run" in the last lines.
"""

import sys
import time
import zlib

import pytest

STARTED = time.monotonic()
SECONDS = 35 * 60
"""Tests that have begun by then are brought to an end: five more minutes are enough."""
NOT_RUN = "not run"


def due(commits):
    """Arguments of `make` after a number of commits."""
    target = ["test-newest", "TESTS=test-slow"] if commits // 3 % 3 == 0 else ["test-slow"]
    return [*target, f"THIRD={commits % 3}", f"STOP_AFTER={SECONDS}"]


def third_of(name):
    """0, 1 or 2."""
    return zlib.crc32(name.encode()) % 3


def pytest_addoption(parser):
    parser.addoption("--third", type=int, choices=range(3), help="only the tests of one third; they change by turns")
    parser.addoption("--stop-after", type=float, metavar="SECONDS", help="begin no test after so many seconds")


def pytest_collection_modifyitems(config, items):
    third = config.getoption("--third")
    if third is None:
        return
    others = [item for item in items if third_of(item.nodeid) != third]
    items[:] = [item for item in items if third_of(item.nodeid) == third]
    config.hook.pytest_deselected(items=others)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    limit = item.config.getoption("--stop-after")
    if limit is not None and time.monotonic() - STARTED > limit:
        pytest.skip(NOT_RUN)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report):
    if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[2] == f"Skipped: {NOT_RUN}":
        return NOT_RUN, "-", NOT_RUN.upper()
    return None


def pytest_terminal_summary(terminalreporter, config):
    left = terminalreporter.stats.get(NOT_RUN, [])
    if left:
        terminalreporter.section(
            f"not run: {len(left)} tests had not begun after {config.getoption('--stop-after'):g} s"
        )
    for report in left:
        terminalreporter.line(report.nodeid)


if __name__ == "__main__":
    print(*due(int(sys.argv[1])))
