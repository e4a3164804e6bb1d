"""Test settings: strict dtype promotion, double precision and a compilation cache that outlives the run.

Programs that tests start share that cache; nothing is written to the cache of the user.

A test whose docstring states a false-alarm rate is statistical: `pytest -m statistical` selects these. Their seeds are
fixed; `--master-seed N` mixes N into every one of them, so that one can see whether they pass by luck.
"""

import os
import signal
from pathlib import Path

import by_turns
import jax
import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
CACHE = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".venv" / "jax-cache"))
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell are deaf to it
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def pytest_addoption(parser, pluginmanager):
    pluginmanager.register(by_turns)
    parser.addoption("--master-seed", type=int, default=0, help="mixed into every seed of statistical tests; 0: as is")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        states = " ".join((getattr(item.function, "__doc__", None) or "").lower().replace("-", " ").split())
        if "false alarm" in states:
            item.add_marker("statistical")


@pytest.fixture(autouse=True)
def _master_seed(request, monkeypatch):
    """Every generator that a statistical test makes, here or in the package, depends on the master seed."""
    master = request.config.getoption("--master-seed")
    if not master or not request.node.get_closest_marker("statistical"):
        return
    sequence, default_rng, key = np.random.SeedSequence, np.random.default_rng, jax.random.key

    def seeded(entropy=None, **options):
        return sequence([master, *np.atleast_1d(entropy).tolist()], **options)

    def generator(seed=None):
        return default_rng(seeded(seed) if isinstance(seed, (int, np.integer, list, tuple)) else seed)

    monkeypatch.setattr(np.random, "SeedSequence", seeded)
    monkeypatch.setattr(np.random, "default_rng", generator)
    monkeypatch.setattr(jax.random, "key", lambda seed, **options: jax.random.fold_in(key(seed, **options), master))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)


@pytest.fixture
def no_programs():
    """None are compiled yet, so none are dropped in a test that counts them, whatever tests came before it."""

    from bellmanifold._util.jax_setup import drop_programs

    drop_programs()


@pytest.fixture
def known_toys(monkeypatch):
    """The agents `toy` and `plain` are known by name."""

    from toy_agents import PLAIN, TOY

    from bellmanifold.agents.registry import AGENTS

    monkeypatch.setitem(AGENTS, "toy", TOY)
    monkeypatch.setitem(AGENTS, "plain", PLAIN)


@pytest.fixture
def cli(capfd):
    """Run the command line in this process: arguments in; exit code, stdout and stderr out."""

    from bellmanifold.cli.main import run

    def call(*arguments):
        code = run(list(arguments))
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call
