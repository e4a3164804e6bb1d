"""Switches JAX to double precision, once for the whole package: import this module before using `jax`.

JAX computes in single precision unless told otherwise. A posterior cannot live with that: with a tolerance of 1e-8 and
rewards of order 1 the Bellman residuals themselves would drown in rounding. The switch is global to the process and
must be thrown before the first array is made, so it has one home. Every module that uses JAX imports this one:

    from bellmanifold import precision  # noqa: F401

Importing `bellmanifold` alone does not import JAX.
"""

from __future__ import annotations

import jax

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
