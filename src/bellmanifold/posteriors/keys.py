"""Keys of JAX's generator from seeds of any size."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import PRNGKeyArray


def random_key(*seed: int) -> PRNGKeyArray:
    """The key that belongs to some non-negative whole numbers, however large."""
    low, high = np.random.SeedSequence(seed).generate_state(2, np.uint32)
    return jax.random.fold_in(jax.random.key(int(low)), int(high))
