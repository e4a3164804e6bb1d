"""JAX as this package uses it: in double precision, with keys from seeds of any size.

Imported by every module that computes with JAX, before the first array is made. A posterior at epsilon 0.01 and prior
scale 10 spans six orders of magnitude before anything is squared; single precision cannot hold it. The switch is global
in JAX, so it is thrown here and nowhere else.
"""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


def random_key(*seed: int) -> PRNGKeyArray:
    """The key that belongs to some non-negative whole numbers, however large."""
    low, high = np.random.SeedSequence(seed).generate_state(2, np.uint32)
    return jax.random.fold_in(jax.random.key(int(low)), int(high))
