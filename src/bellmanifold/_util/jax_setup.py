"""JAX as this package uses it: double precision, keys from seeds of any size, and a bounded number of programs.

Every module that computes with JAX imports this one before it creates an array. A posterior at epsilon 0.01 and prior
scale 10 spans six orders of magnitude before anything is squared, too many for single precision. The switch is global
in JAX, so it is set here and nowhere else.

A compiled program takes some hundred memory maps, of which a process has 65,530, and JAX keeps every program it has
compiled: a process that works through problem after problem would crash. So programs are counted, and all are dropped
once there are too many; those still in use are recompiled.
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
"""Metadata of static fields: they are part of the compiled program instead of its arrays."""
MOST_PROGRAMS = 16
"""Number of problems, or of shapes of problems, whose programs are kept."""
_compiled: set[Any] = set()


def bound_programs(argument: Any, static: Hashable = None, most: int = MOST_PROGRAMS) -> None:
    """Record the argument that programs are about to be called with; drop all programs first if there are too many.

    Programs are compiled for the structure and shapes of the argument, a tree of arrays, and for static values.
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
    """Drop all compiled programs and reset their count."""
    jax.clear_caches()  # type: ignore[no-untyped-call]
    _compiled.clear()


def _return_memory() -> None:
    """Return freed memory to the system: glibc would keep it, two thirds of what compilation took."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL("libc.so.6").malloc_trim(0)


@jax.jit
def on_device(arrays: Any) -> Any:
    """Convert a tree of NumPy arrays to JAX arrays: one program transfers all of them in the time of one."""
    return arrays


def random_key(*seed: int) -> PRNGKeyArray:
    """The key derived from non-negative integers of any size."""
    low, high = np.random.SeedSequence(seed).generate_state(2, np.uint32)
    return _fold(jnp.asarray(low), jnp.asarray(high))


def random_keys(seeds: Sequence[tuple[int, ...]]) -> Key[Array, "keys"]:
    """The keys of several such tuples of integers, by one program."""
    words = [np.random.SeedSequence(seed).generate_state(2, np.uint32) for seed in seeds]
    return _folded_each(*np.transpose(words))


@jax.jit
def _fold(low: UInt32[Array, ""], high: UInt32[Array, ""]) -> PRNGKeyArray:
    """A key from two numbers, in one program: separate calls would cost more than a small posterior's arithmetic."""
    return jax.random.fold_in(jax.random.key(low), high)


_folded_each = jax.jit(jax.vmap(_fold))
