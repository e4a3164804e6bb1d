"""The file of a run: its name, its seal, writing and reading.

A file is netCDF-4 (HDF5), which any netCDF reader opens, followed by one line, its seal: identifiers of the run and the
problem, and the SHA-256 of all this. HDF5 readers stop at the length stated in the header and never see that line.
`decode` checks it before HDF5 reads a single byte, so a truncated file or a flipped bit is detected, whatever the
damage would do to a parser; and going on with stored runs does not require parsing them.

A file's name depends only on the run's settings: a readable part and 16 digits of `RunSettings.identity`. Files are
written under a temporary name, synced and renamed, so a file that exists under its final name is complete, and if two
programs write the same run at once, one of two complete files remains.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bellmanifold.errors import BadInputError, DiskError
from bellmanifold.io.files import label, locate_errors, read_bytes, sync_directory, unwritten, write_atomically
from bellmanifold.learning.netcdf import read_netcdf, read_variables, write_netcdf
from bellmanifold.learning.record import FORMAT, read_settings
from bellmanifold.learning.run_settings import RunSettings

MARK = "bellmanifold.sha256"


SEAL_BYTES = len(MARK) + 3 * 65 + 2


def file_name(settings: RunSettings) -> str:
    """The name of a run's file, relative to the output directory.

    >>> file_name(RunSettings("env:deep-sea?depth=5", "q-learning", None, None, 100, 3))
    'env-deep-sea-depth-5_q-learning_3_ae1d0fc73ff39d12.nc'
    """
    readable = re.sub("[^a-z0-9]+", "-", settings.model.lower()).strip("-")[-60:]
    return f"{readable}_{settings.agent}_{settings.seed}_{settings.identity[:16]}.nc"


def seal(content: bytes, identity: str, model_digest: str) -> bytes:
    """The last line of a file, in 64 hexadecimal digits each: the identity of the run's settings, the digest of the
    problem, and the SHA-256 of the bytes before this line followed by these two."""
    about = f"{identity} {model_digest}"
    return f"\n{MARK} {about} {sha256(content + f' {about}'.encode()).hexdigest()}\n".encode()


def encode(made: xr.Dataset) -> bytes:
    """The bytes of the file of a record."""
    content = write_netcdf(made)
    return content + seal(content, made.attrs["identity"], made.attrs["model_digest"])


def decode(content: bytes) -> xr.Dataset:
    """The record in the bytes of a file; raises if they are damaged. Call inside `locate_errors`."""
    verify(content)
    found = read_netcdf(content)
    require_format(found.attrs)
    return found


def require_format(attributes: Mapping[str, Any]) -> None:
    """Raise if the attributes are those of another kind of file."""
    if attributes.get("format") != FORMAT:
        raise BadInputError(f"not a result of the format {FORMAT}: made by another version; run it again")


def verify(content: bytes) -> tuple[str, str]:
    """The identity and model digest in the seal of a result file; raises if it is damaged, without parsing HDF5."""
    body, line = content[:-SEAL_BYTES], content[-SEAL_BYTES:]
    words = line.decode("ascii", "replace").split()
    if len(words) == 4 and seal(body, words[1], words[2]) == line:
        return words[1], words[2]
    raise BadInputError(
        "damaged, or not a result of this program: remove it; if it was one, `sweep` with the same --out makes it again"
    )


def load_run(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read and verify a result file."""
    with locate_errors(label(path)):
        return decode(read_bytes(path))


def read_arrays(path: str | os.PathLike[str], names: Iterable[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The named variables, as far as a verified result file has them, and its attributes."""
    with locate_errors(label(path)):
        content = read_bytes(path)
        verify(content)
        found, attributes = read_variables(content, names)
        require_format(attributes)
        return found, attributes


def load_runs(directory: str | os.PathLike[str]) -> Iterator[tuple[RunSettings, xr.Dataset]]:
    """Read and verify all results in a directory, in the order of their names."""
    root = Path(directory)
    if not root.is_dir():
        raise BadInputError(f"{label(root)}: no such directory: give the --out of a sweep")
    for path in sorted(root.glob("*.nc")):
        found = load_run(path)
        with locate_errors(label(path)):
            settings = read_settings(found.attrs)
        yield settings, found


def make_directory(root: Path) -> None:
    """Create a directory for run files if necessary; raise if it is not accessible."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        sync_directory(root.parent)
    except (OSError, ValueError) as error:
        raise unwritten(f"{label(root)}: cannot be made", error, "choose another --out") from None
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        raise BadInputError(f"{label(root)}: cannot be written to: choose another --out, or allow writing")


def fault_of(path: Path, settings: RunSettings, model_digest: str) -> str | None:
    """Why a run must be played (again): "missing", or what is wrong with its file; None if the file is good."""
    if not path.exists():
        return "missing"
    try:
        with locate_errors(label(path)):
            identity, made_from = verify(read_bytes(path))
    except BadInputError as error:
        return str(error)
    if identity != settings.identity:
        return f"{label(path)}: holds another run"
    if made_from != model_digest:
        return other_version(path, settings)
    return None


def other_version(path: Path, settings: RunSettings) -> str:
    """What is wrong with the file of a run that was played on another problem of the same name."""
    return f"{label(path)}: was made from another version of {settings.model}"


def write_run(path: Path, content: bytes) -> None:
    """Write a run's file atomically."""
    try:
        write_atomically(path, lambda file: file.write(content))
    except DiskError as error:
        raise DiskError(f"{error}, finished runs are kept") from None
