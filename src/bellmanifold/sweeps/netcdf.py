"""Reading small netCDF-4 files quickly.

`xarray.load_dataset` takes a tenth of a second even for a small file, and a figure may need hundreds of them. All that
runs hold are arrays of numbers, which h5py reads several times as fast. Some variables without their dimensions are
read faster still: a report may sum up thousands of files.

HDF5 can do more than runs need: an array may lie in another file, link to one, or be larger than any memory without
taking a byte on disk. Files come from others, so whatever is not a plain array of this file is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
import xarray as xr

from bellmanifold.errors import BadInputError
from bellmanifold.limits import BYTES

NOT_OURS = "holds something else than the arrays of a run: remove it; if it was one, `sweep` makes it again"


def read_netcdf(content: bytes) -> xr.Dataset:
    """The data set in the bytes of a netCDF-4 file, as `xarray.load_dataset` reads it."""
    with _opened(content) as file:
        names = [name for name in file if not _is_bare_dimension(_array(file, name))]
        data = {name: (_dimensions(file, file[name]), _values(file[name])) for name in names}
        return xr.Dataset(data, attrs=_attributes(file))


def read_variables(content: bytes, names: Iterable[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Those of the named variables that the file has, and its attributes."""
    with _opened(content) as file:
        return {name: _values(_array(file, name)) for name in names if name in file}, _attributes(file)


@contextmanager
def _opened(content: bytes) -> Iterator[Any]:
    """The file in some bytes; whatever h5py or xarray cannot make of it is the file's fault."""
    try:
        with h5py.File(h5py.h5f.open_file_image(content)) as file:
            yield file
    except BadInputError:
        raise
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, IndexError, OverflowError):
        raise BadInputError(NOT_OURS) from None


def _attributes(file: Any) -> dict[str, str]:
    return {name: str(value) for name, value in file.attrs.items() if name != "_NCProperties"}


def _array(file: Any, name: str) -> Any:
    """An array of numbers of this very file, small enough to be read."""
    link = file.get(name, getlink=True)
    item = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external or item.dtype.kind not in "biuf":
        raise BadInputError(NOT_OURS)
    if item.size is None or item.size * item.dtype.itemsize > BYTES.value:
        raise BadInputError(
            f"an array is larger than {BYTES.value} bytes: set {BYTES.variable} to read it all the same"
        )
    return item


def _is_bare_dimension(item: Any) -> bool:
    """Is it there only to say how long a dimension is?"""
    return bytes(item.attrs.get("NAME", b"")).startswith(b"This is a netCDF dimension but not a netCDF variable")


def _dimensions(file: Any, item: Any) -> tuple[str, ...]:
    """Names of the dimensions of a variable; those that are variables too have only themselves."""
    if "DIMENSION_LIST" in item.attrs:
        return tuple(file[scale[0]].name.removeprefix("/") for scale in item.attrs["DIMENSION_LIST"])
    return (item.name.removeprefix("/"),) if item.ndim else ()


def _values(item: Any) -> Any:
    values = item[()]
    return values.astype(bool) if item.attrs.get("dtype") == "bool" else values
