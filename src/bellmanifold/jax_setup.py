"""JAX as this package uses it: in double precision, with keys from seeds of any size, and not too many programs.

Imported by every module that computes with JAX, before the first array is made. A posterior at epsilon 0.01 and prior
scale 10 spans six orders of magnitude before anything is squared; single precision cannot hold it. The switch is global
in JAX, so it is thrown here and nowhere else.

A compiled program takes some hundred memory maps, of which a process has 65,530, and JAX keeps every program it ever
compiled: a process that looks at problem after problem would crash. So programs are counted, and all are dropped once
there are too many; those still in use are compiled anew.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, UInt32

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

STATIC = {"static": True}
"""Metadata of fields that fix a program: they are no arrays."""
MOST_PROGRAMS = 16
"""Problems, or shapes of them, whose programs are kept."""
_compiled: set[Any] = set()


def bound_programs(argument: Any, static: Hashable = None, most: int = MOST_PROGRAMS) -> None:
    """Say what programs are about to be called with; drop the programs of others if there are too many.

    They are compiled for the structure and the shapes of the argument, a tree of arrays, and for all that is static.
    """
    leaves, structure = jax.tree.flatten(argument)
    key = (static, structure, tuple((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves))
    if key in _compiled:
        return
    if len(_compiled) >= most:
        drop_programs()
        _return_memory()
    _compiled.add(key)


def drop_programs() -> None:
    """Drop all compiled programs and begin to count them anew."""
    jax.clear_caches()  # type: ignore[no-untyped-call]
    _compiled.clear()


def _return_memory() -> None:
    """Give what was freed back to the system: glibc keeps it, two thirds of what compiling took."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL("libc.so.6").malloc_trim(0)


@jax.jit
def on_device(arrays: Any) -> Any:
    """A tree of NumPy arrays as JAX's: one program moves all of them in the time that one takes by itself."""
    return arrays


def random_key(*seed: int) -> PRNGKeyArray:
    """The key that belongs to some non-negative whole numbers, however large."""
    low, high = np.random.SeedSequence(seed).generate_state(2, np.uint32)
    return _folded(jnp.asarray(low), jnp.asarray(high))


def random_keys(seeds: Sequence[tuple[int, ...]]) -> Key[Array, "keys"]:
    """The keys of several such tuples of numbers, made by one program."""
    words = [np.random.SeedSequence(seed).generate_state(2, np.uint32) for seed in seeds]
    return _folded_each(*np.transpose(words))


@jax.jit
def _folded(low: UInt32[Array, ""], high: UInt32[Array, ""]) -> PRNGKeyArray:
    """One key from two numbers, in one program: four of them cost more than a small posterior's arithmetic."""
    return jax.random.fold_in(jax.random.key(low), high)


_folded_each = jax.jit(jax.vmap(_folded))
