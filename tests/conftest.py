"""Test settings: strict dtype promotion, double precision and a compilation cache that outlives the run."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent))

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".venv" / "jax-cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)


@pytest.fixture
def cli(capfd):
    """Run the command line in this process: arguments in; exit code, stdout and stderr out."""

    from bellmanifold.cli import run

    def call(*arguments):
        code = run(list(arguments))
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call
