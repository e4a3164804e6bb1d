"""Keeping compiled programs, so that a second command of the same shape starts without compiling."""

from __future__ import annotations

import os
import sys
from typing import Any

LEAST_SECONDS = "0"


def keep_compiled_programs() -> None:
    """Tell JAX, here and in worker processes, where to keep what it compiles; JAX_COMPILATION_CACHE_DIR moves it.

    JAX reads the environment when it is imported. If that has happened already, a place it was given stays.
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
