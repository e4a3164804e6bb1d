"""Reading and writing small netCDF-4 files quickly.

`xarray.load_dataset` takes a tenth of a second even for a small file, and so does writing one; a figure may need
hundreds of them. Runs hold only arrays of numbers, which h5py reads and writes several times as fast. Reading selected
variables without their dimensions is faster still: a report may summarise thousands of files.

A netCDF-4 file is an HDF5 file whose dimensions are *scales*: arrays that are attached to the arrays along them. For a
dimension with coordinates the scale holds these; any other scale is a placeholder with a name that says so.

HDF5 can do more than runs need: an array may be stored in another file, link to one, or be larger than any memory
without taking a byte on disk. Files may come from others, so anything but a plain array of this file is refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
import xarray as xr

from bellmanifold._util.limits import BYTES
from bellmanifold.errors import BadInputError

NOT_OURS = "holds something other than the arrays of a run: remove it; if it was one, `sweep` makes it again"
BARE = "This is a netCDF dimension but not a netCDF variable"
COMPRESS_ABOVE = 4096
"""Arrays above this number of bytes are compressed; for smaller ones it is not worth the time."""


def write_netcdf(made: xr.Dataset) -> bytes:
    """The bytes of a netCDF-4 file with a data set of numbers, readable by `xarray.load_dataset`."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=("earliest", "v110"), track_order=True) as file:
        for number, (name, size) in enumerate(made.sizes.items()):
            if name in made.variables:
                scale, label = _written(file, str(name), made.variables[name].values), str(name)
            else:
                scale, label = file.create_dataset(str(name), (size,), ">f4", track_order=True), f"{BARE}.{size:10d}"
            scale.make_scale(label)
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
        for name, variable in made.variables.items():
            item = file[name] if name in made.sizes else _written(file, str(name), variable.values)
            for axis, dimension in enumerate(variable.dims if name not in made.sizes else ()):
                item.dims[axis].attach_scale(file[dimension])
        for name, text in made.attrs.items():
            file.attrs[str(name)] = text
    return buffer.getvalue()


def _written(file: Any, name: str, values: np.ndarray) -> Any:
    """Write an array to a file; booleans are stored as int8, and the fill value of floats is NaN."""
    packing = {"compression": "gzip", "compression_opts": 4, "shuffle": True} if values.nbytes > COMPRESS_ABOVE else {}
    if values.dtype == np.bool_:
        item = file.create_dataset(name, data=values.astype(np.int8), track_order=True, **packing)
        item.attrs["dtype"] = "bool"
        return item
    missing = np.nan if values.dtype.kind == "f" else None
    item = file.create_dataset(name, data=values, fillvalue=missing, track_order=True, **packing)
    if missing is not None:
        item.attrs["_FillValue"] = np.full(1, missing, dtype=values.dtype)
    return item


def read_netcdf(content: bytes) -> xr.Dataset:
    """The data set in the bytes of a netCDF-4 file, as `xarray.load_dataset` returns it."""
    with _open(content) as file:
        arrays = {name: _array(file, name) for name in file}
        shown = {k: v for k, v in arrays.items() if not bytes(v.attrs.get("NAME", b"")).startswith(BARE.encode())}
        data = {name: (_dimensions(file, item), _values(item)) for name, item in shown.items()}
        return xr.Dataset(data, attrs=_attributes(file))


def read_variables(content: bytes, names: Iterable[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The named variables, as far as the file has them, and its attributes."""
    with _open(content) as file:
        return {name: _values(_array(file, name)) for name in names if name in file}, _attributes(file)


@contextmanager
def _open(content: bytes) -> Iterator[Any]:
    """The HDF5 file in some bytes; errors of h5py or xarray are reported as a bad file."""
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
    """An array of numbers, if it is stored in this file and small enough to be read."""
    link = file.get(name, getlink=True)
    item = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(item, h5py.Dataset) or item.is_virtual or item.external or item.dtype.kind not in "biuf":
        raise BadInputError(NOT_OURS)
    if item.size is None:
        raise BadInputError(NOT_OURS)
    BYTES.require(item.size * item.dtype.itemsize, "an array")
    return item


def _dimensions(file: Any, item: Any) -> tuple[str, ...]:
    """Names of the dimensions of a variable; a coordinate variable is its own dimension."""
    if "DIMENSION_LIST" in item.attrs:
        return tuple(file[scale[0]].name.removeprefix("/") for scale in item.attrs["DIMENSION_LIST"])
    return (item.name.removeprefix("/"),) if item.ndim else ()


def _values(item: Any) -> Any:
    values = np.asarray(item[()])
    return values.astype(bool) if item.attrs.get("dtype") == "bool" else values
