"""A wheel in an environment of its own: `python tests/fresh_install.py WHEEL ENVIRONMENT`, used by `make test-wheel`.

Creates the environment, installs the wheel with what it requires from PyPI, and runs in an empty directory, where
nothing of the repository can be found, what a newcomer runs: `env export`, `posterior` with a picture, Python with
`import bellmanifold`, `explore`; then `demo`, which names the extra that it needs, and once more with that. Ends with
what the installation without extras takes on the disk.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import venv
import zipfile
from pathlib import Path

DATA = {"format": "bellmanifold.data/1", "observations": [{"state": "0,0", "action": "right"}]}
IN_PYTHON = """
import bellmanifold as bm

model = bm.load_model("problem.json")
summary = bm.posterior(model, bm.load_data("data.json", model))
assert "site-packages" in bm.__file__, bm.__file__
print(summary.to_dict()["actions"]["0,0"])
"""
OF_THE_ENVIRONMENT = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
MUST_HOLD = ("bellmanifold/py.typed", "bellmanifold_paper/py.typed", "/licenses/LICENSE", "/entry_points.txt")
MUST_NOT_HOLD = re.compile(r"(^|/)(tests|docs|examples|__pycache__)/")


def check_contents(wheel: Path) -> None:
    """What has to be in a wheel, and what has not."""
    names = zipfile.ZipFile(wheel).namelist()
    missing = [part for part in MUST_HOLD if not any(name.endswith(part) for name in names)]
    foreign = [name for name in names if MUST_NOT_HOLD.search(name)]
    assert not missing, f"{wheel.name} lacks {missing}"
    assert not foreign, f"{wheel.name} holds {foreign[:3]}"


def install(wheel: Path, environment: Path, extra: str = "") -> None:
    """Install the wheel, with an extra if one is named."""
    pip = [environment / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, f"{wheel}{extra}"], check=True)


def try_out(environment: Path, folder: Path) -> None:
    """The first commands of a newcomer."""
    (folder / "data.json").write_text(json.dumps(DATA))
    run(environment, folder, "bellmanifold", "--version")
    run(environment, folder, "bellmanifold", "env", "export", "env:deep-sea?depth=3", "--out", "problem.json")
    asked = ("posterior", "problem.json", "data.json")
    run(environment, folder, "bellmanifold", *asked, "--picture", "posterior.png")
    assert json.loads(run(environment, folder, "bellmanifold", *asked, "--json"))["actions"]["0,0"]["right"]
    assert (folder / "posterior.png").stat().st_size > 5000
    run(environment, folder, "python", "-c", IN_PYTHON)
    look_at_explorer(environment, folder)
    assert "install bellmanifold[report]" in run(environment, folder, "bellmanifold", "demo", code=3)


def try_demo(environment: Path, folder: Path) -> None:
    """With the extra `report`."""
    run(environment, folder, "bellmanifold", "demo", "--out", "demo")
    assert (folder / "demo" / "report.html").stat().st_size > 1_000_000


def look_at_explorer(environment: Path, folder: Path) -> None:
    """`explore` says where its page is, and the page is there."""
    arguments = ("explore", "problem.json", "data.json", "--no-browser")
    print(f"$ bellmanifold {' '.join(arguments)}", flush=True)
    command = [environment / "bin" / "bellmanifold", *arguments]
    with subprocess.Popen(command, cwd=folder, env=surroundings(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().removeprefix("open ").strip()
            with urllib.request.urlopen(address, timeout=60) as page:
                assert b"<html" in page.read().lower(), address
        finally:
            process.terminate()


def surroundings() -> dict[str, str]:
    """Environment variables without those that tell Python where to find modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(environment: Path, folder: Path, program: str, *arguments: str, code: int = 0) -> str:
    """What a program of the environment prints, on stdout or, where it is to end with another code than 0, in all."""
    print(f"$ {program} {' '.join(arguments)}" if program != "python" else "$ python -c ...", flush=True)
    command = [environment / "bin" / program, *arguments]
    done = subprocess.run(command, cwd=folder, env=surroundings(), capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def sizes(environment: Path) -> dict[str, float]:
    """MiB of each top-level name below `site-packages`, largest first, without what an empty environment has."""
    (place,) = environment.glob("lib/python*/site-packages")
    found = {entry.name: _bytes(entry) / 2**20 for entry in place.iterdir()}
    found = {name: size for name, size in found.items() if not name.startswith(OF_THE_ENVIRONMENT)}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _bytes(entry: Path) -> int:
    files = [entry] if entry.is_file() else [path for path in entry.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


def main(wheel: Path, environment: Path) -> None:
    check_contents(wheel)
    venv.create(environment, clear=True, with_pip=True)
    install(wheel, environment)
    measured = sizes(environment)
    with tempfile.TemporaryDirectory() as folder:
        try_out(environment, Path(folder))
        install(wheel, environment, "[report]")
        try_demo(environment, Path(folder))
    largest = ", ".join(f"{name} {size:.0f}" for name, size in list(measured.items())[:8])
    print(f"{wheel.name}: works; {sum(measured.values()):.0f} MiB installed ({largest})")


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:]))
