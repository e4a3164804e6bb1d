"""The newest Python for which everything can be installed: `python tests/newest_python.py`, used by `make test-newest`.

Its path is printed, and a line for people on stderr. Interpreters are looked for on the PATH and among those of pyenv.
Prereleases are passed over, and so is a release for which some requirement has no wheel yet: pip resolves them all,
without installing anything, unless that Python has an environment already.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
OLDEST = 11
"""Python 3.11 is the oldest that the package supports."""
TELL = "import sys; print(*sys.version_info[:3], sys.version_info.releaselevel)"


def environment_of(python):
    """Where `make test-newest` installs what the tests need."""
    return ROOT / f".venv-newest-{python.name}"


def interpreters(places):
    """Released Pythons in some folders, newest first: version and path, those of earlier folders first."""
    found = {}
    for path in (path for place in places if place.is_dir() for path in sorted(place.iterdir())):
        minor = re.fullmatch(r"python3\.(\d+)", path.name)
        if minor and int(minor[1]) >= OLDEST and os.access(path, os.X_OK):
            told = subprocess.run([path, "-c", TELL], capture_output=True, text=True, check=False)
            *version, level = told.stdout.split() or ["none"]
            if told.returncode == 0 and level == "final":
                found.setdefault(tuple(map(int, version)), path)
    return sorted(found.items(), reverse=True)


def missing(python):
    """What pip says if some requirement has no wheel for this Python; nothing otherwise."""
    if (environment_of(python) / ".installed").exists():
        return ""
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--break-system-packages", "--only-binary=:all:", "--editable", f"{ROOT}[dev]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.splitlines() or ["pip failed"])[-1]


def newest(found, missing=missing):
    """Version and path of the first one that will do."""
    for version, path in found:
        reason = missing(path)
        if not reason:
            return version, path
        print(f"Python {dotted(version)} ({path}) is passed over: {reason}", file=sys.stderr)
    raise SystemExit(f"no Python, 3.{OLDEST} or later, for which everything can be installed: put one on the PATH")


def dotted(version):
    return ".".join(map(str, version))


def places():
    """Folders of programs: those of the PATH, then those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return [*map(Path, os.get_exec_path()), *sorted(pyenv.glob("versions/*/bin"))]


if __name__ == "__main__":
    version, path = newest(interpreters(places()))
    print(f"newest Python here: {dotted(version)} ({path})", file=sys.stderr)
    print(path)
