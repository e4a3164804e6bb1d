"""File handling shared by all formats: bounded reads, strict JSON, atomic writes."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bellmanifold._util.limits import BYTES, TEXT_SHARE
from bellmanifold.errors import (
    BadInputError,
    BellmanifoldError,
    DiskError,
    first_repeated,
    printable,
    quote,
    require_keys,
)

LONGEST_LABEL = 300
_OWN_PIPE = re.compile(r"/dev/stdin|/(dev|proc/self)/fd/[0-9]+")
_DISK_FAULTS = {errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG}


def label(path: str | os.PathLike[str]) -> str:
    """A path as shown in messages: one printable line, only the end of a very long path."""
    shown = printable(os.fspath(path))
    return shown if len(shown) <= LONGEST_LABEL else "…" + shown[-LONGEST_LABEL:]


@contextmanager
def locate_errors(where: str, kind: type[BellmanifoldError] = BadInputError) -> Iterator[None]:
    """Prefix the messages of errors of type `kind` raised inside with a place (a file or a problem)."""
    try:
        yield
    except kind as error:
        raise kind(f"{where}: {error}") from None


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file; call inside `locate_errors`, which names the file in errors."""
    try:
        _require_file(path)
        with open(path, "rb") as file:
            content = file.read(BYTES.value + 1)
    except BadInputError:
        raise
    except FileNotFoundError:
        raise BadInputError("no such file: check the path") from None
    except IsADirectoryError:
        raise BadInputError("is a directory: give a file") from None
    except PermissionError:
        raise BadInputError("cannot be read: no permission; check who may read it") from None
    except (OSError, ValueError) as error:
        raise BadInputError(f"cannot be read: {reason(error)}") from None
    BYTES.require(len(content), "the file")
    if not content:
        raise BadInputError("the file is empty: write a problem, data or a plan into it")
    return content


def _require_file(path: str | os.PathLike[str]) -> None:
    """Refuse files that may never end or may block the reader (named pipes, devices, sockets) or are too large.

    A pipe that this process was started with (`<(...)` or `|`) is accepted.
    """
    found = os.stat(path)
    mode = found.st_mode
    own = stat.S_ISFIFO(mode) and _OWN_PIPE.fullmatch(os.fspath(path))
    if not own and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
        what = kinds.get(stat.S_IFMT(mode), "a device")
        raise BadInputError(f"is {what}, not a file: write its content to a file and give that")
    if stat.S_ISREG(mode):
        BYTES.require(found.st_size, "the file")


def require_short(content: bytes, remedy: str) -> None:
    """Refuse text that would take too much memory when parsed."""
    if len(content) > BYTES.value // TEXT_SHARE:
        raise BadInputError(
            f"its {len(content):,} bytes of text are above {BYTES.value // TEXT_SHARE:,}: {remedy}, "
            f"or set {BYTES.variable} to {-(-len(content) * TEXT_SHARE // BYTES.each)} or more"
        )


def decoded(content: bytes, remedy: str) -> str:
    """Decode UTF-8 text, with or without a byte order mark."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"not UTF-8 text (byte {error.start}): {remedy}") from None


def parse_json(content: bytes) -> dict[str, Any]:
    """Parse a JSON object strictly: UTF-8, no repeated keys; call inside `locate_errors`.

    NaN and Infinity are accepted here, so that `number` can name the place when it refuses them.
    """
    require_short(content, "write large problems as .npz (`env export`)")
    written = decoded(content, "save it as UTF-8 JSON")
    try:
        value = json.loads(written, object_pairs_hook=_without_repeats, parse_constant=float)
    except json.JSONDecodeError as error:
        raise BadInputError(f"line {error.lineno} column {error.colno}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise BadInputError("not valid JSON here: nested too deeply") from None
    except BadInputError:
        raise
    except ValueError:
        raise BadInputError("a number has too many digits: shorten it") from None
    if not isinstance(value, dict):
        raise BadInputError(f"contains {kind(value)}, not a JSON object: start it with {{")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if (twice := first_repeated([key for key, _ in pairs])) is not None:
        raise BadInputError(f"key {quote(twice)} occurs twice in one object: keep one of them")
    return dict(pairs)


def kind(value: object) -> str:
    """The type of a JSON value, in words."""
    names: list[tuple[Any, str]] = [(type(None), "null"), (bool, "true or false"), ((int, float), "a number")]
    names += [(str, "a string"), (list, "a list"), (dict, "an object")]
    return next(word for types, word in names if isinstance(value, types))


def number(value: object, what: str) -> float:
    """A finite JSON number as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInputError(f"{what} is {kind(value)}: give a number")
    try:
        result = float(value)
    except OverflowError:
        result = float("inf")
    if not math.isfinite(result):
        raise BadInputError(f"{what} is {result}, or too large for a floating-point number: give a finite one")
    return result


def plain_object(value: object, what: str) -> dict[str, Any]:
    """A JSON object that can be written again: without NaN, Infinity or lone surrogates."""
    if not isinstance(value, dict):
        raise BadInputError(f"{what} is {kind(value)}: give an object")
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (ValueError, RecursionError):
        raise BadInputError(f"{what} contains NaN, Infinity or too deep nesting: JSON has no such values") from None
    text(written, what)
    return value


def text(value: object, what: str) -> str:
    """A JSON string that can be encoded as UTF-8."""
    if not isinstance(value, str):
        raise BadInputError(f"{what} is {kind(value)}: give a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise BadInputError(f"{what} contains half of a surrogate pair: give valid Unicode") from None
    return value


def listing(value: object, what: str) -> list[Any]:
    """A JSON list."""
    if not isinstance(value, list):
        raise BadInputError(f"{what} is {kind(value)}: give a list")
    return value


def record(
    value: object,
    what: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
    newer: Sequence[str] = (),
    needs: str = "",
) -> Mapping[str, Any]:
    """A JSON object with all required keys and no unknown ones.

    `newer` keys are optional, too, unless `needs` names a newer format than the file's that they require.
    """
    if not isinstance(value, dict):
        raise BadInputError(f"{what} is {kind(value)}: give an object")
    for key in newer:
        if needs and key in value:
            raise BadInputError(
                f'{what}: unknown key {quote(key)}: write {quote(needs)} under "format", which takes it'
            )
    require_keys(value, what, required, (*optional, *(() if needs else newer)))
    return value


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file beside `path`, sync it and rename it into place; on failure leave nothing.

    After this returns, the file survives a power failure (if the disk honours fsync): its directory is synced, too.
    """
    target = Path(path)
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=temporary_prefix(target.name), dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
        temporary = None
        sync_directory(target.parent)
    except BadInputError as error:
        raise BadInputError(f"{label(path)}: {error}") from None
    except (OSError, ValueError) as error:
        raise unwritten(f"{label(path)}: cannot be written", error, "choose a place you may write to") from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def sync_directory(directory: Path) -> None:
    """Make sure that files just renamed into a directory survive a power failure."""
    try:
        handle = os.open(directory, os.O_RDONLY)
    except OSError:  # write permission without read permission
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in _DISK_FAULTS:  # some file systems cannot sync directories
            raise
    finally:
        os.close(handle)


def unwritten(what: str, error: Exception, remedy: str) -> BellmanifoldError:
    """The error to raise if something could not be written: a full or broken disk, or a badly chosen path."""
    if not isinstance(error, OSError) or error.errno not in _DISK_FAULTS:
        return BadInputError(f"{what}: {reason(error)}: {remedy}")
    cure = "check the disk" if error.errno == errno.EIO else "make room"
    return DiskError(f"{what}: {reason(error)}: {cure} and run the same command again")


def temporary_prefix(name: str) -> str:
    """Prefix of the temporary file that `write_atomically` uses for a file of this name."""
    return f".{name[:40]}."


def reason(error: Exception) -> str:
    """The operating system's description of an error, in lower case."""
    return (getattr(error, "strerror", None) or str(error)).lower()
