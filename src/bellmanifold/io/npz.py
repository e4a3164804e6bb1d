"""Strict reading of arrays in `.npz` files, without unpickling."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from bellmanifold._util.limits import BYTES, SIZE
from bellmanifold.errors import BadInputError, quote
from bellmanifold.io.files import text

MOST_MEMBERS = 1000
"""Maximal number of arrays in an npz file; a problem has at most 21."""


def read_arrays(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of an npz file; nothing is unpickled, and no more is allocated than the file contains."""
    arrays: dict[str, np.ndarray] = {}
    if content.count(b"PK\x01\x02") > MOST_MEMBERS:  # one signature per member; do not even list a million of them
        raise BadInputError(f"contains more than {MOST_MEMBERS} arrays: write it with numpy.savez")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            whole = sum(member.file_size for member in members)
            if whole > BYTES.value:
                raise BadInputError(f"contains more than {BYTES.value:,} bytes: {BYTES.remedy(whole)}")
            for member in members:
                raw = archive.read(member)
                arrays[member.filename.removesuffix(".npy")] = _read_array(raw, member.filename)
    except BadInputError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError):
        raise BadInputError("is a damaged npz file: write it again") from None
    return arrays


def _read_array(raw: bytes, name: str) -> np.ndarray:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    file = io.BytesIO(raw)
    try:
        shape, fortran, dtype = readers[np.lib.format.read_magic(file)](file)
        plain = dtype.kind in "iufUS" and not fortran and len(shape) <= 1
        size = int(np.prod(shape, dtype=object))
        if not plain or size < 0 or size * dtype.itemsize != len(raw) - file.tell():
            raise BadInputError(
                f"array {quote(name)} must be a list of numbers or strings, stored whole: write it with numpy.savez"
            )
        SIZE.require(size, f"array {quote(name)}")
        return np.frombuffer(raw, dtype, size, file.tell()).reshape(shape)
    except BadInputError:
        raise
    except Exception:  # NumPy parses the header with `ast` and raises whatever that raises
        raise BadInputError(f"array {quote(name)} is damaged: write it again") from None


def names(arrays: Mapping[str, np.ndarray], key: str) -> list[str]:
    """A list of strings."""
    array = arrays[key]
    if array.dtype.kind != "U" or array.ndim != 1:
        raise BadInputError(f"{key}: must be a list of strings: give an array of dtype str")
    return [text(name, key) for name in _decode(array, key)]


def one_text(arrays: Mapping[str, np.ndarray], key: str) -> str:
    """A single string."""
    if arrays[key].dtype.kind != "U" or arrays[key].size != 1:
        raise BadInputError(f"{key}: must be one string: give an array of dtype str")
    return text(_decode(arrays[key].ravel(), key)[0], key)


def _decode(array: np.ndarray, key: str) -> list[str]:
    try:
        return [str(name) for name in array.tolist()]
    except ValueError:
        raise BadInputError(f"{key}: contains characters that are not Unicode: rename it") from None


def one_number(arrays: Mapping[str, np.ndarray], key: str) -> float:
    """A single number."""
    if arrays[key].size != 1 or arrays[key].dtype.kind not in "iuf":
        raise BadInputError(f"{key}: must be one number, such as np.array(0.99)")
    return float(arrays[key].ravel()[0])


def check_arrays(arrays: Collection[str], required: Collection[str], optional: Collection[str]) -> None:
    """Refuse a file that lacks a required array or contains an unknown one."""
    for name in required:
        if name not in arrays:
            raise BadInputError(f"array {quote(name)} is missing: add it")
    for name in arrays:
        if name not in required and name not in optional:
            raise BadInputError(f"unknown array {quote(name)}: remove it")


def check_names(listed: Iterable[str]) -> None:
    """Refuse names that an array of strings would truncate."""
    for name in listed:
        if name.endswith("\0"):
            raise BadInputError(f"npz drops the NUL at the end of the name {quote(name)}: write JSON")
