"""Reading small netCDF-4 files quickly.

`xarray.load_dataset` takes a tenth of a second even for a small file, and a figure may need hundreds of them. All that
runs hold are arrays of numbers, which h5py reads several times as fast; a file with anything else is left to xarray.
Some variables without their dimensions are read faster still: a report may sum up thousands of files.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import h5py
import numpy as np
import xarray as xr


def read_netcdf(content: bytes) -> xr.Dataset:
    """The data set in the bytes of a netCDF-4 file, as `xarray.load_dataset` reads it."""
    with h5py.File(h5py.h5f.open_file_image(content)) as file:
        found = {name: item for name, item in file.items() if not _is_bare_dimension(item)}
        if all(item.dtype.kind in "biuf" for item in found.values()):
            data = {name: (_dimensions(file, item), _values(item)) for name, item in found.items()}
            return xr.Dataset(data, attrs={name: text for name, text in file.attrs.items() if name != "_NCProperties"})
    return xr.load_dataset(io.BytesIO(content), engine="h5netcdf")


def read_variables(content: bytes, names: Iterable[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Those of the named variables that the file has, and its attributes."""
    with h5py.File(h5py.h5f.open_file_image(content)) as file:
        attributes = {name: str(value) for name, value in file.attrs.items() if name != "_NCProperties"}
        return {name: _values(file[name]) for name in names if name in file}, attributes


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
