"""One thread a run.

XLA and BLAS split sums among as many threads as there are cores, so the last bits of a run would depend on the machine
that plays it. And worker processes would compete for the same cores. Both read the environment: BLAS when NumPy is
imported, XLA (NPROC) when JAX first computes something.
"""

from __future__ import annotations

import os

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"), "1")


def use_one_thread() -> None:
    """Let this process, if JAX has not computed anything yet, and those it starts use one thread."""
    os.environ.update(ONE_THREAD)
