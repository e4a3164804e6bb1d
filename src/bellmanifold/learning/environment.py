"""Environment variables for XLA and BLAS, in this process and in worker processes.

*One thread per run*: by default sums are split among as many threads as there are cores, so the last bits of a run
would depend on the machine that plays it, and worker processes would compete for the same cores. BLAS reads the
environment when NumPy is imported, XLA (NPROC) when JAX first computes something.

*Compiled programs are cached*, so that a second command of the same shape starts without compiling.
"""

from __future__ import annotations

import os
import sys
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"), "1")
LEAST_SECONDS = "0"


def use_one_thread() -> None:
    """Restrict this process, if JAX has not computed anything yet, and its child processes to one thread."""
    os.environ.update(ONE_THREAD)


def keep_compiled_programs() -> None:
    """Set JAX's compilation cache, here and in worker processes; JAX_COMPILATION_CACHE_DIR overrides its directory.

    JAX reads the environment when it is imported. If it has been imported already, a configured directory is kept.
    """
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(home, "bellmanifold", "jax")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", LEAST_SECONDS)
    jax: Any = sys.modules.get("jax")
    if jax is not None:
        if jax.config.jax_compilation_cache_dir is None:
            jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        least = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
