"""Double precision for JAX: imported by every module that computes with it, before the first array is made.

A posterior at epsilon 0.01 and prior scale 10 spans six orders of magnitude before anything is squared; single
precision cannot hold it. The switch is global in JAX, so it is thrown here and nowhere else.
"""

import jax

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
